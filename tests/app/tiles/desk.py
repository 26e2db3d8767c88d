"""Views of one dataset, without a server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from app.datasets.catalogue import Catalogue
from app.datasets.files.buffers import BufferPool
from app.datasets.files.roots import Roots
from app.http.identity import SINGLE_USER
from app.tiles.views import OpenView, Views
from app.tokens import KeyRing, new_key
from tests.app.state.memory import MemoryStateStore

Array = npt.NDArray[Any]


class ViewDesk:
    """One dataset ``scan``, of an npy file."""

    def __init__(self, directory: Path, frames: Array, **entry: Any) -> None:  # noqa: ANN401
        data = directory / "data"
        data.mkdir(exist_ok=True)
        np.save(data / "scan.npy", frames)
        self.keys = KeyRing([new_key()])
        self.catalogue = Catalogue(MemoryStateStore(), Roots([data]), {}, BufferPool(4))
        self.store = MemoryStateStore()
        self.views = Views(self.catalogue, self.store, self.keys)
        entry = {"id": "scan", "files": ["scan.npy"], **entry}
        self.catalogue.register(SINGLE_USER, entry)[0].close()

    def open(self, **view: Any) -> OpenView:  # noqa: ANN401
        return self.views.open(SINGLE_USER, "scan", view)

    def close(self) -> None:
        self.catalogue.close()
