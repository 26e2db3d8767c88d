"""The commands ``thalweg run …``: durable runs, from their creation to their reports."""

from __future__ import annotations

import argparse
import contextlib
import itertools
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..client import Client
from ..errors import ProblemError, StateError
from ..files.state import StateFile
from ..losses.requests import INPUTS
from ..losses.saving import label
from ..losses.sources import SourceLike, open_source
from ..runs.async_upload import MEMBER
from ..runs.description import PARALLEL, Part, Run, Stream
from ..runs.uploading import Uploaded, UploadState
from .arguments import (
    REPORT_OPTIONS,
    REPORTS_HELP,
    STREAM_OPTIONS,
    add_behaviour,
    add_options,
    add_progress,
    count,
    format_of,
    given,
    names,
    new_command,
    new_group,
    numbers,
    ranges,
)
from .console import (
    EXIT_CONNECTION,
    Fetching,
    exit_code,
    make_bar,
    make_bars,
    print_json,
    say,
    saying_warnings,
    stopped,
    told,
)
from .targets import add_force, writing

_FORMATS = ("csv", "parquet", "arrow", "bin", "svg", "png")
_CHOICES = ("summary_ids", "event_ids", "variant")
"""What is chosen of the reports to fetch."""
_RUN_OPTIONS: dict[str, dict[str, Any]] = {
    "partitions": {"type": count, "metavar": "N", "help": "that sealing requires"}
}
_CREATE_OPTIONS = REPORT_OPTIONS | STREAM_OPTIONS | _RUN_OPTIONS


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
        "-o", "--out", type=Path, default=Path(), help="file, or directory (default: this one)"
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
    lines = [_described(run), *(f"  {text}" for text in _lacking(run))]
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
    run = client.runs.seal(args.id, wait=not args.no_wait)
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
    if args.format and args.out.suffix[1:] in {*_FORMATS} - {args.format} and not args.out.is_dir():
        raise ValueError(f"--out {args.out} does not end in {args.format}")
    reports: list[str] = args.report or _computed(args, client.runs.status(args.id))
    files, options = _files(args, reports), given(args, _CHOICES)
    folder = args.out if len(files) > 1 or args.out.is_dir() else None
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
    result = run.document.get("results", {}).get(args.variant or "own")
    if result is None and args.variant:
        raise ValueError(f"the run has no variant {args.variant}, or it is still being computed")
    found: list[str] = (result or run.document)["reports"]
    return found


def _files(args: argparse.Namespace, reports: list[str]) -> list[tuple[Path, str, int | None]]:
    """Path, report and summary set of each file."""
    sets: list[int | None] = args.sets or [None]
    out: Path = args.out
    if len(reports) * len(sets) == 1 and not out.is_dir():
        return [(out, reports[0], sets[0])]
    ending = args.format or "csv"
    return [
        (out / f"{report if number is None else label(number, report)}.{ending}", report, number)
        for number in sets
        for report in reports
    ]


def add_upload(group: Any) -> None:  # noqa: ANN401 - argparse has no public type for it
    """Add the command to a command line."""
    upload = new_command(
        group,
        "upload",
        _upload,
        "upload streams of partitions",
        "Upload each FILE as the stream of a partition, several at a time. Running a killed or"
        " cut-off command again goes on where it stopped.",
    )
    upload.add_argument("id", metavar="RUN", help="id of the run, as create prints it")
    upload.add_argument("file", nargs="*", metavar="FILE", help="files or fifos, - for stdin")
    upload.add_argument(
        "--partition",
        type=ranges,
        metavar="LIST",
        help="of the files, such as 3 (the first one's) or 1,4-6 (default: the lowest that are"
        " free)",
    )
    upload.add_argument(
        "--parallel",
        type=count,
        default=PARALLEL,
        metavar="K",
        help=f"uploads at a time (default {PARALLEL})",
    )
    upload.add_argument(
        "--replace",
        action="store_true",
        help="delete the stream that a partition has, unless a state file goes on with it",
    )
    add_behaviour(upload, state="directory for state files (default: RUN.thalweg-state)")
    upload.add_argument(
        "--exec",
        nargs=argparse.REMAINDER,
        metavar="CMD",
        help="upload the output of a command, for each partition; {partition} in it is its number",
    )


def _directory(args: argparse.Namespace) -> Path:
    """The directory of state files."""
    return Path(args.state or f"{args.id}.thalweg-state")


