"""Chunks that a worker inflates itself hold what the library reads."""

from __future__ import annotations

import io
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from app.decoding.worker import hdf5_chunks
from app.decoding.worker.hdf5 import Hdf5File
from app.decoding.worker.hdf5_chunks import Chunks
from app.decoding.worker.requests import Request


def read(memory: io.BytesIO, dtype: str, boxes: Any) -> bytes:  # noqa: ANN401
    size = sum(int(np.prod([b - a for a, b in box])) for box in boxes) * np.dtype(dtype).itemsize
    out = memoryview(bytearray(size))
    arguments = {"array": "/data", "dtype": dtype, "boxes": boxes}
    file = Hdf5File(memory)
    assert file.act(Request("read", arguments, out=out)) == {}
    file.close()
    return bytes(out)


@st.composite
def arrays(draw: st.DrawFn) -> tuple[io.BytesIO, Any, list[Any]]:
    """A file, of which chunks may be missing or have passed the filters by, and boxes in it."""
    shape = draw(st.lists(st.integers(1, 9), min_size=1, max_size=4))
    chunks = tuple(draw(st.integers(1, n)) for n in shape)
    dtype = draw(st.sampled_from(["<u2", ">i4", "<f8", "|u1", "<c8", "|b1"]))
    values = np.random.default_rng(draw(st.integers(0, 9))).integers(0, 50, shape).astype(dtype)
    memory = io.BytesIO()
    with h5py.File(memory, "w") as file:
        data = file.create_dataset(
            "data",
            values.shape,
            values.dtype,
            chunks=chunks,
            compression=draw(st.sampled_from(["gzip", "gzip", "lzf"])),
            shuffle=draw(st.booleans()),
            fletcher32=draw(st.booleans()),
            fillvalue=None if dtype in {"<c8", "|b1"} else 1,
        )
        rows = draw(st.integers(0, shape[0]))
        data[:rows] = values[:rows]
        file.flush()
        # The library cannot read others that have passed their filters by.
        if data.compression == "gzip" and not data.fletcher32 and draw(st.booleans()):
            raw = np.full(chunks, 1, dtype).tobytes()
            every = (1 << data.id.get_create_plist().get_nfilters()) - 1
            data.id.write_direct_chunk((0,) * len(shape), raw, filter_mask=every)
    with h5py.File(memory, "r") as file:
        try:
            values = file["data"][...]
        except OSError:
            # Nor, now and then, a small chunk that was written before the one past the filters.
            reject()
    boxes = []
    for _ in range(draw(st.integers(1, 4))):
        low = [draw(st.integers(0, n - 1)) for n in shape]
        boxes.append([[a, draw(st.integers(a + 1, n))] for a, n in zip(low, shape, strict=True)])
    return memory, values, boxes


@given(arrays())
def test_they_hold_what_the_library_reads(made: tuple[io.BytesIO, Any, list[Any]]) -> None:
    memory, values, boxes = made
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hdf5_chunks, "_LEAST", 1)
        patch.setattr(hdf5_chunks, "_KEPT_BYTES", 2 * values[:1].nbytes)
        got = read(memory, values.dtype.str, boxes)
    assert got == b"".join(values[tuple(slice(a, b) for a, b in box)].tobytes() for box in boxes)


@pytest.mark.parametrize("shuffle", [False, True])
def test_most_files_are_read_so_and_damage_is_found(shuffle: bool) -> None:
    values = np.random.default_rng(1).poisson(9, (4, 32, 32)).astype("<u2")
    memory = io.BytesIO()
    with h5py.File(memory, "w") as file:
        options: Any = {"chunks": (1, 32, 32), "compression": "gzip", "shuffle": shuffle}
        data = file.create_dataset("data", data=values, **options)
        file.create_dataset("plain", data=values, chunks=(1, 32, 32))
        file.create_dataset("checked", data=values, fletcher32=True, **options)
        file.create_dataset("tiny", data=values, chunks=(1, 4, 4), compression="gzip")
        for name in ("plain", "checked", "tiny"):
            assert Chunks.of(file[name]) is None
        place = data.id.get_chunk_info(2)
        chunks = Chunks.of(data)
        assert chunks is not None
        out = np.zeros((2, 32, 32), "<u2")
        assert chunks.read((1, 0, 0), out)
        assert np.array_equal(out, values[1:3])
    with memory.getbuffer() as octets:
        octets[place.byte_offset + place.size // 2] ^= 1
    with h5py.File(memory, "r") as file:
        chunks = Chunks.of(file["data"])
        assert chunks is not None
        assert not chunks.read((2, 0, 0), np.zeros((1, 32, 32), "<u2"))
    with pytest.raises(OSError, match=r"filter|inflate|read"):
        read(memory, "<u2", [[[2, 3], [0, 32], [0, 32]]])
    assert read(memory, "<u2", [[[3, 4], [0, 32], [0, 32]]]) == values[3].tobytes()
