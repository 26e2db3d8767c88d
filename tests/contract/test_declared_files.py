"""Numbers that small files declare at their largest: a problem that says what, or bounded work.

Each file is registered, its view planned and listed, and a tile read. Whatever comes of it, little
memory is taken that the budget of the request does not know of, and little time.
"""

from __future__ import annotations

import json
import os
import struct
import threading
import time
import tracemalloc
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from app.datasets.catalogue import Catalogue
from app.datasets.files.buffers import BufferPool
from app.datasets.files.roots import Roots
from app.engine.request_budget import BudgetLimits, RequestBudget
from app.errors import ServiceError, problem_of
from app.http.identity import SINGLE_USER
from app.tiles.encoding import plan_json
from app.tiles.views import Views
from app.tokens import KeyRing, new_key
from core.errors import CoreError
from tests.app.state.memory import MemoryStateStore
from tests.core.tiles import writers

BUDGET = 32 << 20
SLACK = 16 << 20
SECONDS = 20.0
"""Of CPU time, under trace and on a loaded machine: four are usual at most."""
LONGEST_PROBLEM = 2000
I31, U16, U32 = 2**31 - 1, 2**16 - 1, 2**32 - 1
PIXEL = np.zeros((1, 1, 1), "u1")


class Content(NamedTuple):
    """What a file begins with; zeros up to its size take no room on the disk."""

    head: bytes
    size: int = 0


class Declared(NamedTuple):
    """Files, and their entry in the catalogue."""

    files: Mapping[str, Content]
    entry: Mapping[str, Any] = {}


def patched(data: bytes, *patches: tuple[int, str, Sequence[int]]) -> bytes:
    """Bytes with other numbers at some places."""
    made = bytearray(data)
    for offset, layout, values in patches:
        struct.pack_into(layout, made, offset, *values)
    return bytes(made)


def dm(*tags: bytes, version: int = 3, count: int | None = None) -> bytes:
    """A Digital Micrograph file of these tags."""
    width = 4 if version == 3 else 8
    head = version.to_bytes(4, "big") + (100).to_bytes(width, "big") + (1).to_bytes(4, "big")
    return head + group(*tags, count=count, width=width)


def group(*tags: bytes, count: int | None = None, width: int = 4) -> bytes:
    return b"\0\0" + (len(tags) if count is None else count).to_bytes(width, "big") + b"".join(tags)


def tag(name: str, body: bytes, kind: int = 20) -> bytes:
    return bytes([kind]) + len(name).to_bytes(2, "big") + name.encode() + body


def number(name: str, value: int) -> bytes:
    return tag(name, b"%%%%" + struct.pack(">II", 1, 5) + struct.pack("<I", value), 21)


def image(*tags: bytes) -> bytes:
    return dm(tag("ImageList", group(tag("", group(*tags)))))


def values(count: int, kind: int = 6) -> bytes:
    return tag("Data", b"%%%%" + struct.pack(">4I", 3, 20, kind, count), 21)


def zarr(**changes: Any) -> Declared:  # noqa: ANN401 - JSON
    """A store of one array, without chunks."""
    node = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": [8, 8, 8],
        "data_type": "uint8",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [8, 8, 8]}},
        "chunk_key_encoding": {"name": "default"},
        "codecs": [{"name": "bytes"}],
        "fill_value": 0,
        **changes,
    }
    return Declared({"a.zarr/zarr.json": Content(json.dumps(node).encode())}, {"format": "zarr"})


def grid(*shape: int) -> dict[str, Any]:
    return {"name": "regular", "configuration": {"chunk_shape": shape}}


def shards(inner: Sequence[int]) -> list[dict[str, Any]]:
    codecs = [{"name": "bytes"}]
    inside = {"chunk_shape": inner, "codecs": codecs, "index_codecs": codecs}
    return [{"name": "sharding_indexed", "configuration": inside}]


def npy(dimensions: int) -> Declared:
    """An array of one value."""
    shape = "1, " * dimensions
    text = f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({shape})}}".encode()
    head = b"\x93NUMPY\x02\x00" + struct.pack("<I", len(text)) + text
    return Declared({"a.npy": Content(head, len(head) + 1)})


