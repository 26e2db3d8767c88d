"""The catalogue of datasets, with either client."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.client import Client, Dataset, ProblemError, ProtocolError, View

from ..fakes.service import FakeService
from ..fakes.tiles import VALUES, FakeScan


def test_listing_and_registering(client: Client, scan: Dataset) -> None:
    assert client.datasets.list() == ["a", "b", "scan"]
    info = scan.info
    assert (info["nav_shape"], info["sig_shape"], info["dtype"]) == ([2, 3], [4, 3], "<u2")
    made = client.datasets.register({"id": "new"}, files=[Path("a.raw")], dtype=np.uint16)
    assert (made.id, made.info["files"], made.info["dtype"]) == ("new", ["a.raw"], "<u2")
    with pytest.raises(ProblemError):
        _ = client.datasets["none"].info


def test_what_a_dataset_says(service: FakeService) -> None:
    with Client(service.url) as client:
        assert list(client.datasets) == ["a", "b", "scan"]
        scan = client.datasets["scan"]
        assert not service.seen[3:]
        assert (scan.nav_shape, scan.sig_shape) == (VALUES.shape[:2], VALUES.shape[2:])
        assert (scan.dtype, scan.fingerprint) == (VALUES.dtype, "f0")
        assert [seen.path for seen in service.seen].count("/v1/datasets/scan") == 1


@pytest.mark.parametrize(
    "pages",
    [
        [{"datasets": None, "pipelines": None}],
        [{"datasets": ["b", 3], "pipelines": ["b", 3]}],
        [{}],
        [{"datasets": ["b"], "pipelines": ["b"], "after": "b"}] * 2,
        [{"datasets": [], "pipelines": [], "after": 3}],
    ],
)
def test_listings_that_cannot_be(
    service: FakeService, client: Client, pages: list[dict[str, Any]]
) -> None:
    for ids in (client.datasets.list, client.pipelines):
        service.pages = list(pages)
        with pytest.raises(ProtocolError, match=r"no list of|does not go on"):
            ids()
        assert not service.pages


def test_listings_of_several_pages(service: FakeService, client: Client) -> None:
    for kind, ids in (("datasets", client.datasets.list), ("pipelines", client.pipelines)):
        service.pages = [{kind: ["a", "b"], "after": "b"}, {kind: ["c"], "after": None}]
        assert ids() == ["a", "b", "c"]
        assert [seen.query.get("after") for seen in service.seen[-2:]] == [None, "b"]


def test_slices_need_a_shape(service: FakeService, client: Client) -> None:
    scan = client.datasets.register(id="odd", nav_shape="x")
    with pytest.raises(ProtocolError, match="nav_shape"):
        scan.view(nav=slice(1))
    assert scan.view(frames=[1]).spec == {"select": {"frames": [1]}}
    assert len(service.seen) == 1


def test_pictures(service: FakeService, scan: Dataset, tmp_path: Path) -> None:
    scan.image(tmp_path / "a.png", "com", scan.view(), low=2.0)
    assert (tmp_path / "a.png").read_bytes().endswith(b"xyz")
    assert service.seen[-2].query == {"reduction": "com", "view": "{}", "low": "2.0"}
    scan.image(tmp_path / "b.png")
    assert service.seen[-2].query == {}
    service.scan.picture = b"<html>"
    with pytest.raises(ProtocolError, match="not a picture"):
        scan.image(tmp_path / "c.png")
    service.scan.picture = b"\x89PNG\r\n\x1a\n"
    (tmp_path / "d.png.partial").mkdir()
    with pytest.raises(IsADirectoryError):
        scan.image(tmp_path / "d.png")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.png", "b.png", "d.png.partial"]


def test_deleting(client: Client, service: FakeService, scan: Dataset) -> None:
    scan.delete_view("v/1")
    assert service.seen[-1].target == "/v1/datasets/scan/views/v%2F1"
    scan.delete()
    assert [seen.method for seen in service.seen] == ["DELETE"] * 2
    assert service.scan.deleted == ["v%2F1", "scan"]
    for call in (scan.delete, lambda: scan.delete_view("v/1"), client.datasets["none"].delete):
        with pytest.raises(ProblemError) as refused:
            call()
        assert refused.value.status == 404


def test_a_deletion_whose_answer_was_lost(client: Client, service: FakeService) -> None:
    """The next try finds nothing: that was the first one."""
    service.scan.cut_deletions = 1
    client.datasets["scan"].delete()
    assert len(service.seen) == 2


def test_a_handle_is_of_the_data_as_it_was(
    service: FakeService, client: Client, scan: Dataset, tmp_path: Path
) -> None:
    assert np.array_equal(scan.view().read(), VALUES)
    view = scan.view()
    assert view.plan.tiles
    service.scan.fingerprint = "f1"
    reads: list[Callable[[], object]] = [
        view.read,
        scan.view().read,
        lambda: scan.view().id,
        lambda: scan[1, 2],
        lambda: scan.reduce("sum"),
        lambda: scan.image(tmp_path / "a.png"),
    ]
    for read in reads:
        with pytest.raises(ProblemError) as changed:
            read()
        assert (changed.value.code, changed.value.status) == ("data-changed", 412)
        assert "after" not in str(changed.value)
    state = tmp_path / "w.state"
    with pytest.raises(ProblemError, match=f"anew, and remove {state} to start over"):
        view.to_npy(tmp_path / "a.npy", state=state)
    assert not list(tmp_path.iterdir())
    assert np.array_equal(client.datasets["scan"].view().read(), VALUES)
    growing = client.datasets.register(id="scan", growing=True)
    service.scan.fingerprint = "f2"
    assert np.array_equal(growing.view().read(), VALUES)
    assert growing.reduce("sum")


def test_slices_end_with_the_axis_as_in_numpy(
    scan: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A view refuses them."""
    asked: list[Any] = []
    summary = FakeScan.summary

    def note(self: FakeScan, view: Any) -> dict[str, Any]:  # noqa: ANN401
        asked.append(view)
        return summary(self, {})

    monkeypatch.setattr(FakeScan, "summary", note)
    scan[0:100, -7:2]
    assert asked == [{"select": {"nav": [[0, 2, 1], [0, 2, 1]]}}]
    with pytest.raises(IndexError, match="nav goes to 100"):
        scan.view(nav=slice(0, 100))


