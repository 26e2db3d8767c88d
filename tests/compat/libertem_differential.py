"""Compares tiles of random raw and npy files with a live peer, and both with numpy.

``python -m tests.compat.libertem_differential --peer PYTHON --cases 300`` where PYTHON is
an interpreter that has ``libertem``. Every case is a random file: a type, a byte order, 1
to 3 navigation axes, frames too few or too many, bytes after the last, a sync offset of
either sign, a mask, tiles of so many frames and rows, a type to read as, corrections.

Ours must equal numpy in every case. The peer must give the same tiles in the same order,
but for what it is known to do wrong: :func:`known` says beforehand where that is, and
differences anywhere else count as failures. Each type gets a process, and a directory for
compiled code, of its own: the peer's key for that does not tell byte swaps apart.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from core.errors import SelectionError
from core.tiles.corrections import Corrections
from core.tiles.formats import parse
from core.tiles.frames import FileFrames
from core.tiles.plan import make_plan
from core.tiles.reader import TileReader
from core.tiles.recording import Hints
from core.tiles.view import parse_view
from tests.core.tiles import files, reference
from tests.core.tiles.files import Ranges

Array = npt.NDArray[Any]

TYPES = ("u1", "i1", "u2", "i2", "u4", "i4", "f2", "f4", "f8", "c8")
BROKEN = "differs or fails, and is not known to"


@dataclass(frozen=True)
class Piece:
    """A tile as either side gives it."""

    origin: tuple[int, ...]
    """Position in the flat, selected scan, counting those without a frame; then pixels."""
    scheme: int
    """Which part of a frame it is, counting through."""
    values: Array = field(repr=False)


class Case:
    """One file, and how it is read."""

    def __init__(self, directory: Path, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.seed = seed
        self.directory = directory
        directory.mkdir()
        self.type = TYPES[seed % len(TYPES)]
        self.stored = np.dtype(str(rng.choice(["<", ">"])) + self.type)
        self.format = str(rng.choice(["raw", "raw", "npy"]))
        self.scan = tuple(rng.integers(1, 7, int(rng.integers(1, 4))).tolist())
        self.sig = tuple(rng.integers(2, 17, 2).tolist())
        self.positions = int(np.prod(self.scan))
        spread = int(rng.integers(-3, 4)) if rng.random() < 0.3 else 0
        self.frames = max(2, self.positions + spread)
        self.data = self._draw(rng)
        self.sync = 0
        if rng.random() < 0.4:
            limit = min(self.frames - 1, 4)
            self.sync = int(rng.integers(-limit, limit + 1))
        self.trailing = 0
        if self.format == "raw" and rng.random() < 0.2:
            self.trailing = int(rng.choice([1, 3, 64, 65, 127, 128]))
            self.trailing %= self.data[0].nbytes
        self.tile = (int(rng.integers(1, 9)), int(rng.integers(1, self.sig[0] + 1)), self.sig[1])
        self.keep = bool(rng.random() < 0.05)
        self._draw_request(rng)
        self._draw_corrections(rng)
        self.path = self._write(rng)

    def _draw(self, rng: np.random.Generator) -> Array:
        shape, dtype = (self.frames, *self.sig), self.stored.newbyteorder("=")
        if dtype.kind in "iu":
            limits = np.iinfo(dtype)
            return rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
        values = rng.normal(0, 50, shape)
        if dtype.kind == "c":
            values = values + 1j * rng.normal(0, 50, shape)
        return values.astype(dtype)

    def _draw_request(self, rng: np.random.Generator) -> None:
        native = self.stored.newbyteorder("<")
        wide = {"c": ["c8", "c16"], "f": ["f4", "f8"], "i": ["f4", "f8", "i8"]}
        wider = [native, *(np.dtype(t) for t in wide.get(native.kind, ["f4", "f8", "u8"]))]
        if native.kind in "iu":
            wider = [d for d in wider if d.kind in "fc" or np.can_cast(native, d)]
        self.read = wider[int(rng.integers(0, len(wider)))]
        self.roi: Array | None = None
        self.listed: list[int] | None = None
        if rng.random() < 0.35:
            self.roi = rng.random(self.scan) < rng.choice([0.1, 0.5, 0.9])
        elif len(self.scan) == 1 and rng.random() < 0.2:
            self.listed = rng.integers(0, self.positions, int(rng.integers(1, 6))).tolist()

    def _draw_corrections(self, rng: np.random.Generator) -> None:
        self.dark: Array | None = None
        self.gain: Array | None = None
        self.bad: Array | None = None
        if rng.random() > 0.35:
            return
        if self.read.kind not in "fc":
            self.read = np.dtype("f4")
        if rng.random() < 0.7:
            self.dark = rng.normal(5, 3, self.sig).astype("f4")
        if rng.random() < 0.7:
            self.gain = rng.uniform(0.5, 2, self.sig).astype("f4")
        if rng.random() < 0.5 and min(self.sig) > 3:
            # No two next to each other, so that all can be repaired.
            places = [(y, x) for y in range(0, self.sig[0], 3) for x in range(0, self.sig[1], 3)]
            count = int(rng.integers(1, min(len(places), 4) + 1))
            self.bad = np.array(places)[rng.choice(len(places), count, replace=False)]

    @property
    def corrected(self) -> bool:
        """Whether anything is corrected."""
        return any(x is not None for x in (self.dark, self.gain, self.bad))

    def _write(self, rng: np.random.Generator) -> Path:
        stored = self.data.astype(self.stored)
        if self.format == "raw":
            path = self.directory / "frames.raw"
            path.write_bytes(stored.tobytes() + rng.bytes(self.trailing))
            return path
        path = self.directory / "frames.npy"
        np.save(path, stored)
        return path

    def selected(self) -> Array:
        """Flat positions that are wanted, whether they have a frame or not."""
        if self.listed is not None:
            return np.array(self.listed)
        if self.roi is not None:
            return np.flatnonzero(self.roi)
        return np.arange(self.positions)

    def missing_first(self) -> int:
        """Selected positions that come before the first frame."""
        return int(np.count_nonzero(self.selected() + self.sync < 0))

    def missing(self) -> bool:
        """Whether a selected position has no frame."""
        frames = self.selected() + self.sync
        return bool(((frames < 0) | (frames >= self.frames)).any())

    def job(self) -> dict[str, Any]:
        """The request, for the peer."""
        named: dict[str, str | None] = {}
        roi = self.roi if self.listed is None else np.array(self.listed)
        for name, array in (("roi", roi), ("dark", self.dark), ("gain", self.gain)):
            named[name] = None if array is None else str(self.directory / f"{name}.npy")
            if array is not None:
                np.save(self.directory / f"{name}.npy", array)
        return {
            **named,
            "path": str(self.path),
            "format": self.format,
            "dtype": self.stored.str,
            "nav_shape": self.scan,
            "sig_shape": self.sig,
            "sync_offset": self.sync,
            "tile_shape": self.tile,
            "read_dtype": self.read.str,
            "excluded": [] if self.bad is None else self.bad.tolist(),
            "keep": self.keep,
            "out": str(self.directory / "peer.bin"),
        }

    def view(self) -> dict[str, Any]:
        """The request, for us."""
        select: dict[str, Any] = {"all": True}
        if self.listed is not None:
            select = {"frames": self.listed}
        elif self.roi is not None:
            select = {"mask": base64.b64encode(np.packbits(self.roi).tobytes()).decode()}
        return {"select": select, "tile_shape": list(self.tile), "dtype": self.read.str}


def ours(case: Case) -> list[Piece]:
    """Our tiles."""
    content = case.path.read_bytes()
    infos, reader = files.opened({case.path.name: content})
    raw = case.format == "raw"
    hints = Hints(
        dtype=case.stored if raw else None,
        nav_shape=case.scan,
        sig_shape=case.sig,
        sync_offset=case.sync,
    )
    recording = parse(infos, reader, hints, name=case.format)
    plan = make_plan(recording, parse_view(case.view()))
    source = FileFrames(recording, Ranges([content], in_place=case.seed % 2 == 0, piece=1 << 16))
    corrections = Corrections(case.sig, case.dark, case.gain, case.bad)
    tiles = TileReader(plan, recording, source, corrections)
    parts = plan.grid[1] * plan.grid[2]
    made = []
    for k in range(plan.tiles):
        tile = plan.tile(k)
        origin = (tile.origin[0] + case.missing_first(), *tile.origin[1:])
        made.append(Piece(origin, k % parts, tiles.read(tile)))
    return made


def expected(case: Case) -> Array:
    """The whole view by plain numpy."""
    frames = case.selected() + case.sync
    frames = frames[(frames >= 0) & (frames < case.frames)]
    values = case.data
    if case.corrected:
        values = reference.corrected(case.data, case.dark, case.gain, case.bad)
    with np.errstate(over="ignore", invalid="ignore"):
        picked: Array = values[frames].astype(case.read)
    return picked


def is_near(made: Array, wanted: Array, *, exact: bool) -> bool:
    """Equal to the last bit, or as float32 arithmetic gives it."""
    if exact:
        return np.array_equal(made, wanted, equal_nan=made.dtype.kind in "fc")
    scale = float(np.max(np.abs(wanted), initial=1.0))
    return bool(np.allclose(made, wanted, rtol=2e-5, atol=2e-6 * scale))


def against_numpy(case: Case, made: list[Piece]) -> str | None:
    """What is wrong with our tiles, None if nothing."""
    wanted = expected(case)
    covered = np.zeros(wanted.shape, np.uint8)
    for piece in made:
        first = piece.origin[0] - case.missing_first()
        starts = (first, *piece.origin[1:])
        shape = piece.values.shape
        box = tuple(slice(a, a + n) for a, n in zip(starts, shape, strict=True))
        covered[box] += 1
        if not is_near(piece.values, wanted[box], exact=not case.corrected):
            return f"tile at {piece.origin} is not what numpy says"
    return None if (covered == 1).all() else "the tiles do not cover everything once"


def theirs(case: Case, answer: dict[str, Any]) -> list[Piece]:
    """The peer's tiles out of its answer."""
    octets = (case.directory / "peer.bin").read_bytes()
    dtype = np.dtype(answer["dtype"])
    made, at = [], 0
    for origin, shape, scheme in answer["tiles"]:
        count = int(np.prod(shape))
        values = np.frombuffer(octets, dtype, count, at).reshape(shape)
        at += values.nbytes
        made.append(Piece(tuple(origin), scheme, values))
    return made


