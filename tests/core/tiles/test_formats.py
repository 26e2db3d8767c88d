"""What was written to files is found in them, in every variant of every format."""

from __future__ import annotations

import io
import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import CoreError, FormatError
from core.tiles.formats import k2is
from core.tiles.recording import Hints
from tests.core.tiles import writers
from tests.core.tiles.files import frames_of, read, tiles_of
from tests.scale import PURE_PYTHON

DTYPES = ["u1", "i1", "<u2", ">u2", "<i4", ">i8", "<f2", ">f4", "<f8", "<c8", ">c16", "?"]


def noise(shape: tuple[int, ...], dtype: str = "u2", seed: int = 0) -> npt.NDArray[Any]:
    """Random values over the whole range of a type."""
    count = math.prod(shape) * np.dtype(dtype).itemsize
    octets = np.random.default_rng(seed).integers(0, 256, count, np.uint8)
    if dtype == "?":
        octets &= 1
    return octets.view(dtype).reshape(shape)


def same(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> bool:
    """Equal shapes, and bits once both are in this machine's byte order."""
    native = [a.astype(a.dtype.newbyteorder("=")) for a in (one, other)]
    return one.shape == other.shape and native[0].tobytes() == native[1].tobytes()


ORDERS: list[writers.Order] = ["<", ">"]

splits = st.lists(st.integers(1, 5), min_size=1, max_size=4)


# -- raw --------------------------------------------------------------------------


@given(
    dtype=st.sampled_from(DTYPES),
    sizes=splits,
    sig=st.lists(st.integers(1, 5), min_size=1, max_size=3).map(tuple),
    gaps=st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9)),
    trailing=st.integers(0, 2),
)
def test_raw_of_any_shape(
    dtype: str,
    sizes: list[int],
    sig: tuple[int, ...],
    gaps: tuple[int, int, int],
    trailing: int,
) -> None:
    frames = noise((sum(sizes), *sig), dtype)
    header, before, behind = gaps
    trailing = min(trailing, before + behind + frames[0].nbytes - 1)
    files = writers.raw(
        frames,
        file_header=header,
        frame_header=before,
        frame_footer=behind,
        splits=sizes,
        trailing=trailing,
    )
    hints = Hints(
        dtype=np.dtype(dtype),
        sig_shape=sig,
        file_header=header,
        frame_header=before,
        frame_footer=behind,
    )
    recording = read(files, hints, "raw")
    assert same(frames_of(files, recording), frames)
    assert recording.nav_shape == (len(frames),)
    assert [extent.frames for extent in recording.extents] == sizes
    # Noise may look as if it had no sign, or another byte order, which is a note too.
    notes = [note for note in recording.notes if "after the last whole" in note]
    assert len(notes) == (len(sizes) if trailing else 0)


@pytest.mark.parametrize("form", ["raw", "npy"])
def test_files_whose_headers_tell_no_order_follow_as_they_are_given(form: str) -> None:
    frames = noise((3, 2, 3, 3))
    octets = [each.tobytes() if form == "raw" else writers.npy(each) for each in frames]
    files = dict(zip(["run1/z.x", "run2/b_10.x", "run2/b_9.x"], octets, strict=True))
    hints = Hints(dtype=np.dtype("u2"), sig_shape=(3, 3))
    assert same(frames_of(files, read(files, hints, form)), frames.reshape(6, 3, 3))


def test_numbered_parts_of_one_recording_follow_by_number_and_a_note_says_so() -> None:
    frames = noise((11, 3, 4), "u2")
    files = writers.tvips(frames, splits=[1] * 11)
    assert not read(files).notes
    turned = dict(reversed(files.items()))
    recording = read(turned)
    assert same(frames_of(turned, recording), frames)
    assert "not the order given" in recording.notes[0]


