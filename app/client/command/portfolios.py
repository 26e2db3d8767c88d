"""The commands ``thalweg portfolio …``: loss sets, and questions about them."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..client import Client
from ..portfolios.requests import FORMATS, LossSet
from .arguments import add_options, given, names, new_command, new_group, numbers, ranges, spec_of
from .console import print_json, say, saying_warnings
from .targets import add_force, writing

_REPORTS = (
    *("averages", "curves", "periods", "layers", "recoveries"),
    *("contributions", "uncertainty", "summary"),
)
_TABLES = ("splt", "selt", "ylt", "openquake", "climada", "elt")
_EXPORTS = ("selt", "splt", "ylt", "openquake", "climada", "elt", "occurrence", "blocks")

_CREATE: dict[str, dict[str, Any]] = {
    "name": {"help": "id of the set (default: chosen by the service)"},
    "currency": {"metavar": "CODE", "help": "of its losses, such as EUR"},
    "perspective": {"choices": ("gul", "il", "ri", "rl"), "help": "default: that of the run"},
    "summary_set": {"type": int, "metavar": "N", "help": "of the xref, if there are several"},
    "summary_info": {
        "type": Path,
        "metavar": "FILE",
        "help": "what the summaries are: its columns are dimensions to filter and group by",
    },
}
_IMPORT: dict[str, dict[str, Any]] = {
    "occurrence": {"type": Path, "metavar": "FILE", "help": "of selt: when events happen"},
    "periods": {"type": Path, "metavar": "FILE", "help": "weights (default: equal)"},
    "summary_info": {"type": Path, "metavar": "FILE", "help": "what its summaries are"},
    "no_of_periods": {"type": int, "metavar": "N", "help": "those without a loss included"},
    "samples": {"type": int, "metavar": "N", "help": "default: the largest; of an elt by rows"},
    "currency": _CREATE["currency"],
    "perspective": {**_CREATE["perspective"], "help": "of its losses"},
    "seed": {"type": int, "metavar": "N", "help": "of an elt, whose losses are simulated"},
    "frequency": {"choices": ("poisson", "negative-binomial"), "help": "of the events of an elt"},
    "dispersion": {"type": float, "metavar": "X", "help": "variance over mean of that number"},
    "apart": {"action": "store_true", "help": "make each occurrence an event of its own"},
    "repeated": {"action": "store_true", "help": "take an event that is there twice as two"},
}
_WEIGHTED = re.compile(r"[0-9.]+(e[-+]?[0-9]+)?", re.IGNORECASE | re.ASCII)
"""A weight or a rate: float() would take 1_0, and inf, too."""


def _years(text: str) -> list[int]:
    """Return periods, such as 250,100.

    Raises:
        argparse.ArgumentTypeError: one is no whole number of years, from 1 on.
    """
    try:
        years = numbers(text)
    except argparse.ArgumentTypeError:
        years = [0]
    if min(years) < 1:
        fault = f"{text!r} are no return periods: whole years from 1 on, such as 250,100,50"
        raise argparse.ArgumentTypeError(fault)
    return years


_PRICE: dict[str, dict[str, Any]] = {
    "group_by": {"type": names, "metavar": "LIST", "help": "dimensions, or SummaryId"},
    "currency": {"metavar": "CODE", "help": "of the answer"},
    "insured_value": {"metavar": "NAME", "help": "dimension with insured values of risks"},
}
_QUERY: dict[str, dict[str, Any]] = {
    **_PRICE,
    "return_periods": {"type": _years, "metavar": "LIST", "help": "such as 250,100,50"},
    "table": {"metavar": "NAME", "help": "the one to write of several, such as ept, or keys"},
    "curves": {"metavar": "LETTERS", "help": "of ept and psept (default FfSsMm)"},
    "of": {"choices": ("gross", "net", "ceded"), "help": "losses to report (default gross)"},
    "tvar": {
        "choices": ("count", "weight"),
        "help": "mean of TVaR (default weight where periods have weights, else count)",
    },
    "seed": {"type": int, "metavar": "N", "help": "of resampled periods"},
    "confidence": {"type": float, "metavar": "X", "help": "of bands (default 0.95)"},
    "tolerance": {"type": float, "metavar": "X", "help": "for the samples needed (default 0.05)"},
    "band": {"type": float, "metavar": "X", "help": "of VaR parts, as a share of the tail"},
    "leave_one_out": {"action": "store_const", "const": True, "help": "and without each group"},
}


def add_commands(commands: Any) -> None:  # noqa: ANN401 - argparse has no public type for it
    """Add the commands to a command line."""
    about = "loss sets of runs: roll-ups, curves and layers of any group, without another run"
    group = new_group(commands, "portfolio", about)
    create = new_command(group, "create", _create, "make a loss set of a sealed run")
    create.add_argument("id", metavar="RUN", help="id of the run, as thalweg run list prints it")
    add_options(create, _CREATE)
    table = new_command(group, "import", _import, "make a loss set of a table of losses")
    table.add_argument("table", type=Path, metavar="FILE", help="in csv, parquet or Arrow")
    table.add_argument("--name", required=True, help="id of the set")
    table.add_argument("--form", required=True, choices=_TABLES, help="what its rows are")
    add_options(table, _IMPORT)
    export = new_command(group, "export", _export, "write a loss set as a table")
    export.add_argument("id", metavar="SET", help="as create and list print it")
    export.add_argument("--form", choices=_EXPORTS, default="selt", help="default selt")
    export.add_argument(
        "--sample", type=int, metavar="N", help="of openquake and climada; 0 is the numerical mean"
    )
    about = "default: that of -o; an occurrence is csv or bin, blocks are arrow"
    export.add_argument("--format", choices=FORMATS[1:6], help=about)
    export.add_argument("-o", "--out", type=Path, metavar="FILE", required=True, help="the file")
    add_force(export)
    new_command(group, "list", _list, "print your loss sets")
    for name, run, text in (
        ("show", _show, "print the description of a loss set"),
        ("delete", _delete, "delete a loss set; its run stays"),
    ):
        command = new_command(group, name, run, text)
        command.add_argument("id", metavar="SET", help="as create and list print it")
    query = new_command(group, "query", _query, "answer a question about loss sets")
    query.add_argument("sets", nargs="+", metavar="SET", help="ids; SET*0.5 has half its losses")
    query.add_argument("--report", choices=_REPORTS, default="summary", help="default summary")
    query.add_argument("--programme", type=Path, metavar="FILE", help="layers, as JSON")
    _add_choices(query, _QUERY, FORMATS)
    price = new_command(
        group, "price", _price, "print what the layers of a programme are expected to cost"
    )
    price.add_argument("programme", type=Path, metavar="FILE", help="layers, as JSON")
    price.add_argument("sets", nargs="+", metavar="SET", help="ids; SET*0.5 has half its losses")
    _add_choices(price, _PRICE, FORMATS[:6])


def _add_choices(
    parser: argparse.ArgumentParser, options: dict[str, dict[str, Any]], formats: Sequence[str]
) -> None:
    """Add what questions have in common."""
    add_options(parser, options)
    parser.add_argument(
        "--where",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="only summaries with this value of a dimension, or NAME!=VALUE: without it; several"
        " values: give it again",
    )
    parser.add_argument("--perils", type=Path, metavar="FILE", help="events by peril, as JSON")
    parser.add_argument("--events", metavar="LIST", help="only these events, such as 1,5,10-20")
    parser.add_argument("--months", type=ranges, metavar="LIST", help="only these months, as 1,6-8")
    parser.add_argument(
        "--pairing-seed", type=int, metavar="N", help="of years of other catalogues (default 0)"
    )
    parser.add_argument(
        "--blend",
        action="append",
        default=[],
        metavar="SET=N",
        help="share of a model in the years: a mixture instead of a sum",
    )
    parser.add_argument(
        "--rate",
        action="append",
        default=[],
        metavar="CODE=N",
        help="of a currency in the answer's",
    )
    parser.add_argument(
        "--repeat",
        action="append",
        default=[],
        metavar="SET",
        help="of one sample, whose losses every sample of the others has",
    )
    about = "default: that of -o, or csv; json of a summary, which has several tables"
    parser.add_argument("--format", choices=formats, help=about)
    parser.add_argument("-o", "--out", type=Path, metavar="FILE", help="default: standard output")
    add_force(parser)


def _create(args: argparse.Namespace, client: Client) -> None:
    _tell(client.portfolios.create(args.id, **given(args, _CREATE)))


def _import(args: argparse.Namespace, client: Client) -> None:
    _tell(client.portfolios.put(args.name, args.table, form=args.form, **given(args, _IMPORT)))


def _export(args: argparse.Namespace, client: Client) -> None:
    with writing([args.out], None, {}, force=args.force):
        client.portfolios.export(args.id, args.out, args.form, args.format, args.sample)


def _tell(made: LossSet) -> None:
    about = made.document
    say(f"{about['events']:,} events, {about['rows']:,} losses, {about['periods']:,} periods")
    for rows, number in about.get("left_out", {}).items():
        if number:
            say(f"left out: {number:,} {rows}")
    for note in about.get("notes", ()):
        say(f"note: {note}")
    sys.stdout.write(f"{made.id}\n")


def _list(_args: argparse.Namespace, client: Client) -> None:
    for each in client.portfolios.list():
        sys.stdout.write(f"{described(each)}\n")


def described(each: LossSet) -> str:
    """A loss set in one line."""
    about = each.document
    currency = about.get("currency") or ""
    return f"{each.id}  {currency:3}  {about['rows']:,} losses  {about['periods']:,} periods"


def _show(args: argparse.Namespace, client: Client) -> None:
    print_json(client.portfolios.get(args.id).document)


def _delete(args: argparse.Namespace, client: Client) -> None:
    client.portfolios.delete(args.id)


def _price(args: argparse.Namespace, client: Client) -> None:
    args.report = "layers"
    _query(args, client)


def _query(args: argparse.Namespace, client: Client) -> None:
    options = given(args, _QUERY)
    for name in ("programme", "perils"):
        if (path := getattr(args, name)) is not None:
            options[name] = spec_of(str(path))
    options["rates"] = _rates(args.rate, "--rate")
    options["blend"] = _rates(args.blend, "--blend")
    options["filter"] = _filter(args)
    seed = given(args, ("pairing_seed",))
    sets = [{**_weighted(text, args.repeat), **seed} for text in args.sets]
    if absent := sorted(set(args.repeat) - {part["id"] for part in sets}):
        raise ValueError(f"--repeat {absent[0]}: it is none of the sets that are asked about")
    form = args.format or ("csv" if args.out is None and args.report != "summary" else None)
    if args.out is None:
        with saying_warnings(quiet=False):
            data = client.portfolios.fetch(sets, args.report, form or "json", **options)
        sys.stdout.buffer.write(data if form not in {None, "json"} else data + b"\n")
        return
    with writing([args.out], None, {}, force=args.force), saying_warnings(quiet=False):
        client.portfolios.save(sets, args.report, args.out, form, **options)


def _rates(texts: Sequence[str], option: str) -> Mapping[str, float]:
    rates = {}
    for code, rate in map(_pair, texts):
        if code in rates:
            raise ValueError(f"{option} has {code} twice")
        rates[code] = _number(rate, f"{option} {code}={rate}")
    return rates


def _number(text: str, where: str) -> float:
    try:
        if _WEIGHTED.fullmatch(text):
            return float(text)
    except ValueError:
        pass
    raise ValueError(f"{where}: {text!r} is not a number such as 0.9")


def _filter(args: argparse.Namespace) -> Mapping[str, Any]:
    dimensions: dict[str, list[str]] = {}
    exclude: dict[str, list[str]] = {}
    for name, value in map(_pair, args.where):
        of = exclude if name.endswith("!") else dimensions
        of.setdefault(name.removesuffix("!"), []).append(value)
    return {"dimensions": dimensions, "exclude": exclude, **given(args, ("events", "months"))}


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise ValueError(f"{text!r} is not NAME=VALUE")
    return name, value


def _weighted(text: str, repeated: Sequence[str]) -> Mapping[str, Any]:
    ident, star, weight = text.partition("*")
    part: dict[str, Any] = {"id": ident, **({"samples": "repeat"} if ident in repeated else {})}
    return {**part, "weight": _number(weight, text)} if star else part
