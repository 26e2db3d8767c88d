"""Writing a view to a file, so that another process can go on with it."""

from __future__ import annotations

import io
import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from xxhash import xxh3_64, xxh3_64_hexdigest

from ..errors import StateError
from ..files.outputs import Mark, lock_partial
from ..losses.state import write_json
from .plan import Box, Plan, Tile
from .stream import Start

Form: TypeAlias = Literal["npy", "raw"]

_VERSION = 1
_STATE_INTERVAL = 0.1
"""Seconds between writes of the state file."""


@dataclass(frozen=True, slots=True)
class TileProgress:
    """How far a view was read.

    Attributes:
        bytes: of the tiles that have come.
        total: bytes of the view.
        tiles: that have come.
    """

    bytes: int
    total: int
    tiles: int


Observe: TypeAlias = Callable[[TileProgress], None]


@dataclass(frozen=True, slots=True)
class TileState:
    """How far a view was written.

    Attributes:
        view: digest of dataset, view and form of the file.
        tile: first one that is not there.
        token: to go on with.
        digest: xxh3-64 of the tiles that are there, in their order.
    """

    view: str
    tile: int
    token: str
    digest: str


class TileStateFile:
    """A state on disk; it is there whole or not at all.

    Args:
        path: of the file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def load(self, view: str) -> TileState | None:
        """The state of a view, or None if there is no file.

        Raises:
            StateError: it is no state file, of another version or of another view.
        """
        try:
            content = json.loads(self.path.read_bytes())
            if content["thalweg_tiles_state"] != _VERSION:
                raise StateError(f"{self.path} is of another version")
            state = TileState(
                str(content["view"]),
                int(content["tile"]),
                str(content["token"]),
                str(content["xxh3"]),
            )
        except FileNotFoundError:
            return None
        except (KeyError, TypeError, ValueError) as e:
            raise StateError(f"{self.path} is not a state file") from e
        if state.view != view:
            raise StateError(f"{self.path} is of another view: remove it to begin anew")
        return state

    def save(self, state: TileState) -> None:
        """Replace the file."""
        content = {
            "thalweg_tiles_state": _VERSION,
            "view": state.view,
            "tile": state.tile,
            "token": state.token,
            "xxh3": state.digest,
        }
        write_json(self.path, content)

    def remove(self) -> None:
        """Everything is done."""
        self.path.unlink(missing_ok=True)


class TileFile:
    """The values of a view in C order, written beside their place and moved there at the end.

    Args:
        path: its place.
        plan: of the view.
        form: ``npy``, or ``raw`` for the values alone.

    Raises:
        StateError: it is being written by another process.
        OSError: it cannot be written.
    """

    def __init__(self, path: Path, plan: Plan, form: Form) -> None:
        self._path = path
        self._plan = plan
        self._partial = path.with_name(f"{path.name}.partial")
        head = _npy_header(plan) if form == "npy" else b""
        self._start = len(head)
        self._fd = os.open(self._partial, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            lock_partial(self._fd, self._partial)
            os.ftruncate(self._fd, self._start + plan.nbytes)
            if head:
                os.pwrite(self._fd, head, 0)
        except (StateError, OSError):
            os.close(self._fd)
            raise

    def write(self, box: Box, octets: memoryview) -> None:
        """Write the values of a tile."""
        for offset, length in self._plan.runs(box):
            run, octets = octets[:length], octets[length:]
            at = self._start + offset
            while run:
                count = os.pwrite(self._fd, run, at)
                run, at = run[count:], at + count

    def read(self, box: Box) -> memoryview:
        """The values of a tile that was written; fewer if they are not there."""
        octets = memoryview(bytearray(box.nbytes))
        filled = 0
        for offset, length in self._plan.runs(box):
            at, end = self._start + offset, filled + length
            while filled < end:
                count = os.preadv(self._fd, [octets[filled:end]], at)
                if not count:
                    return octets[:filled]
                filled, at = filled + count, at + count
        return octets

    def finish(self) -> None:
        """Move the file to its place."""
        self._partial.replace(self._path)
        os.close(self._fd)

    def close(self, *, keep: bool) -> None:
        """Keep the file beside its place, or remove it."""
        if not keep:
            self._partial.unlink(missing_ok=True)
        os.close(self._fd)


def _npy_header(plan: Plan) -> bytes:
    file = io.BytesIO()
    about = {"descr": plan.dtype.str, "fortran_order": False, "shape": plan.shape}
    np.lib.format.write_array_header_1_0(file, about)
    return file.getvalue()


class TileSaving:
    """One view on its way into a file.

    Args:
        path: of the file.
        plan: of the view.
        form: of the file.
        view: dataset and view, as JSON values.
        state: file to go on from, and to write; None for none.
        observe: called whenever a tile was written.

    Attributes:
        start: where to begin.

    Raises:
        StateError: the state file does not fit.
        OSError: the file cannot be written.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - each is what the caller said
        self,
        path: Path,
        plan: Plan,
        form: Form,
        view: Mapping[str, Any],
        state: TileStateFile | None,
        observe: Observe | None,
    ) -> None:
        self._plan = plan
        self._observe = observe
        shapes = [plan.nav_shape, plan.sig_shape, plan.tile_shape, plan.dtype.str]
        text = json.dumps([form, shapes, view], sort_keys=True)
        self._view = xxh3_64_hexdigest(text.encode())
        self._state = state
        self._digest = xxh3_64()
        self._now: tuple[int, str] | None = None
        self._written = float("-inf")
        self._finished = False
        loaded = state.load(self._view) if state else None
        self._file = TileFile(path, plan, form)
        self.start = Start()
        try:
            if loaded is not None:
                self._resume(loaded)
        except StateError:
            self._file.close(keep=True)
            raise

    def _resume(self, state: TileState) -> None:
        if not 0 < state.tile <= self._plan.tiles:
            raise StateError("the state file is of another view: remove it to begin anew")
        for index in range(state.tile):
            self._digest.update(self._file.read(self._plan.box(index)))
        if self._digest.hexdigest() != state.digest:
            raise StateError("what was written is not what it was: remove the state file")
        self.start = Start(state.token, state.tile)
        self._now = (state.tile, state.token)

    def take(self, tile: Tile) -> None:
        """Write a tile."""
        box = self._plan.box(tile.index)
        octets = tile.data.reshape(-1).view(np.uint8).data
        self._file.write(box, octets)
        self._digest.update(octets)
        self._now = (tile.index + 1, tile.token)
        if time.monotonic() - self._written > _STATE_INTERVAL:
            self._save()
        if self._observe is not None:
            done = box.offset + box.nbytes
            self._observe(TileProgress(done, self._plan.nbytes, tile.index + 1))

    def _save(self) -> None:
        if self._state is not None and self._now is not None:
            tile, token = self._now
            self._state.save(TileState(self._view, tile, token, self._digest.hexdigest()))
            self._written = time.monotonic()

    def finish(self) -> None:
        """Every tile was written: put the file into its place."""
        self._file.finish()
        self._finished = True
        if self._state is not None:
            self._state.remove()

    def stop(self) -> None:
        """Keep what another process can go on with, if it was not finished and any can."""
        if not self._finished:
            self._save()
            self._file.close(keep=self._state is not None and self._state.path.exists())
            self._finished = True


