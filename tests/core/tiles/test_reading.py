"""Tiles of random views of random data against plain numpy."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from core.errors import CastingError, RepairError, SelectionError, ShapeError
from core.tiles.corrections import Corrections
from core.tiles.frames import FileFrames
from core.tiles.plan import Plan, make_plan
from core.tiles.reader import TileReader
from core.tiles.recording import Extent, Recording
from core.tiles.view import parse_view
from tests.core.tiles import reference
from tests.core.tiles.files import Ranges
from tests.scale import half

Array = npt.NDArray[Any]

DTYPES = ["b1", "u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8", "c8", "c16"]


class Case:
    """A dataset and a view of it, drawn at random."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.scan = tuple(rng.integers(1, 7, int(rng.integers(1, 4))).tolist())
        self.sig = tuple(rng.integers(1, 11, int(rng.choice([1, 2, 2, 2, 3]))).tolist())
        positions = int(np.prod(self.scan))
        spread = int(rng.integers(-3, 4)) if rng.random() < 0.4 else 0
        self.frames = max(1, positions + spread)
        self.stored = np.dtype(str(rng.choice(["<", ">"])) + str(rng.choice(DTYPES)))
        self.data = self._draw(self.stored.newbyteorder("="))
        self.dark: Array | None = None
        self.gain: Array | None = None
        self.bad: Array | None = None
        if rng.random() < 0.4:
            self._draw_corrections()

    def _draw(self, dtype: np.dtype[Any]) -> Array:
        rng, shape = self.rng, (self.frames, *self.sig)
        if dtype.kind == "b":
            return rng.random(shape) < 0.5
        if dtype.kind in "iu":
            limits = np.iinfo(dtype)
            wide = rng.random() < 0.3
            low = limits.min if wide else max(limits.min, -100)
            high = limits.max if wide else min(limits.max, 200)
            return rng.integers(low, high, shape, dtype, endpoint=True)
        values = rng.normal(0, 50, shape)
        if dtype.kind == "c":
            values = values + 1j * rng.normal(0, 50, shape)
        return values.astype(dtype)

    def _draw_corrections(self) -> None:
        rng = self.rng
        if rng.random() < 0.7:
            self.dark = rng.normal(5, 3, self.sig).astype("f4")
        if rng.random() < 0.7:
            self.gain = rng.uniform(0.5, 2, self.sig).astype("f4")
        if rng.random() < 0.6:
            count = int(rng.integers(1, 4))
            self.bad = np.stack([rng.integers(0, n, count) for n in self.sig], axis=1)

    def view(self) -> dict[str, Any]:
        rng = self.rng
        spec: dict[str, Any] = {"select": self._select()}
        if rng.random() < 0.4:
            spec["sig"] = [sorted(rng.choice(n + 1, 2, replace=False).tolist()) for n in self.sig]
        if rng.random() < 0.3:
            spec["sync_offset"] = int(rng.integers(-3, 4))
        spec["missing"] = str(rng.choice(["skip", "skip", "zero", "nan"]))
        if rng.random() < 0.4:
            spec["dtype"] = str(rng.choice(["<", ">"])) + str(rng.choice(DTYPES))
        spec["casting"] = str(rng.choice(["safe", "wrap", "clip"]))
        if rng.random() < 0.2:
            spec["corrections"] = False
        if rng.random() < 0.25:
            spec["bin"] = {"nav": int(rng.integers(1, 3)), "sig": int(rng.integers(1, 3))}
        self._draw_tiles(spec)
        return spec

    def _select(self) -> dict[str, Any]:
        rng, size = self.rng, int(np.prod(self.scan))
        form = str(rng.choice(["all", "frames", "mask", "nav", "shuffle"]))
        if form == "frames":
            return {"frames": rng.integers(0, size, int(rng.integers(1, 9))).tolist()}
        if form == "mask":
            mask = rng.random(size) < 0.5
            mask[rng.integers(0, size)] = True
            return {"mask": base64.b64encode(np.packbits(mask).tobytes()).decode()}
        if form == "nav":
            pairs = [sorted(rng.choice(n + 1, 2, replace=False).tolist()) for n in self.scan]
            return {"nav": [[*pair, int(rng.integers(1, 4))] for pair in pairs]}
        if form == "shuffle":
            return {"shuffle": {"seed": int(rng.integers(0, 2**63))}}
        return {"all": True}

    def _draw_tiles(self, spec: dict[str, Any]) -> None:
        rng = self.rng
        how = rng.random()
        if how < 0.3:
            spec["target_bytes"] = int(rng.integers(1, 4000))
        elif how < 0.7:
            axes = 1 if spec["select"].keys() & {"frames", "mask", "shuffle"} else len(self.scan)
            if rng.random() < 0.5:
                axes = 1
            spec["tile_shape"] = rng.integers(1, 9, axes + len(self.sig)).tolist()

    def recording(self) -> tuple[Recording, list[bytes]]:
        """The data in one or more files, with headers and gaps."""
        rng = self.rng
        header, footer, front = (int(n) for n in rng.choice([0, 0, 3, 8], 3))
        frame = int(np.prod(self.sig)) * self.stored.itemsize
        edges = sorted(
            rng.integers(0, self.frames, int(rng.integers(0, 3)), endpoint=True).tolist()
        )
        files: list[bytes] = []
        extents = []
        for begin, end in zip([0, *edges], [*edges, self.frames], strict=True):
            parts = [rng.bytes(front)]
            for k in range(begin, end):
                octets = self.data[k].astype(self.stored).tobytes()
                parts += [rng.bytes(header), octets, rng.bytes(footer)]
            extents.append(Extent(len(files), end - begin, front + header, header + frame + footer))
            files.append(b"".join(parts))
        made = Recording(
            format="raw",
            extents=tuple(extents),
            sig_shape=self.sig,
            nav_shape=self.scan,
            dtype=self.stored.newbyteorder("="),
            stored=self.stored,
            frame_bytes=frame,
        )
        return made, files


