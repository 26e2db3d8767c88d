"""The command ``thalweg run upload``: the streams of partitions, several at a time."""

from __future__ import annotations

import argparse
import contextlib
import itertools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..client import Client
from ..errors import ProblemError, StateError
from ..files.state import StateFile
from ..losses.sources import SourceLike, open_source
from ..runs.async_upload import MEMBER
from ..runs.requests import PARALLEL, Part, Stream
from ..runs.uploading import Uploaded, UploadState
from .arguments import PROGRESS, Options, count, new_command, ranges
from .console import EXIT_CONNECTION, exit_code, make_bars, say, told

_UPLOAD: Options = {
    "id RUN": "id of the run, as create prints it",
    "file FILE": ("files or fifos, - for stdin", {"nargs": "*"}),
    "--partition LIST": (
        ("of the files, such as 3 (the first one's) or 1,4-6 (default: the lowest that are free)"),
        ranges,
    ),
    "--parallel K": (f"uploads at a time (default {PARALLEL})", count, {"default": PARALLEL}),
    "--replace": "delete the stream that a partition has, unless a state file goes on with it",
    "--state STATE": "directory for state files (default: RUN.thalweg-state)",
    **PROGRESS,
    "--exec CMD": (
        "upload the output of a command, for each partition; {partition} in it is its number",
        {"nargs": argparse.REMAINDER},
    ),
}


def add_upload(group: Any) -> None:  # noqa: ANN401 - argparse has no public type for it
    """Add the command to a command line."""
    text = (
        "Upload each FILE as the stream of a partition, several at a time. Running a killed or"
        " cut-off command again goes on where it stopped."
    )
    new_command(group, "upload", _upload, "upload streams of partitions", _UPLOAD, text)


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
    used = {stream.partition for stream in streams}
    named = [int(found[1]) for file in args.file if (found := _NUMBERED.search(file))]
    by_name = len(args.file) == len(set(named) - {0}) > 0
    free = (number for number in itertools.count(1) if number not in used)
    partitions: list[int] = []
    for i, file in enumerate(args.file or [None]):
        left = [stream for stream in streams if stream.partition not in partitions]
        own, holder = _known(file, states, left)
        if own is not None:
            states.remove(own)
        known = own or holder
        if known is not None:
            partitions.append(known.partition)
        else:
            partitions.append(named[i] if by_name else next(free))
            tells = _NUMBERED.search(file or "")
            if tells and 0 not in named and int(tells[1]) != partitions[-1]:
                raise ValueError(
                    f"{file} tells its partition, and other files none or the same: give"
                    f" --partition LIST for {' '.join(args.file)}"
                )
    run = client.runs.status(args.id)
    expected = run.document.get("options", {}).get("partitions")
    if expected is not None and max(partitions) > expected and run.state != "done":
        raise ValueError(
            f"the run has {expected} partitions, and streams of {len(used)}: --partition N"
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


_NUMBERED = re.compile(r"[pP](\d{1,6})\.\w+$")
"""Names of files that tell their partition, as gul_P3.bin does; pages go by the same."""


def _natural(name: str) -> list[tuple[str, int]]:
    """What puts names in the order of their numbers."""
    return [(word, int(digits or 0)) for word, digits in re.findall(r"(\D*)(\d*)", name)]


def _parts(args: argparse.Namespace, client: Client) -> list[Part]:
    """The partitions that the arguments name, or those that are free.

    Raises:
        ValueError: files and partitions do not match.
    """
    if bool(args.file) is bool(args.exec):
        raise ValueError("give either FILEs (- is standard input) or --exec CMD")
    if args.file.count("-") > 1:
        raise ValueError("stdin is one stream")
    if args.file == sorted(args.file) and len(args.partition or ()) < 2:  # noqa: PLR2004 - one each
        args.file.sort(key=_natural)  # a shell lists p10.bin before p2.bin
    partitions: list[int] = args.partition or ([1] if args.replace else [])
    partitions = partitions or _free_partitions(args, client)
    if args.file and len(partitions) == 1:
        partitions = [partitions[0] + i for i in range(len(args.file))]
    if args.file and len(partitions) != len(args.file):
        raise ValueError(f"FILEs: {len(args.file)}, partitions: {len(partitions)}; give one each")
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
    if len(args.file) > 1 and not args.quiet:
        pairs = zip(parts, args.file, strict=True)
        say(", ".join(f"partition {part.partition} is {file}" for part, file in pairs))
    bars = make_bars(args, [part.partition for part in parts])
    codes = []

    def ended(part: Part, result: Uploaded | Exception) -> None:
        if bars is not None:
            bars.clear()
        codes.append(_report(args, part, result))

    keywords: dict[str, Any] = {"parallel": args.parallel, "progress": bars, "ended": ended}
    try:
        client.runs.upload_all(args.id, parts, **keywords)
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
            name = f"{part.source}: " if isinstance(part.source, str) else ""
            say(f"partition {part.partition}: {name}{result.bytes:,} bytes are stored{already}")
        return 0
    code = exit_code(result)
    refusal = result if isinstance(result, ProblemError) and code != EXIT_CONNECTION else None
    say(f"partition {part.partition}: {told(result, args)}")
    has_fault = refusal is not None and (refusal.offset is not None or "failed" in refusal.code)
    if has_fault or isinstance(result, StateError):
        say(f"partition {part.partition}: --partition {part.partition} --replace uploads it anew")
    elif not refusal and (_directory(args) / str(part.partition)).exists():
        say(f"partition {part.partition}: the same command goes on where it stopped")
    return code
