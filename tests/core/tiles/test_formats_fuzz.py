"""Random headers end in a recording that can be read or in an error of ours, soon and small."""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import CoreError
from core.tiles.formats import DECODERS, FORMATS, parse
from core.tiles.recording import Hints
from tests.core.tiles import writers
from tests.core.tiles.files import Files, opened
from tests.scale import BOUNDS_CHECKED, PURE_PYTHON

FRAMES = np.arange(4 * 8 * 8, dtype=np.uint16).reshape(4, 8, 8)
SETS: Mapping[str, Files] = {
    "raw": {"a.raw": bytes(100)},
    "npy": {"a.npy": writers.npy(FRAMES)},
    "empad": writers.empad(np.zeros((1, 128, 128), "<f4"), (1, 1)),
    "mib": writers.mib(FRAMES & 63, "R64", 6, splits=[2, 2], hdr={"ScanX": 2, "ScanY": 2}),
    "tvips": writers.tvips(
        FRAMES, scan=[(0.0, 0.0), (0.0, 1.0), (1.0, 0.0), (1.0, 1.0)], splits=[2, 2]
    ),
    "seq": {
        "a.seq": writers.seq(FRAMES, 4),
        "a.seq.dark.mrc": writers.mrc(FRAMES[:1], 6),
        "a.seq.metadata": writers.seq_camera(8, 8),
        "a.seq.Config.Metadata.xml": b'<a><BadPixelMap Rows="8" Columns="8"><Defect Row="1"/>'
        b"</BadPixelMap></a>",
    },
    "blo": {"a.blo": writers.blo(FRAMES, (2, 2), offset_1=300)},
    "frms6": writers.frms6(FRAMES, FRAMES[:1], (2, 2), splits=[2, 2]),
    "mrc": {"a.mrc": writers.mrc(FRAMES, 6)},
    "k2is": {f"a_{s}.bin": b"\xff\xff\x00\x55" + bytes(60) for s in range(8)},
    "raw_csr": {"a.toml": b"[params]"},
}
INTERESTING = [0, 1, 2, 3, 4, 7, 8, 255, 256, 65535, 1 << 31, (1 << 31) - 1, (1 << 32) - 1]

words = st.sampled_from(INTERESTING).flatmap(
    lambda n: st.sampled_from([n.to_bytes(4, "little"), n.to_bytes(4, "big"), n.to_bytes(8, "big")])
)
octets = st.one_of(st.binary(min_size=1, max_size=6), words, st.sampled_from([b",", b"9", b"-"]))
edits = st.lists(st.tuples(st.integers(0, 1200), octets), min_size=1, max_size=6)


def try_it(name: str | None, files: Files, sizes: dict[str, int], hints: Hints) -> None:
    """Understand files, and see that what comes of it lies inside them."""
    infos, memory = opened(files, sizes)
    try:
        recording = parse(infos, memory, hints, name=name)
    except CoreError:
        return
    assert memory.requests < 60_000
    assert recording.nav_shape == (recording.frames,) or math.prod(recording.nav_shape) <= 1 << 40
    for extent in recording.extents:
        last = extent.offset + (extent.frames - 1) * extent.stride + recording.frame_bytes
        assert 0 < extent.offset + 1 <= last <= infos[extent.file].size
    if recording.decoder is not None:
        assert (
            DECODERS[recording.decoder].frame_bytes(recording.panel_shape) == recording.frame_bytes
        )
    else:
        size = math.prod(recording.sig_shape) * recording.dtype.itemsize
        assert size == recording.frame_bytes
    assert all(axis.scale > 0 for axis in recording.axes)


@pytest.mark.parametrize("name", SETS)
@given(
    edits=edits,
    which=st.integers(0, 7),
    cut=st.none() | st.integers(0, 1500),
    longer=st.sampled_from([0, 0, 1, 1000, 1 << 33, 1 << 50]),
    growing=st.booleans(),
    detected=st.booleans(),
)
def test_damaged_headers(
    name: str,
    edits: list[tuple[int, bytes]],
    which: int,
    cut: int | None,
    longer: int,
    growing: bool,
    detected: bool,
) -> None:
    files = dict(SETS[name])
    key = list(files)[which % len(files)]
    content = bytearray(files[key])
    for offset, new in edits:
        at = offset % max(len(content), 1)
        content[at : at + len(new)] = new
    files[key] = bytes(content[:cut])
    sizes = {key: len(files[key]) + longer}
    try_it(None if detected else name, files, sizes, Hints(growing=growing))


@pytest.mark.parametrize("name", FORMATS)
@given(content=st.binary(max_size=600), size=st.sampled_from([0, 1 << 20, 1 << 60]))
def test_random_bytes(name: str, content: bytes, size: int) -> None:
    for suffix in ("", ".hdr", ".xml", ".toml", ".metadata"):
        files = {f"a_000{suffix}": content, "a_001.x": content}
        sizes = {"a_001.x": max(size, len(content))}
        hints = Hints(dtype=np.dtype("u2"), sig_shape=(3, 3)) if name == "raw" else Hints()
        try_it(name, files, sizes, hints)
        try_it(None, files, sizes, Hints())


@pytest.mark.parametrize(
    "content",
    [
        b"<?xml version='1.0' encoding='nonsense'?><raw_file/>",
        b"<a>" * 50_000 + b"<raw_file/>",
        b"<!DOCTYPE r [" + b"".join(b'<!ENTITY e%d "x">' % i for i in range(9)) + b"]><raw_file/>",
        "<!DOCTYPE r [<!ENTITY e 'x'>]><r><raw_file/>&e;</r>".encode("utf-16"),
        b"\xff\xfe<raw_file",
        b"",
    ],
)
def test_hostile_xml(content: bytes) -> None:
    files = writers.empad(np.zeros((1, 128, 128), "<f4"), (1, 1)) | {"scan.xml": content}
    infos, memory = opened(files)
    with pytest.raises(CoreError) as caught:
        parse(infos, memory, name="empad")
    assert caught.value.source == "scan.xml"


def test_no_header_makes_us_allocate_what_it_says() -> None:
    tracemalloc.start()
    try:
        for name in ("npy", "tvips", "seq", "blo", "mrc", "frms6"):
            for at in range(0, 128 if PURE_PYTHON or BOUNDS_CHECKED else 1024, 4):
                files = dict(SETS[name])
                key = next(iter(files))
                content = bytearray(files[key])
                content[at : at + 4] = b"\xff\xff\xff\x7f"
                try_it(name, files | {key: bytes(content)}, {key: 1 << 55}, Hints())
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1 << 26
