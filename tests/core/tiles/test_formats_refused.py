"""Every lie, cut and contradiction is refused, naming the file, the byte and what to do."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest

from core.errors import FormatError, ShapeError
from core.tiles.formats import parse
from core.tiles.recording import Hints
from tests.core.tiles import writers
from tests.core.tiles.files import opened, read

Set = dict[str, bytes]

FRAMES = np.arange(6 * 4 * 4, dtype=np.uint16).reshape(6, 4, 4)
SIX = np.zeros((6, 128, 128), "<f4")
U2 = np.dtype("<u2")
RAW_HINTS = Hints(dtype=U2, sig_shape=(4, 4))


@dataclass(frozen=True)
class Case:
    """A set of files, what is wrong with it, and the error it must give."""

    files: Set
    source: str
    offset: int
    says: str
    hints: Hints | None = None
    hinted: bool = True


def changed(files: Set, name: str, offset: int, octets: bytes) -> Set:
    content = bytearray(files[name])
    content[offset : offset + len(octets)] = octets
    return files | {name: bytes(content)}


def cut(files: Set, name: str, by: int = 1) -> Set:
    return files | {name: files[name][: len(files[name]) - by]}


def without(files: Set, name: str) -> Set:
    return {k: v for k, v in files.items() if k != name}


def i4(value: int) -> bytes:
    return struct.pack("<i", value)


NPY = {"a.npy": writers.npy(FRAMES)}
RECORDS = writers.npy(FRAMES).replace(b"'<u2'", b"[('']")
OBJECTS = writers.npy(FRAMES).replace(b"'<u2'", b"'|O8'")
LONG = writers.npy(FRAMES).replace(b"(6, 4, 4, )", b"(9, 4, 4, )")
ZERO = writers.npy(FRAMES).replace(b"(6, 4, 4, )", b"(0, 4, 4, )")
HUGE = writers.npy(FRAMES).replace(b"(6, 4, 4, )", b"(6, 4,%s)" % (b"9" * 40))
MINUS = writers.npy(FRAMES).replace(b"(6, 4, 4, )", b"(-6, 4, 4,)")

RAW = [
    Case({"a.raw": b""}, "a.raw", 0, "empty", RAW_HINTS, hinted=False),
    Case({"a.raw": b"x" * 31}, "a.raw", 31, "less than one frame", RAW_HINTS),
    Case({"a.raw": b"x" * 64}, "a.raw", 0, "dtype is not given", Hints(sig_shape=(4,))),
    Case({"a.raw": b"x" * 64}, "a.raw", 0, "sig_shape is not given", Hints(dtype=U2)),
    Case(
        {"a.raw": b"x" * 64},
        "a.raw",
        0,
        "pixels of dtype",
        Hints(dtype=np.dtype("u2,u2"), sig_shape=(4,)),
    ),
    Case({"a.raw": b"x" * 64, "b.raw": b"x"}, "b.raw", 1, "less than", RAW_HINTS),
]
NUMPY = [
    Case({"a.npy": b"no array"}, "a.npy", 0, "magic string", hinted=False),
    Case({"a.npy": NPY["a.npy"][:5]}, "a.npy", 5, "ends inside the magic"),
    Case(changed(NPY, "a.npy", 6, b"\4"), "a.npy", 6, "version 4.0", hinted=False),
    Case(changed(NPY, "a.npy", 6, b"\1\1"), "a.npy", 6, "version 1.1", hinted=False),
    Case({"a.npy": NPY["a.npy"][:40]}, "a.npy", 40, "ends inside the header"),
    Case(
        {"a.npy": b"\x93NUMPY\2\0" + struct.pack("<I", 1 << 31)},
        "a.npy",
        8,
        "a header of 2147483648 bytes",
        hinted=False,
    ),
    Case({"a.npy": writers.npy(FRAMES, fortran=True)}, "a.npy", 10, "Fortran order"),
    Case({"a.npy": RECORDS}, "a.npy", 10, "pixels of type [('']"),
    Case({"a.npy": OBJECTS}, "a.npy", 10, "pixels of type '|O8'"),
    Case({"a.npy": LONG}, "a.npy", 128 + 6 * 32, "holds 6 of 9 frames of 32 bytes"),
    Case({"a.npy": ZERO}, "a.npy", 10, "is empty", hinted=False),
    Case({"a.npy": HUGE}, "a.npy", 10, "is not one", hinted=False),
    Case({"a.npy": MINUS}, "a.npy", 10, "is not one", hinted=False),
    Case(cut(NPY, "a.npy"), "a.npy", 128 + 5 * 32, "holds 5 of 6 frames"),
    Case(
        NPY | {"b.npy": writers.npy(FRAMES.astype("i4"))}, "b.npy", 10, "frames of <i4 (4, 4), but"
    ),
    Case(NPY | {"b.npy": writers.npy(FRAMES[:, :3])}, "b.npy", 10, "frames of <u2 (3, 4), but"),
    Case(NPY, "a.npy", 0, "dtype is stated as <i2, but", Hints(dtype=np.dtype("<i2"))),
    Case(NPY, "a.npy", 0, "dtype is stated as >u2, but", Hints(dtype=np.dtype(">u2"))),
    Case(NPY, "a.npy", 0, "frame_header is stated as 8, but", Hints(frame_header=8)),
]
EMPAD_SET = writers.empad(SIX, (2, 3))
EMPAD = [
    Case(cut(EMPAD_SET, "scan.raw"), "scan.raw", 5 * 66560, "the last frame is truncated: 66559"),
    Case(writers.empad(SIX, (2, 2)), "scan.raw", 6 * 66560, "6 frames, but scan.xml describes (2,"),
    Case(writers.empad(SIX, series=5), "scan.raw", 6 * 66560, "describes (5,) (series)"),
    Case(EMPAD_SET | {"b.raw": b"x"}, "b.raw", 0, "a second .raw file, besides scan.raw"),
    Case(without(EMPAD_SET, "scan.raw"), "", 0, "there is no .raw file"),
    Case(EMPAD_SET | {"scan.xml": b"<root><raw_file"}, "scan.xml", 0, "is not XML"),
    Case(EMPAD_SET | {"scan.xml": b"<root><raw_file/></root>"}, "scan.xml", 0, "describes no scan"),
    Case(
        EMPAD_SET | {"scan.xml": EMPAD_SET["scan.xml"].replace(b">3<", b">-3<")},
        "scan.xml",
        0,
        "the x size is '-3', not a number",
    ),
    Case(
        EMPAD_SET | {"scan.xml": b'<!DOCTYPE a [<!ENTITY x "y">]><root><raw_file/></root>'},
        "scan.xml",
        0,
        "declares a document type",
    ),
    Case(
        EMPAD_SET | {"scan.xml": b"<root><raw_file/>".ljust(1 << 21)},
        "scan.xml",
        1 << 20,
        "a companion file of 2097152 bytes",
    ),
    Case(
        EMPAD_SET | {"scan.xml": b"<r><raw_file/><type>map</type></r>"}, "scan.xml", 0, "type 'map'"
    ),
    Case(EMPAD_SET, "scan.raw", 0, "dtype is stated as <u2", Hints(dtype=U2)),
]
MIB_SET = writers.mib(FRAMES, "U16", splits=[3, 3], hdr={"ScanX": 3, "ScanY": 2})
MIB_STRIDE = 384 + 32
RAW24 = writers.mib(np.zeros((2, 4, 8), "u4"), "R64", 24)


def header_field(index: int, value: str, frame: int = 0, files: Set | None = None) -> Set:
    """A field of a frame's header, changed to a text as long."""
    files = files or MIB_SET
    offset = frame * MIB_STRIDE
    fields = files["default1.mib"][offset:].split(b",")
    before = sum(len(field) + 1 for field in fields[:index])
    return changed(files, "default1.mib", offset + before, value.encode())