def difference(case: Case, made: list[Piece], peer: list[Piece]) -> str | None:
    """What differs between both, None if nothing."""
    if len(made) != len(peer):
        return f"{len(made)} tiles, the peer has {len(peer)}"
    for k, (a, b) in enumerate(zip(made, peer, strict=True)):
        if (a.origin, a.scheme, a.values.shape) != (b.origin, b.scheme, b.values.shape):
            return f"tile {k}: {a} with shape {a.values.shape}, the peer {b}, {b.values.shape}"
        if not is_near(b.values, a.values, exact=not case.corrected):
            return f"values of tile {k}"
    return None


def known(case: Case) -> list[str]:
    """What the peer does wrong with such a file or request."""
    found = []
    big = case.stored.byteorder == ">"
    kind, size = case.stored.kind, case.stored.itemsize
    if big and kind == "i" and size > 1 and case.read != case.stored.newbyteorder("<"):
        found.append("2: signed big-endian values widened as unsigned")
    if (big and kind in "fc") or (kind == "f" and size == 2):
        found.append("3: big-endian or half-precision floats not implemented")
    if case.trailing:
        found.append("4: bytes after the last frame")
    if case.bad is not None and case.tile[1] < case.sig[0]:
        found.append("9: excluded pixels at tile borders")
    if case.listed is not None:
        found.append("10: an index list taken for a mask")
    if case.keep:
        found.append("11: tiles share one buffer")
    return found


