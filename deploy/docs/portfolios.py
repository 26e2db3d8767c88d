"""The reference page of portfolios, from what the service itself works by.

Members are those of the models of requests, columns those of the reports, and terms those of
``core.portfolio.programme``, whose docstring says what they are.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from app.portfolio import query
from app.portfolio.exchanging import ImportOptions
from app.portfolio.layering import LAYERS, RECOVERIES
from core.losses.reports import Report
from core.portfolio import programme
from core.portfolio.contributions import CONTRIBUTIONS, KEYS
from core.portfolio.curves import PLT
from core.portfolio.uncertainty import BANDS

Tables = Callable[[Sequence[str], Iterable[Sequence[object]]], Iterator[str]]
_ANSWERS = {
    "averages": "[`aal`](reports.md#aal)",
    "curves": "[`ept`](reports.md#ept), and [`psept`](reports.md#psept) with curves of W and w",
    "periods": "`plt`",
    "layers": "`layers`",
    "recoveries": "`recoveries`",
    "contributions": "`contributions`, `keys`",
    "uncertainty": "`bands`",
    "summary": "`aal`, `ept`; with a programme `layers`",
}
_REPORTS = (PLT, LAYERS, RECOVERIES, CONTRIBUTIONS, KEYS, BANDS)
_NET = """
*Net* losses are the gross ones less what the placed shares recover. Premiums, also those of
reinstatements, are no losses: they are columns of their own, and net losses do not count them.

A group has a label, by which `Scope` names it: its value or, of several dimensions,
the values in the order of `group_by` with ` / ` between them, such as `North / home`."""
_TERMS = """
A programme is `{"layers": [{…}, …]}`. Amounts are those of the whole layer (100 %), in the
currency of the losses. Null is a field that is left out."""
_BOUNDS = {
    "minimum": "from",
    "exclusiveMinimum": "above",
    "maximum": "to",
    "exclusiveMaximum": "below",
}
_TEXT = re.compile(r"^(\S.*?)  +(\S.*(?:\n {30,}\S.*)*)$", re.MULTILINE)


def page(table: Tables) -> Iterator[str]:
    """Yield the lines of the page.

    Args:
        table: makes lines of heads and rows.
    """
    yield from ("# Portfolios", "", "[The contract](contract.md#portfolios) explains these, and")
    yield from ("[a tutorial](../tutorials/portfolio.md) shows them at work.", "")
    yield from ("## A question", "", "The body of `POST /v1/portfolios/query`.")
    yield from table(("member", "values", "of the reports", ""), _members(query.Query, query.USES))
    for title, model in (("A loss set", query.SetPart), ("The filter", query.Filter)):
        yield f"### {title}"
        yield from table(("member", "values", ""), _members(model))
    yield from ("## A table of losses", "", "Options of `PUT /v1/portfolios/loss-sets/{name}`;")
    yield "[tables of others](../explanation/imports.md) has the columns of each form."
    yield from table(("option", "values", ""), _members(ImportOptions))
    yield from ("## Answers", "", "In Python and in JSON, an answer has tables by these names.")
    yield from table(("report", "tables"), [(f"`{n}`", text) for n, text in _ANSWERS.items()])
    yield "`SummaryId` is the number of a group, whose dimensions follow as columns; the name of a"
    yield "layer does so, too. In JSON null is what is not determined, in csv `nan`. A type"
    yield "`loss` has 4 bytes or 8, as the sets or `float_width` say."
    for report in _REPORTS:
        yield from ("", f"### {report.name}", "", f"{report.title}.")
        yield from table(("column", "type", ""), _columns(report))
    yield from (_NET, "", "## Programmes", _TERMS)
    yield from table(("field", "value", "default", "of", ""), _fields())
    yield from table(("type", "", "needs one of", "takes"), _kinds())
    yield "Fields of OED that are refused:"
    yield from table(("field", ""), [(f"`{n}`", text) for n, text in programme.REFUSED.items()])


def _members(
    model: type[BaseModel], uses: Mapping[str, Sequence[str]] | None = None
) -> Iterator[Sequence[str]]:
    for name, schema in model.model_json_schema()["properties"].items():
        of = [] if uses is None else [", ".join(uses.get(name, ())) or "all"]
        yield f"`{name}`", _values(schema), *of, schema.get("description", "")


def _values(schema: Mapping[str, Any]) -> str:
    """Return the type or the choices of a member, its bounds and its default."""
    kinds = [each for each in (schema, *schema.get("anyOf", ())) if each.get("type") != "null"]
    found = [each.get("enum", [each["const"]] if "const" in each else []) for each in kinds]
    choices = [f"`{value}`" for values in found for value in values]
    types = [str(each["type"]) for each in kinds if "type" in each] or ["object"]
    text = ", ".join(choices) or " or ".join(dict.fromkeys(types))
    for word, end in _BOUNDS.items():
        bounds = [each[word] for each in kinds if word in each]
        text += f" {end} {bounds[0]}" if bounds and not text.startswith("`") else ""
    default = schema.get("default")
    return text if default in (None, "", [], {}) else f"{text}; default `{default}`"


def _columns(report: Report) -> Iterator[Sequence[str]]:
    for column in report.columns:
        yield f"`{column.name}`", column.type, column.description


def texts() -> Mapping[str, str]:
    """Return what the docstring of programmes says of each field."""
    document = inspect.getdoc(programme) or ""
    found = {}
    for names, text in _TEXT.findall(document.split("====\n")[1]):
        for name in names.split(", "):
            found[name] = " ".join(text.split()).replace("``", "`")
    return found


def _fields() -> Iterator[Sequence[str]]:
    known = texts()
    for name in programme.FIELDS:
        types = [kind for kind, row in programme.KINDS.items() if name in row.fields]
        yield f"`{name}`", _unit(name), _default(name), ", ".join(types) or "all", known[name]


def _unit(name: str) -> str:
    if name in {"CededPercent", "PlacedPercent", "TreatyShare"}:
        return "proportion, 0 to 1"
    if name in programme.TERMS or name == "ReinsPremium":
        return "amount"
    if name in {"ReinsNumber", "InuringPriority", "Reinstatement"}:
        return "whole number"
    return {
        "ReinstatementCharge": "proportion of the premium; several in a list or with `;`",
        "Scope": "list of labels",
        "HoursClause": "object; `Hours` are hours",
    }.get(name, "text")


def _default(name: str) -> str:
    value = 1 if name in {"InuringPriority", "TreatyShare"} else programme.TERMS.get(name)
    return "" if value is None else "no limit" if value == math.inf else f"{value:g}"


def _kinds() -> Iterator[Sequence[str]]:
    for name, row in programme.KINDS.items():
        needs = row.needs.split()
        others = [field for field in dict.fromkeys(row.fields) if field not in needs]
        yield f"`{name}`", row.title, ", ".join(needs), ", ".join(others)