MIB = [
    Case(
        cut(MIB_SET, "default2.mib"), "default2.mib", 2 * MIB_STRIDE, "the last frame is truncated"
    ),
    Case(MIB_SET | {"default2.mib": b"MQ1,"}, "default2.mib", 0, "the last frame is truncated"),
    Case({"default1.mib": b"MQ1,000001,"}, "default1.mib", 0, "no frame header"),
    Case(header_field(2, "0x384"), "default1.mib", 0, "numbers", hinted=False),
    Case(header_field(2, "00001"), "default1.mib", 0, "a frame header of 1 bytes", hinted=False),
    Case(header_field(2, "99999"), "default1.mib", 0, "of 99999 bytes", hinted=False),
    Case(header_field(4, "0000"), "default1.mib", 0, "0 x 4 pixels", hinted=False),
    Case(header_field(4, "9999"), "default1.mib", 0, "the last frame is truncated"),
    Case(header_field(6, "X16"), "default1.mib", 0, "pixels of type 'X16'"),
    Case(
        header_field(6, "R64", files=writers.mib(FRAMES[:, :, :3], "U16")),
        "default1.mib",
        0,
        "rows of 3 pixels are",
        hinted=False,
    ),
    Case(header_field(2, "00400", 2), "default1.mib", 2 * MIB_STRIDE, "of another layout"),
    Case(
        changed(MIB_SET, "default1.mib", 2 * MIB_STRIDE, b"ABC"),
        "default1.mib",
        2 * MIB_STRIDE,
        "no frame header where one",
    ),
    Case(
        writers.mib(FRAMES, "U16", splits=[2, 2, 2])
        | {"default2.mib": writers.mib(FRAMES, "U16", splits=[2, 2, 2])["default1.mib"]},
        "default2.mib",
        0,
        "some files have frames of the same numbers",
    ),
    Case(
        without(writers.mib(FRAMES, "U16", splits=[2, 2, 2]), "default2.mib"),
        "default3.mib",
        0,
        "its frames are numbered from 5, those of default1.mib end with 2",
    ),
    Case(MIB_SET | {"default.hdr": b"HDRx"[:2]}, "default.hdr", 0, "does not begin with HDR"),
    Case(
        MIB_SET | {"default.hdr": b"HDR,\nScanX:\t999999999\nScanY:\t999999999\n"},
        "default1.mib",
        0,
        "which is invalid",
    ),
    Case(MIB_SET | {"x.hdr": MIB_SET["default.hdr"]}, "x.hdr", 0, "a second .hdr file"),
    Case({"default.hdr": MIB_SET["default.hdr"]}, "default.hdr", 0, "there is no .mib file"),
    Case(header_field(3, "02", files=RAW24), "default1.mib", 0, "raw data of 2 chips"),
    Case(header_field(4, "0015", files=RAW24), "default1.mib", 0, "which is odd", hinted=False),
    Case(writers.mib(np.zeros((1, 8, 8), "u1"), "R64", 7), "default1.mib", 0, "'R64' with 7 bits"),
    Case(
        header_field(4, "0064", files=writers.mib(np.zeros((1, 16, 16), "u1"), "R64", 6, chips=4)),
        "default1.mib",
        0,
        "four chips side by side in 8 rows of 64",
        hinted=False,
    ),
]
TVIPS_SET = writers.tvips(FRAMES, splits=[3, 3])
TVIPS_STRIDE = 108 + 32
TVIPS = [
    Case(changed(TVIPS_SET, "rec_000.tvips", 0, i4(255)), "rec_000.tvips", 0, "size is 255"),
    Case(changed(TVIPS_SET, "rec_000.tvips", 4, i4(3)), "rec_000.tvips", 4, "version is 3"),
    Case(changed(TVIPS_SET, "rec_000.tvips", 8, i4(0)), "rec_000.tvips", 8, "width is 0"),
    Case(changed(TVIPS_SET, "rec_000.tvips", 12, i4(-4)), "rec_000.tvips", 12, "height is -4"),
    Case(changed(TVIPS_SET, "rec_000.tvips", 16, i4(12)), "rec_000.tvips", 16, "bits_per_pixel"),
    Case(changed(TVIPS_SET, "rec_000.tvips", 48, i4(-1)), "rec_000.tvips", 48, "frame_header is"),
    Case(
        changed(TVIPS_SET, "rec_000.tvips", 8, i4(1 << 30) * 2),
        "rec_000.tvips",
        256,
        "is truncated",
    ),
    Case(cut(TVIPS_SET, "rec_000.tvips"), "rec_000.tvips", 256 + 2 * TVIPS_STRIDE, "is truncated"),
    Case(cut(TVIPS_SET, "rec_001.tvips"), "rec_001.tvips", 2 * TVIPS_STRIDE, "is truncated"),
    Case({"rec_000.tvips": TVIPS_SET["rec_000.tvips"][:99]}, "rec_000.tvips", 99, "ends inside"),
    Case(without(TVIPS_SET, "rec_000.tvips"), "rec_001.tvips", 0, "size is 4 in"),
    Case(
        without(writers.tvips(FRAMES, splits=[2, 2, 2]), "rec_001.tvips"),
        "rec_002.tvips",
        0,
        "file 1 of a series must have the number 001",
    ),
]
SEQ_SET = {"a.seq": writers.seq(FRAMES)}


