"""Series of TIA and files of Digital Micrograph, written from their layouts with struct."""

from __future__ import annotations

import struct
import tracemalloc
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import CoreError, FormatError
from core.tiles.formats import detect, parse
from core.tiles.recording import Hints, Recording
from tests.core.tiles.files import Files, frames_of, opened, read, tiles_of
from tests.core.tiles.writers import Order
from tests.scale import BOUNDS_CHECKED, PURE_PYTHON

Array = npt.NDArray[Any]

# -- writers --------------------------------------------------------------------------

SER_CODES = {"u1": 1, "u2": 2, "u4": 3, "i1": 4, "i2": 5, "i4": 6, "f4": 7, "f8": 8, "c8": 9}
SER_CODES["c16"] = 10


def ser(
    elements: list[Array],
    scan: tuple[int, ...],
    *,
    version: int = 0x220,
    total: int | None = None,
    gaps: list[int] | None = None,
    table_first: bool = True,
) -> bytes:
    """A series; dimensions are written the fastest first."""
    word = "q" if version == 0x220 else "i"
    dims = elements[0].ndim if elements else 2
    count = len(elements)
    total = count if total is None else total
    kind = 0x4122 if dims == 2 else 0x4120
    axes = b""
    for number, size in enumerate(reversed(scan)):
        name, unit = f"Position {number}".encode(), b"m"
        axes += struct.pack("<iddi", size, 5.0, 0.5, 2)
        axes += struct.pack("<i", len(name)) + name + struct.pack("<i", len(unit)) + unit
    head = struct.calcsize("<HHHiiii" + word + "i") + len(axes)
    table_size = 2 * total * struct.calcsize(word)
    bodies = []
    for element in elements:
        body = b"".join(struct.pack("<ddi", 1.0, 0.25, 0) for _ in range(dims))
        code = SER_CODES[element.dtype.str[1:]]
        body += struct.pack(f"<h{dims}i", code, *reversed(element.shape))
        bodies.append(body + element.astype(element.dtype.newbyteorder("<")).tobytes())
    at = head + (table_size if table_first else 0)
    places, blob = [], b""
    for number, body in enumerate(bodies):
        gap = (gaps or [0])[number % len(gaps or [0])]
        blob += b"g" * gap
        places.append(at + len(blob))
        blob += body
    table = at + len(blob) if not table_first else head
    padded = places + [0] * (total - count)
    octets = struct.pack(f"<{2 * total}{word}", *padded, *padded)
    start = struct.pack(
        "<HHHiiii" + word + "i",
        0x4949,
        0x197,
        version,
        kind,
        0x4142,
        total,
        count,
        table,
        len(scan),
    )
    return start + axes + (octets + blob if table_first else blob + octets)


class Tags:
    """Writes the tree of tags of Digital Micrograph."""

    def __init__(self, version: int, order: Order) -> None:
        self.version, self.order = version, order
        self.word = "I" if version == 3 else "Q"

    def number(self, code: int, value: float) -> bytes:
        letter = {2: "h", 3: "i", 4: "H", 5: "I", 6: "f", 7: "d", 8: "?", 11: "q", 12: "Q"}[code]
        return self.value([code], struct.pack(self.order + letter, value))

    def value(self, kinds: list[int], octets: bytes) -> bytes:
        described = struct.pack(f">{1 + len(kinds)}{self.word}", len(kinds), *kinds)
        return b"%%%%" + described + octets

    def text(self, text: str) -> bytes:
        encoded = text.encode("utf-16-le" if self.order == "<" else "utf-16-be")
        return self.value([20, 4, len(text)], encoded)

    def tag(self, name: str, body: bytes | list[bytes]) -> bytes:
        group = isinstance(body, list)
        octets = self.group(body) if isinstance(body, list) else body
        size = b"" if self.version == 3 else struct.pack(">Q", len(octets))
        return (
            bytes([20 if group else 21])
            + struct.pack(">H", len(name))
            + name.encode()
            + size
            + octets
        )

    def group(self, tags: list[bytes]) -> bytes:
        return b"\1\0" + struct.pack(f">{self.word}", len(tags)) + b"".join(tags)

    def file(self, tags: list[bytes]) -> bytes:
        root = self.group(tags)
        size = struct.pack(f">{self.word}", len(root) + 4)
        return (
            struct.pack(">I", self.version)
            + size
            + struct.pack(">I", self.order == "<")
            + root
            + bytes(8)
        )


