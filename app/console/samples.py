"""Data to try the service with: a loss stream with its occurrences, and a small scan."""

from __future__ import annotations

import io
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from app.datasets.files.places import parse_roots
from app.datasets.files.roots import PathRefusedError
from app.errors import NotFoundError
from app.http.identity import Identity
from app.settings import Settings
from app.state.durable import create_once
from core.losses.samples import SampleSpec, generate_inputs, generate_stream

SCAN = "thalweg-sample.npy"
LOSSES = ("stream.bin", "occurrence.bin")
_SPEC = SampleSpec(events=1000, summaries=8, samples=50)
_SIDE, _PIXELS = 32, 48
"""Positions of the scan and pixels of its frames, along each axis."""
SCAN_SPEC = {
    "id": "thalweg-sample",
    "files": [SCAN],
    "nav_shape": [_SIDE, _SIDE],
    "sig_shape": [_PIXELS, _PIXELS],
    "axes": [
        *({"name": name, "unit": "nm", "scale": 0.5} for name in "yx"),
        *({"name": name, "unit": "mrad", "scale": 0.8} for name in "vu"),
    ],
}
"""How it is registered."""
_DISK, _RING, _CRYSTAL = 7, 15, 9
"""Radii of the disk and the ring in pixels, and of the crystal in positions."""


@cache
def losses(name: str) -> bytes:
    """Return one of ``LOSSES``, about 2 MB; always the same.

    Raises:
        NotFoundError: there is no such file.
    """
    if name not in LOSSES:
        raise NotFoundError(
            f"there is no sample {name[:80]!r}", hint=f"The samples are {', '.join(LOSSES)}"
        )
    if name == "stream.bin":
        return b"".join(generate_stream(_SPEC))
    return generate_inputs(_SPEC)[name]


def place_of_scan(settings: Settings) -> Path | None:
    """Return where the scan would be: in the first dataset root; None if there is none."""
    roots = parse_roots(settings.dataset_roots, settings.data_dir).roots
    return Path(roots[0], SCAN) if roots else None


def store_scan(caller: Identity, path: Path | None) -> bool:
    """Store the scan; return whether it was not yet there. No file is ever replaced.

    Raises:
        PathRefusedError: the caller may not register it, or it cannot be stored there.
    """
    if path is None or not caller.may_register(SCAN, str(path)):
        raise PathRefusedError(
            f"you may not register {SCAN}, or there is no dataset root",
            hint="Start the service with --dataset-roots DIRECTORY, or ask for register:PATTERN",
        )
    if path.exists():
        return False
    try:
        create_once(path, _scan())
    except OSError as e:
        raise PathRefusedError(
            f"{SCAN} cannot be stored in the first dataset root: {e.strerror}",
            hint="Let the service write there, or put a file of your own below it",
        ) from e
    return True


def _scan() -> bytes:
    """Return a 4D scan as npy: a bright disk that drifts over crystals, whose ring turns up."""
    draw = np.random.default_rng(1).poisson
    scan = np.stack([draw(_row(y)).astype("<u2") for y in range(_SIDE)])
    file = io.BytesIO()
    np.save(file, scan)
    return file.getvalue()


def _row(y: int) -> NDArray[np.float64]:
    """Return the counts that are expected in a row of frames."""
    x = np.arange(_SIDE)[:, None, None]
    v, u = np.mgrid[:_PIXELS, :_PIXELS] - _PIXELS / 2
    radius = np.hypot(v - 2 * np.sin(y / 9), u - 2 * np.cos(x / 9))
    ring = np.cos(3 * (np.arctan2(v, u) + x / 40)) ** 8 * (abs(radius - _RING) < 2)  # noqa: PLR2004 - pixels
    crystal = np.hypot(y - 12, x - 18) < _CRYSTAL
    counts: NDArray[np.float64] = 900.0 * (radius < _DISK) + 20.0 + 500.0 * crystal * ring
    return counts