def seq(**changes: int) -> Set:
    return {"a.seq": writers.seq(FRAMES, **changes)}


SEQ = [
    Case(changed(SEQ_SET, "a.seq", 0, b"\0"), "a.seq", 0, "magic is"),
    Case(seq(bit_depth=12), "a.seq", 556, "bit_depth is 12"),
    Case(seq(width=0), "a.seq", 548, "width is 0"),
    Case(seq(height=0), "a.seq", 552, "height is 0"),
    Case(seq(image_format=200), "a.seq", 568, "image_format is 200"),
    Case(seq(compression_format=1), "a.seq", 620, "compression_format is 1"),
    Case(seq(true_image_size=31), "a.seq", 580, "true_image_size is 31"),
    Case(seq(width=1 << 31, height=1 << 31), "a.seq", 580, "true_image_size is"),
    Case(seq(allocated=7), "a.seq", 8192 + 6 * 40, "holds 6 of 7 frames of 40 bytes"),
    Case(cut(SEQ_SET, "a.seq"), "a.seq", 8192 + 5 * 40, "holds 5 of 6 frames"),
    Case(
        cut({"a.seq": writers.seq(FRAMES, allocated=0)}, "a.seq"), "a.seq", 8392, "is truncated: 39"
    ),
    Case({"a.seq": SEQ_SET["a.seq"][:600]}, "a.seq", 600, "ends inside the header"),
    Case({"a.seq": SEQ_SET["a.seq"][:8000]}, "a.seq", 8000, "ends before its first frame"),
    Case(SEQ_SET | {"b.seq": b"x"}, "b.seq", 0, "a second .seq file, besides a.seq"),
    Case(
        SEQ_SET | {"a.seq.dark.mrc": writers.mrc(FRAMES[:, :3], 6)},
        "a.seq.dark.mrc",
        0,
        "6 images of (3, 4); the frames are (4, 4)",
    ),
    Case(SEQ_SET | {"a.seq.gain.mrc": b"x" * 9}, "a.seq.gain.mrc", 9, "ends inside the header"),
    Case(
        SEQ_SET | {"a.seq.Config.Metadata.xml": b"<", "a.seq.metadata": b"x"},
        "a.seq.metadata",
        1,
        "ends inside the camera's settings",
    ),
    Case(
        SEQ_SET | {"a.seq.Config.Metadata.xml": b"<", "a.seq.metadata": writers.seq_camera(4, 4)},
        "a.seq.Config.Metadata.xml",
        0,
        "is not XML",
    ),
]
BLO_SET = {"a.blo": writers.blo(FRAMES, (2, 3))}
BLO_START = 4096 + 6
BLO = [
    Case(changed(BLO_SET, "a.blo", 6, b"\0"), "a.blo", 6, "no magic number", hinted=False),
    Case({"a.blo": writers.blo(FRAMES, (2, 3), size=0)}, "a.blo", 20, "0 pixels", hinted=False),
    Case(changed(BLO_SET, "a.blo", 24, b"\0\0"), "a.blo", 20, "a scan of (2, 0)", hinted=False),
    Case(
        changed(BLO_SET, "a.blo", 12, b"\1\0\0\0"), "a.blo", 8, "frames from byte 1", hinted=False
    ),
    Case(
        {"a.blo": writers.blo(FRAMES, (2, 3), text="Blo Bit Depth: 12 bits")},
        "a.blo",
        240,
        "12 bits",
        hinted=False,
    ),
    Case({"a.blo": writers.blo(FRAMES, (2, 4))}, "a.blo", 4104 + 6 * 38, "holds 6 of 8 frames"),
    Case(cut(BLO_SET, "a.blo"), "a.blo", BLO_START + 5 * 38, "holds 5 of 6 frames"),
    Case({"a.blo": BLO_SET["a.blo"][:7]}, "a.blo", 7, "ends inside the header"),
    Case({"a.blo": BLO_SET["a.blo"][:50]}, "a.blo", 50, "ends inside the header"),
    Case({"a.blo": BLO_SET["a.blo"][:3000]}, "a.blo", 3000, "before its first frame"),
]
FRMS6_SET = writers.frms6(FRAMES, FRAMES[:2], (2, 3), splits=[3, 3])
FRMS6_STRIDE = 64 + 32


