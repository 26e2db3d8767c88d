# mypy: disable-error-code="import-not-found, misc, no-untyped-call"
"""Rooms: large tensors reach the main process as they are, and their memory is used again."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: these are not run")

from torch.utils.data import DataLoader  # noqa: E402

from app.client.torch import IterableDataset  # noqa: E402
from app.client.torch import dataset as _dataset  # noqa: E402
from app.client.torch import rooms as _rooms  # noqa: E402
from app.client.torch.rooms import Rooms, tensor_in  # noqa: E402
from tests.client.fakes.pipelines import SPEC  # noqa: E402
from tests.client.fakes.service import FakeService  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")
DTYPE = torch.int32


@pytest.fixture
def rooms(monkeypatch: pytest.MonkeyPatch) -> Rooms:
    """Two rooms of four pages."""
    monkeypatch.setattr(_rooms, "_MOST", 8 * _rooms._PAGE)
    return Rooms()


def values(start: int) -> Any:  # noqa: ANN401
    return np.arange(start, start + 2048, dtype=np.int32)


def put(rooms: Rooms, start: int) -> Any:  # noqa: ANN401
    return rooms.put(values(start).view(np.uint8), 3 * _rooms._PAGE)


def test_rooms_are_used_again_once_nothing_refers_to_them(rooms: Rooms) -> None:
    places = [put(rooms, 0), put(rooms, 1)]
    assert put(rooms, 2) is None
    assert rooms.put(np.zeros(4 * _rooms._PAGE, np.uint8), 1) is None
    tensors = [tensor_in(place, DTYPE, (2, 1024)) for place in places]
    assert put(rooms, 2) is None
    part = tensors[0][1, 5:]
    del tensors[0]
    assert put(rooms, 2) is None
    assert part[0] == 1024 + 5
    del part
    again = put(rooms, 2)
    assert again[2] == places[0][2]
    assert torch.equal(tensor_in(again, DTYPE, (2048,)), torch.from_numpy(values(2)))
    assert torch.equal(tensors[0].flatten(), torch.from_numpy(values(1)))


def test_what_is_no_longer_in_its_room_is_told(rooms: Rooms) -> None:
    place = put(rooms, 0)
    rooms._own.clear()  # as of a worker that ended
    assert put(rooms, 1)[2] == place[2]
    with pytest.raises(RuntimeError, match="a batch is gone"):
        tensor_in(place, DTYPE, (2048,))
    file, inode, *rest = put(Rooms(), 0)
    with pytest.raises(RuntimeError, match="a batch is gone"):
        tensor_in((rooms._file, inode, *rest), DTYPE, (2048,))
    with pytest.raises(RuntimeError, match="cannot be mapped"):
        tensor_in((-1, inode, *rest), DTYPE, (2048,))
    assert file != rooms._file


def in_a_fork(act: Any) -> int:  # noqa: ANN401
    child = os.fork()
    if not child:
        act()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    return child


def test_rooms_of_workers_that_ended_are_claimed_and_leases_are_of_one_process(
    rooms: Rooms,
) -> None:
    held: list[Any] = []
    in_a_fork(lambda: (put(rooms, 0), put(rooms, 1)))
    place = put(rooms, 2)
    held.append(tensor_in(place, DTYPE, (2048,)))
    in_a_fork(held.clear)
    assert put(rooms, 3)[2] != place[2]
    assert torch.equal(held[0], torch.from_numpy(values(2)))
    child = os.fork()
    if not child:
        signal.pause()
    try:
        rooms._own.clear()
        held.clear()
        rooms._numbers[_rooms._OWNERS] = child
        assert put(rooms, 4) is None  # another worker, which lives, has them
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert put(rooms, 4) is not None


@pytest.fixture
def service() -> Iterator[FakeService]:
    with FakeService() as fake:
        fake.pipeline.items, fake.pipeline.epochs = 26, 5
        yield fake


@pytest.mark.parametrize("most", [4, 10_000])
def test_batches_of_workers_are_the_same_kept_or_dropped(
    service: FakeService, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(_dataset, "_SMALL", 0)
    monkeypatch.setattr(_rooms, "_MOST", most * _rooms._PAGE)
    alone = list(IterableDataset(service.url, SPEC))
    dataset = IterableDataset(service.url, SPEC)
    loader = DataLoader(dataset, batch_size=None, num_workers=2)

    def check(got: Any, wanted: Any) -> None:  # noqa: ANN401
        assert got.token == wanted.token
        for name, tensor in wanted.tensors.items():
            assert torch.equal(got.tensors[name], tensor)

    for got, wanted in zip(loader, alone, strict=True):
        check(got, wanted)
    kept = list(loader)
    for _ in range(2):
        assert len([*loader]) == len(kept)
    for got, wanted in zip(kept, alone, strict=True):
        check(got, wanted)
    assert dataset._rooms is not None
    assert np.count_nonzero(dataset._rooms._numbers[_rooms._OWNERS]) >= 4
    del got, kept
    for _ in loader:
        pass
