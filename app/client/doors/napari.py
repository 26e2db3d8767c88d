"""Datasets for napari: ``viewer.open("http://…/v1/datasets/scan1", plugin="thalweg")``.

A file that ends in ``.thalweg`` holds such an address in its first line, to be opened by a click.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

from ..datasets.blocking import Dataset
from ..tiles.blocking import View
from ..tiles.lazy import Axis
from .addresses import is_address, open_address

Layer: TypeAlias = tuple[Any, dict[str, Any], str]
"""Values, options and kind of a layer."""

_LARGEST = 64 << 20
"""Bytes of the largest tile that services make."""


def get_reader(path: str | Sequence[str]) -> Callable[[str | Sequence[str]], list[Layer]] | None:
    """What reads these paths; None if they are not addresses, or files of addresses."""
    paths = [path] if isinstance(path, str) else path
    known = [is_address(each) or str(each).endswith(".thalweg") for each in paths]
    return read_layers if paths and all(known) else None


def read_layers(path: str | Sequence[str]) -> list[Layer]:
    """A layer for each path: frames are fetched when they are looked at.

    Raises:
        OSError, ValueError: a file cannot be read, or holds no address.
        ThalwegError: the service refused, or could not be reached.
        ImportError: dask is not installed.
    """
    return [_layer(str(each)) for each in ([path] if isinstance(path, str) else path)]


def _layer(path: str) -> Layer:
    address = path if is_address(path) else _address_in(Path(path))
    with (opened := open_address(address)).client:
        view = opened.view or _frame_by_frame(opened.dataset)
        lazy = view.lazy()
        axes = lazy.axes()
        units = [axis.unit or "pixel" for axis in axes]
        options: dict[str, Any] = {
            "name": opened.dataset.id,
            "axis_labels": [axis.name for axis in axes],
            "scale": [_step(axis) for axis in axes],
            "translate": [float(axis.coordinates[0]) for axis in axes],
            "metadata": {"address": address, "fingerprint": lazy.fingerprint, "units": units},
        }
        if all(map(_is_unit, units)):
            options["units"] = units
        return lazy.to_dask(), options, "image"


def _address_in(path: Path) -> str:
    """The address that a file holds.

    Raises:
        OSError, ValueError: it cannot be read, or does not hold one.
    """
    with path.open(encoding="utf-8") as file:
        line = file.readline(4096).strip()
    if not is_address(line):
        raise ValueError(
            f"{path} should hold an address, http://HOST:PORT/v1/datasets/NAME, not {line!r:.80}"
        )
    return line


def _frame_by_frame(dataset: Dataset) -> View:
    """The whole dataset; tiles are frames, as a viewer shows them."""
    fits = math.prod(dataset.sig_shape) * dataset.dtype.itemsize <= _LARGEST
    shape = (1,) * len(dataset.nav_shape) + dataset.sig_shape
    return dataset.view(tile_shape=shape) if fits else dataset.view()


def _step(axis: Axis) -> float:
    """Distance of two positions; napari draws no layer with a scale of 0."""
    first, last = axis.coordinates[0], axis.coordinates[-1]
    return float(last - first) / max(len(axis.coordinates) - 1, 1) or 1.0


def _is_unit(unit: str) -> bool:
    """Whether napari, which raises otherwise, knows a unit; without pint it is not here."""
    try:
        import_module("pint").get_application_registry().Unit(unit)
    except Exception:  # noqa: BLE001 - pint raises many kinds
        return False
    return True