def hdr(**changes: str) -> Set:
    return FRMS6_SET | {"m.hdr": writers.frms6_hdr(6, 2, (2, 3), 1, **changes)}


FRMS6 = [
    Case(without(FRMS6_SET, "m.hdr"), "", 0, "there is no .hdr file"),
    Case(FRMS6_SET | {"m.hdr": b"\xff[measurementInfo]x"}, "m.hdr", 0, "no [measurementInfo]"),
    Case(FRMS6_SET | {"m.hdr": b"[a]\n"}, "m.hdr", 0, "no [measurementInfo] can be read"),
    Case(hdr(ReadoutMode="bin: 3, windowing: 1x1"), "m.hdr", 0, "a binning of 1, 2 or 4"),
    Case(hdr(ReadoutMode=""), "m.hdr", 0, "a binning of 1, 2 or 4"),
    Case(hdr(STEMImageSize="2,3"), "m.hdr", 0, "does not give a scan"),
    Case(hdr(STEMImageSize="0x3"), "m_000.frms6", 0, "a scan of (0, 3), which is invalid"),
    Case(hdr(SignalFrames="9"), "m_002.frms6", 1024 + 3 * FRMS6_STRIDE, "hold 6 of 9 signal"),
    Case(without(FRMS6_SET, "m_000.frms6"), "m_001.frms6", 0, "must have the number 000"),
    Case(without(FRMS6_SET, "m_001.frms6"), "m_002.frms6", 0, "must have the number 001"),
    Case(
        {k: v for k, v in FRMS6_SET.items() if k in {"m.hdr", "m_000.frms6"}},
        "m.hdr",
        0,
        "no file with signal frames",
        hinted=False,
    ),
    Case(
        changed(FRMS6_SET, "m_001.frms6", 7, b"\5"),
        "m_001.frms6",
        0,
        "version 5: not an FRMS6 file",
        hinted=False,
    ),
    Case(
        changed(FRMS6_SET, "m_001.frms6", 88, b"\7\0"),
        "m_001.frms6",
        88,
        "2 rows of 7 columns",
        hinted=False,
    ),
    Case(
        changed(FRMS6_SET, "m_002.frms6", 88, b"\4\0\4\0"),
        "m_002.frms6",
        88,
        "4 rows of 4 columns, but 2 of 8 in m_000.frms6",
    ),
    Case(cut(FRMS6_SET, "m_002.frms6"), "m_002.frms6", 1024 + 2 * FRMS6_STRIDE, "2 of 3 frames"),
    Case(
        cut(writers.frms6(FRAMES, FRAMES[:2], (2, 3), counted=False), "m_001.frms6"),
        "m_001.frms6",
        1024 + 5 * FRMS6_STRIDE,
        "the last frame is truncated",
    ),
    Case(FRMS6_SET | {"m_001.frms6": b""}, "m_001.frms6", 0, "ends inside the file header"),
]
MRC_SET = {"a.mrc": writers.mrc(FRAMES, 6, extended=64)}
MRC = [
    Case(changed(MRC_SET, "a.mrc", 12, i4(3)), "a.mrc", 12, "mode 3, complex integers"),
    Case(changed(MRC_SET, "a.mrc", 12, i4(101)), "a.mrc", 12, "mode 101, pixels of four bits"),
    Case(changed(MRC_SET, "a.mrc", 12, i4(7)), "a.mrc", 0, "pixels of mode 7"),
    Case(changed(MRC_SET, "a.mrc", 0, i4(0)), "a.mrc", 0, "0 x 4 pixels"),
    Case(changed(MRC_SET, "a.mrc", 8, i4(-1)), "a.mrc", 0, "-1 sections"),
    Case(changed(MRC_SET, "a.mrc", 92, i4(-5)), "a.mrc", 0, "header of -5 bytes"),
    Case(changed(MRC_SET, "a.mrc", 92, i4(1 << 30)), "a.mrc", 1280, "before its first frame"),
    Case(changed(MRC_SET, "a.mrc", 0, i4(1 << 30) * 3), "a.mrc", 1088, "holds 0 of 1073741824"),
    Case({"a.mrc": writers.mrc(FRAMES, 6, sections=7)}, "a.mrc", 1024 + 192, "6 of 7 frames"),
    Case(cut(MRC_SET, "a.mrc"), "a.mrc", 1088 + 160, "holds 5 of 6 frames"),
    Case({"a.mrc": MRC_SET["a.mrc"][:1000]}, "a.mrc", 1000, "ends inside the header"),
    Case(MRC_SET | {"b.mrc": MRC_SET["a.mrc"]}, "b.mrc", 0, "a second .mrc file"),
]
CASES = {
    "raw": RAW,
    "npy": NUMPY,
    "empad": EMPAD,
    "mib": MIB,
    "tvips": TVIPS,
    "seq": SEQ,
    "blo": BLO,
    "frms6": FRMS6,
    "mrc": MRC,
}


