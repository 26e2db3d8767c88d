# Made from asynchronous.py by deploy/unasync.py (make fmt): change that one.
"""Reading views with blocking calls."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from ..errors import ProtocolError, check_fingerprint, data_changed
from ..files.downloads import Download
from ..files.outputs import check_target
from ..transport.channel import Channel, Connector
from ..transport.frames import Array
from ..transport.streams import Items
from .lazy import LazyView
from .plan import Plan, Tile
from .requests import TileRequests
from .saving import Count, Observe, TileProgress, TileSaving, naming, saved_token
from .stream import OneMemory, Start, Stretch, memory_for
from .streams import TileStream


class Tiles(Items[Tile]):
    """The tiles of a view as they arrive; an iterator and a context manager.

    Each tile comes once and in order, whatever happens to the network.

    Raises (from iteration):
        ProblemError: the service refused, or the data has changed (code ``data-changed``).
        ConnectionFailed, ProtocolError: more failures in a row than are tolerated.
    """

    def __init__(
        self,
        channel: Channel,
        requests: TileRequests,
        find: Callable[[], Stretch],
        after: str | None,
    ) -> None:
        super().__init__(channel, self._run())
        self._requests = requests
        self._find = find
        self._after = after
        self._stream: TileStream | None = None
        self._opened()

    def _opened(self) -> TileStream:
        if self._stream is None:
            self._stream = TileStream(self._channel, self._requests, self._find())
        return self._stream

    def _run(self) -> Generator[Tile, None, None]:
        stream = self._opened()
        yield from stream.run()

    @property
    def token(self) -> str | None:
        """Token to resume with after the last tile delivered; None before the first request."""
        return self._after if self._stream is None else self._stream.token

    @property
    def plan(self) -> Plan:
        """All tiles of the view.

        Raises:
            ValueError: the service has not been asked yet, which ``View.plan`` does.
        """
        if self._stream is None:
            raise ValueError("the plan is not known before the first tile is asked for")
        return self._stream.plan


@dataclass(frozen=True, slots=True)
class _Kept:
    """A view that the service keeps, tied to the data as it was then.

    Attributes:
        id: of the view.
        fingerprint: of the data.
        token: before the first tile.
    """

    id: str
    fingerprint: str
    token: str


class View:
    """A selection of a dataset, converted and cut into tiles: the result of ``Dataset.view``.

    The service is not asked before something has to be known.

    Args:
        connector: of the client.
        dataset: id of the dataset.
        spec: the view, as JSON values.
        fingerprint: of the data that it is of; None for any.
    """

    def __init__(
        self,
        connector: Connector,
        dataset: str,
        spec: Mapping[str, Any],
        fingerprint: str | None = None,
    ) -> None:
        self._connector = connector
        self.dataset = dataset
        self.spec = dict(spec)
        self._requests = TileRequests(dataset, self.spec)
        self._fingerprint = fingerprint
        self._token: str | None = None
        self._plan: Plan | None = None
        self._grows = False
        self._kept: _Kept | None = None

    def __array__(self, *_: object, **__: object) -> NoReturn:
        """Refuse to be read by NumPy, which would take the view for a single object."""
        raise TypeError("a view is no array before it is read: view.read() gives one")

    @property
    def plan(self) -> Plan:
        """Shapes of the view and its tiles, and the place of each tile."""
        if self._plan is None:
            reply = self._connector.call(self._requests.plan())
            plan = Plan.parse(reply.json())
            self._grows = "frames" in reply.json()
            if self._fingerprint is not None:
                self._check(reply.text("fingerprint"))
            if self._fingerprint is not None or self._grows:
                self._token = reply.text("token")
            self._plan = plan
        return self._plan

    def _plan_of(self, token: str | None) -> Plan:
        """The plan of the data that a token is of: a growing dataset has more frames by now."""
        plan = self.plan
        if token is None or not self._grows:
            return plan
        return Plan.parse((self._connector.call(self._requests.plan(token))).json())

    def _check(self, now: str) -> None:
        """Check that the data is that of the view, or of the kept view.

        Raises:
            ProblemError: it has changed (code ``data-changed``).
        """
        was = self._fingerprint if self._kept is None else self._kept.fingerprint
        check_fingerprint(was, now)

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the axes of the whole view."""
        return self.plan.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the values."""
        return self.plan.dtype

    @property
    def nbytes(self) -> int:
        """Bytes of all values."""
        return self.plan.nbytes

    @property
    def id(self) -> str:
        """Id under which the service keeps the view, for ``/zarr/{id}`` and others.

        Asking for it keeps the view and ties it to the data as it is now.
        """
        return (self._keep()).id

    @property
    def zarr_url(self) -> str:
        """Address of the view as a zarr group, for ``zarr.open`` and ``xarray.open_zarr``.

        It is of the data as it is now: once the data has changed, reading fails.
        """
        kept = self._keep()
        return f"{self._connector.url}/zarr/{kept.id}.{kept.fingerprint}"

    def _keep(self) -> _Kept:
        """Have the service keep the view, once.

        Raises:
            ProblemError: the plan is not what it was (code ``data-changed``).
        """
        if self._kept is None:
            reply = self._connector.call(self._requests.keep())
            plan = Plan.parse(reply.json())
            if self._plan is None:
                self._plan = plan
            if self._plan != plan:
                raise data_changed(f"the view had shape {self._plan.shape}, now {plan.shape}")
            self._check(reply.text("fingerprint"))
            self._kept = _Kept(reply.text("id"), reply.text("fingerprint"), reply.text("token"))
        return self._kept

    def lazy(self) -> LazyView:
        """The view as an array that fetches tiles where it is indexed; pickled with the key."""
        kept = self._keep()
        plan = self.plan
        return LazyView(self._connector.blocking(), self.dataset, kept.id, kept.fingerprint, plan)

    def to_dask(self) -> Any:  # noqa: ANN401 - the library is imported when it is asked for
        """A ``dask.array`` of the view as the data is now, with a chunk for each tile.

        Threads and processes of dask fetch tiles as they need them; once the data has changed,
        they raise ProblemError with the code ``data-changed``.

        Raises:
            ThalwegError: the service refused, or could not be reached.
            ImportError: dask is not installed.
        """
        lazy = self.lazy()
        return lazy.to_dask()

    def to_xarray(self) -> Any:  # noqa: ANN401 - as above
        """An ``xarray.DataArray`` over ``to_dask``, with the names, coordinates and units of axes.

        Raises:
            ThalwegError: the service refused, or could not be reached.
            ImportError: xarray or dask is not installed.
        """
        lazy = self.lazy()
        with self._connector.channel() as channel:
            return channel.work(lazy.to_xarray)

    def tiles(
        self,
        after: str | None = None,
        *,
        first: int = 0,
        max_tiles: int | None = None,
        out: Array | None = None,
    ) -> Tiles:
        """Stream tiles.

        Args:
            after: token to resume after; excludes ``first``.
            first: index of the tile to begin with.
            max_tiles: number of tiles; None for all.
            out: array of the whole view to read into; the data of each tile is a view of it.

        Raises:
            ProblemError: the service refused.
            ConnectionFailed: it could not be reached.
            ValueError: an argument is wrong, or does not fit.
        """
        return self._open(partial(self._stretch, after, first, max_tiles, out), after)

    def _open(self, find: Callable[[], Stretch], after: str | None) -> Tiles:
        return Tiles(self._connector.channel(), self._requests, find, after)

    def _stretch(
        self, after: str | None, first: int, limit: int | None, out: Array | None
    ) -> Stretch:
        """The tiles that the arguments of ``tiles`` select."""
        plan = self._plan_of(after)
        memory = memory_for(plan, out)
        if after is not None:
            if first:
                raise ValueError("after and first exclude each other")
            return Stretch(plan, Start(after), limit, memory)
        if not 0 <= first <= plan.tiles:
            raise ValueError(f"there is no tile {first}: there are {plan.tiles}")
        (start,) = self._starts([first])
        if first:
            left = plan.tiles - first
            limit = left if limit is None else min(left, limit)
        return Stretch(plan, start, limit, memory)

    def _first(self) -> Start:
        return Start(self._token if self._kept is None else self._kept.token, 0)

    def _starts(self, tiles: list[int]) -> list[Start]:
        """Where to begin with each of some tiles, all of the same data."""
        if tiles == [0]:
            return [self._first()]
        kept = self._keep()
        starts = []
        for tile in tiles:
            token = kept.token if not tile else self._token_after(kept.id, tile - 1)
            starts.append(Start(token, tile))
        self._check_now()
        return starts

    def _check_now(self) -> None:
        """Check that the data is still that of the view; see ``_check``."""
        reply = self._connector.call(self._requests.keep())
        self._check(reply.text("fingerprint"))

    def _token_after(self, view: str, tile: int) -> str:
        reply = self._connector.call(self._requests.tile_head(view, tile))
        token = reply.head.headers.get("thalweg-token")
        if token is None:
            raise ProtocolError(f"the service does not say where to resume after tile {tile}")
        return token

    def parallel(self, n: int, *, out: Array | None = None) -> list[Tiles]:
        """Cut the tiles into at most n stretches, for readers in parallel.

        All of them are of the same data: if it changes, those that read on raise.

        Args:
            n: number of stretches.
            out: array of the whole view to read into, as for ``tiles``.
        """
        stretches = self._stretches(n, out)
        return [self._open(partial(_known, each), each.start.token) for each in stretches]

    def _stretches(self, n: int, out: Array | None) -> list[Stretch]:
        plan = self.plan
        ranges = plan.stretches(n)
        starts = self._starts([tiles.start for tiles in ranges])
        return [
            Stretch(plan, start, len(tiles), memory_for(plan, out))
            for start, tiles in zip(starts, ranges, strict=True)
        ]

    def read(
        self, out: Array | None = None, *, threads: int = 1, progress: Observe | None = None
    ) -> Array:
        """The whole view as one array.

        Args:
            out: array to read into; a new one by default. After an error it holds a part.
            threads: how many to read with, side by side.
            progress: called whenever a tile has arrived.

        Raises:
            ThalwegError: as for iterating over ``tiles``.
            ValueError: ``out`` does not fit.
        """
        plan = self.plan
        plan.warn_of_crumbs()
        array = np.empty(plan.shape, plan.dtype) if out is None else out
        take = Count(plan, progress).add
        with self._connector.channel(workers=max(threads, 1)) as channel:
            if threads > 1:
                stretches = self._stretches(threads, array)
                jobs = [channel.beside(partial(self._read, each, take)) for each in stretches]
                for job in jobs:
                    channel.join(job)
            else:
                self._read(self._stretch(None, 0, None, array), take, channel)
        return array

    def _read(self, stretch: Stretch, take: Callable[[Tile], None], channel: Channel) -> None:
        for tile in TileStream(channel, self._requests, stretch).run():
            take(tile)

    def to_npy(
        self, path: str | Path, *, state: str | Path | None = None, progress: Observe | None = None
    ) -> None:
        """Write the whole view to a .npy file, or to a .raw file without a header.

        The file appears once it is complete, in place of one of that name. Values are in C order,
        whatever the tiles.

        Args:
            path: of the file.
            state: file that lets the same call resume after a kill. Removed at the end.
            progress: called whenever a tile was written.

        Raises:
            ThalwegError: as for iterating over ``tiles``; StateError if the state does
                not fit.
            ValueError: it has another ending.
            OSError: the file cannot be written.
        """
        check_target(Path(path), ".npy", ".raw")
        with naming(state):
            plan = self._plan_of(saved_token(state))
            plan.warn_of_crumbs()
            saving = TileSaving(
                Path(path), plan, {"dataset": self.dataset, "view": self.spec}, state
            )
            with self._connector.channel() as channel:
                try:
                    channel.work(saving.open)
                    start = self._first() if saving.start.token is None else saving.start
                    stretch = Stretch(plan, start, None, OneMemory(plan))
                    for tile in TileStream(channel, self._requests, stretch).run():
                        channel.work(partial(saving.take, tile))
                        if progress is not None:
                            progress(saving.progress())
                    channel.work(saving.finish)
                finally:
                    saving.stop()

    def raw(
        self, path: str | Path, *, state: str | Path | None = None, progress: Observe | None = None
    ) -> None:
        """Write the values of all tiles, one after the other, as the service's ``raw`` has them.

        After a cut it resumes at the exact byte, even within a tile; but unlike tiles, the
        bytes have no checksums on the way.

        Args:
            path: of the file; it appears once it is complete.
            state: as for ``to_npy``.
            progress: called now and then; tiles are not counted.

        Raises:
            ThalwegError, OSError: as for ``to_npy``.
        """
        with naming(state):
            kept = self._keep()
            self._check_now()
            size = self.plan.nbytes

            def observe(offset: int) -> None:
                if progress is not None:
                    progress(TileProgress(offset, size, 0))

            with self._connector.channel() as channel:
                request = self._requests.raw(kept.id)
                download = Download(channel, request, "view", kept.id, path, state, size)
                download.save(observe)


def _known(stretch: Stretch) -> Stretch:
    return stretch
