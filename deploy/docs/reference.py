"""Reference pages, from the tables that the service itself works by.

Routes are those of the OpenAPI document, problems those of ``app.errors``, settings those of
``Settings`` with their docstrings, stages those that ``/v1/stages`` describes.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import app.client as thalweg
from app.client.command.main import build_parser as build_client_parser
from app.command.parser import build_parser
from app.errors import KINDS
from app.main import create_app
from app.settings import Settings
from core.losses.reports import REPORTS
from core.pipelines.reference import reference

from . import portfolios

_WIDTH = "96"
"""Characters of a line of help."""
_PRODUCTS = ("losses", "runs", "datasets", "inputs", "tokens")
"""Attributes of the client that are classes without a public name."""


def write(target: Path) -> None:
    """Write all these pages into a folder."""
    pages = {
        "routes": routes(),
        "problems": problems(),
        "settings": settings(),
        "stages": stages(),
        "reports": reports(),
        "portfolios": portfolios.page(_table),
        "commands": commands(),
        "python": python(),
    }
    target.mkdir(parents=True, exist_ok=True)
    for name, lines in pages.items():
        target.joinpath(f"{name}.md").write_text("\n".join(lines) + "\n")


def _cell(text: object) -> str:
    return " ".join(str(text).split()).replace("|", r"\|").replace("``", "`")


def _table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    yield from ("", f"| {' | '.join(heads)} |", "|---" * len(heads) + "|")
    for row in rows:
        yield f"| {' | '.join(map(_cell, row))} |"
    yield ""


def _json(value: object) -> Iterator[str]:
    yield from ("```json", json.dumps(value, ensure_ascii=False), "```", "")


def routes() -> Iterator[str]:
    """Yield the page of routes."""
    document = create_app(Settings(ephemeral=True)).openapi()
    yield from ("# Routes", "", document["info"]["description"], "")
    yield "The same as a program reads it is at `/openapi.json`, and `/docs` sends requests."
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            yield from ("", f"## {method.upper()} {path.replace('{', chr(92) + '{')}", "")
            yield operation.get("description", operation.get("summary", ""))
            yield from _parameters(operation.get("parameters", ()))
            for media, body in operation.get("requestBody", {}).get("content", {}).items():
                yield from ("", f"Body: `{media}`", "")
                if "example" in body:
                    yield from _json(body["example"])
            answers = operation["responses"].items()
            yield from ("", "Answers: " + ", ".join(f"{s} {a['description']}" for s, a in answers))


def _parameters(parameters: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    rows = [
        (f"`{each['name']}`", each["in"], _choices(each["schema"]), each.get("description", ""))
        for each in parameters
    ]
    if rows:
        yield from _table(("name", "in", "values", ""), rows)


def _choices(schema: Mapping[str, Any]) -> str:
    kinds = [schema, *schema.get("anyOf", ())]
    found = [value for kind in kinds for value in kind.get("enum", ())]
    names = [str(kind["type"]) for kind in kinds if kind.get("type", "null") != "null"]
    default = schema.get("default")
    text = ", ".join(f"`{value}`" for value in found) or " or ".join(names)
    return text if default in {None, ""} else f"{text}; default `{default}`"


def problems() -> Iterator[str]:
    """Yield the page of problems."""
    yield from ("# Problems", "", "Every error is an answer of `application/problem+json`, whose")
    yield "member `code` is one of these; [the contract](contract.md#problems) has the others."
    for code, kind in sorted(KINDS.items()):
        text = " ".join(kind.explanation.split()).replace("``", "`")
        yield from ("", f"## {code}", "", f"Status {kind.status}: {kind.title}. {text}")


def settings() -> Iterator[str]:
    """Yield the page of settings."""
    yield from ("# Settings", "", "Variables of the environment; many are flags of `serve` too.")
    yield "[Deployment](../operation/deployment.md) explains them by purpose."
    texts = dict(_docstrings(Settings))
    rows = (
        (f"`THALWEG_{name.upper()}`", _default(field), texts.get(name, ""))
        for name, field in Settings.model_fields.items()
    )
    yield from _table(("setting", "default", ""), rows)


def _docstrings(model: type) -> Iterator[tuple[str, str]]:
    """Yield the name and the docstring of each attribute that has one."""
    (body,) = ast.parse(inspect.getsource(model)).body
    assert isinstance(body, ast.ClassDef)  # noqa: S101 - a class is one
    for field, text in zip(body.body, body.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            match text:
                case ast.Expr(ast.Constant(str(value))):
                    yield field.target.id, value


def _default(field: Any) -> str:  # noqa: ANN401 - of pydantic
    if field.default_factory is not None:
        return "computed"
    return "" if field.default in {None, "", ()} else f"`{field.default}`"


def stages() -> Iterator[str]:
    """Yield the page of stages and functions."""
    known = reference()
    yield from ("# Stages of pipelines", "", known["order"]["about"], "")
    yield from _json(known["order"]["example"])
    for name, stage in known["stages"].items():
        yield from (f"## {name}", "", stage["about"])
        yield from _table(("option", ""), [(f"`{k}`", v) for k, v in stage["options"].items()])
        yield from _json(stage["example"])
    for kind in ("map", "filter", "scan"):
        yield from (f"## Functions of {kind}", "")
        for name, function in known[kind].items():
            yield from (f"### {kind} {name}", "", function["about"])
            arguments = [(f"`{k}`", v) for k, v in function["args"].items()]
            yield from _table(("argument", ""), arguments)
            chosen = {"pred" if kind == "filter" else "fn": name, "args": function["example"]}
            yield from _json(known["stages"][kind]["example"] | chosen)


def reports() -> Iterator[str]:
    """Yield the page of reports."""
    yield from ("# Reports", "", "Columns in the order of csv and of packed records. A type `loss`")
    yield "is a floating number of the width of the stream, 4 bytes or 8."
    for report in REPORTS.values():
        yield from ("", f"## {report.name}", "", f"{report.title}.")
        for noun, inputs in (("Needs", report.needs), ("Takes", report.takes)):
            if inputs:
                yield from ("", f"{noun}: " + ", ".join(f"`{i.name}` ({i.noun})" for i in inputs))
        columns = (
            (f"`{c.name}`", c.type, "" if c.decimals is None else c.decimals, c.description)
            for c in report.columns
        )
        yield from _table(("column", "type", "decimals", ""), columns)


def commands() -> Iterator[str]:
    """Yield the page of commands."""
    os.environ["COLUMNS"] = _WIDTH
    yield from ("# Commands", "", "What `--help` prints of each.")
    for parser in (build_parser(), build_client_parser()):
        for each in _parsers(parser):
            level = "##" if each is parser else "###"
            yield from ("", f"{level} {each.prog}", "", "```text", each.format_help(), "```")


def _parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for action in parser._actions:  # noqa: SLF001 - argparse lists commands nowhere else
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - as above
            for each in dict.fromkeys(action.choices.values()):
                yield from _parsers(each)


def python() -> Iterator[str]:
    """Yield the page of the Python client: its public names."""
    yield from ("# Python client", "", "The public names of the package `thalweg`.")
    yield "[The guide](../guides/client.md) shows them at work; `AsyncClient` and all that begins"
    yield "with `Async` have the same methods for asyncio."
    client = thalweg.Client("http://127.0.0.1")
    classes = {f"client.{name}": type(getattr(client, name)) for name in _PRODUCTS}
    public = {n: getattr(thalweg, n) for n in thalweg.__all__ if not n.startswith(("Async", "__"))}
    first = {"Client": public.pop("Client")}
    for name, kind in (first | classes | public).items():
        yield from ("", f"## {name}", "", "```{eval-rst}")
        yield f".. autoclass:: {kind.__module__}.{kind.__qualname__}"
        yield from (
            "   :members:",
            "   :inherited-members: Exception, dict, tuple, int, str",
            "```",
        )