def mib(*numbers: int, end: str = "R64,2x2,1") -> bytes:
    return ("MQ1," + ",".join(map(str, numbers)) + f",{end}").encode().ljust(768)


def sectors(*counts: int) -> dict[str, Content]:
    """Eight files whose first blocks have these numbers."""
    block = struct.pack(
        ">I4xBB6xIHHIHHHHI", 0xFFFF0055, 0, 0, 0, 256, 1860, U32, 0, 0, 0, 0, 0x5758
    )
    return {f"a_{k}.bin": Content(patched(block, (16, ">I", [n]))) for k, n in enumerate(counts)}


def xml(scan: str, rest: str = "") -> bytes:
    sizes = "".join(f"<scan_resolution_{axis}>{scan}</scan_resolution_{axis}>" for axis in "xy")
    return f'<a><scan_parameters mode="acquire">{sizes}</scan_parameters>{rest}</a>'.encode()


MRC, SEQ = writers.mrc(PIXEL, 0), writers.seq(PIXEL)
TVIPS = writers.tvips(PIXEL)["rec_000.tvips"]
BLO = writers.blo(PIXEL, (1, 1))
GROWING = {"growing": True}
MAP = b'<a><BadPixelMap Rows="65536" Columns="65536"><Defect Rows="0-65535"/></BadPixelMap></a>'
SQUARE = [(548, "<I", [1 << 14]), (552, "<I", [1 << 14]), (580, "<I", [1 << 28])]
DARK = patched(MRC, (0, "<4i", [1 << 14, 1 << 14, 1, 0]))

