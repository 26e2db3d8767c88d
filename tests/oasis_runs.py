"""The small Oasis run that tests replay: a writable copy, its streams, and its tables."""

from __future__ import annotations

import csv
import gzip
import json
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from core.arrays import Floats

RUN = Path(__file__).parents[1] / ".." / "shared" / "conformance" / "oasis-run"
NAMES = ("gul", "il", "ri_IP1", "ri")


def copy_run(target: Path, change: Callable[[dict[str, Any]], None] | None = None) -> Path:
    """Copy the run directory; ``change`` edits its settings."""
    shutil.copytree(RUN / "run", target)
    for path in (target, *target.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    if change is not None:
        edit_settings(target, change)
    return target


def edit_settings(directory: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Edit the settings of a run, as resolved."""
    path = directory / "output" / "analysis_settings.json"
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


def only_gul(document: dict[str, Any]) -> None:
    """Ask for the outputs of gul alone."""
    document["il_output"] = document["ri_output"] = False


def streams(names: Iterable[str] = NAMES, parts: Iterable[int] = (1, 2)) -> list[str]:
    """Options that name the streams of items."""
    parts = list(parts)
    paths = [(name, RUN / "streams" / f"{name}_P{part}.bin") for name in names for part in parts]
    return [f"--stream={name}={path}" for name, path in paths]


def read_table(path: Path) -> tuple[list[str], list[list[str]]]:
    """Header and lines of a csv, plain or compressed."""
    octets = path.read_bytes()
    text = (gzip.decompress(octets) if path.suffix == ".gz" else octets).decode()
    header, *lines = csv.reader(text.splitlines())
    return header, lines


def numbers(lines: list[list[str]]) -> Floats:
    """Lines of numbers as an array, shape (rows, columns)."""
    return np.array(lines, np.float64)


def parquet_columns(path: Path) -> dict[str, Any]:
    """Columns of a parquet table as arrays, by name."""
    table = pq.read_table(path)
    return {name: table.column(name).to_numpy() for name in table.column_names}