def test_a_growing_raw_file_may_be_empty_yet() -> None:
    hints = Hints(dtype=np.dtype("u2"), sig_shape=(3, 3), growing=True, nav_shape=(2, 2))
    recording = read({"a.raw": b""}, hints, "raw")
    assert (recording.frames, recording.extents, recording.nav_shape) == (0, (), (2, 2))


def test_what_the_owner_says_of_scan_and_start_is_taken() -> None:
    files = writers.raw(noise((12, 3, 3)))
    hints = Hints(dtype=np.dtype("u2"), sig_shape=(3, 3), nav_shape=(5, 2), sync_offset=-2)
    recording = read(files, hints)
    assert (recording.nav_shape, recording.sync_offset) == ((5, 2), -2)


# -- npy --------------------------------------------------------------------------


@given(
    dtype=st.sampled_from(DTYPES),
    shape=st.lists(st.integers(1, 4), min_size=2, max_size=5).map(tuple),
    version=st.sampled_from([1, 2, 3]),
)
def test_npy(dtype: str, shape: tuple[int, ...], version: int) -> None:
    array = noise(shape, dtype)
    files = {"a.npy": writers.npy(array, version)}
    recording = read(files)
    assert recording.nav_shape == (shape[:-2] or (1,))
    assert recording.sig_shape == shape[-2:]
    assert same(frames_of(files, recording), array.reshape(-1, *shape[-2:]))


def test_npy_as_numpy_writes_it() -> None:
    array = noise((3, 4, 5, 6), ">u2")
    for version in ((1, 0), (2, 0), (3, 0)):
        buffer = io.BytesIO()
        np.lib.format.write_array(buffer, array, version)
        files = {"a.npy": buffer.getvalue()}
        recording = read(files, Hints(sig_shape=(4, 5, 6)))
        assert (recording.nav_shape, recording.sig_shape) == ((3,), (4, 5, 6))
        recording = read(files, Hints(nav_shape=(3,)))
        assert (recording.nav_shape, recording.sig_shape) == ((3,), (4, 5, 6))
        recording = read(files, Hints(sig_shape=(6,)))
        assert (recording.nav_shape, recording.sig_shape) == ((3, 4, 5), (6,))
        for other in ((6, 5), (3, 10), (30,), (10, 6)):
            with pytest.raises(CoreError, match="does not consist of frames of sig_shape"):
                read(files, Hints(sig_shape=other))


@pytest.mark.parametrize(
    ("shape", "nav", "sig", "taken"),
    [
        ((5, 12), None, (3, 4), True),
        ((5, 12), None, (2, 3), True),
        ((20, 12), None, (4, 12), True),
        ((2, 5, 12), (2, 5), (3, 4), True),
        ((5, 3, 4, 1), (5,), (3, 4), True),
        ((2, 5, 3, 4), None, (1, 3, 4), True),
        ((4, 6), None, (6, 4), False),
        ((4, 6), None, (24,), False),
        ((4, 6), None, (3, 4), False),
        ((2, 3, 4, 6), (2, 3), (3, 8), False),
    ],
)
def test_npy_keeps_its_rows(
    shape: tuple[int, ...], nav: tuple[int, ...] | None, sig: tuple[int, ...], taken: bool
) -> None:
    array = noise(shape)
    files, hints = {"a.npy": writers.npy(array)}, Hints(sig_shape=sig, nav_shape=nav)
    if taken:
        assert same(frames_of(files, read(files, hints)), array.reshape(-1, *sig))
        return
    with pytest.raises(CoreError, match="does not consist of frames of sig_shape"):
        read(files, hints)


def test_npy_of_one_dimension_has_a_frame_for_each_value() -> None:
    files = {"a.npy": writers.npy(noise((12,)))}
    assert read(files, Hints(sig_shape=(2, 3))).nav_shape == (2,)
    assert read(files, Hints(sig_shape=(12,))).frames == 1
    recording = read(files)
    assert (recording.nav_shape, recording.sig_shape) == ((12,), (1,))
    assert read(files, Hints(nav_shape=(3, 4))).nav_shape == (3, 4)
    assert read({"a.npy": writers.npy(noise(()))}).frames == 1