DECLARED: Mapping[str, Declared] = {
    "mrc: a frame of 2**62 pixels": Declared(
        {"a.mrc": Content(patched(MRC, (0, "<3i", [I31, I31, I31])))}
    ),
    "mrc: an extended header of 2 GiB": Declared(
        {"a.mrc": Content(patched(MRC, (92, "<i", [I31])))}
    ),
    "seq: a frame of 2**64 pixels": Declared(
        {"a.seq": Content(patched(SEQ, (548, "<I", [U32]), (552, "<I", [U32])))}
    ),
    "seq: 2**32 frames": Declared(
        {"a.seq": Content(patched(SEQ, (572, "<I", [U32]), (580, "<I", [1])), 8192 + U32)}
    ),
    "seq: a map of 2**32 bad pixels": Declared(
        {
            "a.seq": Content(
                patched(SEQ, (548, "<I", [1 << 16]), (552, "<I", [U16]), (580, "<I", [U32])),
            ),
            "a.seq.metadata": Content(writers.seq_camera(U16, 1 << 16)),
            "a.seq.Config.Metadata.xml": Content(MAP),
        },
        GROWING,
    ),
    "seq: corrections of 2**28 pixels": Declared(
        {
            "a.seq": Content(patched(SEQ, *SQUARE), 8192 + (1 << 28)),
            "a.seq.dark.mrc": Content(DARK, 1024 + (1 << 28)),
        }
    ),
    "seq: a map of 2**28 pixels": Declared(
        {
            "a.seq": Content(patched(SEQ, *SQUARE), 8192 + (1 << 28)),
            "a.seq.metadata": Content(writers.seq_camera(1 << 14, 1 << 14)),
            "a.seq.Config.Metadata.xml": Content(MAP),
        }
    ),
    "tvips: a frame of 2**62 pixels": Declared(
        {"a.tvips": Content(patched(TVIPS, (8, "<2i", [I31, I31])))}
    ),
    "tvips: a frame header of 2 GiB": Declared(
        {"a.tvips": Content(patched(TVIPS, (48, "<i", [I31])))}
    ),
    "dm: a group of 2**32 tags": Declared({"a.dm3": Content(dm(count=U32))}),
    "dm: a group of 2**64 tags": Declared({"a.dm4": Content(dm(version=4, count=2**64 - 1))}),
    "dm: groups inside each other": Declared(
        {"a.dm3": Content(dm()[:-6] + (group(count=1) + b"\x14\0\0") * 5000)}
    ),
    "dm: a name of 64 KiB": Declared({"a.dm3": Content(dm(tag("x" * U16, b"", 21)))}),
    "dm: a type of 2**32 numbers": Declared(
        {"a.dm3": Content(dm(tag("x", b"%%%%" + b"\xff" * 400, 21)))}
    ),
    "dm: 2**32 values": Declared({"a.dm3": Content(image(tag("ImageData", group(values(U32)))))}),
    "dm: an image of 2**64 pixels": Declared(
        {
            "a.dm3": Content(
                image(
                    tag(
                        "ImageData",
                        group(
                            tag("Dimensions", group(number("", U32), number("", U32))),
                            number("DataType", 6),
                            values(1),
                        ),
                    )
                )
                + b"\0"
            )
        }
    ),
    "dm: an image of 20,000 dimensions": Declared(
        {
            "a.dm3": Content(
                image(
                    tag(
                        "ImageData",
                        group(
                            tag("Dimensions", group(*[number("", 1)] * 20_000)),
                            number("DataType", 6),
                        ),
                    )
                )
            )
        }
    ),
    "dm: long names of much metadata": Declared(
        {
            "a.dm3": Content(
                image(
                    tag(
                        "ImageTags",
                        group(
                            tag(
                                "Meta Data",
                                group(
                                    tag(
                                        "x" * 4096,
                                        group(tag("y" * 4096, group(*[number("", 1)] * 100))),
                                    )
                                ),
                            )
                        ),
                    ),
                    tag(
                        "ImageData",
                        group(
                            tag("Dimensions", group(number("", 1), number("", 1))),
                            number("DataType", 6),
                            values(1) + b"\0",
                        ),
                    ),
                )
            )
        }
    ),
    "blo: offsets of 4 GiB": Declared({"a.blo": Content(patched(BLO, (8, "<2I", [U32, U32])))}),
    "empad: a scan of 10**18 positions": Declared(
        {"a.raw": Content(b"", 66_560), "a.xml": Content(xml("999999999"))},
        {"format": "empad", "nav_shape": [1]},
    ),
    "empad: many elements": Declared(
        {"a.raw": Content(b"", 66_560), "a.xml": Content(xml("1", "<b/>" * 250_000))},
        {"format": "empad"},
    ),
    "empad: elements inside each other": Declared(
        {"a.raw": Content(b"", 66_560), "a.xml": Content(b"<b>" * 300_000)},
        {"format": "empad"},
    ),
    "mib: a frame of 10**18 pixels": Declared(
        {"a.mib": Content(mib(1, 768, 1, 999_999_999, 999_999_999, end="U64,1x1"))}
    ),
    "mib: a header of 64 KiB and 10**9 chips": Declared(
        {"a.mib": Content(mib(999_999_999, 65_535, 999_999_999, 1, 1))}
    ),
    "mib: a scan of 10**18 positions": Declared(
        {
            "a.mib": Content(mib(1, 768, 1, 1, 1, end="U08,1x1"), 769),
            "a.hdr": Content(b"HDR,\t\nScanX:\t999999999\nScanY:\t999999999\nEnd\t\n"),
        }
    ),
    "mrc: a frame of 2**62 pixels that grows": Declared(
        {"a.mrc": Content(patched(MRC, (0, "<3i", [I31, I31, I31])))}, GROWING
    ),
    "mrc: a frame of 2**40 pixels": Declared(
        {"a.mrc": Content(patched(MRC, (0, "<3i", [1 << 20, 1 << 20, 1])), 1024 + (1 << 40))}
    ),
    "mrc: 2**31 frames": Declared(
        {"a.mrc": Content(patched(MRC, (0, "<3i", [1, 1, I31])), 1024 + I31)}
    ),
    "seq: frames of 4 GiB that grow": Declared(
        {"a.seq": Content(patched(SEQ, (580, "<I", [U32])))}, GROWING
    ),
    "tvips: 2**36 frames": Declared({"a.tvips": Content(TVIPS, 256 + (109 << 36))}),
    "tvips: a frame of 2**62 pixels that grows": Declared(
        {"a.tvips": Content(patched(TVIPS, (8, "<2i", [I31, I31])))}, GROWING
    ),
    "mib: a scan of 2**40 positions": Declared(
        {
            "a.mib": Content(mib(1, 768, 1, 1, 1, end="U08,1x1"), 769),
            "a.hdr": Content(b"HDR,\t\nScanX:\t1048576\nScanY:\t1048576\nEnd\t\n"),
        }
    ),
    "mib: a frame of 10**18 pixels that grows": Declared(
        {"a.mib": Content(mib(1, 768, 1, 999_999_999, 999_999_999, end="U64,1x1"))}, GROWING
    ),
    "blo: 2**32 frames": Declared(
        {"a.blo": Content(patched(BLO, (24, "<2H", [U16, U16])), len(BLO) - 7 + 7 * U16 * U16)}
    ),
    "blo: 2**32 frames that grow": Declared(
        {"a.blo": Content(patched(BLO, (24, "<2H", [U16, U16]))[:-7])}, GROWING
    ),
    "empad: a scan of 10**18 positions that grows": Declared(
        {"a.raw": Content(b""), "a.xml": Content(xml("999999999"))},
        {"format": "empad", **GROWING},
    ),
    "k2is: block 2**32": Declared(sectors(0, *[U32] * 7)),
    "npy: 5,000 dimensions": npy(5000),
    "npy: 70 dimensions": npy(70),
    "zarr: a million dimensions": zarr(
        shape=[2**61] * 1_000_000, chunk_grid=grid(*[2**61] * 1_000_000)
    ),
    "zarr: 30 dimensions": zarr(shape=[2] * 30, chunk_grid=grid(*[2] * 30)),
    "zarr: chunks of 2**186 values": zarr(shape=[2**61] * 3, chunk_grid=grid(*[2**61] * 3)),
    "zarr: a grid of 2**183 chunks": zarr(shape=[2**61] * 3, chunk_grid=grid(1, 1, 1)),
    "zarr: shards of a million dimensions": zarr(codecs=shards([2**61] * 1_000_000)),
    "zarr: shards of 2**62 chunks": zarr(
        shape=[2**61] * 3, chunk_grid=grid(2**61, 2, 2), codecs=shards([1, 1, 1])
    ),
    "zarr: a type that is a list": zarr(data_type=[1]),
    "zarr: many values": zarr(attributes={"x": [[]] * 3_000_000}),
    "zarr: values inside each other": Declared(
        {"a.zarr/zarr.json": Content(b'{"a":' * 1_000_000)}, {"format": "zarr"}
    ),
}