@pytest.mark.parametrize(
    ("name", "case"), [(name, case) for name, cases in CASES.items() for case in cases]
)
def test_what_is_wrong_is_said(name: str, case: Case) -> None:
    infos, memory = opened(case.files)
    with pytest.raises(FormatError) as caught:
        parse(infos, memory, case.hints, name=name)
    error = caught.value
    assert case.says in str(error)
    assert (error.source or "") == case.source
    assert (error.offset or 0) == case.offset
    assert error.hint is not None or not case.hinted


@cache
def k2is() -> Set:
    frames = np.zeros((8, 2, 1860, 256), np.uint16)
    return {f"c_{s + 1}.bin": writers.k2is_sector(frames[s]) for s in range(8)}


def fewer(files: Set) -> Set:
    return without(files, "c_8.bin")


def broken_sync(files: Set) -> Set:
    return changed(files, "c_3.bin", 0x5758 * 31, b"\0")


def lost_block(files: Set) -> Set:
    return files | {"c_5.bin": files["c_5.bin"][: 0x5758 * 3] + files["c_5.bin"][0x5758 * 4 :]}


def lost_late(files: Set) -> Set:
    octets = files["c_5.bin"]
    return files | {"c_5.bin": octets[: 0x5758 * 40] + octets[0x5758 * 41 :] + octets[:0x5758]}