def assemble(plan: Plan, reader: TileReader) -> Array:
    """All tiles put where they belong; they must come in order and leave no gap."""
    whole = np.zeros(plan.shape, plan.dtype)
    covered = np.zeros(plan.shape, np.uint8)
    offset = 0
    table = plan.table()
    for k in range(plan.tiles):
        tile = plan.tile(k)
        assert tile.offset == offset == table["offset"][k]
        assert tile.nbytes == table["nbytes"][k]
        assert tile.origin == tuple(table[f"origin_{a}"][k] for a in range(len(plan.shape)))
        offset += tile.nbytes
        where = tuple(slice(a, b) for a, b in tile.box)
        whole[where] = reader.read(tile)
        covered[where] += 1
    assert (covered == 1).all()
    assert offset == plan.nbytes
    return whole


def expected(case: Case, spec: dict[str, Any], plan: Plan) -> tuple[Array, bool]:
    """(values before conversion, whether they are inexact)."""
    shape = spec.get("tile_shape")
    flat = shape is not None and len(shape) == 1 + len(case.sig) != len(plan.shape)
    if shape is not None and len(shape) == 1 + len(case.sig):
        flat = True
    order = None
    if "shuffle" in spec["select"]:
        order = reference.shuffled(int(np.prod(case.scan)), spec["select"]["shuffle"]["seed"])
    used = spec.get("corrections", True)
    corrections: dict[str, Any] = (
        {"dark": case.dark, "gain": case.gain, "bad": case.bad} if used else {}
    )
    values = reference.view(case.data, case.scan, spec, flat=flat, order=order, **corrections)
    inexact = any(x is not None for x in corrections.values()) or values.dtype.kind in "fc"
    return values.reshape(plan.shape), inexact


@pytest.mark.parametrize("seed", range(half(800)))
def test_tiles_are_what_numpy_says(seed: int) -> None:
    rng = np.random.default_rng(seed)
    case = Case(rng)
    spec = case.view()
    recording, files = case.recording()
    try:
        corrections = Corrections(case.sig, case.dark, case.gain, case.bad)
        plan = make_plan(recording, parse_view(spec))
    except (ShapeError, SelectionError, CastingError, RepairError):
        return
    ranges = Ranges(files, in_place=bool(rng.random() < 0.5), piece=int(rng.integers(1, 500)))
    source = FileFrames(recording, ranges)
    reader = TileReader(plan, recording, source, corrections)
    wanted, inexact = expected(case, spec, plan)
    try:
        made = assemble(plan, reader)
    except CastingError:
        check_refusal(wanted, plan, spec)
        return
    compare(made, wanted, plan, spec, inexact)