def use(directory: Path, declared: Declared) -> None:
    """Register the files, list the plan of their view, and read a tile of it."""
    catalogue = Catalogue(MemoryStateStore(), Roots([directory]), {}, BufferPool(4))
    names = sorted({name.partition("/")[0] for name in declared.files})
    try:
        catalogue.register(SINGLE_USER, {"id": "a", "files": names, **declared.entry})[0].close()
        views = Views(catalogue, MemoryStateStore(), KeyRing([new_key()]))
        view = views.open(SINGLE_USER, "a", {})
        try:
            plan_json(view.plan, 0, 100)
            if view.plan.tiles:
                view.read(view.plan.tile(view.plan.tiles - 1))
        finally:
            view.close()
    finally:
        catalogue.close()


@pytest.mark.parametrize("name", DECLARED)
def test_the_largest_numbers_take_little(name: str, tmp_path: Path) -> None:
    declared = DECLARED[name]
    for path, (head, size) in declared.files.items():
        file = tmp_path / path
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(head)
        os.truncate(file, max(size, len(head)))
    never = threading.Event()
    budget = RequestBudget(BudgetLimits(memory=BUDGET), never, never)
    tracemalloc.start()
    begin = time.process_time()
    try:
        budget.run(use, tmp_path, declared)
    except (CoreError, ServiceError) as error:
        problem = problem_of(error)
        assert problem.status < 500
        assert 10 < len(problem.detail) + len(str(problem.members)) < LONGEST_PROBLEM
    finally:
        seconds = time.process_time() - begin
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < budget.peak + SLACK
    assert seconds < SECONDS