DM_CODES = {
    "i2": (1, [2]),
    "f4": (2, [6]),
    "c8": (3, [15, 0, 2, 0, 6, 0, 6]),
    "u1": (6, [8]),
    "i4": (7, [3]),
    "i1": (9, [10]),
    "u2": (10, [4]),
    "u4": (11, [5]),
    "f8": (12, [7]),
    "c16": (13, [15, 0, 2, 0, 7, 0, 7]),
    "b1": (14, [8]),
    "i8": (39, [11]),
    "u8": (40, [12]),
}


def dm_image(tags: Tags, data: Array, swapped: bool | None = None) -> bytes:
    code, kinds = DM_CODES[data.dtype.str[1:]]
    octets = data.astype(data.dtype.newbyteorder(tags.order)).tobytes()
    axes = [
        tags.tag(
            "",
            [
                tags.tag("Origin", tags.number(6, 2.0)),
                tags.tag("Scale", tags.number(6, 0.5 + k)),
                tags.tag("Units", tags.text("nm" if k < 2 else "1/µm")),
            ],
        )
        for k in range(data.ndim)
    ]
    inside = [
        tags.tag("Calibrations", [tags.tag("Dimension", axes)]),
        tags.tag("Data", tags.value([20, *kinds, data.size], octets)),
        tags.tag("DataType", tags.number(5, code)),
        tags.tag("Dimensions", [tags.tag("", tags.number(5, n)) for n in reversed(data.shape)]),
        tags.tag("PixelDepth", tags.number(5, data.dtype.itemsize)),
    ]
    extra = [
        tags.tag(
            "Microscope Info",
            [
                tags.tag("Voltage", tags.number(7, 3e5)),
                tags.tag("Name", tags.text("Titan")),
                tags.tag("Odd", tags.value([15, 0, 2, 0, 6, 0, 2], bytes(6))),
                tags.tag("String", tags.value([18, 4], b"abcd")),
                tags.tag("Rects", tags.value([20, 15, 0, 2, 0, 5, 0, 5, 3], bytes(24))),
            ],
        ),
    ]
    if swapped is not None:
        extra.append(
            tags.tag("Meta Data", [tags.tag("Data Order Swapped", tags.number(8, swapped))])
        )
    return tags.tag("", [tags.tag("ImageData", inside), tags.tag("ImageTags", extra)])


def preview(tags: Tags) -> bytes:
    return tags.tag(
        "",
        [
            tags.tag(
                "ImageData",
                [
                    tags.tag("Data", tags.value([20, 3, 4], bytes(16))),
                    tags.tag("DataType", tags.number(5, 23)),
                    tags.tag("Dimensions", [tags.tag("", tags.number(5, 2)) for _ in range(2)]),
                    tags.tag("PixelDepth", tags.number(5, 4)),
                ],
            )
        ],
    )


def dm(data: Array, version: int = 4, order: Order = "<", **more: bool) -> bytes:
    tags = Tags(version, order)
    images = [preview(tags), dm_image(tags, data, **more)]
    return tags.file(
        [
            tags.tag("ApplicationBounds", tags.value([20, 2, 4], bytes(8))),
            tags.tag("ImageList", images),
            tags.tag("InImageMode", tags.number(5, 1)),
        ]
    )


def some(dtype: str, shape: tuple[int, ...]) -> Array:
    rng = np.random.default_rng(7)
    if dtype[0] == "b":
        return rng.random(shape) < 0.5
    if dtype[0] in "fc":
        return (rng.normal(size=shape) * (1 + 2j if dtype[0] == "c" else 1)).astype(dtype)
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)


