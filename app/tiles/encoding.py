"""Encodings of tiles and plans: raw values, npy, JSON, Arrow.

With the codecs that compress tiles one by one, and the tokens that continue after one.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from app.engine.request_budget import keep_for_request
from app.errors import (
    DataChangedError,
    NotAcceptableError,
    TokenForeignError,
    TokenMalformedError,
    TooLargeError,
)
from app.streams.frames import describe_array
from app.tokens import KIND_TILES, KeyRing, Token
from core.arrays import Array
from core.tiles.plan import Plan, Tile


def stream_identity(dataset: str, view_digest: bytes) -> bytes:
    """Return the identity of a tile stream, apart from its data: 8 bytes."""
    digest = hashlib.blake2b(dataset.encode() + b"\0" + view_digest, digest_size=8)
    return digest.digest()


@dataclass(frozen=True, slots=True)
class TileTokens:
    """The tokens of one tile stream."""

    keys: KeyRing
    identity: bytes
    fingerprint: bytes
    """The dataset's current fingerprint."""
    frames: int | None = None
    """Number of frames that a growing dataset is pinned to; None for others."""

    def token(self, tile: int) -> str:
        """Sign the token that continues with this tile."""
        state = (tile,) if self.frames is None else (tile, self.frames)
        return self.keys.sign(Token(KIND_TILES, self.identity, self.fingerprint, state))

    def read(self, text: str, tiles: int) -> int:
        """Return the tile that a token continues with; ``tiles`` after the last one.

        Raises:
            TokenMalformedError, TokenForgedError, TokenRetiredError: see KeyRing.verify.
            TokenForeignError: the token belongs to another dataset or view.
            DataChangedError: the dataset has changed since the token was issued.
        """
        token = self.keys.verify(text, KIND_TILES).token
        if token.identity != self.identity:
            raise TokenForeignError(
                "the token belongs to another dataset or view",
                hint="Request the same view of the same dataset",
            )
        if token.fingerprint != self.fingerprint:
            raise DataChangedError(
                "the files of the dataset, or what it declares of them, changed after this token",
                hint="Open the dataset anew, and start without after",
                was=token.fingerprint.hex(),
                now=self.fingerprint.hex(),
            )
        frames = () if self.frames is None else (self.frames,)
        if not token.state or token.state[1:] != frames or token.state[0] > tiles:
            raise TokenMalformedError("the token does not hold a position in a tile stream")
        return token.state[0]


def pinned_frames(keys: KeyRing, text: str | None) -> int | None:
    """Return the number of frames that a token of a growing dataset is pinned to, or None.

    Raises:
        TokenMalformedError, TokenForgedError, TokenRetiredError: see KeyRing.verify.
    """
    state = () if text is None else keys.verify(text, KIND_TILES).token.state
    return state[1] if len(state) > 1 else None


def describe_token(token: Token) -> dict[str, object]:
    """Describe the position in a verified token of a tile stream.

    Raises:
        TokenMalformedError: the state is not a position.
    """
    if len(token.state) not in {1, 2}:
        raise TokenMalformedError("the token does not hold a position in a tile stream")
    return {"kind": "tiles", **dict(zip(("tile", "frames"), token.state, strict=False))}


Codec = Callable[[Array], bytes]

CODECS = ("blosc2",)


def tile_codec(name: str) -> Codec:
    """Return the codec of this name.

    ``blosc2`` shuffles bits and compresses them with lz4, which shrinks detector counts to
    a quarter at the speed of a disk. Its output is a self-describing blosc2 chunk.

    Raises:
        NotAcceptableError: there is no such codec, or its library is not installed.
    """
    if name not in CODECS:
        raise NotAcceptableError(
            f"there is no codec {name[:40]!r}", hint=f"Use {', '.join(CODECS)}"
        )
    try:
        blosc2 = import_module("blosc2")
    except ImportError as e:
        raise NotAcceptableError(
            "this server has no blosc2", hint="Install the extra blosc2, or omit codec"
        ) from e

    def compress(values: Array) -> bytes:
        chunk: bytes = blosc2.compress2(
            np.ascontiguousarray(values).reshape(-1).view(np.uint8).data,
            typesize=min(values.dtype.itemsize, 255),
            codec=blosc2.Codec.LZ4,
            filters=[blosc2.Filter.BITSHUFFLE],
            clevel=5,
        )
        return chunk

    return compress


MAX_JSON_VALUES = 1_000_000
_COLUMN_BYTES = 18
"""Memory for a value of a plan's table: in its column, and in the stream while it grows."""
_TILE_BYTES = 768
"""Memory for a tile of a plan in JSON: its objects, and their text."""


