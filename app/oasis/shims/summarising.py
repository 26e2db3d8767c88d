"""``summarypy``: from a stream of items to a stream of summaries for each set.

Streams have no end marker. Where a stream of items is faulty, what was written to a fifo so far
looks like a whole stream to its readers; so it gets half a block more, at which they fail too.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self

from app.losses.outputs import Output, Outputs
from app.losses.pipes import PipeOutput
from app.losses.sources import STDIN, Sources
from core.arrays import Octets, Rows
from core.errors import InputError, OptionError
from core.losses.format import ID_MAX
from core.losses.summaries import JoinedSummaries, Reading

from .certifying import Writer
from .environment import read_environment
from .files import tool_outputs
from .process_log import ProcessLog
from .reading import policy
from .summary_sets import prepare, read_sets
from .watching import watching

_HALF_A_BLOCK: Final = struct.pack("<i", ID_MAX)
_ERROR_FILE: Final = "event_error.json"
"""Tells the peer's replay of a failed run which event it failed in."""


def summarypy(args: argparse.Namespace, _log: ProcessLog) -> None:
    """Write the streams, and with ``-m`` their indices.

    Raises:
        CoreError: the stream, the xref or an output is unusable.
        BrokenPipeError: the reader of a stream has gone.
    """
    width = read_environment().float_width
    if args.run_type is None:
        raise OptionError("the perspective is not named", hint="Give -t gul, il or ri")
    folder = Path(args.static_path)
    if args.create_summarypy_files:
        prepare(folder, args.run_type)
        return
    paths = _paths(args.summary_sets_output)
    stream = args.files_in or STDIN
    writer = Writer(stream, paths)
    with (
        watching(),
        tool_outputs(live=True) as outputs,
        _SummaryFiles(outputs, writer, paths, indexed=args.low_memory) as files,
    ):
        sets = read_sets(folder, args.run_type, list(paths))
        # The peer reads NaN as no loss here, and only here.
        reading = Reading(policy(width, nan="zero"), zeros=args.output_zeros)
        with Sources([stream]) as sources:
            names = [source.name for source in sources.sources]
            summaries = JoinedSummaries(names, sets, files.write, reading, files.write_index)
            _pump(sources, summaries)
        writer.certify(summaries.summarisers[0].events)
        # Readers of fifos are not to take a stream for whole whose index finds no room, and a
        # process is not to end before they are there.
        outputs.save()


def _paths(words: Sequence[str]) -> dict[int, str]:
    """The files of the sets, from words such as ``-1 S1.bin -2 S2.bin``."""
    numbers, paths = words[::2], words[1::2]
    understood = all(word[:1] == "-" and word[1:].isdecimal() for word in numbers)
    if len(numbers) != len(paths) or not words or not understood:
        raise OptionError(
            f"sets and files are not understood: {' '.join(words)!r}",
            hint="Give pairs such as -1 S1.bin -2 S2.bin",
        )
    return {int(word[1:]): path for word, path in zip(numbers, paths, strict=True)}


def _pump(sources: Sources, summaries: JoinedSummaries) -> None:
    try:
        while (piece := sources.read()) is not None:
            part, data = piece
            if len(data):
                summaries.receive(part, data)
            else:
                summaries.close(part)
    except Exception:
        event = summaries.summarisers[0].open_event
        if event:
            # The fault matters more than the file that helps to look into it.
            with contextlib.suppress(OSError):
                Path(_ERROR_FILE).write_text(json.dumps({"event_id": event}), encoding="utf-8")
        raise


class _SummaryFiles:
    """A stream for each set, and an index if asked for.

    They are opened in the order of the command line: a fifo waits for its reader. An error leaves
    in fifos what no reader takes for a whole stream.

    Args:
        outputs: of which the files are.
        writer: counts what is written.
        paths: of the streams, by set.
        indexed: whether to write indices, whose suffix is ``.idx``.

    Raises:
        InputError: one cannot be written.
    """

    def __init__(
        self, outputs: Outputs, writer: Writer, paths: dict[int, str], *, indexed: bool
    ) -> None:
        self._writer = writer
        self._streams = {set_id: outputs.open(path) for set_id, path in paths.items()}
        self._indices: dict[int, Output] = {}
        for set_id, path in paths.items() if indexed else ():
            head, dot, _ = path.rpartition(".")
            self._indices[set_id] = outputs.open(f"{head if dot else path}.idx")

    def write(self, set_id: int, octets: Octets) -> None:
        """Write the next bytes of a stream; the reader of a fifo gets them at once."""
        self._writer.add(set_id, octets.data)
        self._streams[set_id].write(octets.data)

    def write_index(self, set_id: int, rows: Rows) -> None:
        """Write the next rows of an index."""
        if self._indices:
            self._indices[set_id].write(rows.tobytes())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            return
        for stream in self._streams.values():
            if isinstance(stream, PipeOutput):
                with contextlib.suppress(OSError, InputError):
                    stream.write(_HALF_A_BLOCK)