# -- SER ------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", SER_CODES)
@pytest.mark.parametrize("version", [0x210, 0x220])
@pytest.mark.parametrize("gaps", [None, [9], [0, 0, 5, 1]])
def test_series(dtype: str, version: int, gaps: list[int] | None) -> None:
    data = some(dtype, (3, 4, 5, 6))
    for first in (True, False):
        octets = ser(
            list(data.reshape(12, 5, 6)), (3, 4), version=version, gaps=gaps, table_first=first
        )
        files = {"a.ser": octets, "a.emi": b"whatever"}
        recording = read(files)
        assert (recording.format, recording.nav_shape, recording.sig_shape) == (
            "ser",
            (3, 4),
            (5, 6),
        )
        assert np.array_equal(frames_of(files, recording).reshape(data.shape), data)
        assert np.array_equal(
            tiles_of(files, recording, {"sig": [[1, 4], [2, 6]]}), data[..., 1:4, 2:6]
        )
        if gaps is None or len(gaps) == 1:
            assert len(recording.extents) == 1


@pytest.mark.parametrize(
    ("texts", "names"),
    [
        ((b"y", b"x"), ["x", "y", "ky", "kx"]),
        ((b"x", b"x"), ["scan_1", "x", "y", "kx"]),
        ((b"Y", b"X"), ["X", "Y", "y", "x"]),
    ],
)
def test_names_of_the_axes_of_a_series_differ(texts: tuple[bytes, bytes], names: list[str]) -> None:
    octets = ser(list(some("<u2", (6, 5, 6))), (3, 2))
    for number, text in enumerate(texts):
        octets = octets.replace(f"Position {number}".encode(), text.ljust(10))
    assert [axis.name for axis in read({"a.ser": octets}).axes] == names


def test_series_of_spectra_and_axes() -> None:
    data = some("f4", (3, 2, 100))
    files = {"a.ser": ser(list(data.reshape(6, 100)), (3, 2))}
    recording = read(files)
    assert (recording.nav_shape, recording.sig_shape) == ((3, 2), (100,))
    assert np.array_equal(tiles_of(files, recording, {}), data)
    names = [(a.name, a.size, a.unit, a.scale, a.offset) for a in recording.axes]
    assert names == [
        ("Position 1", 3, "m", 0.5, 4.0),
        ("Position 0", 2, "m", 0.5, 4.0),
        ("x", 100, None, 0.25, 1.0),
    ]


def test_series_that_was_broken_off() -> None:
    data = some("u2", (5, 4, 4))
    files = {"a.ser": ser(list(data), (3, 4), total=12)}
    recording = read(files)
    assert (recording.nav_shape, recording.frames) == ((3, 4), 5)
    assert recording.notes == ("5 of 12 elements were written",)
    empty = {"a.ser": ser([], (3, 4), total=12)}
    with pytest.raises(FormatError, match="there are no frames"):
        read(empty)
    assert read(empty, Hints(growing=True)).frames == 0


def put(octets: bytes, at: int, layout: str, *values: float) -> dict[str, bytes]:
    made = bytearray(octets)
    struct.pack_into(layout, made, at, *values)
    return {"a.ser": bytes(made)}


SERIES = ser(list(some("u2", (12, 4, 4))), (3, 4))
TABLE = len(ser([], (3, 4)))
FIRST = TABLE + 2 * 12 * 8

LIES = [
    (put(SERIES, 0, "<H", 0x4D4D), 0, "does not begin"),
    (put(SERIES, 4, "<H", 0x230), 4, "version 0x230"),
    (put(SERIES, 6, "<i", 0x4121), 6, "elements of type 0x4121"),
    (put(SERIES, 10, "<i", 1), 10, "tags of type"),
    (put(SERIES, 18, "<i", 13), 14, "13 of 12 elements"),
    (put(SERIES, 18, "<i", -1), 14, "-1 of 12 elements"),
    (put(SERIES, 14, "<ii", 2**31 - 1, 2**31 - 1), 22, "2147483647 offsets"),
    (put(SERIES, 22, "<q", 2**60), 22, "offsets from byte 1152921504606846976"),
    (put(SERIES, 22, "<q", -5), 22, "offsets from byte -5"),
    (put(SERIES, 30, "<i", 9), 30, "9 dimensions"),
    (put(SERIES, 34, "<i", 0), 34, "0 positions"),
    (put(SERIES, 58, "<i", 2**30), 58, "a text of 1073741824 bytes"),
    (put(SERIES, TABLE, "<q", len(SERIES)), TABLE, "where no element fits"),
    (put(SERIES, TABLE + 16, "<q", len(SERIES) - 1), TABLE + 16, "element 2 begins"),
    (put(SERIES, TABLE + 16, "<q", FIRST), TABLE + 16, "element 2 begins"),
    (put(SERIES, FIRST + 40, "<h", 11), FIRST + 40, "pixels of type 11"),
    (put(SERIES, FIRST + 42, "<i", -4), FIRST + 42, "an element of"),
    (put(SERIES, FIRST + 42, "<ii", 2**30, 2**30), TABLE, "element 0 begins"),
    (put(SERIES, FIRST + 82 + 40, "<h", 5), FIRST + 82, "element 1 is <i2"),
    ({"a.ser": SERIES[:-1]}, TABLE + 11 * 8, "element 11 begins"),
    ({"a.ser": SERIES[:30]}, 30, "ends inside the header"),
]


