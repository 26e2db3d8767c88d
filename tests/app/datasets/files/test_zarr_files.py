"""Metadata of zarr arrays, without a store or a library."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.datasets.files.roots import Roots
from app.datasets.files.zarr_files import METADATA, DirectoryTop, _coordinates, _nodes, parse_array
from core.errors import FormatError

_BYTES = {"name": "bytes", "configuration": {"endian": "little"}}


def regular(*chunks: int) -> dict[str, Any]:
    return {"name": "regular", "configuration": {"chunk_shape": list(chunks)}}


def shards_of(*inner: object) -> list[dict[str, Any]]:
    options = {"chunk_shape": list(inner), "codecs": [_BYTES], "index_codecs": [_BYTES]}
    return [{"name": "sharding_indexed", "configuration": options}]


def node(**members: object) -> dict[str, Any]:
    return {
        "shape": [8, 6],
        "data_type": "uint16",
        "chunk_grid": regular(4, 6),
        "chunk_key_encoding": {"name": "default"},
        "codecs": [_BYTES],
    } | members


def test_an_array_is_described_with_the_chunks_that_are_read() -> None:
    stored = parse_array("a/b", node(), "store")
    assert (stored.info.shape, stored.info.dtype) == ((8, 6), np.dtype("<u2"))
    assert (stored.info.chunks, stored.file_chunks) == ((4, 6), (4, 6))
    # Twice the bytes of a chunk, and 64 KiB.
    assert stored.max_chunk_bytes == 2 * 48 + 65536
    sharded = parse_array("", node(codecs=shards_of(2, 3)), "store")
    assert (sharded.info.chunks, sharded.file_chunks, sharded.max_chunk_bytes) == (
        (2, 3),
        (4, 6),
        None,
    )


@pytest.mark.parametrize(
    ("encoding", "keys"),
    [
        ({"name": "default"}, ("c/", "/")),
        ({"name": "default", "configuration": {"separator": "."}}, ("c.", ".")),
        ({"name": "v2"}, ("", ".")),
        ({"name": "v2", "configuration": {"separator": "/"}}, ("", "/")),
        ("default", ("c/", "/")),
    ],
)
def test_names_of_chunks(encoding: object, keys: tuple[str, str]) -> None:
    assert parse_array("", node(chunk_key_encoding=encoding), "store").keys == keys


@pytest.mark.parametrize("size", [1 << 62, -1, 1.0, True, "4", None])
def test_lengths_are_integers_in_range(size: object) -> None:
    grid = {"name": "regular", "configuration": {"chunk_shape": [4, size]}}
    for lie in (node(shape=[8, size]), node(chunk_grid=grid)):
        with pytest.raises(FormatError, match="chunk_grid is invalid"):
            parse_array("", lie, "store")
    largest = (1 << 62) - 1
    assert parse_array("", node(shape=[largest, 6]), "store").info.shape == (largest, 6)


@pytest.mark.parametrize("chunks", [(4,), (4, 6, 1), (0, 6), (4, 0)])
def test_chunks_have_the_dimensions_of_the_array_and_values(chunks: tuple[int, ...]) -> None:
    with pytest.raises(FormatError, match="chunk_grid is invalid"):
        parse_array("", node(chunk_grid=regular(*chunks)), "store")


def test_metadata_has_a_largest_size(tmp_path: Path) -> None:
    metadata = tmp_path / METADATA
    metadata.touch()
    for size, words in ((16 << 20, "not JSON"), ((16 << 20) + 1, "more than 16777216 bytes")):
        os.truncate(metadata, size)
        with pytest.raises(FormatError, match=words):
            _nodes(DirectoryTop(Roots([tmp_path]), tmp_path))


@pytest.mark.parametrize("inner", [(3, 6), (4, 4), (8, 6), (4,), (4, 6, 1)])
def test_shards_divide_into_chunks(inner: tuple[int, ...]) -> None:
    with pytest.raises(FormatError, match="do not divide"):
        parse_array("", node(codecs=shards_of(*inner)), "store")


def test_a_shard_has_so_many_chunks() -> None:
    grid, large = regular(1 << 11, 1 << 11), regular(1 << 11, 1 << 12)
    stored = parse_array("", node(chunk_grid=grid, codecs=shards_of(1, 1)), "store")
    assert stored.info.chunks == (1, 1)
    with pytest.raises(FormatError, match="more than 4194304 chunks"):
        parse_array("", node(chunk_grid=large, codecs=shards_of(1, 1)), "store")


@pytest.mark.parametrize(
    "codecs",
    [
        shards_of(0, 3),
        shards_of("2", 3),
        [*shards_of(2, 3), _BYTES],
        [_BYTES, *shards_of(2, 3)],
        [{"name": "sharding_indexed", "configuration": {"codecs": shards_of(1, 1)}}],
        [
            {
                "name": "sharding_indexed",
                "configuration": {
                    "chunk_shape": [2, 3],
                    "codecs": shards_of(1, 1),
                    "index_codecs": [_BYTES],
                },
            }
        ],
    ],
)
def test_shards_that_cannot_be_read_chunk_by_chunk(codecs: list[Any]) -> None:
    with pytest.raises(FormatError, match=r"chunk by chunk|values are encoded with"):
        parse_array("", node(codecs=codecs), "store")


@pytest.mark.parametrize("code", [["uint16"], {"name": "uint16"}, 2, None, "uint24"])
def test_types_are_known_names(code: object) -> None:
    with pytest.raises(FormatError, match="values of type"):
        parse_array("", node(data_type=code), "store")


@pytest.mark.parametrize(
    "encoding", [[], {"name": []}, {"name": "default", "configuration": {"separator": []}}]
)
def test_names_of_chunks_are_texts(encoding: object) -> None:
    with pytest.raises(FormatError, match="chunk_key_encoding"):
        parse_array("", node(chunk_key_encoding=encoding), "store")


def line(size: int) -> dict[str, Any]:
    return {"shape": [size]}


def coordinates(
    path: str, names: object, arrays: Mapping[str, Mapping[str, Any]]
) -> list[str | None]:
    found = _coordinates(path, {"shape": [8, 6], "dimension_names": names}, arrays)
    return [None if each is None else each.path for each in found]


def test_coordinates_are_siblings_of_the_size_of_a_dimension() -> None:
    arrays = {"g/y": line(8), "g/x": line(6), "y": line(8), "g/None": line(8), "g/s/y": line(8)}
    assert coordinates("g/data", ["y", "x"], arrays) == ["g/y", "g/x"]
    assert coordinates("data", ["y", "x"], arrays) == ["y", None]
    assert coordinates("g/data", ["x", "y"], arrays) == [None, None]
    # Neither an unnamed dimension nor a path is the name of a sibling.
    assert coordinates("g/data", [None, "x"], arrays) == [None, "g/x"]
    assert coordinates("g/data", ["s/y", "x"], arrays) == [None, "g/x"]
    # An array is not its own coordinates, and one that is the whole store has no siblings.
    assert coordinates("g/y", ["y", "x"], arrays) == [None, "g/x"]
    assert coordinates("", ["y", "x"], arrays) == [None, None]


@pytest.mark.parametrize("names", [None, "yx", ["y"], ["y", "x", "z"]])
def test_names_of_other_dimensions_are_none(names: object) -> None:
    assert coordinates("data", names, {"y": line(8), "x": line(6)}) == [None, None]


def test_long_lines_are_no_coordinates() -> None:
    node = {"shape": [1 << 20, (1 << 20) - 1, 0], "dimension_names": ["a", "b", "c"]}
    arrays = {"a": line(1 << 20), "b": line((1 << 20) - 1), "c": line(0)}
    found = _coordinates("data", node, arrays)
    assert [each is None for each in found] == [True, False, True]
