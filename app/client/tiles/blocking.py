"""Reading views of datasets with blocking calls."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from ..errors import ProtocolError, data_changed
from ..files.outputs import FileOutput
from ..transport.blocking import AnswerPort, drive
from ..transport.effects import Piece
from ..transport.http import Pool
from ..transport.requests import Reply, Request
from ..transport.retry import Backoff
from .files import Count, Form, Observe, RawState, TileProgress, TileSaving, TileStateFile
from .plan import Array, Plan, Tile
from .raw import RawStream
from .requests import TileRequests
from .stream import InPlace, Memory, OneMemory, OwnMemory, Start, TileStream

_FORMS: Mapping[str, Form] = {".npy": "npy", ".raw": "raw"}


class Tiles:
    """The tiles of a view, as they come; an iterator, and a context manager.

    Tiles are handed out once each and in order, whatever becomes of connections meanwhile.

    Raises (from iteration):
        ProblemError: the service refused, or the data has changed (code ``data-changed``).
        ConnectionFailed, ProtocolError: it went wrong more often than is tolerated.
    """

    def __init__(self, stream: TileStream, port: AnswerPort) -> None:
        self._stream = stream
        self._port = port
        self._items = drive(stream.run(), port)

    @property
    def token(self) -> str | None:
        """What to go on with behind the last tile handed out; None at the beginning."""
        return self._stream.token

    @property
    def plan(self) -> Plan:
        """All tiles of the view."""
        return self._stream.plan

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Tile:
        for item in self._items:
            if isinstance(item, Tile):
                return item
        raise StopIteration

    def close(self) -> None:
        """Stop early; what was handed out stays good."""
        self._items.close()
        self._port.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class View:
    """What is wanted of a dataset: made by ``Dataset.view``.

    Nothing is asked before something has to be known.

    Args:
        pool: of connections.
        retries: faults in a row to bear.
        call: sends a small request.
        dataset: id of the dataset.
        spec: the view, as JSON values.
    """

    def __init__(
        self,
        pool: Pool,
        retries: int,
        call: Callable[[Request], Reply],
        dataset: str,
        spec: Mapping[str, Any],
    ) -> None:
        self._pool = pool
        self._retries = retries
        self._call = call
        self.dataset = dataset
        self.spec = dict(spec)
        self._requests = TileRequests.of(dataset, spec)
        self._fingerprint: str | None = None
        self._first: str | None = None

    @cached_property
    def plan(self) -> Plan:
        """Shapes of the view and of its tiles, and the place of each."""
        return Plan.parse(self._call(self._requests.plan()).json())

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the whole view."""
        return self.plan.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the values."""
        return self.plan.dtype

    @property
    def nbytes(self) -> int:
        """Bytes of all values."""
        return self.plan.nbytes

    @cached_property
    def id(self) -> str:
        """What the service keeps the view under, for ``/zarr/{id}`` and others.

        Asking for it keeps the view, and ties it to the data as it is now.
        """
        reply = self._call(self._requests.register())
        known = Plan.parse(reply.json())
        if self.__dict__.setdefault("plan", known) != known:
            raise data_changed(f"the view had shape {self.shape} and has {known.shape} now")
        self._fingerprint = reply.text("fingerprint")
        self._first = reply.text("token")
        return reply.text("id")

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
            after: token to go on behind; excludes ``first``.
            first: tile to begin with.
            max_tiles: tiles wanted at the most; None for all.
            out: array of the whole view to read into; each tile's data is its place there.

        Raises:
            ProblemError: the service refused.
            ConnectionFailed: it could not be reached.
            ValueError: an argument cannot be, or does not fit.
        """
        memory = OwnMemory(self.plan) if out is None else InPlace(self.plan, out)
        if after is not None:
            if first:
                raise ValueError("after and first exclude each other")
            return self._stream(Start(after), max_tiles, memory)
        if not 0 <= first <= self.plan.tiles:
            raise ValueError(f"there is no tile {first}: there are {self.plan.tiles}")
        (start,) = self._starts([first])
        left = self.plan.tiles - first
        wanted = left if max_tiles is None else min(left, max_tiles)
        return self._stream(start, wanted if first else max_tiles, memory)

    def _stream(self, start: Start, most: int | None, memory: Memory) -> Tiles:
        backoff = Backoff(self._retries)
        stream = TileStream(self._requests, self.plan, start, most, memory, backoff)
        return Tiles(stream, AnswerPort(self._pool))

    def _starts(self, tiles: list[int]) -> list[Start]:
        """Where to begin with each of some tiles, all of the same data."""
        if tiles == [0]:
            return [Start(self._first, 0)]
        view = self.id
        starts = [
            Start(self._token_behind(view, tile - 1) if tile else self._first, tile)
            for tile in tiles
        ]
        now = self._call(self._requests.register()).text("fingerprint")
        if now != self._fingerprint:
            raise data_changed(f"the data had fingerprint {self._fingerprint} and has {now} now")
        return starts

    def _token_behind(self, view: str, tile: int) -> str:
        reply = self._call(self._requests.tile_head(view, tile))
        token = reply.head.headers.get("thalweg-token")
        if token is None:
            raise ProtocolError(f"the service does not say where to go on behind tile {tile}")
        return token

    def parallel(self, n: int, *, out: Array | None = None) -> list[Tiles]:
        """Cut the tiles into at most n stretches, for readers in parallel.

        All of them are of the same data: if it changes, those that go on raise.

        Args:
            n: stretches wanted.
            out: array of the whole view to read into, as for ``tiles``.
        """
        stretches = self.plan.stretches(n)
        starts = self._starts([stretch.start for stretch in stretches])
        return [
            self._stream(
                start,
                len(stretch),
                OwnMemory(self.plan) if out is None else InPlace(self.plan, out),
            )
            for start, stretch in zip(starts, stretches, strict=True)
        ]

    def read(
        self, out: Array | None = None, *, threads: int = 1, progress: Observe | None = None
    ) -> Array:
        """The whole view as one array.

        Args:
            out: array to read into; made by default. After an error parts of it are read.
            threads: connections to read with.
            progress: called whenever a tile has come.

        Raises:
            ThalwegError: as for iterating over ``tiles``.
            ValueError: ``out`` does not fit.
        """
        made = np.empty(self.shape, self.dtype) if out is None else out
        if threads > 1:
            self._read_parallel(made, threads, progress)
            return made
        with self.tiles(out=made) as tiles:
            self._follow(tiles, Count(self.plan, progress), threading.Event())
        return made

    def _read_parallel(self, out: Array, threads: int, progress: Observe | None) -> None:
        count, failed = Count(self.plan, progress), threading.Event()
        with ExitStack() as stack:
            streams = [stack.enter_context(t) for t in self.parallel(threads, out=out)]
            executor = stack.enter_context(ThreadPoolExecutor(len(streams), "thalweg-tiles"))
            work = [executor.submit(self._follow, tiles, count, failed) for tiles in streams]
            for each in work:
                each.result()

    @staticmethod
    def _follow(tiles: Tiles, count: Count, failed: threading.Event) -> None:
        try:
            for tile in tiles:
                count.add(tile)
                if failed.is_set():
                    return
        except BaseException:
            failed.set()
            raise

    def to_npy(
        self,
        path: str | Path,
        *,
        state: str | Path | None = None,
        progress: Observe | None = None,
    ) -> None:
        """Write the whole view to a .npy file, or to a .raw file without a header.

        The file appears when it is whole. Values are in C order, whatever the tiles.

        Args:
            path: of the file.
            state: file that makes it possible to go on after a kill: the same call goes
                on where the last one stopped. Removed at the end.
            progress: called whenever a tile was written.

        Raises:
            ThalwegError: as for iterating over ``tiles``; StateError if the state does
                not fit.
            OSError: the file cannot be written.
        """
        path = Path(path)
        form = _FORMS.get(path.suffix, "npy")
        about = {"dataset": self.dataset, "view": self.spec}
        file = TileStateFile(Path(state)) if state is not None else None
        saving = TileSaving(path, self.plan, form, about, file, progress)
        with ExitStack() as stack:
            stack.callback(saving.stop)
            start = Start(self._first, 0) if saving.start.token is None else saving.start
            tiles = stack.enter_context(self._stream(start, None, OneMemory(self.plan)))
            for tile in tiles:
                saving.take(tile)
            saving.finish()

    def raw(
        self, path: str | Path, *, state: str | Path | None = None, progress: Observe | None = None
    ) -> None:
        """Write all tiles, one behind the other, to a file, as the service's ``raw`` is.

        What has come is not asked for again after a cut, not even within a tile; but there
        are no checksums on the way, as there are for tiles.

        Args:
            path: of the file; it appears when it is whole.
            state: as for ``to_npy``.
            progress: called now and then; tiles are not counted.

        Raises:
            ThalwegError, OSError: as for ``to_npy``.
        """
        view, size = self.id, self.nbytes
        known = RawState(Path(state) if state is not None else None, view)
        output = FileOutput(Path(path), known.mark)
        keep = False
        stream = RawStream(
            self._requests,
            view,
            size,
            known.mark.size if known.mark else 0,
            known.etag,
            Backoff(self._retries),
        )
        with ExitStack() as stack:
            port = AnswerPort(self._pool)
            stack.callback(port.close)
            try:
                for item in drive(stream.run(), port):
                    if isinstance(item, Piece):
                        output.write(item.data)
                        output.settle()
                        known.save(output.mark(), stream.etag)
                        if progress is not None:
                            progress(TileProgress(stream.done, size, 0))
            except BaseException:
                keep = known.save(output.mark(), stream.etag, last=True)
                output.close(keep=keep)
                raise
        output.finish()
        known.remove()
