"""The commands ``split`` and ``merge``: a stream into partitions, and their tables into one."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import numpy as np
import structlog

from app.losses.merging import MergeJob, merge_tables
from app.losses.outputs import STDOUT, Output, Outputs, check_free
from app.losses.sources import CHUNK, STDIN, Source, Sources
from core.arrays import Indices
from core.errors import InputError, OptionError
from core.losses.events import Event
from core.losses.format import header_size
from core.losses.policy import Policy
from core.losses.reader import LossReader

from .reading import announce_compiling, policy_of, refuse_live


def split_stream(
    name: str, partitions: int, folder: Path, policy: Policy, *, force: bool = False
) -> list[Path]:
    """Write the events of a stream, in their order, to files of about as many bytes each.

    Args:
        name: path of the stream.
        partitions: number of files.
        folder: where to write them, as ``<stem>_P1.bin`` and so on.
        policy: what to accept.
        force: whether to replace files.

    Returns:
        Their paths.

    Raises:
        OptionError: the stream is not a regular file, or has fewer events than partitions; or
            a file is there already.
        CoreError: the stream is faulty; no file is written then.
    """
    with Sources([name]) as sources:
        if sources.total is None:
            hint = "Write the stream to a file first"
            raise OptionError("only a file can be split, as its length is known", hint=hint)
        reader = LossReader(policy, name=name)
        ends = np.fromiter(_ends_of_events(sources, reader), np.int64)
    if not 1 <= partitions <= len(ends):
        raise OptionError(f"--partitions is {partitions}, not 1 to {len(ends):,}, the events")
    assert reader.header is not None  # noqa: S101 - it has events
    begin = header_size(reader.header.kind)
    stem = "stream" if name == STDIN else Path(name).stem
    paths = [folder / f"{stem}_P{k}.bin" for k in range(1, partitions + 1)]
    check_free(paths, force=force)
    cuts = [begin, *_cuts(ends, begin, partitions)]
    with closing(Source(name)) as source, Outputs() as outputs:
        for path, (start, stop) in zip(paths, pairwise(cuts), strict=True):
            output = outputs.open(path)
            _copy(source, 0, begin, output)
            _copy(source, start, stop, output)
    return paths


def _ends_of_events(sources: Sources, reader: LossReader) -> Iterator[int]:
    """Yield the byte offset at which each event of a stream ends."""
    while (piece := sources.read()) is not None:
        if len(piece[1]):
            reader.receive(piece[1])
        else:
            reader.close()
        while isinstance(reader.next_event(), Event):
            yield reader.position.offset


def _cuts(ends: Indices, begin: int, partitions: int) -> Sequence[int]:
    """Return the end of each partition, which has one event at least."""
    cuts, last = [], -1
    for k, target in enumerate(np.linspace(begin, ends[-1], partitions + 1)[1:], 1):
        nearest = int(np.searchsorted(ends, target))
        last = min(max(nearest, last + 1), len(ends) - 1 - (partitions - k))
        cuts.append(int(ends[last]))
    return cuts


def _copy(source: Source, start: int, stop: int, output: Output) -> None:
    while start < stop:
        octets = os.pread(source.fd, min(stop - start, CHUNK), start)
        if not octets:
            raise InputError("it was cut while it was read", source=source.name)
        output.write(octets)
        start += len(octets)


def split(args: argparse.Namespace) -> int:
    """Write the partitions of a stream, and print their paths; return the exit code."""
    announce_compiling()
    policy, folder = policy_of(args), Path(args.out)
    for path in split_stream(args.stream, args.partitions, folder, policy, force=args.force):
        print(f"{path.stat().st_size:>12,} bytes  {path}")  # noqa: T201 - the command's output
    return 0


def merge(args: argparse.Namespace) -> int:
    """Merge tables; return the exit code."""
    job = MergeJob(args.tables, args.out, args.by, args.report, args.float_width, args.live)
    refuse_live(args, [args.out])
    if "float_width" in args.given and not args.tables[0].endswith(".bin"):
        raise OptionError("--float-width is of packed records", hint="Leave it out")
    check_free([] if args.out == STDOUT else [Path(args.out)], force=args.force)
    rows = merge_tables(job)
    structlog.get_logger().info("tables merged", tables=len(job.tables), rows=rows)
    return 0
