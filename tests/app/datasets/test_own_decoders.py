"""Decoders of the operator's own: named in the catalogue file, never over HTTP."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from app.datasets.catalogue import Catalogue
from app.datasets.files.buffers import BufferPool
from app.datasets.files.roots import Roots
from app.datasets.spec import parse_dataset, read_catalogue
from app.errors import InvalidOptionError
from app.http.identity import SINGLE_USER
from core.tiles.plan import make_plan
from core.tiles.reader import TileReader
from core.tiles.view import parse_view
from tests.app.state.memory import MemoryStateStore

MODULE = """
def nibbles(raw, out, sig_shape):
    for k in range(len(raw)):
        out[2 * k] = raw[k] & 15
        out[2 * k + 1] = raw[k] >> 4

def wrong(raw, out, sig_shape):
    out[0] = raw[0].no_such_thing

number = 5
"""
ENTRY = """
[packed]
files = ["packed.bin"]
dtype = "|u1"
sig_shape = [4, 6]
nav_shape = [5]
file_header = 3
frame_bytes = 12
decoder = "{decoder}"
backend = "{backend}"
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A module where the operator would install one."""
    (tmp_path / "own_detector.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "own_detector"
    sys.modules.pop("own_detector", None)


def catalogue(folder: Path, decoder: str, backend: str = "leased") -> Catalogue:
    root = folder / "root"
    root.mkdir(exist_ok=True)
    (root / "packed.bin").write_bytes(packed())
    path = folder / "catalogue.toml"
    path.write_text(ENTRY.format(decoder=decoder, backend=backend))
    return Catalogue(MemoryStateStore(), Roots([root]), read_catalogue(path), BufferPool())


def values() -> npt.NDArray[np.uint8]:
    return np.random.default_rng(1).integers(0, 16, (5, 4, 6), np.uint8)


def packed() -> bytes:
    flat = values().reshape(-1, 2)
    return b"abc" + (flat[:, 0] | flat[:, 1] << 4).tobytes()


@pytest.mark.parametrize("backend", ["leased", "buffered", "direct"])
def test_frames_are_decoded(tmp_path: Path, module: str, backend: str) -> None:
    found = catalogue(tmp_path, f"{module}:nibbles", backend)
    for _ in range(2):
        dataset = found.open(SINGLE_USER, "packed")
        assert dataset.backend.name == backend
        assert dataset.recording.sig_shape == (4, 6)
        assert dataset.describe()["stored_dtype"] is None
        plan = make_plan(dataset.recording, parse_view({}), nav_shape=dataset.nav_shape)
        reader = TileReader(plan, dataset.recording, dataset.frames(), None)
        np.testing.assert_array_equal(reader.read(plan.tile(0)), values())
        dataset.close()
    found.close()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("own_detector:missing", "cannot be imported"),
        ("no_such_module_here:nibbles", "cannot be imported"),
        ("own_detector:number", "is not a function"),
    ],
)
def test_a_function_that_does_not_exist_is_an_error_at_start(
    tmp_path: Path, module: str, name: str, words: str
) -> None:
    del module
    with pytest.raises(InvalidOptionError, match=words):
        catalogue(tmp_path, name)


def test_a_function_that_does_not_compile_is_an_error_of_its_dataset(
    tmp_path: Path, module: str
) -> None:
    found = catalogue(tmp_path, f"{module}:wrong")
    with pytest.raises(InvalidOptionError, match="frame of zeros") as caught:
        found.open(SINGLE_USER, "packed")
    assert caught.value.members["option"] == "decoder"


PACKED: dict[str, Any] = {
    "files": ["a.bin"],
    "dtype": "|u1",
    "sig_shape": [4, 6],
    "frame_bytes": 12,
    "decoder": "module:function",
}


@pytest.mark.parametrize(
    ("change", "option"),
    [
        ({"decoder": "module"}, "decoder"),
        ({"decoder": "module:a.b"}, "decoder"),
        ({"format": "npy"}, "decoder"),
        ({"format": "lines"}, "dtype"),
        ({"dtype": None}, "dtype"),
        ({"sig_shape": None}, "sig_shape"),
        ({"frame_bytes": None}, "frame_bytes"),
        ({"decoder": None}, "frame_bytes"),
        ({"backend": "mmap"}, "backend"),
    ],
)
def test_entries_that_make_no_sense(change: dict[str, Any], option: str) -> None:
    parse_dataset(PACKED, operator=True)
    with pytest.raises(InvalidOptionError) as caught:
        parse_dataset(PACKED | change, operator=True)
    assert caught.value.members["option"] == option


@pytest.mark.parametrize("member", ["backend", "decoder", "frame_bytes"])
def test_only_the_operator_names_code_and_backends(member: str) -> None:
    values = {"backend": "direct", **PACKED}
    with pytest.raises(InvalidOptionError, match="server's catalogue file") as caught:
        parse_dataset({"files": ["a.bin"], member: values[member]})
    assert caught.value.members["option"] == member
    assert caught.value.hint is not None


def test_what_clients_may_set_is_what_it_was() -> None:
    with pytest.raises(InvalidOptionError) as caught:
        parse_dataset({"files": ["a.bin"], "nothing": 1})
    assert "backend" not in str(caught.value.hint)
    assert parse_dataset({"files": ["a.bin"], "immutable": True}).immutable