def likely(bugs: list[str], error: str | None) -> list[str]:
    """Those of some bugs that fit what happened: 3 and 4 are errors, the others not."""
    if error is None:
        return [bug for bug in bugs if bug[:2] not in {"3:", "4:"}] or bugs
    sign = "4:" if "must fit the number of frames" in error else "3:"
    return [bug for bug in bugs if bug.startswith(sign)] or bugs


class Peer:
    """The peer's process for one type."""

    def __init__(self, python: str, cache: Path) -> None:
        self._process = subprocess.Popen(
            [python, str(Path(__file__).with_name("peer_libertem.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "NUMBA_CACHE_DIR": str(cache)},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.communicate()

    def ask(self, job: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer


def judge(case: Case, peer: Peer, count: Counter[str]) -> None:
    """One case: ours against numpy, the peer against ours."""
    frames = case.selected() + case.sync
    if not ((frames >= 0) & (frames < case.frames)).any():
        # We say so, the peer gives no tiles.
        try:
            ours(case)
        except SelectionError:
            count["nothing selected"] += 1
        else:
            count["OURS DIFFERS FROM NUMPY"] += 1
        if peer.ask(case.job()).get("tiles"):
            count[f"{BROKEN}: tiles of nothing"] += 1
        return
    made = ours(case)
    wrong = against_numpy(case, made)
    count["ours equals numpy" if wrong is None else "OURS DIFFERS FROM NUMPY"] += 1
    if wrong is not None:
        print(f"case {case.seed}: {wrong}")
    answer = peer.ask(case.job())
    problem = answer.get("error")
    if problem is None:
        problem = difference(case, made, theirs(case, answer))
    bugs = known(case)
    if problem is None:
        count["peer equal"] += 1
    elif bugs:
        count[f"peer wrong, {' or '.join(likely(bugs, answer.get('error')))}"] += 1
    else:
        count[BROKEN] += 1
        print(f"case {case.seed}: {problem}\n    {case.job()}")


def plain_job(scratch: Path, stored: str) -> tuple[dict[str, Any], Array]:
    """A small file to be read as float32, and its values."""
    data = np.arange(2 * 4 * 4, dtype=stored).reshape(2, 4, 4)
    path = scratch / f"plain-{np.dtype(stored).name}.raw"
    path.write_bytes(data.tobytes())
    job = {
        **dict.fromkeys(("roi", "dark", "gain")),
        "path": str(path),
        "format": "raw",
        "dtype": stored,
        "nav_shape": [2],
        "sig_shape": [4, 4],
        "sync_offset": 0,
        "tile_shape": [2, 4, 4],
        "read_dtype": "<f4",
        "excluded": [],
        "keep": False,
        "out": str(scratch / "plain.bin"),
    }
    return job, data


def shared_cache(python: str, scratch: Path) -> str:
    """Whether the peer still mixes up kernels of one cache."""
    results = []
    for stored in (">u2", ">u4"):
        job, data = plain_job(scratch, stored)
        with Peer(python, scratch / "shared") as peer:
            answer = peer.ask(job)
        if "error" in answer:
            return f"{stored}: {answer['error']}"
        results.append(np.array_equal(np.fromfile(job["out"], "<f4"), data.reshape(-1)))
    return f"first type right: {results[0]}, second type right: {results[1]}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", required=True)
    parser.add_argument("--cases", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    count: Counter[str] = Counter()
    begin = time.perf_counter()
    seeds = range(args.seed, args.seed + args.cases)
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        # What all types share is compiled once; byte swaps are not among it.
        with Peer(args.peer, scratch / "common") as peer:
            peer.ask(plain_job(scratch, "<u2")[0])
        for index, kind in enumerate(TYPES):
            shutil.copytree(scratch / "common", scratch / f"cache-{kind}")
            with Peer(args.peer, scratch / f"cache-{kind}") as peer:
                for seed in seeds:
                    if seed % len(TYPES) == index:
                        judge(Case(scratch / str(seed), seed), peer, count)
        print(f"1: compiled code shared by big-endian types: {shared_cache(args.peer, scratch)}")
    print(f"{args.cases} files in {time.perf_counter() - begin:.0f} s")
    for text, times in sorted(count.items()):
        print(f"{times:6} {text}")
    return int(any(BROKEN in text or "OURS" in text for text in count))


if __name__ == "__main__":
    sys.exit(main())
