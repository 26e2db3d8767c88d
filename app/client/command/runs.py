"""The commands ``thalweg run …``: durable runs, from their creation to their reports."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..client import Client
from ..losses.requests import INPUTS
from ..losses.saving import label
from ..runs.requests import Run
from .arguments import (
    REPORT_OPTIONS,
    REPORTS_HELP,
    STREAM_OPTIONS,
    add_options,
    add_progress,
    count,
    format_of,
    given,
    names,
    new_command,
    new_group,
    numbers,
)
from .console import (
    Fetching,
    make_bar,
    print_json,
    say,
    saying_warnings,
    stopped,
    with_options,
)
from .targets import add_force, writing
from .uploads import add_upload

_FORMATS = ("csv", "parquet", "arrow", "bin", "svg", "png")
_CHOICES = ("summary_ids", "event_ids", "variant")
"""What is chosen of the reports to fetch."""
_RUN_OPTIONS: dict[str, dict[str, Any]] = {
    "partitions": {"type": count, "metavar": "N", "help": "that sealing requires"}
}
_CREATE_OPTIONS = REPORT_OPTIONS | STREAM_OPTIONS | _RUN_OPTIONS
_OF_STREAMS = {"float_width", "nan", "negative", "sample_order", "partitions"}
_SEAL_OPTIONS = {name: how for name, how in _CREATE_OPTIONS.items() if name not in _OF_STREAMS}
"""Options of the reports, which sealing may change: streams have been read by the others."""


def add_commands(commands: Any) -> None:  # noqa: ANN401 - argparse has no public type for it
    """Add the commands to a command line."""
    group = new_group(
        commands,
        "run",
        "durable runs: many partitions, resumable uploads, reports of them all",
        "A run takes the streams of its partitions, from as many machines as there are, until it is"
        " sealed; then it has the reports of all of them.",
    )
    create = new_command(group, "create", _create, "create a run and print its id")
    create.add_argument(
        "--perspective", choices=("gul", "il", "ri", "rl"), required=True, help="of the losses"
    )
    create.add_argument(
        "--report", "--reports", type=names, required=True, metavar="LIST", help=REPORTS_HELP
    )
    add_options(create, _CREATE_OPTIONS)
    create.add_argument("--days", type=float, metavar="D", help="lifetime after the last change")
    create.add_argument(
        "--idempotency-key",
        metavar="TEXT",
        help="of this creation: the same one gives the same run, on whatever machine",
    )
    add_upload(group)
    put = new_command(group, "input", _put_input, "give a run that is not sealed an auxiliary file")
    put.add_argument("id", metavar="RUN", help="id of the run, as create prints it")
    put.add_argument("name", choices=INPUTS, help="which file it is")
    put.add_argument("file", type=Path, metavar="FILE", help="csv, packed or parquet")
    compute = new_command(
        group,
        "compute",
        _compute,
        "have a sealed run compute further reports, and print their variant",
        "Have a sealed run compute further reports, or with other options; nothing is uploaded"
        " again. Prints the variant for: thalweg run fetch RUN --variant V",
    )
    compute.add_argument("id", metavar="RUN", help="id of the run, as create prints it")
    compute.add_argument(
        "--report", "--reports", type=names, required=True, metavar="LIST", help=REPORTS_HELP
    )
    add_options(compute, REPORT_OPTIONS)
    status = new_command(group, "status", _status, "print how far a run is")
    status.add_argument("id", metavar="RUN", help="id of the run, as create prints it")
    status.add_argument(
        "--json", action="store_true", help="all that the service says, with its partitions"
    )
    seal = new_command(group, "seal", _seal, "announce that no more streams come, and wait")
    seal.add_argument("id", metavar="RUN", help="id of the run, as create prints it")
    seal.add_argument("--no-wait", action="store_true", help="for the reports to be computed")
    add_options(seal, _SEAL_OPTIONS)
    _add_fetch(group)
    new_command(group, "list", _list, "print your runs")
    delete = new_command(group, "delete", _delete, "delete a run, or one of its streams")
    delete.add_argument("id", metavar="RUN", help="id of the run, as create prints it")
    delete.add_argument("--partition", type=count, metavar="N", help="only this one's stream")


def _add_fetch(group: Any) -> None:  # noqa: ANN401 - as above
    fetch = new_command(
        group,
        "fetch",
        _fetch,
        "write finished reports to files",
        "Write finished reports of a sealed run to files. Running a killed or cut-off command"
        " again completes them.",
    )
    fetch.add_argument("id", metavar="RUN", help="id of the run, as create prints it")
    fetch.add_argument(
        "--report", "--reports", type=names, metavar="LIST", help="default: all of the variant"
    )
    fetch.add_argument(
        "-o", "--out", default=".", help="file, or directory as DIR/ (default: this one)"
    )
    fetch.add_argument("--format", choices=_FORMATS, help="default: the extension of --out, or csv")
    fetch.add_argument(
        "--sets",
        type=numbers,
        metavar="LIST",
        help="summary sets, such as 1,2 (needed of a run with several)",
    )
    fetch.add_argument(
        "--summary-ids", metavar="LIST", help="only these summaries, such as 1,5,10-20"
    )
    fetch.add_argument("--event-ids", metavar="LIST", help="only these events, such as 1,5,10-20")
    fetch.add_argument(
        "--variant", help="of further reports, as compute printed it (default own: of the run)"
    )
    add_progress(fetch)
    add_force(fetch)


def _report_options(args: argparse.Namespace) -> tuple[dict[str, Any], dict[str, Any]]:
    """Inputs and options of reports."""
    options = given(args, _CREATE_OPTIONS)
    inputs = {name: value for name, value in options.items() if isinstance(value, Path)}
    return inputs, {name: value for name, value in options.items() if name not in inputs}


def _put_input(args: argparse.Namespace, client: Client) -> None:
    sys.stdout.write(client.runs.put_input(args.id, args.name, args.file) + "\n")


def _create(args: argparse.Namespace, client: Client) -> None:
    inputs, options = _report_options(args)
    run = client.runs.create(
        args.perspective,
        args.report,
        inputs=inputs,
        days=args.days,
        key=args.idempotency_key,
        **options,
    )
    sys.stdout.write(f"{run.id}\n")
    for text in _lacking(run):
        say(text)


def _lacking(run: Run) -> list[str]:
    """What is missing before the run can be sealed, besides streams."""
    return [
        f"sealing needs {name}: thalweg run input {run.id} {name} FILE"
        for name in run.document.get("missing_inputs", ())
    ]


def _compute(args: argparse.Namespace, client: Client) -> None:
    inputs, options = _report_options(args)
    variant = client.runs.add_reports(args.id, args.report, inputs=inputs, **options)
    sys.stdout.write(f"{variant}\n")


def _status(args: argparse.Namespace, client: Client) -> None:
    run, streams = client.runs.status(args.id), client.runs.streams(args.id)
    if args.json:
        document = {**run.document, "partitions": [asdict(stream) for stream in streams]}
        print_json(document)
        return
    notes = (with_options(note) for note in run.document.get("notes", ()))
    lines = [_described(run), *(f"  {text}" for text in (*_lacking(run), *notes))]
    for variant, reports in _variants(run).items():
        done = run.document.get("results", {}).get(variant, {}).get("reports", ())
        listed = (name if name in done else f"{name} (computing)" for name in reports)
        lines.append(f"  variant {variant}: {', '.join(listed) or 'failed'}")
    expected = run.document.get("options", {}).get("partitions")
    if expected is not None:
        complete = sum(stream.complete for stream in streams)
        begun = f", {len(streams) - complete} begun" if len(streams) > complete else ""
        lines.append(f"  {complete} of {expected} partitions complete{begun}")
    for stream in streams:
        of = "" if stream.length is None else f" of {stream.length:,}"
        text = f"  partition {stream.partition}: {stream.state}, {stream.offset:,}{of} bytes"
        fault = f": {stream.fault.get('detail')}" if stream.fault else ""
        lines.append(f"{text}, {stream.events:,} events{fault}")
    sys.stdout.write("\n".join([*lines, ""]))


def _described(run: Run) -> str:
    problem = f": {run.problem.get('detail')}" if run.problem else ""
    reports = ",".join(run.document.get("reports", ()))
    return f"{run.id}  {run.state}{problem}  {run.document.get('perspective', '')}  {reports}"


def _list(_args: argparse.Namespace, client: Client) -> None:
    for run in client.runs.list():
        sys.stdout.write(f"{_described(run)}\n")


def _seal(args: argparse.Namespace, client: Client) -> None:
    inputs, options = _report_options(args)
    for name, file in inputs.items():
        client.runs.put_input(args.id, name, file)
    with saying_warnings(quiet=False):
        run = client.runs.seal(args.id, wait=not args.no_wait, **options)
    sys.stdout.write(f"{run.state}\n")


def _delete(args: argparse.Namespace, client: Client) -> None:
    if args.partition is None:
        client.runs.delete(args.id)
        return
    for stream in client.runs.streams(args.id):
        if stream.partition == args.partition:
            client.runs.delete_stream(args.id, stream.id)
            # What an upload from here knows of it would keep it from being uploaded again.
            Path(f"{args.id}.thalweg-state", str(args.partition)).unlink(missing_ok=True)
            return
    raise ValueError(f"the run has no partition {args.partition}")


def _fetch(args: argparse.Namespace, client: Client) -> None:
    path = Path(args.out)
    is_folder = args.out.endswith("/") or path.is_dir()
    if args.format and path.suffix[1:] in {*_FORMATS} - {args.format} and not is_folder:
        raise ValueError(f"--out {path} does not end in {args.format}")
    reports: list[str] = args.report or _computed(args, client.runs.status(args.id))
    files, options = _files(args, reports, is_folder=is_folder), given(args, _CHOICES)
    folder = path if len(files) > 1 or is_folder else None
    with writing([out for out, *_ in files], folder, {"run": args.id, **options}, force=args.force):
        for out, report, number in files:
            state = out.with_name(f"{out.name}.thalweg-state")
            form = args.format or format_of(out, _FORMATS)
            with saying_warnings(quiet=args.quiet):
                choice = {"state": state, "set": number, **options}
                bar = make_bar(args)
                watch = None if bar is None else lambda size, bar=bar: bar(Fetching(size))
                try:
                    size = client.runs.report(args.id, report, out, form, progress=watch, **choice)
                finally:
                    stopped(bar, None)
                if not args.quiet:
                    say(f"{out}: {size:,} bytes")


def _computed(args: argparse.Namespace, run: Run) -> list[str]:
    """The reports of a variant; without one, those of the run and those computed since."""
    variants, name = _variants(run), args.variant or "own"
    if args.variant not in {None, *variants}:
        raise ValueError(f"the run has no variant {name}: it has {', '.join(variants)}")
    found: list[str] = variants.get(name, run.document["reports"])
    if not found:
        problem = run.document["results"][name]["problem"]
        raise ValueError(f"the variant {name} could not be computed: {problem['detail']}")
    return found


def _variants(run: Run) -> dict[str, list[str]]:
    """The reports of each variant, those that are being computed too."""
    results, jobs = run.document.get("results", {}), run.document.get("computing", ())
    variants = {name: [*result["reports"]] for name, result in results.items()}
    for job in jobs:
        known = variants.setdefault(job["variant"], [])
        known += [report for report in job["reports"] if report not in known]
    return variants


def _files(
    args: argparse.Namespace, reports: list[str], *, is_folder: bool
) -> list[tuple[Path, str, int | None]]:
    """Path, report and summary set of each file."""
    sets: list[int | None] = args.sets or [None]
    out = Path(args.out)
    if len(reports) * len(sets) == 1 and not is_folder:
        return [(out, reports[0], sets[0])]
    ending = args.format or "csv"
    return [
        (out / f"{report if number is None else label(number, report)}.{ending}", report, number)
        for number in sets
        for report in reports
    ]
