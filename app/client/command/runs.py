"""The commands ``thalweg run …``: durable runs, from their creation to their reports."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..client import Client
from ..losses.requests import INPUTS
from ..losses.saving import label
from ..runs.requests import FINISHED, Run, Stream
from . import arguments
from .arguments import Options, count, given, names, new_command, new_group, numbers
from .console import (
    Fetching,
    counted,
    make_bar,
    print_json,
    say,
    saying_warnings,
    stopped,
    with_options,
)
from .targets import writing
from .uploads import add_upload

_FORMATS = ("csv", "parquet", "arrow", "bin", "svg", "png")
_CHOICES = ("summary_ids", "event_ids", "variant")
"""What is chosen of the reports to fetch."""
_SEAL_OPTIONS = arguments.REPORT_OPTIONS | arguments.ROW_OPTIONS
"""Options of the reports, which sealing may change: streams have been read by the others."""
_CREATE_OPTIONS: Options = {
    **arguments.REPORT_OPTIONS,
    **arguments.PARSING_OPTIONS,
    **arguments.ROW_OPTIONS,
    "--partitions N": ("number of streams, all of which sealing requires", count),
}
_LOOK_SECONDS = 1.0
_RUN: Options = {"id RUN": "id of the run, as create prints it"}


def add_commands(commands: Any) -> None:  # noqa: ANN401 - argparse has no public type for it
    """Add the commands to a command line."""
    group = new_group(
        commands,
        "run",
        "durable runs: many partitions, resumable uploads, reports of them all",
        "A run takes the streams of its partitions, from as many machines as there are, until it is"
        " sealed; then it has the reports of all of them.",
    )
    created: Options = {
        "--perspective {gul,il,ri,rl}": ("of the losses", {"required": True}),
        **arguments.REPORTS,
        **_CREATE_OPTIONS,
        "--days D": ("lifetime after the last change", float),
        "--label TEXT": "what people call the run: its model and portfolio, say",
        "--idempotency-key TEXT": "of this creation: the same one gives the same run, on whatever"
        " machine",
    }
    new_command(group, "create", _create, "create a run and print its id", created)
    add_upload(group)
    put: Options = {
        **_RUN,
        "name": ("which file it is", {"choices": INPUTS}),
        "file FILE": ("csv, packed or parquet", Path),
    }
    text = "give a run that is not sealed an auxiliary file"
    new_command(group, "input", _put_input, text, put)
    new_command(
        group,
        "compute",
        _compute,
        "have a sealed run compute further reports, and print their variant",
        {**_RUN, **arguments.REPORTS, **arguments.REPORT_OPTIONS},
        "Have a sealed run compute further reports, or with other options; nothing is uploaded"
        " again. Prints the variant for: thalweg run fetch RUN --variant V",
    )
    status: Options = {
        **_RUN,
        "--json": "all that the service says, with its partitions",
        "--follow": "go on with the lines that change, until the run is done or has failed",
    }
    new_command(group, "status", _status, "print how far a run is", status)
    seal: Options = {
        **_RUN,
        "--no-wait": "do not wait for the reports to be computed",
        **_SEAL_OPTIONS,
    }
    new_command(group, "seal", _seal, "announce that no more streams come, and wait", seal)
    new_command(
        group,
        "fetch",
        _fetch,
        "write finished reports to files",
        _FETCH,
        "Write finished reports of a sealed run to files. Running a killed or cut-off command"
        " again completes them.",
    )
    named: Options = {**_RUN, "text TEXT": 'what people call it from now on; "" for no label'}
    new_command(group, "label", _label, "change the label of a run", named)
    new_command(group, "list", _list, "print your runs", {})
    partition: Options = {**_RUN, "--partition N": ("only this one's stream", count)}
    new_command(group, "delete", _delete, "delete a run, or one of its streams", partition)


_FETCH: Options = {
    **_RUN,
    "--report --reports LIST": ("default: all of the variant", names),
    "-o --out OUT": ("file, or directory as DIR/ (default: this one)", {"default": "."}),
    "--format": ("default: the extension of --out, or csv", {"choices": _FORMATS}),
    "--sets LIST": ("summary sets, such as 1,2 (needed of a run with several)", numbers),
    "--summary-ids LIST": "only these summaries, such as 1,5,10-20",
    **arguments.EVENT_IDS,
    "--variant VARIANT": "of further reports, as compute printed it (default own: of the run)",
    **arguments.PROGRESS,
    **arguments.FORCE,
}


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
        label=args.label,
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
    if args.json and args.follow:
        raise ValueError("--json is of one moment: leave out --follow")
    said: list[str] = []
    while True:
        run, streams = client.runs.status(args.id), client.runs.streams(args.id)
        if args.json:
            document = {**run.document, "partitions": [asdict(stream) for stream in streams]}
            print_json(document)
            return
        lines = _progress(run, streams)
        sys.stdout.writelines(f"{line}\n" for line in lines if line not in said)
        sys.stdout.flush()
        if not args.follow or run.state in FINISHED:
            break
        said = lines
        time.sleep(_LOOK_SECONDS)
    if args.follow:
        run.check()


def _progress(run: Run, streams: Sequence[Stream]) -> list[str]:
    """The state of a run, and of each of its streams."""
    notes = (with_options(note) for note in run.document.get("notes", ()))
    lines = [_described(run), *(f"  {text}" for text in (*_lacking(run), *notes))]
    for variant, reports in _variants(run).items():
        ready = run.document.get("results", {}).get(variant, {}).get("reports", ())
        listed = (name if name in ready else f"{name} (computing)" for name in reports)
        lines.append(f"  variant {variant}: {', '.join(listed) or 'failed'}")
    expected = run.document.get("options", {}).get("partitions")
    if expected is not None:
        complete = sum(stream.complete for stream in streams)
        begun = f", {len(streams) - complete} begun" if len(streams) > complete else ""
        lines.append(f"  {complete} of {expected} partitions complete{begun}")
    for stream in streams:
        total = "" if stream.length is None else f" of {stream.length:,}"
        text = f"  partition {stream.partition}: {stream.state}, {stream.offset:,}{total} bytes"
        fault = f": {stream.fault.get('detail')}" if stream.fault else ""
        lines.append(f"{text}, {counted(stream.events, 'event')}{fault}")
    return lines


def _described(run: Run) -> str:
    problem = f": {run.problem.get('detail')}" if run.problem else ""
    reports = ",".join(run.document.get("reports", ()))
    perspective, label = run.document.get("perspective", ""), run.document.get("label")
    text = f"{run.id}  {run.state}{problem}  {perspective}  {reports}"
    return f"{text}  {label}" if label else text


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


def _label(args: argparse.Namespace, client: Client) -> None:
    client.runs.label(args.id, args.text or None)


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
            form = args.format or arguments.format_of(out, _FORMATS)
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
