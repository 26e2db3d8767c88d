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
from . import arguments
from .arguments import Options, given, new_command, new_group, numbers, ranges, spec_of
from .console import print_json, say, saying_warnings
from .targets import writing

_REPORTS = (
    *("averages", "curves", "periods", "layers", "recoveries"),
    *("contributions", "uncertainty", "summary"),
)
_SET: Options = {"id SET": "as create and list print it"}
_SETS: Options = {"sets SET": ("ids; SET*0.5 has half its losses", {"nargs": "+"})}

_CREATE: Options = {
    "--name NAME": "id of the set (default: chosen by the service)",
    "--currency CODE": "of its losses, such as EUR",
    "--perspective {gul,il,ri,rl}": "default: that of the run",
    "--summary-set N": ("of the xref, if there are several", int),
    "--summary-info FILE": (
        "what the summaries are: its columns are dimensions to filter and group by",
        Path,
    ),
}
_IMPORT: Options = {
    "--occurrence FILE": ("of selt: when events happen", Path),
    "--periods FILE": ("weights (default: equal)", Path),
    "--summary-info FILE": ("what its summaries are", Path),
    "--no-of-periods N": ("those without a loss included", int),
    "--samples N": ("default: the largest; of an elt by rows", int),
    "--currency CODE": "of its losses, such as EUR",
    "--perspective {gul,il,ri,rl}": "of its losses",
    "--seed N": ("of an elt, whose losses are simulated", int),
    "--frequency {poisson,negative-binomial}": "of the events of an elt",
    "--dispersion X": ("variance over mean of that number", float),
    "--apart": "make each occurrence an event of its own",
    "--repeated": "take an event that is there twice as two",
}
_EXPORT: Options = {
    **_SET,
    "--form {selt,splt,ylt,openquake,climada,elt,occurrence,blocks}": (
        "default selt",
        {"default": "selt"},
    ),
    "--sample N": ("of openquake and climada; 0 is the numerical mean", int),
    "--format": (
        "default: that of -o; an occurrence is csv or bin, blocks are arrow",
        {"choices": FORMATS[1:6]},
    ),
    "-o --out FILE": ("the file", Path, {"required": True}),
    **arguments.FORCE,
}
_WEIGHTED = re.compile(r"[0-9.]+(e[-+]?[0-9]+)?", re.IGNORECASE | re.ASCII)
"""A weight or a rate: float() would take 1_0, and inf, too."""
_MONTHS = 12


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


def _months(text: str) -> list[int]:
    """Months, such as 1,6-8, or 11-2, which goes on into the next year.

    Raises:
        argparse.ArgumentTypeError: one is not a number.
    """

    def wrapped(found: re.Match[str]) -> str:
        wraps = int(found[2]) < int(found[1]) <= _MONTHS
        return f"{found[1]}-{_MONTHS},1-{found[2]}" if wraps else found[0]

    return ranges(re.sub(r"(\d+)\s*-\s*(\d+)", wrapped, text))


def _dimensions(text: str) -> list[str]:
    """Names of dimensions, such as Region,LOB.

    Raises:
        argparse.ArgumentTypeError: there is none, an empty one, or one twice.
    """
    found = [name.strip() for name in text.split(",")]
    if not all(found):
        raise argparse.ArgumentTypeError(f"{text!r} lacks a name: give them as Region,LOB")
    if twice := [name for name in found if found.count(name) > 1]:
        raise argparse.ArgumentTypeError(f"{twice[0]} is asked for twice")
    return found