def test_npy_in_several_files() -> None:
    array = noise((7, 4, 5, 6))
    files = {f"a{i}.npy": writers.npy(part) for i, part in enumerate(np.split(array, [2, 3]))}
    recording = read(files)
    assert recording.nav_shape == (7, 4)
    assert same(frames_of(files, recording), array.reshape(-1, 5, 6))
    files["a4.npy"] = writers.npy(noise((2, 9, 5, 6)))
    assert read(files).nav_shape == (7 * 4 + 18,)


# -- EMPAD ------------------------------------------------------------------------


def test_empad() -> None:
    frames = noise((6, 128, 128), "<f4")
    files = writers.empad(frames, (2, 3))
    recording = read(files)
    assert (recording.format, recording.nav_shape, recording.notes) == ("empad", (2, 3), ())
    assert same(frames_of(files, recording), frames)
    alone = {"scan.raw": files["scan.raw"]}
    assert read(alone, name="empad").nav_shape == (6,)
    assert read(alone, Hints(nav_shape=(3, 2)), "empad").nav_shape == (3, 2)


def test_empad_of_the_search_scan_and_of_a_series() -> None:
    frames = noise((6, 128, 128), "<f4")
    modes = (("acquire", (5, 5)), ("search", (3, 2)))
    recording = read(writers.empad(frames, modes=modes))
    assert (recording.nav_shape, recording.metadata) == ((3, 2), {"scan": "search"})
    assert read(writers.empad(frames, series=6)).nav_shape == (6,)


def test_empad_renamed_is_said() -> None:
    recording = read(writers.empad(noise((6, 128, 128), "<f4"), (2, 3), raw_name="other.raw"))
    assert recording.notes == ("scan.xml calls the data file other.raw",)


# -- Merlin -----------------------------------------------------------------------


def counted(shape: tuple[int, ...], depth: int, seed: int = 0) -> npt.NDArray[Any]:
    return np.random.default_rng(seed).integers(0, 1 << depth, shape, np.uint32)


@given(
    pixels=st.sampled_from(["U08", "U16", "U32", "U64"]),
    shape=st.tuples(st.integers(1, 7), st.integers(1, 9)),
    sizes=splits,
    header=st.sampled_from([256, 384, 768, 1000]),
    first=st.integers(0, 999000),
)
def test_mib_decoded(
    pixels: str, shape: tuple[int, int], sizes: list[int], header: int, first: int
) -> None:
    frames = noise((sum(sizes), *shape), f"u{int(pixels[1:]) // 8}")
    files = writers.mib(frames, pixels, header=header, splits=sizes, first=first)
    recording = read(files)
    assert recording.format == "mib"
    assert recording.stored == np.dtype(f">u{int(pixels[1:]) // 8}")
    assert same(frames_of(files, recording), frames)


@pytest.mark.parametrize("depth", [1, 6, 12, 24])
@given(words=st.integers(1, 3), rows=st.integers(1, 4), sizes=splits, seed=st.integers(0, 99))
def test_mib_raw(depth: int, words: int, rows: int, sizes: list[int], seed: int) -> None:
    columns = words * {1: 64, 6: 8, 12: 4, 24: 4}[depth]
    frames = counted((sum(sizes), rows, columns), depth, seed)
    files = writers.mib(frames, "R64", depth, splits=sizes)
    recording = read(files)
    assert recording.sig_shape == (rows, columns)
    assert recording.dtype == {1: "u1", 6: "u1", 12: "u2", 24: "u4"}[depth]
    assert np.array_equal(frames_of(files, recording), frames)
    assert recording.metadata["counter_bits"] == depth


