"""Views as arrays of dask and xarray: what they hold, fetch and tell, in whatever process."""

from __future__ import annotations

import asyncio
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.client import AsyncClient, Client, Dataset, ProblemError
from app.client.transport.http import Address
from tests.client.running import cutting
from tests.scale import PURE_PYTHON, examples
from tests.server_process import ServerProcess

from .conftest import KEY, SPEC, VALUES

dask: Any = pytest.importorskip("dask", reason="dask is not installed")
pytest.importorskip("xarray", reason="xarray is not installed")

pytestmark = pytest.mark.skipif(PURE_PYTHON, reason="needs the service at its speed")

FEW = settings(
    max_examples=examples(20), suppress_health_check=[HealthCheck.function_scoped_fixture]
)
TILED: Any = {"tile_shape": (2, 3, 5, 4)}
"""Tiles with borders along every axis."""


def index_of(length: int) -> st.SearchStrategy[Any]:
    """Indices of an axis, as NumPy has them, one axis at a time."""
    return st.one_of(
        st.integers(-length, length - 1),
        # Of empty slices backwards xarray itself makes an index out of range.
        st.slices(length).filter(lambda at: (at.step or 1) > 0 or range(length)[at]),
        st.lists(st.integers(-length, length - 1), max_size=4).map(lambda at: np.array(at, int)),
    )


KEYS = st.tuples(*map(index_of, VALUES.shape))


def outer(values: Any, key: tuple[Any, ...]) -> Any:  # noqa: ANN401
    """What an index selects, one axis after the other."""
    for axis in reversed(range(len(key))):
        values = values[(slice(None),) * axis + (key[axis],)]
    return values


@FEW
@given(data=st.data())
def test_an_index_selects_as_in_numpy(scan: Dataset, data: st.DataObject) -> None:
    lazy = scan.view(**TILED).lazy()
    for key in data.draw(st.lists(KEYS, min_size=3, max_size=3)):
        found = lazy.outer(key)
        assert found.dtype == VALUES.dtype
        np.testing.assert_array_equal(found, outer(VALUES, key), strict=True)


BRIGHT = VALUES.sum((2, 3)) % 3 == 0


@pytest.mark.parametrize(
    "key",
    [
        *((..., 3), (..., slice(2, 5), 3), (0, ...), ([4, 1], 7 % 5), (slice(None, None, -2),)),
        *(([1, 2], [3, 4]), ([[0, 1], [5, 1]], [[4], [2]]), (1, ..., [3, 0]), (..., [3, 0], 1)),
        *((2, [1, 4, 1]), (slice(1), [1, 2], 3, [0, 6]), ([1, 2], [0, 1], ..., -1), ([],)),
        *((BRIGHT,), (~BRIGHT, slice(2)), ([True, False] * 3, 2), (VALUES % 400 == 0,)),
        *((0, 1, [2, 3], ..., 1), (np.zeros((6, 5), bool),), ([2], ..., [3], [1], [0]), ()),
    ],
)
def test_an_index_is_that_of_numpy(scan: Dataset, key: tuple[Any, ...]) -> None:
    np.testing.assert_array_equal(scan.view(**TILED).lazy()[key], VALUES[key], strict=True)


def test_numpy_loads_all_of_it(scan: Dataset) -> None:
    lazy = scan.view(**TILED).lazy()
    np.testing.assert_array_equal(np.asarray(lazy), VALUES, strict=True)
    np.testing.assert_array_equal(np.asarray(lazy, "f4"), VALUES.astype("f4"), strict=True)
    assert np.sum(lazy) == VALUES.sum()
    with pytest.raises(ValueError, match="without a copy"):
        np.array(lazy, copy=False)


@pytest.mark.parametrize(
    ("key", "words"),
    [
        (None, "None adds an axis"),
        (True, "True and False are no positions"),
        (0.5, "0.5 is no index: give integers"),
        ((0,) * 5, "5 indices for 4 axes"),
        ((..., 0, ...), r"\.\.\. can stand only once"),
        (np.zeros((5, 6), bool), r"a mask of shape \(5, 6\) is for axes of \(6, 5\)"),
        ([6], "index 6 is out of bounds"),
    ],
)
def test_what_is_no_index(scan: Dataset, key: Any, words: str) -> None:  # noqa: ANN401
    with pytest.raises(IndexError, match=words):
        scan.view(**TILED).lazy()[key]


def test_chunks_are_tiles(scan: Dataset) -> None:
    array = scan.view(**TILED).to_dask()
    assert array.chunks == ((2, 2, 2), (3, 2), (5, 3), (4, 3))
    np.testing.assert_array_equal(array.compute(), VALUES, strict=True)
    np.testing.assert_array_equal(array[5, ::-2, 1:].sum(0).compute(), VALUES[5, ::-2, 1:].sum(0))