def _free_partitions(args: argparse.Namespace, client: Client) -> list[int]:
    """The partitions that have the files, or that state files go on with; else the lowest free."""
    directory = _directory(args)
    states = [
        state
        for path in directory.glob("[1-9]*")
        if (state := StateFile(path, MEMBER).load(UploadState.parse)) and state.run == args.id
    ]
    streams = client.runs.streams(args.id)
    taken = {stream.partition for stream in streams}
    free = (number for number in itertools.count(1) if number not in taken)
    partitions: list[int] = []
    for file in args.file or [None]:
        left = [stream for stream in streams if stream.partition not in partitions]
        own, holder = _known(file, states, left)
        if own is not None:
            states.remove(own)
        partitions.append(own.partition if own else holder.partition if holder else next(free))
    expected = client.runs.status(args.id).document.get("options", {}).get("partitions")
    if expected is not None and max(partitions) > expected:
        raise ValueError(
            f"the run has {expected} partitions, and streams of {len(taken)}: --partition N"
            " --replace uploads one anew"
        )
    complete = {stream.id for stream in streams if stream.complete}
    for state in states:
        if state.stream not in complete:
            end = "unfinished: its own file, or --replace, completes it"
        else:
            end = "stored already"
            if state.source is not None:  # a file is known again by its bytes
                Path(directory, str(state.partition)).unlink(missing_ok=True)
        say(f"partition {state.partition} is {end}")
    return partitions


def _known(
    file: str | None, states: Sequence[UploadState], streams: Sequence[Stream]
) -> tuple[UploadState | None, Stream | None]:
    """The state that goes on with a file, and the stream that has its bytes, if there are any."""
    if file is None or not Path(file).is_file():  # what comes only once
        return next((state for state in states if state.source is None), None), None
    with contextlib.closing(open_source(file)) as source:
        identity = source.identity()
        own = next((state for state in states if state.source == identity), None)
        return own, next((stream for stream in streams if stream.holds(source)), None)


def _natural(name: str) -> list[tuple[str, int]]:
    """What puts names in the order of their numbers."""
    return [(word, int(digits or 0)) for word, digits in re.findall(r"(\D*)(\d*)", name)]


def _parts(args: argparse.Namespace, client: Client) -> list[Part]:
    """The partitions that the arguments name, or those that are free.

    Raises:
        ValueError: files and partitions do not match.
    """
    if bool(args.file) is bool(args.exec):
        raise ValueError("give either FILEs or --exec CMD")
    if args.file.count("-") > 1:
        raise ValueError("stdin is one stream")
    if args.file == sorted(args.file) and len(args.partition or ()) < 2:  # noqa: PLR2004 - one each
        args.file.sort(key=_natural)  # a shell lists p10.bin before p2.bin
    partitions: list[int] = args.partition or ([1] if args.replace else [])
    partitions = partitions or _free_partitions(args, client)
    if args.file and len(partitions) == 1:
        partitions = [partitions[0] + i for i in range(len(args.file))]
    if args.file and len(partitions) != len(args.file):
        raise ValueError(f"{len(args.file)} files are not {len(partitions)} partitions")
    if len(set(partitions)) < len(partitions):
        raise ValueError("a partition is named twice")
    parts = []
    for i, partition in enumerate(partitions):
        command = [word.replace("{partition}", str(partition)) for word in args.exec or ()]
        file = args.file[i] if args.file else None
        source: SourceLike | None = 0 if file == "-" else file
        state = _directory(args) / str(partition)
        parts.append(Part(partition, source, command or None, state, args.replace))
    return parts


def _upload(args: argparse.Namespace, client: Client) -> int:
    if Path(args.id).is_file():
        raise ValueError(f"{args.id} is a file: thalweg run upload RUN FILE…, with the run first")
    parts, directory = _parts(args, client), _directory(args)
    directory.mkdir(parents=True, exist_ok=True)
    bars = make_bars(args, [part.partition for part in parts])
    codes = []

    def ended(part: Part, result: Uploaded | Exception) -> None:
        if bars is not None:
            bars.clear()
        codes.append(_report(args, part, result))

    how: dict[str, Any] = {"parallel": args.parallel, "progress": bars, "ended": ended}
    try:
        client.runs.upload_all(args.id, parts, **how)
    finally:
        if bars is not None:
            bars.clear()
        # It stays if the next call needs what is in it.
        with contextlib.suppress(OSError):
            directory.rmdir()
    return max(codes)


def _report(args: argparse.Namespace, part: Part, result: Uploaded | Exception) -> int:
    """Say how an upload ended; the exit code."""
    if isinstance(result, Uploaded):
        if not args.quiet:
            already = "" if result.sent else " already"
            say(f"partition {part.partition}: {result.bytes:,} bytes are stored{already}")
        return 0
    code = exit_code(result)
    refusal = result if isinstance(result, ProblemError) and code != EXIT_CONNECTION else None
    say(f"partition {part.partition}: {told(result)}")
    has_fault = refusal is not None and (refusal.offset is not None or "failed" in refusal.code)
    if has_fault or isinstance(result, StateError):
        say(f"partition {part.partition}: --partition {part.partition} --replace uploads it anew")
    elif not refusal and (_directory(args) / str(part.partition)).exists():
        say(f"partition {part.partition}: the same command goes on where it stopped")
    return code
