"""HDF5 files as a worker sees them, without a process."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import h5py
import numpy as np
import pytest

from app.decoding.wire import RefusedError
from app.decoding.worker import hdf5_inside
from app.decoding.worker.hdf5 import Hdf5File
from app.decoding.worker.requests import Pending, Request

VALUES = np.arange(120, dtype="<u2").reshape(2, 3, 4, 5)


@pytest.fixture
def memory() -> Iterator[io.BytesIO]:
    with io.BytesIO() as made:
        yield made


def asked(memory: io.BytesIO, action: str, **arguments: Any) -> Any:  # noqa: ANN401
    result = Hdf5File(memory).act(Request(action, arguments))
    return (
        result.write(memoryview(bytearray(result.nbytes)))
        if isinstance(result, Pending)
        else result
    )


def described(memory: io.BytesIO, name: str = "data") -> tuple[list[int], int | None]:
    about = asked(memory, "describe", array=name)
    return about["chunks"], about["offset"]


@pytest.mark.parametrize(
    ("shape", "chunks"),
    [((5,), [5]), ((4, 5), [4, 5]), ((3, 4, 5), [1, 4, 5]), ((2, 3, 4, 5), [1, 1, 4, 5])],
)
def test_what_is_not_in_chunks_is_read_frame_by_frame(
    memory: io.BytesIO, shape: tuple[int, ...], chunks: list[int]
) -> None:
    values = VALUES.reshape(-1)[: int(np.prod(shape))].reshape(shape)
    with h5py.File(memory, "w") as file:
        file["data"] = values
        file.create_dataset("tiny", data=values, chunks=(1,) * len(shape))
        layout = h5py.VirtualLayout(shape, values.dtype)
        layout[...] = h5py.VirtualSource(".", "data", shape)
        file.create_virtual_dataset("virtual", layout)
    found, offset = described(memory)
    assert found == chunks
    assert offset is not None
    assert memory.getvalue()[offset:].startswith(values.tobytes())
    assert described(memory, "virtual") == (chunks, None)
    assert described(memory, "tiny") == ([1] * len(shape), None)


def test_values_in_another_form_are_not_read_where_they_are(memory: io.BytesIO) -> None:
    with h5py.File(memory, "w") as file:
        half = h5py.h5t.STD_I16LE.copy()
        half.set_precision(12)
        space = h5py.h5s.create_simple((3, 4))
        h5py.h5d.create(file.id, b"data", half, space).write(
            h5py.h5s.ALL, h5py.h5s.ALL, np.ones((3, 4), "<i2")
        )
    assert described(memory) == ([3, 4], None)


def test_a_file_has_so_many_objects(memory: io.BytesIO, monkeypatch: pytest.MonkeyPatch) -> None:
    with h5py.File(memory, "w") as file:
        for k in range(4):
            file[f"group/a{k}"] = VALUES
    monkeypatch.setattr(hdf5_inside, "_MAX_OBJECTS", 5)
    assert len(asked(memory, "list")["arrays"]) == 4
    monkeypatch.setattr(hdf5_inside, "_MAX_OBJECTS", 4)
    with pytest.raises(RefusedError, match="more than 4 objects"):
        asked(memory, "list")


def test_filters_of_the_sources_of_a_virtual_array(memory: io.BytesIO) -> None:
    with h5py.File(memory, "w") as file:
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        properties.set_chunk((2, 3, 4, 5))
        properties.set_filter(31999, h5py.h5z.FLAG_OPTIONAL)
        space = h5py.h5s.create_simple(VALUES.shape)
        h5py.h5d.create(file.id, b"data", h5py.h5t.STD_U16LE, space, properties)
        layout = h5py.VirtualLayout(VALUES.shape, "<u2")
        layout[...] = h5py.VirtualSource(".", "data", VALUES.shape)
        file.create_virtual_dataset("virtual", layout)
    for name in ("data", "virtual"):
        with pytest.raises(RefusedError, match=r"'/data' is compressed with filter 31999"):
            described(memory, name)


@pytest.mark.parametrize("action", ["read", "dance"])
def test_actions_that_are_none(memory: io.BytesIO, action: str) -> None:
    with h5py.File(memory, "w") as file:
        file["data"] = VALUES
    with pytest.raises(ValueError, match=action):
        asked(memory, action, array="data", dtype="<u2", boxes=[])
