"""The commands ``thalweg run …``: durable runs, from their creation to their reports."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..losses.saving import label
from ..runs.description import Run
from .arguments import add_service, connect, count, list_or_file, names, numbers
from .console import say
from .run_upload import add_upload

_FORMATS = ("csv", "parquet", "arrow", "bin", "svg", "png")
_INPUTS = (
    *("event_rates", "occurrence", "periods"),
    *("summary_xref", "summary_map", "summary_info"),
)
_LISTS = {"quantiles": float, "return_periods": int}
_OPTIONS = (
    *("partitions", "no_of_periods", "confidence", "curves", "tvar", "float_width", "nan"),
    *("negative", "sample_order", "order", "summary_ids", "sets"),
)


def add_commands(commands: Any) -> None:  # noqa: ANN401 - argparse has no public type for it
    """Add the commands to a command line."""
    group = commands.add_parser(
        "run",
        help="durable runs: many partitions, resumable uploads, reports of them all",
        description="A run takes the streams of its partitions, from as many machines as there"
        " are, until it is sealed; then it has the reports of all of them.",
    ).add_subparsers(required=True, metavar="COMMAND")
    _add_create(group)
    add_upload(group)
    _add_compute(group)
    status = group.add_parser("status", help="print how far a run is")
    status.set_defaults(run=_status)
    status.add_argument("id", metavar="RUN")
    status.add_argument(
        "--json", action="store_true", help="all that the service says, with its partitions"
    )
    add_service(status)
    seal = group.add_parser("seal", help="announce that no more streams come, and wait")
    seal.set_defaults(run=_seal)
    seal.add_argument("id", metavar="RUN")
    seal.add_argument("--no-wait", action="store_true", help="for the reports to be computed")
    add_service(seal)
    _add_fetch(group)
    listing = group.add_parser("list", help="print your runs")
    listing.set_defaults(run=_list)
    add_service(listing)
    delete = group.add_parser("delete", help="delete a run, or one of its streams")
    delete.set_defaults(run=_delete)
    delete.add_argument("id", metavar="RUN")
    delete.add_argument("--partition", type=count, metavar="N", help="only this one's stream")
    add_service(delete)


def _add_create(group: Any) -> None:  # noqa: ANN401 - as above
    create = group.add_parser("create", help="create a run and print its id")
    create.set_defaults(run=_create)
    create.add_argument("--perspective", choices=("gul", "il", "ri", "rl"), required=True)
    create.add_argument("--report", type=names, required=True, metavar="LIST")
    create.add_argument("--partitions", type=count, metavar="N", help="that sealing requires")
    _add_report_options(create)
    create.add_argument("--float-width", type=int, choices=(4, 8))
    create.add_argument("--nan", choices=("error", "zero", "drop"))
    create.add_argument("--negative", choices=("error", "keep"))
    create.add_argument("--sample-order", choices=("ascending", "any"))
    create.add_argument("--order", choices=("received", "event"))
    create.add_argument("--summary-ids", metavar="LIST", help="such as 1,5,10-20")
    create.add_argument("--sets", type=numbers, metavar="LIST", help="of the xref, such as 1,2")
    create.add_argument("--days", type=float, metavar="D", help="lifetime after the last change")
    create.add_argument(
        "--idempotency-key",
        metavar="TEXT",
        help="of this creation: the same one gives the same run, on whatever machine",
    )
    add_service(create)


def _add_compute(group: Any) -> None:  # noqa: ANN401 - as above
    compute = group.add_parser(
        "compute",
        help="have a sealed run compute further reports, and print their variant",
        description="Have a sealed run compute further reports, or with other options; nothing"
        " is uploaded again. Prints the variant for: thalweg run fetch RUN --variant V",
    )
    compute.set_defaults(run=_compute)
    compute.add_argument("id", metavar="RUN")
    compute.add_argument("--report", type=names, required=True, metavar="LIST")
    _add_report_options(compute)
    add_service(compute)


def _add_report_options(parser: argparse.ArgumentParser) -> None:
    """Add the inputs of reports, and the options that a sealed run takes too."""
    for name in _INPUTS:
        parser.add_argument(f"--{name.replace('_', '-')}", type=Path, metavar="F")
    parser.add_argument("--quantiles", metavar="F", help="file, or a list such as 0.5,0.9")
    parser.add_argument("--return-periods", metavar="F", help="file, or a list such as 250,100")
    parser.add_argument("--no-of-periods", type=count, metavar="N")
    parser.add_argument("--confidence", type=float, metavar="P", help="of alct (default 0.95)")
    parser.add_argument("--curves", metavar="LETTERS", help="of ept and psept")
    parser.add_argument("--tvar", choices=("count", "weight"))


def _add_fetch(group: Any) -> None:  # noqa: ANN401 - as above
    fetch = group.add_parser(
        "fetch",
        help="write finished reports to files",
        description="Write finished reports of a sealed run to files. Running a killed or"
        " cut-off command again completes them.",
    )
    fetch.set_defaults(run=_fetch)
    fetch.add_argument("id", metavar="RUN")
    fetch.add_argument("--report", type=names, metavar="LIST", help="default: all of the run")
    fetch.add_argument(
        "-o", "--out", type=Path, default=Path(), help="file, or directory (default: this one)"
    )
    fetch.add_argument("--format", choices=_FORMATS, help="default: the extension of --out, or csv")
    fetch.add_argument("--sets", type=numbers, metavar="LIST", help="summary sets, such as 1,2")
    fetch.add_argument("--summary-ids", metavar="LIST", help="only these, such as 1,5,10-20")
    fetch.add_argument("--event-ids", metavar="LIST", help="only these, such as 1,5,10-20")
    fetch.add_argument("--variant", help="of further reports, as their request was answered")
    fetch.add_argument("--quiet", action="store_true", help="report errors only")
    add_service(fetch)


def _report_options(args: argparse.Namespace) -> tuple[dict[str, Any], dict[str, Any]]:
    """Inputs and options of reports."""
    given = {name: value for name, value in vars(args).items() if value is not None}
    inputs = {name: given[name] for name in _INPUTS if name in given}
    options = {name: given[name] for name in _OPTIONS if name in given}
    for name, kind in _LISTS.items():
        text = getattr(args, name)
        if text is None:
            continue
        value = list_or_file(text)
        if isinstance(value, Path):
            inputs[name] = value
        else:
            options[name] = [kind(number) for number in value.split(",")]
    return inputs, options


def _create(args: argparse.Namespace) -> int:
    inputs, options = _report_options(args)
    with connect(args) as client:
        run = client.runs.create(
            args.perspective,
            args.report,
            inputs=inputs,
            days=args.days,
            key=args.idempotency_key,
            **options,
        )
    sys.stdout.write(f"{run.id}\n")
    return 0


def _compute(args: argparse.Namespace) -> int:
    inputs, options = _report_options(args)
    with connect(args) as client:
        variant = client.runs.add_reports(args.id, args.report, inputs=inputs, **options)
    sys.stdout.write(f"{variant}\n")
    return 0


def _status(args: argparse.Namespace) -> int:
    with connect(args) as client:
        run, streams = client.runs.status(args.id), client.runs.streams(args.id)
    if args.json:
        document = {**run.document, "partitions": [asdict(stream) for stream in streams]}
        sys.stdout.write(f"{json.dumps(document, indent=2)}\n")
        return 0
    lines = [_described(run)]
    for stream in streams:
        of = "" if stream.length is None else f" of {stream.length:,}"
        text = f"  partition {stream.partition}: {stream.state}, {stream.offset:,}{of} bytes"
        fault = f": {stream.fault.get('detail')}" if stream.fault else ""
        lines.append(f"{text}, {stream.events:,} events{fault}")
    sys.stdout.write("\n".join([*lines, ""]))
    return 0


def _described(run: Run) -> str:
    problem = f": {run.problem.get('detail')}" if run.problem else ""
    reports = ",".join(run.document.get("reports", ()))
    return f"{run.id}  {run.state}{problem}  {run.document.get('perspective', '')}  {reports}"


def _list(args: argparse.Namespace) -> int:
    with connect(args) as client:
        for run in client.runs.list():
            sys.stdout.write(f"{_described(run)}\n")
    return 0


def _seal(args: argparse.Namespace) -> int:
    with connect(args) as client:
        run = client.runs.seal(args.id, wait=not args.no_wait)
    sys.stdout.write(f"{run.state}\n")
    return 0


def _delete(args: argparse.Namespace) -> int:
    with connect(args) as client:
        if args.partition is None:
            client.runs.delete(args.id)
            return 0
        for stream in client.runs.streams(args.id):
            if stream.partition == args.partition:
                client.runs.delete_stream(args.id, stream.id)
                return 0
    raise ValueError(f"the run has no partition {args.partition}")


def _fetch(args: argparse.Namespace) -> int:
    with connect(args) as client:
        reports: list[str] = args.report or client.runs.status(args.id).document["reports"]
        for out, report, options in _files(args, reports):
            state = out.with_name(f"{out.name}.thalweg-state")
            size = client.runs.report(
                args.id, report, out, _format(args, out), state=state, **options
            )
            if not args.quiet:
                say(f"{out}: {size:,} bytes")
    return 0


def _files(args: argparse.Namespace, reports: list[str]) -> list[tuple[Path, str, dict[str, Any]]]:
    """Path, report and options of each file."""
    sets: list[int | None] = args.sets or [None]
    chosen = ("summary_ids", "event_ids", "variant")
    common = {name: getattr(args, name) for name in chosen if getattr(args, name) is not None}
    options: list[dict[str, Any]] = [
        common if number is None else common | {"set": number} for number in sets
    ]
    out: Path = args.out
    if len(reports) * len(sets) == 1 and not out.is_dir():
        return [(out, reports[0], options[0])]
    out.mkdir(parents=True, exist_ok=True)
    ending = args.format or "csv"
    return [
        (out / f"{report if number is None else label(number, report)}.{ending}", report, given)
        for number, given in zip(sets, options, strict=True)
        for report in reports
    ]


def _format(args: argparse.Namespace, out: Path) -> str:
    ending = out.suffix.removeprefix(".")
    return args.format or (ending if ending in _FORMATS else "csv")
