"""Formats are told apart by what files begin with."""

from __future__ import annotations

import gzip
import struct

import numpy as np
import pytest

from core.errors import AmbiguousFormatError, FormatError
from core.tiles.formats import FORMATS, check_headerless, detect, parse
from core.tiles.formats.files import natural
from core.tiles.recording import Hints
from tests.core.tiles import writers
from tests.core.tiles.files import Files, frames_of, opened, read

FRAMES = np.arange(6 * 4 * 4, dtype=np.uint16).reshape(6, 4, 4)
SETS: dict[str, Files] = {
    "npy": {"a.npy": writers.npy(FRAMES)},
    "empad": writers.empad(np.zeros((6, 128, 128), "<f4"), (2, 3)),
    "mib": writers.mib(FRAMES, "U16", splits=[3, 3], hdr={"ScanX": 3, "ScanY": 2}),
    "tvips": writers.tvips(FRAMES, splits=[3, 3]),
    "seq": {
        "a.seq": writers.seq(FRAMES),
        "a.seq.dark.mrc": writers.mrc(FRAMES[:1], 6),
        "a.seq.gain.mrc": writers.mrc(FRAMES[:1], 6),
    },
    "blo": {"a.blo": writers.blo(FRAMES, (2, 3))},
    "frms6": writers.frms6(FRAMES, FRAMES[:1], (2, 3), splits=[3, 3]),
    "mrc": {"a.mrc": writers.mrc(FRAMES, 6)},
    "k2is": {"a_1.bin": writers.k2is_sector(np.zeros((1, 1860, 256), "u2"))},
    "raw_csr": {"a.toml": b'[params]\nfiletype = "RAW_CSR"\n', "data.dat": b"1234"},
}


@pytest.mark.parametrize("name", SETS)
def test_every_format_is_detected(name: str) -> None:
    infos, memory = opened(SETS[name])
    assert detect(infos, memory).name == name


@pytest.mark.parametrize("name", sorted(set(SETS) - {"empad", "raw_csr"}))
def test_names_do_not_matter_where_the_content_tells(name: str) -> None:
    files = {key: value for key, value in SETS[name].items() if "." in key}
    first = next(iter(files))
    infos, memory = opened({f"{number}": files[key] for number, key in enumerate([first])})
    assert detect(infos, memory).name == name


def test_formats_go_by_their_names() -> None:
    elsewhere = {"raw", "ser", "dm"}  # have tests of their own
    assert SETS.keys() | elsewhere == FORMATS.keys(), "a format has a row in SETS, or a test"
    assert all(name == fmt.name for name, fmt in FORMATS.items())


def test_a_file_that_could_be_of_two_formats_is_decided_by_its_name() -> None:
    octets = bytearray(writers.frms6_file(FRAMES))
    struct.pack_into("<i", octets, 12, 6)
    octets[208:214] = b"MAP \x44\x44"
    octets[8:12] = b"\1\0\0\0"
    for given, expected in (("x_1.frms6", "frms6"), ("x.mrc", "mrc")):
        infos, memory = opened({given: bytes(octets)})
        assert detect(infos, memory).name == expected
    infos, memory = opened({"x.dat": bytes(octets)})
    with pytest.raises(AmbiguousFormatError, match="could be frms6 or mrc") as caught:
        detect(infos, memory)
    assert (caught.value.source, caught.value.offset) == ("x.dat", 0)
    with pytest.raises(AmbiguousFormatError, match="could be frms6 or mrc"):
        read({"x.dat": bytes(octets)}, Hints(dtype=np.dtype("u1"), sig_shape=(4,)))


def test_unknown_files_are_headerless_only_if_the_owner_says_what_is_in_them() -> None:
    files = writers.raw(FRAMES)
    with pytest.raises(AmbiguousFormatError, match="no known format begins like this") as caught:
        read(files)
    assert "dtype and sig_shape" in str(caught.value.hint)
    hints = Hints(dtype=np.dtype("<u2"), sig_shape=(4, 4))
    assert np.array_equal(frames_of(files, read(files, hints)), FRAMES)