@pytest.mark.parametrize("depth", [1, 6, 12, 24])
@given(words=st.integers(1, 2), sizes=splits, seed=st.integers(0, 99))
def test_mib_raw_of_four_chips(depth: int, words: int, sizes: list[int], seed: int) -> None:
    side = words * {1: 64, 6: 8, 12: 4, 24: 4}[depth]
    if PURE_PYTHON:
        side, sizes = side // words, [1]
    frames = counted((min(sum(sizes), 5), 2 * side, 2 * side), depth, seed)
    files = writers.mib(frames, "R64", depth, chips=4)
    recording = read(files)
    assert recording.sig_shape == (2 * side, 2 * side)
    assert np.array_equal(frames_of(files, recording), frames)


@pytest.mark.skipif(PURE_PYTHON, reason="many pixels")
def test_mib_of_the_real_sizes() -> None:
    for depth, chips, side in ((12, 1, 256), (6, 4, 512)):
        frames = counted((2, side, side), depth)
        files = writers.mib(frames, "R64", depth, chips=chips)
        assert np.array_equal(frames_of(files, read(files)), frames)


def test_mib_scan_from_the_hdr() -> None:
    frames = noise((6, 4, 4), "u1")
    hdr = {"Frames in Acquisition (Number)": 6, "Frames per Trigger (Number)": 3}
    recording = read(writers.mib(frames, "U08", hdr=hdr))
    assert recording.nav_shape == (2, 3)
    assert recording.metadata["acquisition"]["Frames per Trigger (Number)"] == "3"
    assert read(writers.mib(frames, "U08", hdr=hdr | {"ScanX": 2, "ScanY": 3})).nav_shape == (3, 2)
    assert read(writers.mib(frames, "U08", hdr={"Chip": "x"})).nav_shape == (6,)
    hdr["Frames per Trigger (Number)"] = 0
    assert read(writers.mib(frames, "U08", hdr=hdr)).nav_shape == (6,)


def test_mib_files_follow_by_sequence_number() -> None:
    frames = noise((9, 4, 4), "u2")
    names = ["b.mib", "c.mib", "a.mib"]
    files = writers.mib(frames, "U16", splits=[4, 3, 2], names=names)
    assert not read(files).notes
    files = dict(sorted(files.items()))
    recording = read(files)
    assert same(frames_of(files, recording), frames)
    assert "not the order given" in recording.notes[0]


def test_mib_files_that_each_count_from_one_follow_as_they_are_given() -> None:
    frames = noise((3, 4, 4), "u2")
    names = ["b.mib", "c.mib", "a.mib"]
    files = writers.mib(frames, "U16", splits=[1] * 3, restart=True, names=names)
    recording = read(files)
    assert same(frames_of(files, recording), frames)
    assert "in the order given" in recording.notes[0]


def test_mib_frames_that_were_lost_are_said() -> None:
    frames = noise((4, 4, 4), "u2")
    files = writers.mib(frames, "U16")
    later = writers.mib(frames, "U16", first=3)["default1.mib"]
    stride = 384 + 32
    files["default1.mib"] = files["default1.mib"][: 2 * stride] + later[2 * stride :]
    recording = read(files)
    assert same(frames_of(files, recording), frames)
    (note,) = recording.notes
    assert note.startswith("default1.mib: 4 frames are numbered 1 to 6: 2 are missing between them")
    assert "later frames have taken their places" in note


def test_mib_frames_between_the_first_and_the_last_are_looked_at() -> None:
    frames, stride = noise((6, 4, 4), "u2"), 384 + 32
    whole = writers.mib(frames, "U16")["default1.mib"]
    pieces = [whole[k * stride : (k + 1) * stride] for k in range(6)]
    swapped = b"".join(pieces[k] for k in (0, 2, 1, 3, 4, 5))
    recording = read({"default1.mib": swapped})
    (note,) = recording.notes
    assert "frame 1 of the file is numbered 3, not 2" in note
    for damage, said in (
        (bytes(stride), "no frame header where one should begin"),
        (pieces[2].replace(b"U16", b"U08"), "of another layout"),
    ):
        damaged = b"".join([*pieces[:2], damage, *pieces[3:]])
        with pytest.raises(FormatError, match=said) as caught:
            read({"default1.mib": damaged})
        assert caught.value.offset == 2 * stride