def too_short(files: Set) -> Set:
    return files | {"c_5.bin": files["c_5.bin"][: 0x5758 * 32 - 1]}


@pytest.mark.parametrize(
    ("damage", "source", "offset", "says"),
    [
        (fewer, "c_1.bin", 0, "7 files, but a recording has 8 sectors"),
        (broken_sync, "c_3.bin", 0x5758 * 31, "no block of 22360 bytes"),
        (lost_block, "c_5.bin", 0x5758 * 3, "block 3 of frame 50 should be here"),
        (lost_late, "c_5.bin", 0x5758 * 63, "where c_1.bin has number 1063 of 51"),
        (too_short, "c_1.bin", 0, "no frame is complete in all sectors"),
    ],
)
def test_k2is_sectors_that_do_not_fit(
    damage: Callable[[Set], Set], source: str, offset: int, says: str
) -> None:
    with pytest.raises(FormatError, match=says) as caught:
        read(damage(k2is()))
    assert (caught.value.source, caught.value.offset) == (source, offset)


def test_the_members_of_records_are_named() -> None:
    buffer = io.BytesIO()
    np.save(buffer, np.zeros((3, 4, 4), [("x", "<f4"), ("y", "<u2", 3)]))
    with pytest.raises(FormatError) as caught:
        read({"a.npy": buffer.getvalue()})
    assert "pixels of type [('x', '<f4'), ('y', '<u2', (3,))]" in str(caught.value)