def test_packed_files_are_named() -> None:
    packed = gzip.compress(b"x" * 900)
    with pytest.raises(AmbiguousFormatError, match="it is compressed with gzip") as caught:
        read({"a.npy": packed})
    assert "Unpack or convert it" in str(caught.value.hint)
    infos, memory = opened({"a.npz": b"PK\3\4" + bytes(900)})
    with pytest.raises(AmbiguousFormatError, match="a zip archive, as npz files are"):
        detect(infos, memory)
    infos, memory = opened({"a.raw": bytes(900), "b.raw": b"\x89PNG" + bytes(900)})
    with pytest.raises(AmbiguousFormatError, match="it is a PNG picture") as caught:
        check_headerless(infos, memory)
    assert caught.value.source == "b.raw"


def test_no_files_empty_files_and_unknown_names_are_refused() -> None:
    with pytest.raises(FormatError, match="without files"):
        parse([], opened({})[1])
    with pytest.raises(FormatError, match="is empty") as caught:
        read({"a.mib": b"", "b.mib": b""})
    assert caught.value.source == "a.mib"
    with pytest.raises(FormatError, match="no format is named 'dm4'"):
        read(SETS["npy"], name="dm4")


def test_of_many_files_some_are_looked_at() -> None:
    files = writers.mib(np.arange(100, dtype="u1").reshape(100, 1, 1), "U08", splits=[1] * 100)
    infos, memory = opened(files)
    detect(infos, memory)
    assert memory.requests == 16
    assert np.array_equal(frames_of(files, read(files)).ravel(), np.arange(100))


def test_extents_count_files_as_they_were_passed() -> None:
    files = dict(reversed(list(SETS["mib"].items())))
    recording = read(files)
    assert [extent.file for extent in recording.extents] == [2, 1]
    assert np.array_equal(frames_of(files, recording), FRAMES)
    assert recording.nav_shape == (2, 3)


def test_order_is_by_number_of_any_length() -> None:
    names = ["s_10.x", "s_9.x", "s_007.x", f"s_{'9' * 5000}.x", "s_11.x", "r_12.x"]
    assert sorted(names, key=natural) == [
        "r_12.x",
        "s_007.x",
        "s_9.x",
        "s_10.x",
        "s_11.x",
        names[3],
    ]


@pytest.mark.parametrize(
    ("stored", "stated", "note"),
    [
        ("<u2", ">u2", "as >u2 values reach 65,282, as <u2 at most 767"),
        (">i4", "<i4", "as <i4 values reach 2,147,483,648, as >i4 at most 767"),
        ("<u2", "<u2", None),
        ("<f4", ">f4", None),
    ],
)
def test_a_doubtful_byte_order_is_noted(stored: str, stated: str, note: str | None) -> None:
    frames = np.arange(768).reshape(3, 256)[::-1].astype(stored)
    hints = Hints(dtype=np.dtype(stated), sig_shape=(256,))
    notes = read({"a.raw": frames.tobytes()}, hints).notes
    assert notes == () if note is None else [note in each for each in notes] == [True]


@pytest.mark.parametrize(
    ("dtype", "note"),
    [("<u2", None), (">u2", "is the byte order of dtype right?"), ("<i2", None)],
)
def test_no_single_frame_hides_a_byte_order(dtype: str, note: str | None) -> None:
    """As much by its values as by what other frames and files have."""
    frames = np.random.default_rng(1).integers(0, 4000, (16, 8, 8)).astype("<u2")
    frames[0] = 60000
    files = {"a_1.raw": frames[:2].tobytes(), "a_2.raw": frames[2:].tobytes()}
    notes = read(files, Hints(dtype=np.dtype(dtype), sig_shape=(8, 8))).notes
    assert notes == () if note is None else [note in each for each in notes] == [True]


@pytest.mark.parametrize(("low", "noted"), [(60000, True), (0, False)])
def test_values_without_a_sign_are_noted(low: int, noted: bool) -> None:
    frames = np.where(np.arange(4 * 64) % 2, low, 65535).astype("<u2")
    notes = read({"a.raw": frames.tobytes()}, Hints(dtype=np.dtype("<i2"), sig_shape=(8, 8))).notes
    assert ["as <i2 100% of the values are negative: is it <u2?"] * noted == list(notes)
