"""Writing a view to a file that another process can complete."""

from __future__ import annotations

import io
import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from xxhash import xxh3_64, xxh3_64_hexdigest

from ..errors import OtherFileError, ProblemError, StateError, data_changed
from ..files.outputs import PartialFile
from ..files.state import PathLike, StateFile
from .plan import Box, Plan, Tile
from .stream import Start

Form: TypeAlias = Literal["npy", "raw"]
"""With the header of a .npy file, or the values alone."""


@dataclass(frozen=True, slots=True)
class TileProgress:
    """How far a view has been read.

    Attributes:
        bytes: of the tiles that arrived.
        total: bytes of the view.
        tiles: number of tiles that arrived.
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
        tile: index of the first tile that is missing.
        token: to resume with.
        xxh3: digest of the tiles before it, in order.
    """

    view: str
    tile: int
    token: str
    xxh3: str

    @classmethod
    def parse(cls, content: Mapping[str, Any]) -> TileState:
        """The state that a file holds.

        Raises:
            KeyError, TypeError, ValueError: it holds none.
        """
        return cls(
            str(content["view"]), int(content["tile"]), str(content["token"]), str(content["xxh3"])
        )


def saved_token(state: str | Path | None) -> str | None:
    """The token in a state file, if there is one.

    Raises:
        StateError: the file is of something else.
    """
    saved = _state_file(state).load(TileState.parse)
    return None if saved is None else saved.token


def _state_file(path: str | Path | None) -> StateFile:
    return StateFile(path, "thalweg_tiles_state")


class TileFile(PartialFile):
    """The values of a view in C order, written as ``<name>.partial`` and renamed at the end.

    Args:
        path: of the finished file.
        plan: of the view.
        form: of the file.

    Raises:
        StateError: another process writes it.
        OSError: it cannot be written.
    """

    def __init__(self, path: Path, plan: Plan, form: Form) -> None:
        self._plan = plan
        self._head = _npy_header(plan) if form == "npy" else b""
        self._start = len(self._head)
        super().__init__(path)

    def _prepare(self) -> None:
        os.ftruncate(self._fd, self._start + self._plan.nbytes)
        os.pwrite(self._fd, self._head, 0)

    def write(self, box: Box, octets: memoryview) -> None:
        """Write the values of a tile."""
        for offset, length in self._plan.runs(box):
            run, octets = octets[:length], octets[length:]
            at = self._start + offset
            while run:
                count = os.pwrite(self._fd, run, at)
                run, at = run[count:], at + count

    def read(self, box: Box) -> memoryview:
        """The values of a tile that was written; fewer if the file is too short."""
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


def _npy_header(plan: Plan) -> bytes:
    file = io.BytesIO()
    header = {"descr": plan.dtype.str, "fortran_order": False, "shape": plan.shape}
    np.lib.format.write_array_header_1_0(file, header)
    return file.getvalue()


class TileSaving:
    """One view on its way into a file.

    Args:
        path: of the file; ``.raw`` for the values alone.
        plan: of the view.
        view: dataset and view, as JSON values.
        state: path of the file to resume from and to write; None for none.

    Attributes:
        start: where to begin; known after ``open``.
    """

    def __init__(
        self, path: Path, plan: Plan, view: Mapping[str, Any], state: str | Path | None
    ) -> None:
        self._path = path
        self._plan = plan
        self._form: Form = "raw" if path.suffix == ".raw" else "npy"
        shapes = [plan.nav_shape, plan.sig_shape, plan.tile_shape, plan.dtype.str]
        text = json.dumps([self._form, shapes, view], sort_keys=True)
        self._view = xxh3_64_hexdigest(text.encode())
        self._state = _state_file(state)
        self._digest = xxh3_64()
        self._next: tuple[int, str] | None = None
        self._file: TileFile | None = None
        self.start = Start()

    def open(self) -> None:
        """Read the state and open the file.

        Raises:
            StateError: the state file does not fit.
            OSError: the file cannot be written.
        """
        state = self._state.load(TileState.parse)
        if state is not None and (
            state.view != self._view or not 0 < state.tile <= self._plan.tiles
        ):
            raise StateError(f"{self._state.path} is of another view: remove it to start over")
        file = TileFile(self._path, self._plan, self._form)
        try:
            if state is not None:
                self._resume(file, state)
        except (StateError, OSError):
            file.close(keep=True)
            raise
        self._file = file

    def _resume(self, file: TileFile, state: TileState) -> None:
        for index in range(state.tile):
            self._digest.update(file.read(self._plan.box(index)))
        if self._digest.hexdigest() != state.xxh3:
            raise StateError(f"{self._path}.partial has changed since its state was written")
        self.start = Start(state.token, state.tile)
        self._next = (state.tile, state.token)

    def take(self, tile: Tile) -> None:
        """Write a tile."""
        assert self._file is not None  # noqa: S101 - it is open
        octets = tile.data.reshape(-1).view(np.uint8).data
        self._file.write(self._plan.box(tile.index), octets)
        self._digest.update(octets)
        self._next = (tile.index + 1, tile.token)
        if self._state.is_due:
            self._save_state()

    def progress(self) -> TileProgress:
        """How much is written."""
        tiles = self._next[0] if self._next is not None else 0
        box = self._plan.box(tiles - 1)
        return TileProgress(box.offset + box.nbytes, self._plan.nbytes, tiles)

    def _save_state(self) -> None:
        if self._next is not None and self._file is not None:
            tile, token = self._next
            state = TileState(self._view, tile, token, self._digest.hexdigest())
            self._state.save(asdict(state), self._file.sync)

    def finish(self) -> None:
        """Give the file its final name: every tile was written."""
        file, self._file = self._file, None
        assert file is not None  # noqa: S101 - it is open
        file.finish()
        self._state.remove()

    def stop(self) -> None:
        """Unless finished, keep what another process can complete, or remove the file."""
        if self._file is not None:
            self._save_state()
            file, self._file = self._file, None
            file.close(keep=self._state.exists())


@contextmanager
def naming(state: PathLike | None) -> Iterator[None]:
    """Have errors that starting over helps against name the state file to remove, if there is one.

    Raises:
        ProblemError: the data has changed.
        StateError: what was written does not fit the state.
    """
    try:
        yield
    except ProblemError as error:
        if error.code != "data-changed" or state is None:
            raise
        hint = f"Open the dataset anew, and remove {state} to start over"
        raise data_changed(error.detail, hint) from None
    except StateError as error:
        if isinstance(error, OtherFileError) or str(state) in str(error):
            raise
        raise StateError(f"{error}: remove {state} to start over") from None


class Count:
    """Tells an observer how many bytes and tiles have arrived, from any thread."""

    def __init__(self, plan: Plan, observe: Observe | None) -> None:
        self._total = plan.nbytes
        self._observe = observe
        self._lock = threading.Lock()
        self._bytes = self._tiles = 0

    def add(self, tile: Tile) -> None:
        """Count a tile."""
        if self._observe is None:
            return
        with self._lock:
            self._bytes += tile.data.nbytes
            self._tiles += 1
            self._observe(TileProgress(self._bytes, self._total, self._tiles))
