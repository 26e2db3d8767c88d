"""Layers that napari shows: lazy, in their place, with their units; napari need not be there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import app.client.doors
from app.client import Client, ProblemError
from app.client.doors.napari import get_reader
from tests.scale import PURE_PYTHON
from tests.server_process import ServerProcess

from .conftest import AXES, KEY, SPEC, VALUES

pytest.importorskip("dask", reason="dask is not installed")
pytestmark = pytest.mark.skipif(PURE_PYTHON, reason="needs the service at its speed")


def layer(path: str) -> tuple[Any, dict[str, Any]]:
    reader = get_reader(path)
    assert reader is not None
    ((data, options, kind),) = reader(path)
    assert kind == "image"
    return data, options


def test_frames_are_chunks_in_their_place(address: str) -> None:
    data, options = layer(address)
    assert data.chunksize == (1, 1, 8, 7)
    np.testing.assert_array_equal(data[3, 2], VALUES[3, 2])
    np.testing.assert_array_equal(data, VALUES)
    assert options["axis_labels"] == ["y", "x", "ky", "kx"]
    np.testing.assert_allclose(options["scale"], [0.5, 1, 0.1, 1])
    assert options["translate"] == [10, 0, 0, 0]
    assert options["metadata"]["units"] == ["nm", "pixel", "1/nm", "not a unit"]
    assert "units" not in options  # napari would refuse the last
    assert KEY not in repr(options)


def test_views_keep_their_scale(client: Client, server: ServerProcess) -> None:
    scan = client.datasets.register(
        {**SPEC, "axes": [*AXES[:3], {"name": "kx"}]}, id="known", files=["scan.raw"]
    )
    address = f"{server.url}/v1/datasets/known"
    pint: Any = pytest.importorskip("pint", reason="pint, which napari brings, is not installed")
    view = scan.view(nav=slice(1, 6, 2), sig=(slice(2, 4), slice(3, 4)), bin={"nav": 1})
    for path in (f"{address}/views/{view.id}", view.zarr_url):
        data, options = layer(path)
        np.testing.assert_array_equal(data, view.read())
        np.testing.assert_allclose(options["scale"], [1, 1, 0.1, 1])
        np.testing.assert_allclose(options["translate"], [10.5, 0, 0.2, 3])
        assert all(map(pint.Unit, options["units"]))


def test_files_that_hold_an_address(address: str, tmp_path: Path) -> None:
    path = tmp_path / "scan.thalweg"
    path.write_text(f"{address}\nof last week\n")
    data, _ = layer(str(path))
    np.testing.assert_array_equal(data[0, 0], VALUES[0, 0])
    reader = get_reader([address, str(path)])
    assert reader is not None
    assert len(reader([address, str(path)])) == 2
    path.write_text("scan1")
    with pytest.raises(ValueError, match="should hold an address, http://HOST:PORT/v1/datasets"):
        layer(str(path))


def test_what_is_not_ours(address: str) -> None:
    assert get_reader("picture.tif") is None
    assert get_reader([address, "picture.tif"]) is None
    assert get_reader([]) is None
    with pytest.raises(ProblemError, match="there is no dataset"):
        layer(f"{address}x")


def test_the_manifest_is_valid() -> None:
    npe2: Any = pytest.importorskip("npe2", reason="npe2 is not installed")
    path = Path(app.client.doors.__file__).with_name("napari.yaml")
    (reader,) = npe2.PluginManifest.from_file(path).contributions.readers
    assert "*.thalweg" in reader.filename_patterns