def test_mib_growing_leaves_the_unfinished_frame() -> None:
    frames = noise((3, 4, 4), "u2")
    files = writers.mib(frames, "U16")
    files["default1.mib"] = files["default1.mib"][:-1]
    recording = read(files, Hints(growing=True))
    assert same(frames_of(files, recording), frames[:2])


# -- TVIPS ------------------------------------------------------------------------


@given(
    version=st.sampled_from([1, 2]),
    dtype=st.sampled_from(["u1", "u2"]),
    shape=st.tuples(st.integers(1, 7), st.integers(1, 9)),
    sizes=splits,
    header=st.sampled_from([12, 76, 108, 200]),
)
def test_tvips(
    version: int, dtype: str, shape: tuple[int, int], sizes: list[int], header: int
) -> None:
    frames = noise((sum(sizes), *shape), dtype)
    files = writers.tvips(frames, version, header=header, splits=sizes)
    recording = read(files)
    assert same(frames_of(files, recording), frames)
    assert (recording.nav_shape, recording.sync_offset) == ((len(frames),), 0)
    assert recording.metadata["binning_x"] == 4
    assert recording.notes == ()


def scan_of(rows: int, columns: int, before: int, behind: int) -> list[tuple[float, float]]:
    """Positions with the beam parked before and behind the scan."""
    cells = [(float(y), float(x)) for y in range(rows) for x in range(columns)]
    return [(0.0, 0.0)] * before + cells + [(rows - 1.0, columns - 1.0)] * behind


@given(
    rows=st.integers(2, 4),
    columns=st.integers(2, 5),
    before=st.integers(0, 4),
    behind=st.integers(0, 1),
    cut=st.integers(1, 7),
)
def test_tvips_scan(rows: int, columns: int, before: int, behind: int, cut: int) -> None:
    scan = scan_of(rows, columns, before, behind)
    frames = noise((len(scan), 2, 3))
    sizes = [cut, len(scan) - cut] if cut < len(scan) else [len(scan)]
    files = writers.tvips(frames, scan=scan, splits=sizes)
    recording = read(files)
    assert recording.sync_offset == before
    assert recording.nav_shape == (rows, columns)
    hinted = read(files, Hints(sync_offset=1, nav_shape=(3,)))
    assert (hinted.sync_offset, hinted.nav_shape) == (1, (3,))


def test_tvips_scan_of_one_row_tells_only_its_start() -> None:
    files = writers.tvips(noise((5, 2, 2)), scan=scan_of(1, 3, 2, 0))
    recording = read(files)
    assert (recording.sync_offset, recording.nav_shape) == (2, (5,))


def test_tvips_notes_frames_that_are_not_counted_on() -> None:
    files = writers.tvips(noise((4, 2, 2)), splits=[2, 2])
    other = writers.tvips(noise((4, 2, 2)), splits=[2, 2], counter=50)
    files["rec_001.tvips"] = other["rec_001.tvips"]
    assert read(files).notes == (
        "rec_001.tvips: its frames are counted from 52, those of the previous file end with 2",
    )


def test_tvips_does_not_mind_frames_that_are_not_counted_at_all() -> None:
    files = writers.tvips(noise((2, 2, 2)), splits=[1, 1], counter=0)
    files["rec_001.tvips"] = bytes(4) + files["rec_001.tvips"][4:]
    assert read(files).notes == ()


# -- SEQ --------------------------------------------------------------------------