@pytest.mark.parametrize(("files", "offset", "says"), LIES)
def test_series_that_lie(files: Files, offset: int, says: str) -> None:
    with pytest.raises(FormatError, match=says) as caught:
        read(files, name="ser")
    assert (caught.value.source, caught.value.offset) == ("a.ser", offset)


def test_only_one_series() -> None:
    with pytest.raises(FormatError, match=r"second \.ser"):
        read({"a.ser": SERIES, "b.ser": SERIES})


# -- DM -------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DM_CODES)
@pytest.mark.parametrize("version", [3, 4])
@pytest.mark.parametrize("order", ["<", ">"])
def test_digital_micrograph(dtype: str, version: int, order: Order) -> None:
    for shape in ((3, 4, 5, 6), (3, 5, 6), (5, 6)):
        data = some(dtype, shape)
        files = {f"a.dm{version}": dm(data, version, order, swapped=True)}
        recording = read(files)
        assert recording.format == "dm"
        assert recording.nav_shape == (shape[:-2] or (1,))
        assert recording.sig_shape == (5, 6)
        assert recording.stored == data.dtype.newbyteorder(order)
        assert np.array_equal(frames_of(files, recording).reshape(shape), data)
        wanted = data.reshape(recording.nav_shape + recording.sig_shape)
        assert np.array_equal(
            tiles_of(files, recording, {"sig": [[1, 4], [0, 6]]}), wanted[..., 1:4, :]
        )


def test_digital_micrograph_tells() -> None:
    recording = read({"a.dm4": dm(some("u2", (3, 4, 5, 6)), swapped=True)})
    assert [(a.name, a.unit, a.scale, a.offset) for a in recording.axes] == [
        ("y", "1/µm", 3.5, -7.0),
        ("x", "1/µm", 2.5, -5.0),
        ("ky", "nm", 1.5, -3.0),
        ("kx", "nm", 0.5, -1.0),
    ]
    assert recording.metadata == {
        "version": 4,
        "Microscope Info / Voltage": 3e5,
        "Microscope Info / Name": "Titan",
        "Meta Data / Data Order Swapped": True,
    }
    assert recording.notes == ()
    assert "may be those of the scan" in read({"a.dm4": dm(some("u2", (3, 4, 5, 6)))}).notes[0]


