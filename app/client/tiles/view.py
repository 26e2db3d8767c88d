"""What can be done with a view, as operations that either client runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import ProtocolError, data_changed
from ..transport.answers import call
from ..transport.effects import Join, Spawn, Steps, Work, next_item
from ..transport.frames import Array
from ..transport.retry import Backoff
from .memory import Memory, OneMemory, memory_for
from .plan import Plan, Tile
from .raw import RawSaving, RawStream
from .reductions import Reduction, Watch, reduction_json
from .requests import TileRequests
from .saving import Count, Observe, TileProgress, TileSaving
from .stream import Start, TileStream


@dataclass(frozen=True, slots=True)
class Kept:
    """A view that the service keeps, tied to the data as it was then.

    Attributes:
        id: of the view.
        fingerprint: of the data.
        token: before the first tile.
    """

    id: str
    fingerprint: str
    token: str


class ViewOperations:
    """Operations on one view of a dataset.

    Args:
        dataset: its id.
        spec: the view, as JSON values.
        retries: failures in a row to tolerate.
    """

    def __init__(self, dataset: str, spec: Mapping[str, Any], retries: int) -> None:
        self.dataset = dataset
        self.spec = dict(spec)
        self._requests = TileRequests(dataset, self.spec)
        self._retries = retries
        self._plan: Plan | None = None
        self._kept: Kept | None = None

    def plan(self) -> Steps[Plan]:
        """Ask for the plan, once."""
        if self._plan is None:
            reply = yield from call(self._requests.plan(), self._retries)
            self._plan = Plan.parse(reply.json())
        return self._plan

    def keep(self) -> Steps[Kept]:
        """Have the service keep the view, once.

        Raises:
            ProblemError: the plan is not what it was (code ``data-changed``).
        """
        if self._kept is None:
            reply = yield from call(self._requests.keep(), self._retries)
            plan = Plan.parse(reply.json())
            if self._plan is None:
                self._plan = plan
            if self._plan != plan:
                raise data_changed(f"the view had shape {self._plan.shape}, now {plan.shape}")
            self._kept = Kept(reply.text("id"), reply.text("fingerprint"), reply.text("token"))
        return self._kept

    def tiles(
        self, after: str | None, first: int, limit: int | None, out: Array | None
    ) -> Steps[TileStream]:
        """A stream of tiles that is ready to run.

        Args:
            after: token to resume after; excludes ``first``.
            first: index of the tile to begin with.
            limit: number of tiles; None for all.
            out: array of the whole view to read into.

        Raises:
            ValueError: an argument is wrong.
        """
        plan = yield from self.plan()
        memory = memory_for(plan, out)
        if after is not None:
            if first:
                raise ValueError("after and first exclude each other")
            return self._stream(plan, Start(after), limit, memory)
        if not 0 <= first <= plan.tiles:
            raise ValueError(f"there is no tile {first}: there are {plan.tiles}")
        (start,) = yield from self._starts([first])
        if first:
            left = plan.tiles - first
            limit = left if limit is None else min(left, limit)
        return self._stream(plan, start, limit, memory)

    def _stream(self, plan: Plan, start: Start, limit: int | None, memory: Memory) -> TileStream:
        backoff = Backoff(self._retries)
        return TileStream(self._requests, plan, start, limit, memory, backoff)

    def _first(self) -> Start:
        return Start(None if self._kept is None else self._kept.token, 0)

    def _starts(self, tiles: list[int]) -> Steps[list[Start]]:
        """Where to begin with each of some tiles, all of the same data."""
        if tiles == [0]:
            return [self._first()]
        kept = yield from self.keep()
        starts = []
        for tile in tiles:
            token = kept.token if not tile else (yield from self._token_after(kept.id, tile - 1))
            starts.append(Start(token, tile))
        reply = yield from call(self._requests.keep(), self._retries)
        now = reply.text("fingerprint")
        if now != kept.fingerprint:
            raise data_changed(f"the data had fingerprint {kept.fingerprint} and has {now} now")
        return starts

    def _token_after(self, view: str, tile: int) -> Steps[str]:
        reply = yield from call(self._requests.tile_head(view, tile), self._retries)
        token = reply.head.headers.get("thalweg-token")
        if token is None:
            raise ProtocolError(f"the service does not say where to resume after tile {tile}")
        return token

    def parallel(self, n: int, out: Array | None) -> Steps[list[TileStream]]:
        """Streams of at most n stretches of tiles, all of the same data."""
        plan = yield from self.plan()
        stretches = plan.stretches(n)
        starts = yield from self._starts([stretch.start for stretch in stretches])
        return [
            self._stream(plan, start, len(stretch), memory_for(plan, out))
            for start, stretch in zip(starts, stretches, strict=True)
        ]

    def read(self, out: Array | None, connections: int, progress: Observe | None) -> Steps[Array]:
        """The whole view as one array.

        Args:
            out: array to read into; a new one if None.
            connections: to read with.
            progress: called whenever a tile has arrived.

        Raises:
            ValueError: ``out`` does not fit.
        """
        plan = yield from self.plan()
        array = np.empty(plan.shape, plan.dtype) if out is None else out
        count = Count(plan, progress)
        if connections > 1:
            jobs = []
            for stream in (yield from self.parallel(connections, array)):
                jobs.append((yield Spawn(_consume(stream, count.add))))  # noqa: PERF401 - it yields
            for job in jobs:
                yield Join(job)
        else:
            stream = yield from self.tiles(None, 0, None, array)
            yield from _consume(stream, count.add)
        return array

    def to_npy(
        self, path: str | Path, state: str | Path | None, progress: Observe | None
    ) -> Steps[None]:
        """Write the values to a .npy file, or to a .raw file without a header.

        Args:
            path: of the file.
            state: path of the state file.
            progress: called whenever a tile was written.

        Raises:
            StateError: the state does not fit.
            OSError: the file cannot be written.
        """
        plan = yield from self.plan()
        view = {"dataset": self.dataset, "view": self.spec}
        saving = TileSaving(Path(path), plan, view, None if state is None else Path(state))
        try:
            yield Work(saving.open)
            start = self._first() if saving.start.token is None else saving.start
            tiles = self._stream(plan, start, None, OneMemory(plan)).run()
            while (tile := (yield from next_item(tiles))) is not None:
                yield Work(partial(saving.take, tile))
                if progress is not None:
                    progress(saving.progress())
            yield Work(saving.finish)
        finally:
            saving.stop()

    def raw(
        self, path: str | Path, state: str | Path | None, progress: Observe | None
    ) -> Steps[None]:
        """Write the values of all tiles, one after the other, to a file.

        Args:
            path: of the file.
            state: path of the state file.
            progress: called now and then; tiles are not counted.

        Raises:
            StateError: the state does not fit.
            OSError: the file cannot be written.
        """
        kept = yield from self.keep()
        plan = yield from self.plan()
        saving = RawSaving(Path(path), kept.id, None if state is None else Path(state))
        try:
            yield Work(saving.open)
            stream = RawStream(
                self._requests,
                kept.id,
                plan.nbytes,
                saving.offset,
                saving.etag,
                Backoff(self._retries),
            )
            pieces = stream.run()
            while (piece := (yield from next_item(pieces))) is not None:
                yield Work(partial(saving.take, piece, stream.etag))
                if progress is not None:
                    progress(TileProgress(stream.offset, plan.nbytes, 0))
            yield Work(saving.finish)
        finally:
            saving.stop()


def reduce(
    dataset: str,
    view: Mapping[str, Any],
    reduction: str | Mapping[str, Any],
    retries: int,
    progress: Watch | None,
) -> Steps[dict[str, Array]]:
    """Reduce a view on the server; the results by name.

    Args:
        dataset: its id.
        view: as JSON values.
        reduction: as in the contract, or a name.
        retries: failures in a row to tolerate.
        progress: called with how much is done, and of how much.
    """
    request = TileRequests(dataset, view).reduce(reduction_json(reduction))
    operation = Reduction(request, Backoff(retries), progress)
    yield from operation.run()
    return operation.results


def _consume(stream: TileStream, take: Callable[[Tile], None]) -> Steps[None]:
    tiles = stream.run()
    while (tile := (yield from next_item(tiles))) is not None:
        take(tile)