@given(
    version=st.sampled_from([3, 4, 5, 6]),
    dtype=st.sampled_from(["u1", "u2", "u4"]),
    shape=st.tuples(st.integers(1, 4), st.integers(1, 7), st.integers(1, 9)),
    footer=st.sampled_from([0, 6, 8, 40]),
    allocated=st.sampled_from([None, 0]),
)
def test_seq(
    version: int, dtype: str, shape: tuple[int, int, int], footer: int, allocated: int | None
) -> None:
    frames = noise(shape, dtype)
    files = {"a.seq": writers.seq(frames, version, footer=footer, allocated=allocated)}
    recording = read(files)
    assert (recording.format, recording.nav_shape) == ("seq", shape[:1])
    assert same(frames_of(files, recording), frames)
    assert recording.metadata["description"] == "a title"
    assert recording.metadata["frame_rate"] == 100.0


def test_seq_with_fewer_frames_counted_than_there_are() -> None:
    recording = read({"a.seq": writers.seq(noise((4, 3, 3)), allocated=3)})
    assert recording.frames == 3
    assert recording.notes == ("a.seq: 26 bytes after the frames are not used",)


BAD_PIXELS = b"""<?xml version="1.0"?><Configuration><A/><BadPixelMaps>
<BadPixelMap Rows="8" Columns="10"><Defect Row="2"/><Defect Columns="3-4"/>
<Defect Row="7" Column="9"/></BadPixelMap>
<BadPixelMap Rows="4" Columns="5" Binning="2"><Defect Column="1" Row="3"/></BadPixelMap>
</BadPixelMaps></Configuration>"""


def seq_set(
    shape: tuple[int, int], top: int = 0, left: int = 0, binning: int = 1
) -> dict[str, bytes]:
    rows, columns = shape[0] * binning, shape[1] * binning
    return {
        "a.seq": writers.seq(noise((2, *shape))),
        "a.seq.Config.Metadata.xml": BAD_PIXELS,
        "a.seq.metadata": writers.seq_camera(rows, columns, top, left, binning),
    }


def test_seq_corrections() -> None:
    dark, gain = noise((1, 8, 10), "i2", 1), noise((8, 10), "u2", 2).astype("f4")[None]
    files = seq_set((8, 10))
    files["a.seq.dark.mrc"] = writers.mrc(dark, 1)
    files["a.seq.gain.mrc"] = writers.mrc(gain, 2, ">")
    recording = read(files)
    assert recording.format == "seq"
    assert recording.built_in.dark is not None
    assert recording.built_in.gain is not None
    assert np.array_equal(recording.built_in.dark, dark[0])
    assert np.array_equal(recording.built_in.gain, gain[0])
    expected = np.zeros((8, 10), bool)
    expected[2, :] = expected[:, 3:5] = expected[7, 9] = True
    assert recording.built_in.excluded is not None
    assert np.array_equal(recording.built_in.excluded, np.argwhere(expected))


def test_seq_bad_pixels_of_a_part_and_of_binned_frames() -> None:
    expected = np.zeros((8, 10), bool)
    expected[2, :] = expected[:, 3:5] = expected[7, 9] = True
    part = read(seq_set((4, 5), top=1, left=2)).built_in.excluded
    assert part is not None
    assert np.array_equal(part, np.argwhere(expected[1:5, 2:7]))
    binned = read(seq_set((4, 5), binning=2)).built_in.excluded
    assert binned is not None
    assert np.array_equal(binned, [[3, 1]])


@pytest.mark.parametrize(
    ("shape", "change", "note"),
    [
        ((9, 10), {}, "it has no map of 9 x 10 pixels"),
        ((4, 5), {"a.seq.metadata": writers.seq_camera(8, 10)}, "the camera read out 8 x 10"),
        (
            (8, 10),
            {"a.seq.metadata": None},
            "the .metadata file, which gives the binning, is missing",
        ),
    ],
)
def test_seq_bad_pixels_that_cannot_be_used(
    shape: tuple[int, int], change: dict[str, bytes | None], note: str
) -> None:
    files = {k: v for k, v in (seq_set(shape) | change).items() if v is not None}
    recording = read(files)
    assert recording.built_in.excluded is None
    assert note in recording.notes[0]