def test_digital_micrograph_that_lies() -> None:
    tags = Tags(4, "<")
    data = some("u2", (3, 5, 6))
    good = dm(data)

    def lie(octets: bytes, says: str) -> FormatError:
        with pytest.raises(FormatError, match=says) as caught:
            read({"a.dm4": octets}, name="dm")
        assert caught.value.source == "a.dm4"
        assert caught.value.hint or caught.value.offset == 0
        return caught.value

    def images(*made: bytes) -> bytes:
        return tags.file([tags.tag("ImageList", list(made))])

    lie(b"\0\0\0\5" + good[4:], "version 5")
    lie(good[:15] + b"\2" + good[16:], "byte order 2")
    lie(good[:18] + b"\0\0\1\0\0\0\0\0" + good[26:], "a group of")
    lie(good[:18] + b"\0\0\0\0\0\0\0\x09" + good[26:], "a tag of kind 0")
    lie(images(preview(tags)), "except for its preview")
    lie(images(dm_image(tags, data), dm_image(tags, data)), "2 images in the file")
    lie(images(dm_image(tags, data)[:-400]), "of kind|ends inside|has")
    lie(images(dm_image(tags, data[0, 0])), "an image of")
    number = b"%%%%" + struct.pack(">QQ", 1, 5)
    one = good.index(number + struct.pack("<I", 6), good.rindex(b"Dimensions")) + len(number)
    lie(good[:one] + struct.pack("<I", 0) + good[one + 4 :], "an image of")
    lie(good[:one] + struct.pack("<I", 2**31) + good[one + 4 :], "90 values of 2 bytes for")
    place = good.index(struct.pack(">QQQQ", 3, 20, 4, 90))
    huge = good[: place + 24] + struct.pack(">Q", 2**62) + good[place + 32 :]
    error = lie(huge, "which are not in the file")
    assert error.offset == place - 4
    lie(good[:place] + struct.pack(">Q", 2**40) + good[place + 8 :], "described by")
    lie(good[: place + 16] + struct.pack(">Q", 99) + good[place + 24 :], "a value of type")
    kind = good.index(number + struct.pack("<I", 10)) + len(number)
    for code, says in (
        (5, "Fourier"),
        (77, "type 77"),
        (2, "90 values of 2 bytes for 90 pixels of 4"),
    ):
        lie(good[:kind] + struct.pack("<I", code) + good[kind + 4 :], says)
    deep = tags.tag("", [])
    for _ in range(80):
        deep = tags.tag("", [deep])
    lie(tags.file([deep]), "inside each other")
    size = good.index(b"ImageList") + len(b"ImageList")
    lie(good[:size] + struct.pack(">Q", 7) + good[size + 8 :], "a tag of 7 bytes has")


# -- both -----------------------------------------------------------------------------

BOTH: dict[str, Files] = {
    "ser": {"a.ser": SERIES},
    "dm": {"a.dm3": dm(some("u2", (4, 5, 6)), 3)},
    "dm4": {"a.dm4": dm(some("u2", (2, 4, 5, 6)), 4)},
}


@pytest.mark.parametrize("name", BOTH)
def test_detected_by_content(name: str) -> None:
    infos, memory = opened({"x": next(iter(BOTH[name].values()))})
    assert detect(infos, memory).name == name[:3].removesuffix("4")


@pytest.mark.parametrize("name", BOTH)
@given(
    edits=st.lists(st.tuples(st.integers(0, 3000), st.binary(min_size=1, max_size=8)), max_size=6),
    cut=st.none() | st.integers(0, 3000),
    longer=st.sampled_from([0, 0, 1, 1000, 1 << 33, 1 << 50]),
    growing=st.booleans(),
)
def test_damaged(
    name: str, edits: list[tuple[int, bytes]], cut: int | None, longer: int, growing: bool
) -> None:
    ((key, octets),) = BOTH[name].items()
    content = bytearray(octets)
    for offset, new in edits:
        at = offset % len(content)
        content[at : at + len(new)] = new
    files = {key: bytes(content[:cut])}
    sizes = {key: len(files[key]) + longer}
    infos, memory = opened(files, sizes)
    try:
        recording = read_sized(files, sizes, name[:3].removesuffix("4"), Hints(growing=growing))
    except CoreError:
        return
    assert memory.requests < 60_000
    for extent in recording.extents:
        last = extent.offset + (extent.frames - 1) * extent.stride + recording.frame_bytes
        assert 0 < extent.offset < last <= infos[0].size


def read_sized(files: Files, sizes: dict[str, int], name: str, hints: Hints) -> Recording:
    infos, memory = opened(files, sizes)
    return parse(infos, memory, hints, name=name)


@pytest.mark.parametrize("name", BOTH)
def test_no_header_makes_us_allocate_what_it_says(name: str) -> None:
    ((key, octets),) = BOTH[name].items()
    tracemalloc.start()
    try:
        for at in range(0, len(octets) - 4, 64 if PURE_PYTHON or BOUNDS_CHECKED else 4):
            content = bytearray(octets)
            content[at : at + 4] = b"\xff\xff\xff\x7f"
            try:
                read_sized(
                    {key: bytes(content)}, {key: 1 << 55}, name[:3].removesuffix("4"), Hints()
                )
            except CoreError:
                continue
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1 << 26