def octets_of(tile: Array) -> memoryview:
    """Return the bytes of a tile in C order; copies only if the array is not contiguous."""
    return np.ascontiguousarray(tile).reshape(-1).view(np.uint8).data


def values_header(values: Array) -> dict[str, Any]:
    """Return the members of a frame's header that describe its only array."""
    array = describe_array("data", values)
    return {"arrays": [array], "dtype": array["dtype"], "shape": array["shape"]}


def npy_bytes(tile: Array) -> bytes:
    """Encode a tile as an npy file."""
    file = io.BytesIO()
    np.lib.format.write_array(file, np.ascontiguousarray(tile), allow_pickle=False)
    return file.getvalue()


def tile_values(tile: Array) -> bytes:
    """Encode a tile as nested JSON arrays; complex numbers as [real, imaginary].

    Halves are written as float32, long doubles rounded to float64: JSON has no others.

    Raises:
        TooLargeError: the tile has more than ``MAX_JSON_VALUES`` values.
    """
    if tile.size > MAX_JSON_VALUES:
        raise TooLargeError(
            f"a tile of {tile.size} values is too large for JSON",
            hint="Request bin or npy",
            limit="values",
            allowed=MAX_JSON_VALUES,
            setting=None,
        )
    if tile.dtype.kind == "c":
        tile = np.stack([tile.real, tile.imag], axis=-1)
    dtype = tile.dtype.newbyteorder("=")
    if dtype.kind == "f":
        dtype = np.dtype({2: "f4", 4: "f4"}.get(dtype.itemsize, "f8"))
    with np.errstate(over="ignore"):
        values = np.ascontiguousarray(tile, dtype)
    return orjson.dumps(values, option=orjson.OPT_SERIALIZE_NUMPY)


def plan_json(plan: Plan, first: int, count: int) -> dict[str, Any]:
    """Describe a plan and ``count`` of its tiles, beginning with ``first``.

    Raises:
        BudgetExceededError, ServiceError: there is no memory for so many tiles.
    """
    listed = range(min(first, plan.tiles), min(first + count, plan.tiles))
    keep_for_request("plan", _TILE_BYTES * len(listed))
    return {**plan_summary(plan), "list": [tile_json(plan.tile(k)) for k in listed]}


def plan_summary(plan: Plan) -> dict[str, Any]:
    """Describe a plan as a whole: shapes, dtype, size in bytes."""
    return {
        "shape": list(plan.shape),
        "nav_shape": list(plan.nav_shape),
        "sig_shape": list(plan.sig_shape),
        "dtype": plan.dtype.str,
        "tile_shape": list(plan.tile_shape),
        "grid": list(plan.grid),
        "tiles": plan.tiles,
        "nbytes": plan.nbytes,
        "sync_offset": plan.sync_offset,
    }


def tile_json(tile: Tile) -> dict[str, Any]:
    """Describe one tile: index, origin, shape, and its bytes in the raw concatenation."""
    return {
        "tile": tile.index,
        "origin": list(tile.origin),
        "shape": list(tile.shape),
        "offset": tile.offset,
        "nbytes": tile.nbytes,
    }


def plan_arrow(plan: Plan) -> bytes:
    """Encode all tiles of a plan as an Arrow IPC stream, the summary as schema metadata.

    Raises:
        BudgetExceededError, ServiceError: there is no memory for so many tiles.
    """
    keep_for_request("plan", _COLUMN_BYTES * (3 + 2 * len(plan.grid)) * plan.tiles)
    columns = {name: pa.array(values) for name, values in plan.table().items()}
    metadata = {key: json.dumps(value) for key, value in plan_summary(plan).items()}
    return arrow_bytes(pa.table(columns).replace_schema_metadata(metadata))


def arrow_bytes(table: pa.Table | pa.RecordBatch) -> bytes:
    """Encode a table as an Arrow IPC stream."""
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write(table)
    return sink.getvalue()


def partitions(plan: Plan, count: int, tokens: TileTokens) -> Iterator[dict[str, Any]]:
    """Divide the tiles into at most ``count`` contiguous ranges of equal length.

    Each range comes with the token that starts it, so that parallel readers can share a view.
    """
    edges = np.linspace(0, plan.tiles, min(count, plan.tiles) + 1, dtype=np.int64).tolist()
    for first, last in itertools.pairwise(edges):
        yield {"first": first, "tiles": last - first, "token": tokens.token(first)}