# -- BLO --------------------------------------------------------------------------


@given(
    order=st.sampled_from(ORDERS),
    dtype=st.sampled_from(["u1", "u2"]),
    scan=st.tuples(st.integers(1, 4), st.integers(1, 5)),
    side=st.integers(1, 9),
    first=st.sampled_from([240, 300, 4096]),
)
def test_blo(
    order: writers.Order, dtype: str, scan: tuple[int, int], side: int, first: int
) -> None:
    frames = noise((scan[0] * scan[1], side, side), dtype)
    if dtype == "u2":
        first = max(first, 300)
    files = {"a.blo": writers.blo(frames, scan, order, offset_1=first)}
    recording = read(files)
    assert (recording.format, recording.nav_shape) == ("blo", scan)
    assert same(frames_of(files, recording), frames)
    assert not recording.notes
    assert [(a.name, a.size, a.unit, a.scale) for a in recording.axes] == [
        ("y", scan[0], "nm", 3.0),
        ("x", scan[1], "nm", 2.0),
        ("ky", side, "cm", 2.0),
        ("kx", side, "cm", 2.0),
    ]
    assert read(files, Hints(nav_shape=(scan[0] * scan[1],))).axes == ()


def test_blo_frames_that_do_not_begin_like_one_are_noted() -> None:
    octets = bytearray(writers.blo(noise((6, 4, 4), "u1"), (2, 3)))
    octets[-(16 + 6)] = 0
    (note,) = read({"a.blo": bytes(octets)}).notes
    assert note == "a.blo: frame 5 does not begin like one (55 AA)"


# -- FRMS6 ------------------------------------------------------------------------


@given(
    binning=st.sampled_from([1, 2, 4]),
    half=st.integers(1, 4),
    columns=st.integers(1, 6),
    sizes=splits,
    darks=st.integers(1, 4),
    counted=st.booleans(),
)
def test_frms6(
    binning: int, half: int, columns: int, sizes: list[int], darks: int, counted: bool
) -> None:
    frames = noise((sum(sizes), 2 * half, columns))
    dark = noise((darks, 2 * half, columns), seed=1)
    files = writers.frms6(
        frames, dark, (sum(sizes), 1), binning=binning, splits=sizes, counted=counted
    )
    recording = read(files)
    assert (recording.format, recording.nav_shape) == ("frms6", (sum(sizes), 1))
    assert np.array_equal(frames_of(files, recording), frames.repeat(binning, axis=1))
    mean = dark.astype("f8").mean(axis=0).repeat(binning, axis=0)
    assert recording.built_in.dark is not None
    assert recording.built_in.dark.dtype == np.float32
    assert np.allclose(recording.built_in.dark, mean, rtol=1e-6)


def test_frms6_without_dark_frames_has_no_dark_image() -> None:
    files = writers.frms6(noise((2, 2, 2)), noise((1, 2, 2)), (1, 2), counted=False)
    files["m_000.frms6"] = files["m_000.frms6"][:1024]
    assert read(files).built_in.dark is None


def test_frms6_with_more_frames_than_the_hdr_tells_of() -> None:
    files = writers.frms6(noise((4, 2, 2)), noise((1, 2, 2)), (2, 2), SignalFrames="3")
    assert read(files).notes == ("the .hdr file declares only 3 of the 4 signal frames",)


# -- MRC --------------------------------------------------------------------------


@given(
    mode=st.sampled_from([(0, "i1"), (1, "i2"), (2, "f4"), (4, "c8"), (6, "u2"), (12, "f2")]),
    order=st.sampled_from(ORDERS),
    shape=st.tuples(st.integers(1, 4), st.integers(1, 7), st.integers(1, 9)),
    extended=st.sampled_from([0, 1024, 33]),
    word=st.sampled_from([b"MAP ", b"\0\0\0\0"]),
)
def test_mrc(
    mode: tuple[int, str],
    order: writers.Order,
    shape: tuple[int, int, int],
    extended: int,
    word: bytes,
) -> None:
    frames = noise(shape, mode[1])
    stamp = None if word == b"MAP " else b"\0\0"
    octets = writers.mrc(frames, mode[0], order, extended=extended, word=word, stamp=stamp, cell=2)
    recording = read({"a.mrc": octets})
    assert (recording.format, recording.nav_shape) == ("mrc", shape[:1])
    assert same(frames_of({"a.mrc": octets}, recording), frames)
    assert [axis.scale for axis in recording.axes] == [2.0] * 3


