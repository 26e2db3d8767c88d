"""The streams of a run: which files and fifos, and how they are read together.

All streams of a command are read by one loop, in the order in which bytes arrive, since those of
several perspectives come out of the same processes: whoever read one to its end first would
wait for ever. In event order a partition that is far ahead of the others is left alone until
they have caught up; its writer waits, and the rows in memory stay bounded::

    gul_P1  |------------>            ahead: not read until P2 has come nearer
    gul_P2  |---->                    read
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Protocol

from app.losses.sources import Sources
from core.errors import CoreError, InputError, OptionError

from .directory import RunDirectory
from .settings import Losses

_NAMED = re.compile(r"((?:gul|il|ri|rl)(?:_IP[1-9][0-9]*)?)(?:_S([1-9][0-9]*))?=(.+)")


@dataclass(frozen=True, slots=True)
class StreamOption:
    """One stream as a command names it."""

    losses: str
    """Name of the losses, such as ``ri_IP1``."""
    set_id: int | None
    """Set of a stream of summaries; None for a stream of items."""
    path: str

    @classmethod
    def parse(cls, text: str) -> StreamOption:
        """Parse ``gul=FILE``, ``ri_IP1=FILE`` or, of summaries, ``gul_S1=FILE``.

        Raises:
            OptionError: it is none of these.
        """
        match = _NAMED.fullmatch(text)
        if match is None:
            raise OptionError(
                f"--stream {text!r} does not say what it is a stream of",
                hint="Write gul=FILE, il=FILE, ri=FILE, ri_IP1=FILE or rl_IP1=FILE;"
                " gul_S1=FILE for summaries of set 1",
            )
        return cls(match[1], None if match[2] is None else int(match[2]), match[3])


@dataclass(frozen=True, slots=True)
class StreamGroup:
    """Partitions of the streams of some losses, of items or of one set's summaries."""

    losses: Losses
    set_id: int | None
    paths: tuple[str, ...]


def stream_groups(directory: RunDirectory, options: Sequence[StreamOption]) -> list[StreamGroup]:
    """The streams of a run: those named, else the fifos or files in its folder ``fifo``.

    Raises:
        InputError: a stream is missing that the settings ask reports of.
        OptionError: a stream is named that they do not ask for.
    """
    if not options:
        return [_found(directory, losses) for losses in directory.losses()]
    named = list(dict.fromkeys(option.losses.partition("_")[0] for option in options))
    for perspective in named:
        if perspective not in directory.settings.sets:
            raise OptionError(
                f"--stream names {perspective}, but {directory.settings.source} asks for no"
                f" output of {perspective}"
            )
    groups = []
    rest = dict.fromkeys(option.losses for option in options)
    for losses in directory.losses(named):
        own = [option for option in options if option.losses == losses.name]
        rest.pop(losses.name, None)
        groups += _groups(directory, losses, own)
    if rest:
        names = ", ".join(rest)
        raise OptionError(f"--stream names {names}, which the settings do not ask for")
    return groups


def _groups(
    directory: RunDirectory, losses: Losses, options: Sequence[StreamOption]
) -> list[StreamGroup]:
    items = tuple(option.path for option in options if option.set_id is None)
    summaries = [option for option in options if option.set_id is not None]
    if items and summaries:
        raise OptionError(f"--stream names items and summaries of {losses.name}: choose one")
    if items:
        return [StreamGroup(losses, None, items)]
    groups = []
    requested = [request.set_id for request in directory.requests(losses)]
    for set_id in requested:
        paths = tuple(option.path for option in summaries if option.set_id == set_id)
        if not paths:
            label = f"{losses.name}_S{set_id}" if summaries else losses.name
            raise InputError(
                f"the settings ask for outputs of {label}, but no stream of it is named",
                hint=f"Name it with --stream {label}=FILE",
                source=directory.settings.source,
            )
        groups.append(StreamGroup(losses, set_id, paths))
    for option in summaries:
        if option.set_id not in requested:
            raise OptionError(
                f"--stream names set {option.set_id} of {losses.name}, of which the settings"
                " ask for nothing"
            )
    return groups


def _found(directory: RunDirectory, losses: Losses) -> StreamGroup:
    folder = directory.path / "fifo"
    named = re.compile(rf"{losses.name}_P([1-9][0-9]*)")
    paths = {
        int(match[1]): str(path)
        for path in folder.glob(f"{losses.name}_P*")
        if (match := named.fullmatch(path.name))
    }
    if not paths:
        raise InputError(
            f"the settings ask for outputs of {losses.name}, but there is no stream of it",
            hint=f"Name it with --stream {losses.name}=FILE; without, {folder}/{losses.name}_P1,"
            " _P2, ... are read",
            source=directory.settings.source,
        )
    return StreamGroup(losses, None, tuple(paths[process] for process in sorted(paths)))


class Partitioned(Protocol):
    """What takes the bytes of a group of streams."""

    @property
    def waiting_bytes(self) -> int:
        """Bytes of rows that wait for the slowest partition."""

    def slowest(self) -> int | None:
        """The open partition that stands at the lowest event."""

    def receive(self, index: int, data: Any, /) -> None:  # noqa: ANN401 - any buffer
        """Take the next bytes of a partition."""

    def close(self, index: int, /) -> None:
        """A partition has ended."""


def read_streams(
    groups: Sequence[tuple[Sequence[str], Partitioned]],
    *,
    in_order: bool,
    limit: int,
    idle_timeout: float | None,
    observe: Callable[[int], None],
) -> None:
    """Read all streams to their ends.

    Args:
        groups: paths of the partitions of a group, and what takes them.
        in_order: whether rows wait for the slowest partition of their group.
        limit: bytes of rows of a group that may wait before others than the slowest stop.
        idle_timeout: seconds without a byte after which to give up.
        observe: called with the number of bytes of each piece.

    Raises:
        CoreError: a stream is faulty, missing or silent.
    """
    paths = [path for group, _ in groups for path in group]
    places = [
        (number, part) for number, (group, _) in enumerate(groups) for part in range(len(group))
    ]
    firsts = list(accumulate((len(group) for group, _ in groups), initial=0))
    turn = 0
    with Sources(paths, idle_timeout) as sources:
        while True:
            preferred = None
            if in_order:
                turn = (turn + 1) % len(groups)
                slowest = groups[turn][1].slowest()
                preferred = None if slowest is None else firsts[turn] + slowest
            piece = sources.read(preferred)
            if piece is None:
                return
            index, data = piece
            number, part = places[index]
            taker = groups[number][1]
            try:
                taker.receive(part, data) if len(data) else taker.close(part)
            except CoreError as e:
                if e.source is None:
                    e.source = sources.sources[index].name
                raise
            observe(len(data))
            if in_order:
                _hold_back(sources, taker, firsts[number], len(groups[number][0]), limit)


def _hold_back(sources: Sources, taker: Partitioned, first: int, count: int, limit: int) -> None:
    """Stop reading partitions that are far ahead, and go on when they are not any more."""
    held: Iterable[int] = ()
    if taker.waiting_bytes > limit:
        slowest = taker.slowest()
        held = () if slowest is None else set(range(count)) - {slowest}
    for part in range(count):
        sources.hold(first + part, held=part in held)
