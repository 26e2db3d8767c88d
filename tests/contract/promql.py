"""The names and labels that a PromQL query uses: enough of the language to find them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_TOKEN = re.compile(
    r"""\s+|(?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    |(?P<name>\$?[A-Za-z_][A-Za-z0-9_:]*)|(?P<number>\d+(?:\.\d+)?(?:[smhdwy])?|\.\d+)
    |(?P<mark>=~|!~|!=|==|<=|>=|[-+*/%^<>=(){}\[\],])""",
    re.VERBOSE,
)
_KEYWORDS = {"by", "without", "on", "ignoring", "group_left", "group_right"}
_OPERATORS = {"and", "or", "unless", "bool", "offset"}


class Selector(NamedTuple):
    """A metric with the labels that its matchers name."""

    name: str
    labels: dict[str, str]
    """By name: the operator and the value, as written."""


class Query(NamedTuple):
    selectors: list[Selector]
    grouped: set[str]
    """Labels after ``by`` and the like."""


def tokens(query: str) -> Iterator[tuple[str, str]]:
    at = 0
    while at < len(query):
        found = _TOKEN.match(query, at)
        if found is None:
            raise ValueError(f"no PromQL at {query[at : at + 20]!r} in {query!r}")
        at = found.end()
        if found.lastgroup is not None:
            yield found.lastgroup, found[0]


def parse(query: str) -> Query:
    """Find the selectors of a query.

    Raises:
        ValueError: its brackets do not match, or it has other tokens than PromQL.
    """
    found = list(tokens(query))
    _check_brackets(query, [text for kind, text in found if kind == "mark"])
    selectors: list[Selector] = []
    grouped: set[str] = set()
    at = 0
    while at < len(found):
        kind, text = found[at]
        following = found[at + 1][1] if at + 1 < len(found) else ""
        at += 1
        if text == "[":
            at = _after(found, at, "]")
        elif kind != "name" or text in _OPERATORS:
            continue
        elif text in _KEYWORDS:
            end = _after(found, at, ")")
            grouped |= {name for kind, name in found[at:end] if kind == "name"}
            at = end
        elif following == "{":
            end = _after(found, at, "}")
            selectors.append(Selector(text, _matchers(query, found[at + 1 : end - 1])))
            at = end
        elif following != "(" and following not in _KEYWORDS:
            selectors.append(Selector(text, {}))
    return Query(selectors, grouped)


def _after(found: list[tuple[str, str]], at: int, bracket: str) -> int:
    return next(n for n in range(at, len(found)) if found[n][1] == bracket) + 1


def _matchers(query: str, found: list[tuple[str, str]]) -> dict[str, str]:
    labels = {}
    for at in range(0, len(found), 4):
        kinds = [kind for kind, _ in found[at : at + 3]]
        if kinds != ["name", "mark", "string"]:
            raise ValueError(f"no matcher at {found[at:]} in {query!r}")
        labels[found[at][1]] = found[at + 1][1] + found[at + 2][1]
    return labels


def _check_brackets(query: str, marks: list[str]) -> None:
    open_: list[str] = []
    pairs = {")": "(", "]": "[", "}": "{"}
    for mark in marks:
        if mark in pairs.values():
            open_.append(mark)
        elif mark in pairs and (not open_ or open_.pop() != pairs[mark]):
            raise ValueError(f"brackets do not match in {query!r}")
    if open_:
        raise ValueError(f"brackets do not match in {query!r}")