class Count:
    """Tells an observer how many bytes and tiles have come, from any thread."""

    def __init__(self, plan: Plan, observe: Observe | None) -> None:
        self._total = plan.nbytes
        self._observe = observe
        self._lock = threading.Lock()
        self._bytes = self._tiles = 0

    def add(self, tile: Tile) -> None:
        """A tile has come."""
        if self._observe is None:
            return
        with self._lock:
            self._bytes += tile.data.nbytes
            self._tiles += 1
            self._observe(TileProgress(self._bytes, self._total, self._tiles))


class RawState:
    """How far a view was written as plain bytes, on disk."""

    def __init__(self, path: Path | None, view: str) -> None:
        self._path = path
        self._view = view
        self._written = float("-inf")
        self.mark: Mark | None = None
        self.etag: str | None = None
        if path is not None and path.exists():
            try:
                content = json.loads(path.read_bytes())
                self.mark = Mark(int(content["size"]), str(content["xxh3"]))
                self.etag = str(content["etag"])
                if content["thalweg_raw_state"] != 1 or content["view"] != view:
                    raise StateError(f"{path} is of another view: remove it to begin anew")
            except (KeyError, TypeError, ValueError) as e:
                raise StateError(f"{path} is not a state file") from e

    def save(self, mark: Mark, etag: str | None, *, last: bool = False) -> bool:
        """Replace the file, if it was not a moment ago; whether there is one."""
        if self._path is None or etag is None or not mark.size:
            return False
        if not last and time.monotonic() - self._written < _STATE_INTERVAL:
            return True
        self._written = time.monotonic()
        content = {"thalweg_raw_state": 1, "view": self._view, "etag": etag}
        write_json(self._path, content | {"size": mark.size, "xxh3": mark.digest})
        return True

    def remove(self) -> None:
        """Everything is done."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)