_AND = {"action": "extend"}
_PRICE: Options = {
    "--group-by LIST": ("dimensions, or SummaryId", _dimensions, _AND),
    "--programme-by LIST": ("what layers tell apart, for losses of the whole", _dimensions, _AND),
    "--currency CODE": "of the answer",
    "--insured-value NAME": "dimension with insured values of risks",
}
_QUERY: Options = {
    **_PRICE,
    "--return-periods LIST": ("such as 250,100,50", _years),
    "--table NAME": "the one to write of several, such as ept, or keys",
    "--curves LETTERS": "of ept and psept (default FfSsMm)",
    "--of {gross,net,ceded}": "losses to report (default gross)",
    "--tvar {count,weight}": "mean of TVaR (default weight where periods have weights, else count)",
    "--seed N": ("of resampled periods", int),
    "--confidence X": ("of bands (default 0.95)", float),
    "--tolerance X": ("for the samples needed (default 0.05)", float),
    "--band X": ("of VaR parts, as a share of its rank", float),
    "--leave-one-out": "and without each group",
}
_SEVERAL = {"action": "append", "default": []}
_CHOICES: Options = {
    "--where NAME=VALUE": (
        (
            "only summaries with this value of a dimension, or NAME!=VALUE: without it; several"
            " values: give it again"
        ),
        _SEVERAL,
    ),
    "--perils FILE": ("events by peril, as JSON", Path),
    "--events LIST": "only these events, such as 1,5,10-20",
    "--months LIST": ("only these months, as 1,6-8 or 11-2", _months),
    "--pairing-seed N": ("of years of other catalogues (default 0)", int),
    "--blend SET=N": ("share of a model in the years: a mixture instead of a sum", _SEVERAL),
    "--rate CODE=N": ("of a currency in the answer's", _SEVERAL),
    "--repeat SET": ("of one sample, whose losses every sample of the others has", _SEVERAL),
}


def add_commands(commands: Any) -> None:  # noqa: ANN401 - argparse has no public type for it
    """Add the commands to a command line."""
    text = "loss sets of runs: roll-ups, curves and layers of any group, without another run"
    group = new_group(commands, "portfolio", text)
    created: Options = {"id RUN": "id of the run, as thalweg run list prints it", **_CREATE}
    new_command(group, "create", _create, "make a loss set of a sealed run", created)
    table: Options = {
        "table FILE": ("in csv, parquet or Arrow", Path),
        "--name NAME": ("id of the set", {"required": True}),
        "--form {splt,selt,ylt,openquake,climada,elt}": ("what its rows are", {"required": True}),
        **_IMPORT,
    }
    new_command(group, "import", _import, "make a loss set of a table of losses", table)
    new_command(group, "export", _export, "write a loss set as a table", _EXPORT)
    new_command(group, "list", _list, "print your loss sets", {})
    new_command(group, "show", _show, "print the description of a loss set", _SET)
    new_command(group, "delete", _delete, "delete a loss set; its run stays", _SET)
    layers = ("layers, as JSON", Path)
    options: Options = {
        **_SETS,
        "--report": ("default summary", {"choices": _REPORTS, "default": "summary"}),
        "--programme FILE": layers,
        **_QUERY,
        **_answered(FORMATS),
    }
    new_command(group, "query", _query, "answer a question about loss sets", options)
    priced = {"programme FILE": layers, **_SETS, **_PRICE, **_answered(FORMATS[:5])}
    text = "print what the layers of a programme are expected to cost"
    new_command(group, "price", _price, text, priced)


def _answered(formats: Sequence[str]) -> Options:
    """What questions have in common, which are answered in these formats."""
    text = "default: that of -o, or csv; json of a summary, which has several tables"
    return {
        **_CHOICES,
        "--format": (text, {"choices": formats}),
        "-o --out FILE": ("default: standard output", Path),
        **arguments.FORCE,
    }


def _create(args: argparse.Namespace, client: Client) -> None:
    _tell(client.portfolios.create(args.id, **given(args, _CREATE)))


def _import(args: argparse.Namespace, client: Client) -> None:
    _tell(client.portfolios.put(args.name, args.table, form=args.form, **given(args, _IMPORT)))


def _export(args: argparse.Namespace, client: Client) -> None:
    with writing([args.out], None, {}, force=args.force):
        client.portfolios.export(args.id, args.out, args.form, args.format, args.sample)


def _tell(loss_set: LossSet) -> None:
    details = loss_set.document
    counts = {"events": "events", "rows": "losses", "periods": "periods", "samples": "samples"}
    say(", ".join(f"{details[name]:,} {noun}" for name, noun in counts.items()))
    for rows, number in details.get("left_out", {}).items():
        if number:
            say(f"left out: {number:,} {rows}")
    for note in details.get("notes", ()):
        say(f"note: {note}")
    sys.stdout.write(f"{loss_set.id}\n")


def _list(_args: argparse.Namespace, client: Client) -> None:
    for each in client.portfolios.list():
        sys.stdout.write(f"{described(each)}\n")


def described(each: LossSet) -> str:
    """A loss set in one line."""
    document = each.document
    currency = document.get("currency") or ""
    return f"{each.id}  {currency:3}  {document['rows']:,} losses  {document['periods']:,} periods"


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
        target = exclude if name.endswith("!") else dimensions
        target.setdefault(name.removesuffix("!"), []).append(value)
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