def check_refusal(wanted: Array, plan: Plan, spec: dict[str, Any]) -> None:
    """Some value cannot be held, or wrapped."""
    if spec["casting"] == "wrap":
        assert plan.dtype.kind in "iub"
        return
    assert spec["casting"] == "safe"
    if wanted.dtype.kind == "c" and np.any(wanted.imag):
        return
    flat = [x.item() if hasattr(x, "item") else x for x in wanted.real.reshape(-1)]
    if plan.dtype.kind == "b":
        assert any(x not in (0, 1) for x in flat)
        return
    limits = np.iinfo(plan.dtype)
    # A value that is not itself is NaN: sums may be integers of any size.
    assert any(x != x or not limits.min <= x <= limits.max or x != int(x) for x in flat)  # noqa: PLR0124


def compare(made: Array, wanted: Array, plan: Plan, spec: dict[str, Any], inexact: bool) -> None:
    kind = plan.dtype.kind
    if kind in "fc":
        with np.errstate(over="ignore", invalid="ignore"):
            target = wanted.astype(np.complex128 if wanted.dtype.kind == "c" else np.float64)
            target = (target if kind == "c" else target.real).astype(plan.dtype)
        near = np.finfo(plan.dtype).eps * 16
        scale = np.nanmax(np.abs(target[np.isfinite(target)]), initial=1.0)
        np.testing.assert_allclose(
            made,
            target,
            rtol=max(near, 1e-5 if inexact else near),
            atol=1e-5 * scale if inexact else 0,
        )
        return
    exact = np.array([int_of(x, plan.dtype, spec["casting"]) for x in wanted.reshape(-1)], object)
    difference = made.reshape(-1).astype(object) - exact
    slack = 1 if inexact else 0  # float32 work can fall on the other side of a whole number
    if kind == "b" or spec["casting"] == "wrap":
        assert np.mean(np.abs(difference) > slack) <= (0.2 if inexact else 0)
    else:
        assert (np.abs(difference) <= slack + (1e-5 * np.abs(exact) if inexact else 0)).all()


def int_of(value: Any, dtype: np.dtype[Any], casting: str) -> int:  # noqa: ANN401
    """One value by the rule that the documentation gives."""
    value = value.item() if isinstance(value, np.generic) else value
    value = value.real if isinstance(value, complex) else value
    if dtype.kind == "b":
        return int(value != 0)
    limits = np.iinfo(dtype)
    if isinstance(value, float) and np.isnan(value):
        return 0
    if casting == "clip":
        return int(min(max(value, limits.min), limits.max))
    number = int(value)
    if casting == "wrap":
        number = (number - limits.min) % (1 << limits.bits) + limits.min
    return number


def test_small_frames_are_not_worked_on_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    frames = 1 << 14
    data = np.arange(frames).astype("<u2").reshape(frames, 1, 1)
    recording = Recording(
        format="raw",
        extents=(Extent(0, frames, 0, 2),),
        sig_shape=(1, 1),
        nav_shape=(frames,),
        dtype=data.dtype,
        stored=data.dtype,
        frame_bytes=2,
    )
    visits: list[int] = []
    visit = FileFrames.visit

    def counted(self: FileFrames, some: Array, *how: Any) -> None:  # noqa: ANN401 - passed on
        visits.append(len(some))
        visit(self, some, *how)

    def once(values: Array, out: Array, _casting: str) -> None:
        visits.append(len(values))
        np.copyto(out, values, casting="unsafe")

    monkeypatch.setattr(FileFrames, "visit", counted)
    monkeypatch.setattr("core.tiles.reader.convert", once)
    source = FileFrames(recording, Ranges([data.tobytes()]))
    for view, expected in (
        ({"dtype": "<f8"}, data.astype("f8")),
        ({"dtype": "<f8", "bin": {"nav": 1 << 13}}, data.reshape(2, -1).sum(1).reshape(2, 1, 1)),
    ):
        visits.clear()
        made = make_plan(recording, parse_view(view))
        read = TileReader(made, recording, source, None).read(made.tile(0))
        np.testing.assert_array_equal(read, expected)
        assert len(visits) <= 8, view