def test_sparse_files_are_recognised_and_refused() -> None:
    toml = b'[params]\nfiletype = "raw_csr"\n'
    with pytest.raises(FormatError, match="sparse frames") as caught:
        read({"a.toml": toml, "indptr.dat": b"x", "data.dat": b"x"})
    assert caught.value.source == "a.toml"
    assert caught.value.hint is not None


@pytest.mark.parametrize(
    ("files", "hints", "says"),
    [
        (TVIPS_SET, Hints(nav_shape=(0, 3)), "needs dimensions of at least 1"),
        (NPY, Hints(sig_shape=(7, 7)), "not consist of frames of sig_shape"),
        (NPY, Hints(sig_shape=()), "needs dimensions of at least 1"),
        ({"a.raw": b"x" * 64}, Hints(dtype=U2, sig_shape=(-4, 4)), "needs dimensions"),
        ({"a.raw": b"x" * 64}, Hints(dtype=U2, sig_shape=(4,), file_header=-1), "negative"),
    ],
)
def test_shapes_that_do_not_fit(files: Set, hints: Hints, says: str) -> None:
    with pytest.raises(ShapeError, match=says):
        read(files, hints)


@pytest.mark.parametrize("sig", [(2, 8), (16,), (1, 4, 4)])
@pytest.mark.parametrize("files", [MIB_SET, TVIPS_SET, SEQ_SET, BLO_SET, FRMS6_SET, MRC_SET])
def test_frames_have_the_shape_that_the_file_says(files: Set, sig: tuple[int, ...]) -> None:
    assert read(files, Hints(sig_shape=(4, 4))).sig_shape == (4, 4)
    with pytest.raises(FormatError, match=r"sig_shape is stated as .*has .4, 4.") as caught:
        read(files, Hints(sig_shape=sig))
    assert caught.value.hint is not None


def test_a_cut_file_may_be_one_that_grows() -> None:
    for files, name in ((TVIPS_SET, "rec_001.tvips"), (EMPAD_SET, "scan.raw"), (NPY, "a.npy")):
        shorter = cut(files, name)
        assert read(shorter, Hints(growing=True)).frames == 5
    two = {"a.npy": NPY["a.npy"], "b.npy": NPY["a.npy"]}
    assert read(cut(MIB_SET, "default2.mib"), Hints(growing=True)).frames == 5
    for files, name in ((TVIPS_SET, "rec_000.tvips"), (MIB_SET, "default1.mib"), (two, "a.npy")):
        with pytest.raises(FormatError, match=r"is truncated|holds 5 of 6"):
            read(cut(files, name), Hints(growing=True))
