"""Objects as a dataset has them: read in blocks, looked at once a second, staged for decoders."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator

import numpy as np
import obstore
import pytest
from obstore.store import MemoryStore

from app.datasets.files import object_set
from app.datasets.files.fingerprints import fingerprint
from app.datasets.files.object_set import ObjectSet, ObjectTop
from app.engine.request_budget import BudgetLimits, RequestBudget
from app.errors import DataChangedError, TooLargeError
from core.errors import BudgetExceededError
from tests.app.datasets.files.bucket import bucket_over, objects_of
from tests.descriptors import nothing_left_open

RNG = np.random.default_rng(0)
CONTENTS = {"d/a.raw": RNG.bytes(9 << 20), "d/b.raw": RNG.bytes(1000), "d/empty": b""}


@pytest.fixture
def store() -> MemoryStore:
    made = MemoryStore()
    for name, content in CONTENTS.items():
        obstore.put(made, name, content)
    return made


@pytest.fixture
def files(store: MemoryStore) -> Iterator[ObjectSet]:
    with objects_of(store, list(CONTENTS)) as made:
        yield made


def look_again(files: ObjectSet) -> None:
    files._next_look = 0.0
    files.verify()


def asked(files: ObjectSet, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int, int]]:
    """What is asked of the store from now on."""
    seen: list[tuple[int, int, int]] = []
    whole = files.part

    def part(*where: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
        seen.append(where)  # type: ignore[arg-type]
        return whole(*where)

    monkeypatch.setattr(files, "part", part)
    return seen


def test_names_and_sizes(files: ObjectSet) -> None:
    assert [(info.name, info.size) for info in files.infos] == [
        ("a.raw", 9 << 20),
        ("b.raw", 1000),
        ("empty", 0),
    ]


@pytest.mark.parametrize("seed", range(20))
def test_bytes_anywhere(files: ObjectSet, seed: int) -> None:
    rng = np.random.default_rng(seed)
    content = CONTENTS["d/a.raw"]
    for longest in (1, 100, 70_000, 9 << 20):
        start = int(rng.integers(0, len(content)))
        stop = start + int(rng.integers(0, longest + 1))
        assert files.read(0, start, stop) == content[start:stop]
    assert files.read(1, 990, 2000) == CONTENTS["d/b.raw"][990:]
    assert files.read(2, 0, 10) == files.read(1, 1000, 1010) == b""


def test_headers_are_read_in_blocks_and_those_of_a_series_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = MemoryStore()
    for number in range(20):
        obstore.put(store, f"{number}.raw", bytes([number]) * 100_000)
    files = objects_of(store, ["*.raw"])
    seen = asked(files, monkeypatch)
    for number in range(20):
        for at in (0, 8, 512, 60_000):
            assert files.read(number, at, at + 8) == bytes([number]) * 8
    assert len(seen) == 20
    assert files.read(3, 70_000, 70_010) == bytes([3]) * 10
    assert len(seen) == 21


def test_a_block_that_could_not_be_read_is_read_again(
    files: ObjectSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = files.part
    monkeypatch.setattr(files, "part", lambda *_: pytest.fail("now"))
    with pytest.raises(pytest.fail.Exception):
        files.read(1, 0, 4)
    monkeypatch.setattr(files, "part", whole)
    assert files.read(1, 0, 4) == CONTENTS["d/b.raw"][:4]


def test_changes_are_seen_within_a_second(files: ObjectSet, store: MemoryStore) -> None:
    look_again(files)
    obstore.put(store, "d/b.raw", b"other")
    files.verify()
    with pytest.raises(DataChangedError, match=r"'b.raw' was modified"):
        look_again(files)
    with pytest.raises(DataChangedError):
        files.verify()
    obstore.delete(store, "d/b.raw")
    with pytest.raises(DataChangedError, match=r"'b.raw' was removed"):
        files.verify()


def test_looks_that_take_long_are_rare(files: ObjectSet, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[float] = []

    def look() -> None:
        looks.append(time.monotonic())
        time.sleep(0.2)

    monkeypatch.setattr(files, "_look", look)
    look_again(files)
    assert files._next_look >= looks[0] + 2
    files.verify()
    assert len(looks) == 1


@pytest.mark.parametrize("change", ["modified", "removed"])
def test_many_are_listed_rather_than_looked_at(
    change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore()
    for number in range(70):
        obstore.put(store, f"d/{number % 7}/{number}.raw", b"0123")
    files = objects_of(store, ["d/**"])
    monkeypatch.setattr(object_set, "_seen", lambda *_: pytest.fail("one by one"))
    look_again(files)
    if change == "modified":
        obstore.put(store, "d/3/3.raw", b"4567")
    else:
        obstore.delete(store, "d/3/3.raw")
    with pytest.raises(DataChangedError, match=f"was {change}"):
        look_again(files)


def test_fingerprints_tell_contents_and_names_apart(store: MemoryStore) -> None:
    def of(*names: str) -> bytes:
        return fingerprint(objects_of(store, names))

    first = of("d/a.raw")
    assert first == of("d/a.raw")
    assert len({first, of("d/b.raw"), of("d/a.raw", "d/b.raw"), of("d/b.raw", "d/a.raw")}) == 4
    obstore.put(store, "d/a.raw", CONTENTS["d/a.raw"][::-1])
    assert of("d/a.raw") != first


def test_a_fingerprint_reads_nothing(files: ObjectSet, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = asked(files, monkeypatch)
    assert len(fingerprint(files)) == 8
    assert not seen


def test_decoders_get_copies_in_memory(files: ObjectSet) -> None:
    with nothing_left_open(), files.staged([0, 1, 2, 0]) as descriptors:
        sizes = [os.fstat(each).st_size for each in descriptors]
        assert sizes == [9 << 20, 1000, 0, 9 << 20]
        assert os.pread(descriptors[3], 9 << 20, 0) == CONTENTS["d/a.raw"]


def test_copies_are_in_the_budget_and_bounded(
    files: ObjectSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    never = threading.Event()
    request = RequestBudget(BudgetLimits(memory=1 << 20), never, never)

    def stage() -> None:
        with files.staged([0]):
            pytest.fail("it fits")

    with pytest.raises(BudgetExceededError):
        request.run(stage)
    monkeypatch.setattr(object_set, "MAX_STAGED", 1 << 20)
    with pytest.raises(TooLargeError, match="read whole from a bucket"):
        stage()


def test_a_change_while_it_is_copied(files: ObjectSet, store: MemoryStore) -> None:
    obstore.put(store, "d/b.raw", b"other")
    with nothing_left_open(), pytest.raises(DataChangedError), files.staged([0, 1]):
        pytest.fail("it is another")


def test_a_store_has_no_other_objects() -> None:
    store = MemoryStore()
    for name in ("s/zarr.json", "s/a/zarr.json", "s/a/c/0", "s/b/zarr.json", "s/.x", "t/c"):
        obstore.put(store, name, name.encode())
    top = ObjectTop(bucket_over(store), "s")
    assert sorted(top.names) == ["a/c/0", "a/zarr.json", "b/zarr.json", "zarr.json"]
    with top.open(["a/zarr.json"]) as files:
        assert files.read(0, 0, 100) == b"s/a/zarr.json"
    array = top.store(("a/",))
    assert [info.name for info in array.infos] == ["a/c/0", "a/zarr.json"]
    assert array.read(array.indices["a/c/0"], 0, 9) == b"s/a/c/0"
    obstore.put(store, "s/b/c/0", b"of another array")
    look_again(array)
    array.check_missing("a/c/1")
    obstore.put(store, "s/a/c/1", b"new")
    with pytest.raises(DataChangedError, match=r"'a/c/1' was added"):
        look_again(array)
    obstore.delete(store, "s/a/c/1")
    obstore.delete(store, "s/a/c/0")
    with pytest.raises(DataChangedError, match=r"'a/c/0' was removed"):
        look_again(array)
