"""Reductions, with either client."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.client import ConnectionFailed, Dataset, ProblemError, ProtocolError
from app.client.tiles.stream import reduction_json

from ..conftest import Connect
from ..fakes.exchange import Fault
from ..fakes.frames import ERROR, with_beats
from ..fakes.service import FakeService
from ..fakes.tiles import VALUES, changed

SUM = VALUES.sum((0, 1))


def test_results_by_name(service: FakeService, scan: Dataset) -> None:
    seen: list[tuple[int, int]] = []
    service.script[:] = [Fault(cut=300)]
    got = scan.reduce({"op": "sum", "over": "frames"}, progress=lambda *n: seen.append(n))
    assert list(got) == ["sum"]
    assert np.array_equal(got["sum"], SUM)
    assert seen[-1] == (1, 2)
    results = scan.reduce("sum", scan.view())
    assert np.array_equal(results["sum"], SUM)
    with pytest.raises(KeyError, match="no result 'mean': there are sum"):
        results["mean"]


def test_reductions_in_short_are_left_to_the_service() -> None:
    assert reduction_json("disk:1,2.5,3") == "disk:1,2.5,3"
    assert reduction_json({"op": "sum"}) == {"op": "sum"}
    with pytest.raises(TypeError, match="not a list"):
        reduction_json([1])  # type: ignore[arg-type]


def test_weights_of_detectors_may_be_arrays() -> None:
    image = np.arange(6, dtype=">i2").reshape(2, 3)
    disk = {"disk": {"centre": [1, 2], "radius": 1}}
    given = [disk, {"weights": image}, {"weights": image.tolist()}]
    content: Any = reduction_json({"op": "virtual", "detectors": given})
    first, second, third = content["detectors"]
    described = second["weights"]
    assert first == disk
    assert (described["dtype"], described["shape"]) == (">i2", [2, 3])
    assert base64.b64decode(described["data"]) == image.tobytes()
    assert third["weights"]["shape"] == [2, 3]
    assert reduction_json(content) == content
    for wrong in (np.ma.masked_array(image, image > 3), "w.npy", Path("w.npy")):
        with pytest.raises(TypeError, match="weights are a plain array, not "):
            reduction_json({"op": "virtual", "detectors": [{"weights": wrong}]})


def test_numpy_takes_no_handle_for_an_array(scan: Dataset) -> None:
    with pytest.raises(TypeError, match=r"view\(\)\.read\(\)"):
        np.asarray(scan)
    with pytest.raises(TypeError, match=r"view\.read\(\)"):
        np.array(scan.view())


WRONG: list[Any] = [
    lambda frames: frames[:2],
    lambda frames: [frames[1], *frames[1:]],
    lambda frames: frames[2:],
    changed(1, name=None),
    changed(1, arrays=[]),
    changed(2, reason="drain"),
    changed(2, reason="well"),
]


@pytest.mark.parametrize("wrong", range(len(WRONG)))
def test_an_answer_that_is_wrong_is_asked_for_again(
    service: FakeService,
    connect: Connect,
    scan: Dataset,
    wrong: int,
) -> None:
    service.scan.bend = bend = WRONG[wrong]
    assert np.array_equal(scan.reduce("sum")["sum"], SUM)
    assert len(service.streams) == 2
    service.scan.bend = bend
    with pytest.raises((ProtocolError, ConnectionFailed)):
        connect(service, retries=0).datasets["scan"].reduce("sum")


def test_heartbeats_may_come_between_any_frames(service: FakeService, scan: Dataset) -> None:
    service.scan.bend = with_beats
    seen: list[tuple[int, int]] = []
    assert np.array_equal(scan.reduce("sum", progress=lambda *n: seen.append(n))["sum"], SUM)
    assert len(service.streams) == 1
    assert seen == [(1, 2)]


def test_a_refusal_is_not_repeated(service: FakeService, scan: Dataset) -> None:
    problem = {"status": 422, "code": "options", "detail": "no"}
    service.scan.bend = lambda _: [(ERROR, {"problem": problem}, b"")]
    with pytest.raises(ProblemError, match="no"):
        scan.reduce("none")
    assert len(service.streams) == 1


def test_a_cut_at_every_byte(service: FakeService, scan: Dataset) -> None:
    cut = 0
    while True:
        service.script[:] = [Fault(cut=cut)]
        before = len(service.streams)
        assert np.array_equal(scan.reduce("sum")["sum"], SUM)
        if len(service.streams) == before + 1 and cut > 400:
            break
        cut += 7
