"""Packed pixels, unpacked as the layouts say, and decoders of one's own."""

from __future__ import annotations

import ast
import inspect
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core._linking import KERNELS
from core.errors import ShapeError
from core.tiles._kernels import unpack
from core.tiles.formats import DECODERS, FORMATS
from core.tiles.packing import make_decoder
from core.warmup import use_format
from tests.core.tiles import writers
from tests.scale import PURE_PYTHON

DEPTHS = {"mib_r1": 1, "mib_r6": 6, "mib_r12": 12, "mib_r24": 24}


def packed(name: str, frames: npt.NDArray[Any], gap: int) -> npt.NDArray[np.uint8]:
    chips = 4 if name.endswith("_quad") else 1
    depth = DEPTHS[name.removesuffix("_quad")]
    octets = (b"\xaa" * gap).join(writers.mib_frame(f, "R64", depth, chips) for f in frames)
    return np.frombuffer(bytearray(octets), np.uint8)


@pytest.mark.parametrize("name", [*DEPTHS, *(f"{name}_quad" for name in DEPTHS)])
@given(count=st.integers(1, 4), gap=st.integers(0, 500), seed=st.integers(0, 99))
def test_medipix_frames_any_distance_apart(name: str, count: int, gap: int, seed: int) -> None:
    depth = DEPTHS[name.removesuffix("_quad")]
    side = {1: 64, 6: 8, 12: 4, 24: 4}[depth]
    shape = (2 * side, 2 * side) if name.endswith("_quad") else (3, side)
    if PURE_PYTHON:
        count = 1
    frames = np.random.default_rng(seed).integers(0, 1 << depth, (count, *shape), np.uint32)
    raw = packed(name, frames, gap)
    decoder = DECODERS[name]
    out = np.full((count, shape[0] * shape[1]), 255, decoder.dtype)
    decoder.decode(raw, decoder.frame_bytes(shape) + gap, out, shape)
    assert np.array_equal(out.reshape(frames.shape), frames)


def test_one_word_of_one_bit_by_hand() -> None:
    """The last byte of a word holds its first eight pixels, the first in the lowest bit."""
    raw = np.array([0x80, 0, 0, 0, 0, 0, 0, 0b101], np.uint8)
    out = np.empty((1, 64), np.uint8)
    DECODERS["mib_r1"].decode(raw, 8, out, (1, 64))
    assert np.flatnonzero(out).tolist() == [0, 2, 63]


def test_one_word_of_twelve_bits_by_hand() -> None:
    raw = np.array([0, 4, 0, 3, 0, 2, 1, 1], np.uint8)
    out = np.empty((1, 4), np.uint16)
    DECODERS["mib_r12"].decode(raw, 8, out, (1, 4))
    assert out.tolist() == [[257, 2, 3, 4]]


@pytest.mark.skipif(PURE_PYTHON, reason="many pixels")
def test_three_bytes_of_a_sector_by_hand() -> None:
    raw = np.zeros(32 * 0x5758, np.uint8)
    raw[40:43] = 0x12, 0x34, 0x56
    out = np.empty((1, 1860 * 256), np.uint16)
    DECODERS["k2is_sector"].decode(raw, len(raw), out, (1860, 256))
    assert out[0, 240:242].tolist() == [0x412, 0x563]
    assert np.count_nonzero(out) == 2


def test_folded_rows_by_hand() -> None:
    raw = np.arange(8, dtype="<u2").view(np.uint8)
    out = np.empty((1, 8), np.uint16)
    DECODERS["frms6_bin1"].decode(raw, 16, out, (4, 2))
    assert out.reshape(4, 2).tolist() == [[0, 1], [4, 5], [7, 6], [3, 2]]
    out = np.empty((1, 8), np.uint16)
    DECODERS["frms6_bin2"].decode(raw[:8], 8, out, (4, 2))
    assert out.reshape(4, 2).tolist() == [[0, 1], [0, 1], [3, 2], [3, 2]]


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("mib_r1", (4, 63)),
        ("mib_r6", (4, 12)),
        ("mib_r12", (4, 6)),
        ("mib_r1_quad", (128, 64)),
        ("mib_r6_quad", (8, 8)),
        ("mib_r12_quad", (9, 9)),
        ("mib_r24_quad", (8,)),
        ("frms6_bin1", (5, 4)),
        ("frms6_bin4", (4, 4)),
        ("frms6_bin2", (4,)),
        ("k2is_sector", (256, 1860)),
    ],
)
def test_shapes_that_cannot_be_packed(name: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(ShapeError):
        DECODERS[name].frame_bytes(shape)


def test_arrays_that_do_not_fit_never_reach_a_kernel() -> None:
    decoder = DECODERS["mib_r6"]
    raw, out = np.zeros(64, np.uint8), np.zeros((2, 32), np.uint8)
    decoder.decode(raw, 32, out, (4, 8))
    decoder.decode(raw[:0], 32, out[:0], (4, 8))
    wrongs: list[tuple[Any, int, Any]] = [
        (raw, 33, out),
        (raw[:63], 32, out),
        (raw, -1, out),
        (raw[::2], 8, out),
        (raw.view(np.uint16), 32, out),
        (raw, 32, out.astype("u2")),
        (raw, 32, out[:, :31]),
        (raw, 32, out.reshape(64)),
        (raw, 32, out.T.copy().T),
    ]
    for wrong in wrongs:
        with pytest.raises(ShapeError):
            decoder.decode(wrong[0], wrong[1], wrong[2], (4, 8))


def test_a_decoder_of_ones_own() -> None:
    def nibbles(raw: Any, out: Any, sig_shape: Any) -> None:  # noqa: ANN401 - compiled
        for index in range(sig_shape[0] * sig_shape[1] // 2):
            out[2 * index] = raw[index] & 15
            out[2 * index + 1] = raw[index] >> 4

    decoder = make_decoder("nibbles", np.dtype("u1"), lambda s: s[0] * s[1] // 2, nibbles)
    raw = np.array([0x21, 0x43, 255, 0x65, 0x87], np.uint8)
    out = np.empty((2, 4), np.uint8)
    decoder.decode(raw, 3, out, (2, 2))
    assert out.tolist() == [[1, 2, 3, 4], [5, 6, 7, 8]]
    with pytest.raises(ShapeError):
        decoder.decode(raw[:4], 3, out, (2, 2))


@pytest.mark.skipif(PURE_PYTHON, reason="nothing is compiled in this mode")
def test_one_call_of_warm_compiles_every_kernel_for_each_dtype_once() -> None:
    for form in FORMATS.values():
        use_format(form)
    tree = ast.parse(inspect.getsource(unpack))
    names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    # What a kernel calls is part of it once it comes out of the cache.
    for name in (name for name in names if not name.startswith("_")):
        compiled = KERNELS[f"{unpack.__name__}.{name}"]
        dtypes = {signature[2].dtype for signature in compiled.signatures}
        assert len(compiled.signatures) == len(dtypes) > 0, name
