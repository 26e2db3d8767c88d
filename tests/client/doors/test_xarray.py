"""Datasets opened by xarray: lazy, selected as in NumPy, with no more fetched than is selected."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from app.client import Client, Dataset, ProblemError
from app.client.transport.http import Connection
from tests.scale import PURE_PYTHON

from .conftest import KEY, SPEC, VALUES
from .test_lazy import FEW, KEYS, outer

xarray: Any = pytest.importorskip("xarray", reason="xarray is not installed")

from app.client.doors.xarray import ThalwegBackend  # noqa: E402

pytestmark = [
    pytest.mark.skipif(PURE_PYTHON, reason="needs the service at its speed"),
    # xarray indexes dask arrays of lists with more chunks than before.
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


@contextmanager
def counting(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Counts the bytes of the bodies of answers."""
    counts: list[int] = []
    receive = Connection.receive

    def counted(connection: Connection, view: memoryview) -> int:
        counts.append(receive(connection, view))
        return counts[-1]

    with monkeypatch.context() as patch:
        patch.setattr(Connection, "receive", counted)
        yield counts


@FEW
@given(key=KEYS)
def test_an_index_selects_as_in_numpy(address: str, key: tuple[Any, ...]) -> None:
    with xarray.open_dataset(address, engine=ThalwegBackend) as opened:
        found = opened.data[key].values
    np.testing.assert_array_equal(found, outer(VALUES, key))
    assert found.dtype == VALUES.dtype


def test_what_a_dataset_is_like(address: str, scan: Dataset) -> None:
    with xarray.open_dataset(address, engine=ThalwegBackend) as opened:
        assert dict(opened.sizes) == {"y": 6, "x": 5, "ky": 8, "kx": 7}
        assert opened.data.attrs == {"fingerprint": scan.fingerprint}
        np.testing.assert_allclose(opened.y, 10 + 0.5 * np.arange(6))
        assert opened.ky.attrs == {"units": "1/nm"}
        near = opened.data.sel(y=11.1, method="nearest").isel(x=2)
        np.testing.assert_array_equal(near, VALUES[2, 2])
        pairs = {"y": xarray.DataArray([5, 2], dims="p"), "x": xarray.DataArray([1, 3], dims="p")}
        np.testing.assert_array_equal(opened.data.isel(pairs), VALUES[[5, 2], [1, 3]])
        assert "data" not in ThalwegBackend().open_dataset(address, drop_variables="data")
    assert KEY not in repr(opened) + repr(opened.data.variable._data)


def test_nothing_is_fetched_but_what_is_used(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with xarray.open_dataset(address, engine=ThalwegBackend) as opened:
        for key in ((2, 3), (slice(None), [0, 4], slice(2, 5)), (slice(1, 6, 2), 0, 3, 5)):
            with counting(monkeypatch) as counts:
                found = opened.data[key].values
            assert 0 <= sum(counts) - found.nbytes < 2500  # the plan, and heads of frames
        with counting(monkeypatch) as counts:
            assert opened.data[3:3].values.shape == (0, 5, 8, 7)
        assert not counts


def test_chunks_are_those_of_tiles_and_processes_may_read_them(address: str) -> None:
    pytest.importorskip("dask", reason="dask is not installed")
    with xarray.open_dataset(address, engine=ThalwegBackend, chunks={}) as opened:
        assert opened.data.chunks == ((6,), (5,), (8,), (7,))
        np.testing.assert_array_equal(opened.data, VALUES)
        copy = pickle.loads(pickle.dumps(opened.data[1:3]))  # noqa: S301 - ours
        np.testing.assert_array_equal(copy, VALUES[1:3])


def test_views_and_stores_of_views(scan: Dataset, address: str) -> None:
    view = scan.view(
        nav=slice(0, 4), sig=(slice(8), slice(6)), bin={"sig": 2}, tile_shape=(2, 2, 2, 2)
    )
    for url in (f"{address}/views/{view.id}", view.zarr_url, view.zarr_url.rpartition(".")[0]):
        with xarray.open_dataset(url, engine=ThalwegBackend) as opened:
            np.testing.assert_array_equal(opened.data, view.read())
            np.testing.assert_array_equal(
                opened.data[3, 2:, :, [2, 0]], view.read()[3, 2:, :, [2, 0]].transpose(1, 2, 0)
            )
    with pytest.raises(ValueError, match="a view has its own options: dtype"):
        xarray.open_dataset(view.zarr_url, engine=ThalwegBackend, dtype="f4")
    with pytest.raises(ProblemError, match="the data had the fingerprint 00 and has"):
        xarray.open_dataset(f"{view.zarr_url.rpartition('.')[0]}.00", engine=ThalwegBackend)


def test_options_are_those_of_views(address: str) -> None:
    with xarray.open_dataset(address, engine=ThalwegBackend, dtype="f4", key=KEY) as opened:
        assert opened.data.dtype == "f4"
        np.testing.assert_array_equal(opened.data[4, 1], VALUES[4, 1])


def test_positions_without_a_frame(client: Client, roots: Path) -> None:
    VALUES.reshape(30, 8, 7)[:17].tofile(roots / "cut.raw")
    spec = {**SPEC, "partial": True}
    client.datasets.register(spec, id="cut", files=["cut.raw"])
    url = f"{client.datasets._connector.url}/v1/datasets/cut"
    with pytest.raises(ValueError, match="no frame: give missing='zero' or 'nan'"):
        xarray.open_dataset(url, engine=ThalwegBackend)
    with xarray.open_dataset(url, engine=ThalwegBackend, missing="zero") as opened:
        wanted = VALUES.copy()
        wanted.reshape(30, 8, 7)[17:] = 0
        np.testing.assert_array_equal(opened.data, wanted)
        np.testing.assert_array_equal(opened.data[[0, 5, 3], 2], wanted[[0, 5, 3], 2])


def test_data_that_changes_is_an_error(client: Client, roots: Path) -> None:
    path = roots / "other.raw"
    VALUES.tofile(path)
    client.datasets.register(SPEC, id="other", files=[path.name])
    url = f"{client.datasets._connector.url}/v1/datasets/other"
    with xarray.open_dataset(url, engine=ThalwegBackend) as opened:
        np.testing.assert_array_equal(opened.data[0], VALUES[0])
        client.datasets["other"].delete()
        (VALUES + 1).tofile(path)
        client.datasets.register(SPEC, id="other", files=[path.name])
        with pytest.raises(ProblemError) as caught:
            opened.data[1].load()
    assert caught.value.code == "data-changed"


def test_what_is_no_dataset(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    guess = ThalwegBackend().guess_can_open
    found = [guess(text) for text in (address, f"{address}/", "a.nc", "http://a/zarr/b", Path("a"))]
    assert found == [True, True, False, False, False]
    for text in ("http://a/v1/dataset/x", "scan.nc", "ftp://a/v1/datasets/x"):
        with pytest.raises(ValueError, match="no address of a dataset: http://HOST:PORT/v1"):
            xarray.open_dataset(text, engine=ThalwegBackend)
    with pytest.raises(ProblemError, match="there is no dataset"):
        xarray.open_dataset(f"{address}x", engine=ThalwegBackend)
    monkeypatch.delenv("THALWEG_KEY")
    with pytest.raises(ProblemError, match=r"Give the key"):
        xarray.open_dataset(address, engine=ThalwegBackend)
