"""The command ``thalweg run upload``: partitions of a run, side by side."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ..errors import ThalwegError
from ..losses.sources import SourceLike
from ..runs.options import PARALLEL, Part
from ..runs.uploading import Uploaded
from ..transport.retry import is_retryable
from .arguments import add_behaviour, connect, count, new_command, ranges
from .console import EXIT_CONNECTION, EXIT_DATA, fail, make_bars, say


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
    upload.add_argument("id", metavar="RUN")
    upload.add_argument("file", nargs="*", metavar="FILE", help="files or fifos, - for stdin")
    upload.add_argument(
        "--partition",
        type=ranges,
        default=[1],
        metavar="LIST",
        help="of the files, such as 3 (the first one's, default 1) or 1,4-6",
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


def _parts(args: argparse.Namespace) -> list[Part]:
    """The partitions that the arguments name.

    Raises:
        ValueError: files and partitions do not match.
    """
    partitions: list[int] = args.partition
    if bool(args.file) is bool(args.exec):
        raise ValueError("give either FILEs or --exec CMD")
    if args.file and len(partitions) == 1:
        partitions = [partitions[0] + i for i in range(len(args.file))]
    if args.file and len(partitions) != len(args.file):
        raise ValueError(f"{len(args.file)} files are not {len(partitions)} partitions")
    if len(set(partitions)) < len(partitions):
        raise ValueError("a partition is named twice")
    if args.file.count("-") > 1:
        raise ValueError("stdin is one stream")
    parts = []
    for i, partition in enumerate(partitions):
        command = [word.replace("{partition}", str(partition)) for word in args.exec or ()]
        file = args.file[i] if args.file else None
        source: SourceLike | None = 0 if file == "-" else file
        state = _directory(args) / str(partition)
        parts.append(Part(partition, source, command or None, state, args.replace))
    return parts


def _upload(args: argparse.Namespace) -> int:
    parts, directory = _parts(args), _directory(args)
    directory.mkdir(parents=True, exist_ok=True)
    bars = make_bars(args, [part.partition for part in parts])
    codes = []
    try:
        with connect(args) as client:
            results = client.runs.upload_all(args.id, parts, parallel=args.parallel, progress=bars)
            for part, result in results:
                if bars is not None:
                    bars.clear()
                codes.append(_report(args, part, result))
    finally:
        if bars is not None:
            bars.clear()
        _tidy(directory)
    return max(codes)


def _report(args: argparse.Namespace, part: Part, result: Uploaded | Exception) -> int:
    """Say how an upload ended; the exit code."""
    if isinstance(result, Uploaded):
        if not args.quiet:
            say(f"partition {part.partition}: {result.bytes:,} bytes are stored")
        return 0
    connection = isinstance(result, ThalwegError) and is_retryable(result)
    fail(f"partition {part.partition}: {result}", 0)
    if (_directory(args) / str(part.partition)).exists():
        say(f"partition {part.partition}: the same command goes on where it stopped")
    return EXIT_CONNECTION if connection else EXIT_DATA


def _tidy(directory: Path) -> None:
    """Remove the directory of state files, if none is left."""
    try:
        directory.rmdir()
    except OSError:
        return  # the next call needs them