def test_mrc_bytes_are_signed_unless_imod_wrote_them() -> None:
    frames = noise((2, 3, 3), "u1")
    for imod, dtype in (((0, 0), "i1"), ((1146047817, 0), "u1"), ((1146047817, 1), "i1")):
        assert read({"a.mrc": writers.mrc(frames, 0, imod=imod)}).dtype == dtype


# -- K2IS -------------------------------------------------------------------------


def test_k2is_says_how_far_it_looked_for_an_open_shutter(monkeypatch: pytest.MonkeyPatch) -> None:
    frames = np.zeros((3, 1860, 256), np.uint16)
    files = {f"c_{s + 1}.bin": writers.k2is_sector(frames, opens=2) for s in range(8)}
    assert read(files).frames == 1
    monkeypatch.setattr(k2is, "SEARCHED", 2)
    recording = read(files)
    assert recording.frames == 3
    assert recording.notes[0].startswith("of the first 2 frames none is marked")
    monkeypatch.setattr(k2is, "SEARCHED", 3)
    assert read(files).frames == 1


def test_k2is() -> None:
    frames = np.random.default_rng(0).integers(0, 4096, (8, 4, 1860, 256), np.uint16)
    skips = [0, 3, 0, 0, 1, 0, 0, 2]
    files = {
        f"Capture_{s + 1}.bin": writers.k2is_sector(frames[s], opens=2, skip=skips[s])
        for s in range(8)
    }
    files["Capture_.gtg"] = b"not read"
    recording = read(files)
    assert (recording.format, recording.sig_shape) == ("k2is", (1860, 2048))
    assert (recording.nav_shape, recording.frames, recording.panels) == ((2,), 2, 8)
    if not PURE_PYTHON:
        whole = np.concatenate(list(frames[:, 2:]), axis=-1)
        assert np.array_equal(frames_of(files, recording), whole)
        assert np.array_equal(tiles_of(files, recording), whole)
        part = tiles_of(files, recording, {"sig": [[900, 960], [250, 1030]]})
        assert np.array_equal(part, whole[:, 900:960, 250:1030])
    later = read(files, Hints(nav_shape=(1, 1), sync_offset=1))
    assert (later.nav_shape, later.sync_offset, later.frames) == ((1, 1), 1, 2)
    assert read(files, Hints(sig_shape=(1860, 2048))).frames == 2
    with pytest.raises(CoreError, match="a frame of eight sectors has"):
        read(files, Hints(sig_shape=(1860, 256)))
    closed = {
        k: v.replace(b"\x01\x01" + bytes(6), b"\x01\x00" + bytes(6)) for k, v in files.items()
    }
    assert "no frame is marked as having the shutter open" in read(closed).notes[0]


def test_npy_of_pictures_notes_that_colours_may_be_an_axis_of_the_frame() -> None:
    files = {"a.npy": writers.npy(noise((5, 8, 6, 3)))}
    (note,) = read(files).notes
    assert note == (
        "frames are [6, 3], the last two axes: if they are pictures of 3 colours,"
        " register sig_shape [8, 6, 3]"
    )
    stated = read(files, Hints(sig_shape=(8, 6, 3)))
    assert (stated.nav_shape, stated.notes) == ((5,), ())
    assert not read(files, Hints(nav_shape=(5, 8))).notes
    assert not read({"a.npy": writers.npy(noise((5, 6, 3)))}).notes