@pytest.mark.parametrize(
    "options",
    [
        {"frames": [7, 1, 29]},
        {"mask": VALUES.sum((2, 3)) % 2 == 0},
        {"nav": (slice(1, 6, 2),), "sig": (slice(2, 8), slice(6)), "bin": {"sig": 2}},
    ],
)
def test_views_of_every_kind(scan: Dataset, options: Any) -> None:  # noqa: ANN401
    view = scan.view(**options)
    np.testing.assert_array_equal(view.to_dask().compute(), view.read(), strict=True)


def test_processes_compute_it_and_none_shows_the_key(scan: Dataset) -> None:
    array = scan.view(**TILED).to_dask()
    with dask.config.set(scheduler="processes", num_workers=1):
        np.testing.assert_array_equal(array[1:3].compute(), VALUES[1:3])
    copy = pickle.loads(pickle.dumps(array))  # noqa: S301 - ours
    np.testing.assert_array_equal(copy[0].compute(), VALUES[0])
    told = f"{array!r} {array.dask.layers} {list(array.dask)} {list(dict(array.dask).values())}"
    assert "thalweg" in told
    assert KEY not in told
    assert KEY not in repr(Address.parse("http://a", KEY, 1.0, None))


def test_an_address_is_copied_with_the_contexts_of_its_system() -> None:
    copy = pickle.loads(pickle.dumps(Address.parse("https://a:7/b", KEY, 1.0, None)))  # noqa: S301 - ours
    assert (copy.host, copy.port, copy.path, copy.key) == ("a", 7, "/b", KEY)
    assert copy.context.check_hostname


def test_names_differ_where_data_differs(scan: Dataset) -> None:
    one, same, other = scan.view(**TILED), scan.view(**TILED), scan.view(sig=slice(0, 4))
    assert one.to_dask().name == same.to_dask().name != other.to_dask().name


def test_coordinates_have_their_units(scan: Dataset) -> None:
    array = scan.view(
        nav=(slice(1, 6, 2),), sig=(slice(2, 8), slice(6)), bin={"sig": 2}
    ).to_xarray()
    assert array.dims == ("y", "x", "ky", "kx")
    np.testing.assert_allclose(array.y, [10.5, 11.5, 12.5])
    np.testing.assert_allclose(array.ky, [0.25, 0.45, 0.65])
    assert (array.y.attrs, array.x.attrs) == ({"units": "nm"}, {})
    assert (array.name, array.attrs["fingerprint"]) == ("scan", scan.fingerprint)
    wanted = VALUES[1:6:2, :, 2:8, :6].reshape(3, 5, 3, 2, 3, 2).sum((3, 5))
    np.testing.assert_array_equal(array.sel(y=11.5, x=3), wanted[1, 3])
    listed = scan.view(frames=[4, 2]).to_xarray()
    assert listed.dims == ("frame", "ky", "kx")
    np.testing.assert_array_equal(listed.frame, [4, 2])


def test_the_asynchronous_client_gives_the_same(scan: Dataset, server: ServerProcess) -> None:
    async def arrays() -> tuple[Any, Any]:
        async with AsyncClient(server.url, KEY) as client:
            view = await client.datasets[scan.id].view(**TILED)
            return await view.to_dask(), await view.to_xarray()

    one, other = asyncio.run(arrays())
    assert one.name == scan.view(**TILED).to_dask().name
    np.testing.assert_array_equal(one.compute(), VALUES)
    np.testing.assert_array_equal(other[..., 3].compute(), VALUES[..., 3])


def test_data_that_changes_is_an_error(client: Client, roots: Path) -> None:
    path = roots / "changing.raw"
    VALUES.tofile(path)
    array = client.datasets.register(SPEC, id="changing", files=[path.name]).view().to_dask()
    view = client.datasets["changing"].view()
    lazy = view.lazy()
    np.testing.assert_array_equal(array.compute(), VALUES)
    (VALUES + 1).tofile(path)
    client.datasets["changing"].delete()
    client.datasets.register(SPEC, id="changing", files=[path.name])
    for read in (array.compute, lambda: lazy[0], lazy.axes):
        with pytest.raises(ProblemError) as caught:
            read()
        assert caught.value.code == "data-changed"


def test_a_view_that_is_gone(client: Client, scan: Dataset) -> None:
    view = scan.view(sig=slice(0, 3))
    array = view.to_dask()
    scan.delete_view(view.id)
    with pytest.raises(ProblemError, match="there is no view"):
        array.compute()
    with pytest.raises(IndexError, match="5 indices for 4 axes"):
        _ = client.datasets["scan"].view().lazy()[0, 0, 0, 0, 0]


def test_cuts_are_survived(server: ServerProcess, scan: Dataset) -> None:
    with (
        cutting(server, 3, 12, 1500, ("down",)) as proxy,
        Client(f"http://127.0.0.1:{proxy.port}", KEY) as client,
    ):
        array = client.datasets[scan.id].view(**TILED).to_dask()
        np.testing.assert_array_equal(array.compute(scheduler="synchronous"), VALUES)