@pytest.mark.parametrize(
    "index",
    [slice(1, 1), slice(5, 5), (1, slice(2, 0)), [], (slice(None), []), np.zeros((2, 3), bool)],
)
def test_no_positions_have_no_frames_as_in_numpy(scan: Dataset, index: Any) -> None:  # noqa: ANN401
    frames = scan[index]
    assert (frames.shape, frames.dtype) == (VALUES[index].shape, VALUES.dtype)


def test_what_is_no_index_of_the_scan(scan: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    for wrong in ("5,7", 0.5):
        with pytest.raises(IndexError, match=f"{wrong!r} is no index: give integers"):
            scan[wrong]
    for index in (True, np.True_, (0, False)):
        with pytest.raises(IndexError, match="True and False are no positions"):
            scan[index]
    asked: list[Any] = []
    summary = FakeScan.summary

    def note(self: FakeScan, view: Any) -> dict[str, Any]:  # noqa: ANN401
        asked.append(view)
        return summary(self, {})

    monkeypatch.setattr(FakeScan, "summary", note)
    with pytest.raises(ProtocolError):  # the small scan answers with all, in its own shape
        scan[::-1]
    assert asked == [{"select": {"frames": [3, 4, 5, 0, 1, 2]}}]


def test_what_cannot_be_reduced(scan: Dataset) -> None:
    for wrong, found in ((VALUES > 7, "ndarray"), (None, "NoneType")):
        with pytest.raises(TypeError, match=f"a name such as 'com' or a dict, not a {found}"):
            scan.reduce(wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"view is a dict: pass the result of view\("):
        scan.reduce("sum", view={"nav": 3})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="NaN or infinite"):
        scan.reduce({"op": "virtual", "detectors": [{"disk": {"centre": [np.nan, 1]}}]})


def test_a_view_of_another_dataset_is_not_reduced(service: FakeService) -> None:
    with Client(service.url) as client:
        scan = client.datasets["scan"]
        other = View(scan._connector, "other", {})
        for reduce in (partial(scan.reduce, "sum"), partial(scan.image, "sum.png")):
            with pytest.raises(ValueError, match="of the dataset 'other', not of 'scan'"):
                reduce(view=other)
    assert not service.seen


@pytest.mark.parametrize("name", ["x.jpg", "sum"])
def test_endings_tell_the_truth(scan: Dataset, tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match=r"must end in \.png"):
        scan.image(tmp_path / name)
    with pytest.raises(ValueError, match=r"must end in \.npy or \.raw"):
        scan.view().to_npy(tmp_path / name)
    with pytest.raises(FileNotFoundError, match="there is no directory"):
        scan.view().to_npy(tmp_path / "none" / "a.npy")


def test_the_type_is_that_of_the_values_that_come(client: Client) -> None:
    assert client.datasets.register(id="scan", corrected_dtype="<f4").dtype == np.float32


@pytest.mark.parametrize("image", [np.ones((99, 99)), [[0.5, 2.0]]])
def test_images_of_corrections_are_files(
    service: FakeService, client: Client, image: object
) -> None:
    with pytest.raises(TypeError, match="the path of gain") as refused:
        client.datasets.register(id="new", corrections={"gain": image, "excluded": [[1, 2]]})
    assert len(str(refused.value)) < 200
    assert not service.seen
    client.datasets.register(id="new", corrections={"gain": Path("a"), "excluded": [[1, 2]]})
