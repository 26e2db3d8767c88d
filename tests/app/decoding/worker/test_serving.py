"""The loop of a worker, in this process and without a sandbox, message by message."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from app.decoding import wire
from app.decoding.segments import Segment
from app.decoding.wire import RefusedError
from app.decoding.worker.requests import Files
from app.decoding.worker.serving import Server, load_libraries

FRAMES = np.arange(2 * 3 * 4, dtype=">u2").reshape(2, 3, 4)


class Worker:
    """The other end of a worker's connection."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._known: set[str] = set()

    def ask(
        self,
        subject: tuple[str, str, dict[str, Any], Sequence[int]],
        action: str,
        arguments: dict[str, Any],
        segment: Segment | None = None,
        **more: Any,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401 - JSON
        key, form, options, descriptors = subject
        opening = None
        sent: list[int] = []
        if segment is not None and segment.descriptor is not None:
            sent.append(segment.descriptor)
        if key not in self._known:
            opening = {"form": form, "arguments": options, "descriptors": len(descriptors)}
            sent += descriptors
            self._known.add(key)
        known = None if segment is None else [segment.number, segment.size]
        values = {"drop": [], "close": [], "segment": known, "open": opening, "key": key}
        wire.send(self._channel, {**values, "action": action, "arguments": arguments, **more}, sent)
        answer, _ = wire.receive(self._channel)
        if "need" in answer:
            made = Segment(99, max(answer["need"], 1))
            assert made.descriptor is not None
            wire.send(self._channel, {"segment": [99, made.size]}, [made.descriptor])
            answer, _ = wire.receive(self._channel)
            answer["octets"] = bytes(made.octets(made.size))
        return answer


@contextlib.contextmanager
def served(formats: Mapping[str, Any]) -> Iterator[Worker]:
    ours, theirs = socket.socketpair()

    def run() -> None:
        with theirs, contextlib.suppress(wire.GoneError):
            Server(theirs, formats).run()

    thread = threading.Thread(target=run)
    thread.start()
    with ours:
        yield Worker(ours)
        ours.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.fixture
def worker() -> Iterator[Worker]:
    formats, missing = load_libraries()
    assert not missing
    for form in formats.values():
        form.preload()
    with served(formats) as made:
        yield made


@contextlib.contextmanager
def subject(form: str, path: Path) -> Iterator[tuple[str, str, dict[str, Any], Sequence[int]]]:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        yield path.name, form, {"size": path.stat().st_size}, (descriptor,)
    finally:
        os.close(descriptor)


def test_hdf5(worker: Worker, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        data = file.create_dataset("group/data", data=FRAMES, chunks=(1, 3, 4), compression="gzip")
        file["group/x"] = np.arange(3.0) * 2
        file["group/x"].attrs["units"] = "nm"
        file["group/x"].make_scale("x")
        data.dims[1].attach_scale(file["group/x"])
        file["link"] = h5py.SoftLink("/group/data")
        file["text"] = "words"
    segment = Segment(1, 4096)
    with subject("hdf5", tmp_path / "a.h5") as file:
        assert worker.ask(file, "list", {}) == {
            "ok": {
                "arrays": [["/group/data", [2, 3, 4]], ["/group/x", [3]]],
                "others": [["/text", "a single value"]],
                "links": [],
            }
        }
        answer = worker.ask(file, "describe", {"array": "link"})
        assert np.frombuffer(answer["octets"]).tolist() == [0, 2, 4]
        described = answer["ok"]
        axes = described.pop("axes")
        assert axes[1] == {"name": "x", "size": 3, "unit": "nm", "coordinates": 3}
        assert described == {
            "name": "/group/data",
            "shape": [2, 3, 4],
            "dtype": ">u2",
            "chunks": [1, 3, 4],
            "offset": None,
        }
        boxes = [[[0, 2], [0, 3], [1, 3]], [[1, 2], [0, 1], [0, 4]]]
        arguments = {"array": "/group/data", "dtype": ">u2", "boxes": boxes}
        assert worker.ask(file, "read", arguments, segment) == {"ok": {}}
        values = segment.octets(40).view(">u2")
        assert np.array_equal(values[:12].reshape(2, 3, 2), FRAMES[:, :, 1:3])
        assert np.array_equal(values[12:16], FRAMES[1, 0])
        refused = worker.ask(file, "read", {**arguments, "dtype": "<f4"}, segment)["refused"]
        assert "values of type >u2" in refused["message"]
        outside = {**arguments, "boxes": [[[0, 9], [0, 3], [0, 4]]]}
        assert "cannot read it" in worker.ask(file, "read", outside, segment)["refused"]["message"]
        assert "no array" in worker.ask(file, "describe", {"array": "z"})["refused"]["message"]
        assert "refused" in worker.ask(file, "dance", {})
        # Closed and opened again in one message.
        worker._known.clear()
        assert "ok" in worker.ask(file, "list", {}, close=[file[0]])
    segment.sent()


@pytest.mark.parametrize("form", ["parquet", "arrow", "stream"])
def test_tables(worker: Worker, tmp_path: Path, form: str) -> None:
    table = pa.table(
        {
            "x": pa.array([1.0, None, 3.0]),
            "text": pa.array(["a", "", "bcd"]),
            "pair": pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.int32(), 2)),
            "list": pa.array([[1], [], [2, 3]], pa.list_(pa.int16())),
            "nested": pa.array([{"a": 1}] * 3),
            "some": pa.array([1, None, 3]),
        }
    )
    path = tmp_path / "table"
    if form == "parquet":
        pq.write_table(table, path)
    else:
        new: Any = pa.ipc.new_file if form == "arrow" else pa.ipc.new_stream
        with new(str(path), table.schema) as writer:
            writer.write_table(table)
    with subject("parquet" if form == "parquet" else "arrow", path) as file:
        described = worker.ask(file, "describe", {})["ok"]
        assert [part[1] for part in described["parts"]] == [3]
        assert [None if f is None else f["dtype"] for f in described["fields"]] == [
            *("<f8", "|u1", "<i4", "<i2"),
            None,
            "<i8",
        ]
        names = ["text", "x", "pair", "list"]
        number = described["parts"][0][0]
        answer = worker.ask(file, "read", {"number": number, "names": names})
        octets = answer["octets"]
        text, _, pair, lists = answer["ok"]["columns"]

        def array(column: Any, part: int, dtype: str) -> list[Any]:  # noqa: ANN401
            start, length = column["offsets"][part], column["lengths"][part]
            found: list[Any] = np.frombuffer(octets, dtype, length, start).tolist()
            return found

        assert bytes(array(text, 0, "u1")) == b"abcd"
        assert array(text, 1, "<i8") == [0, 1, 1, 4]
        assert array({**pair, "lengths": [6]}, 0, "<i4") == [1, 2, 3, 4, 5, 6]
        assert array(lists, 0, "<i2") == [1, 2, 3]
        refused = worker.ask(file, "read", {"number": number, "names": ["some"]})["refused"]
        assert "'some' has missing values" in refused["message"]
        refused = worker.ask(file, "read", {"number": number, "names": ["nested"]})["refused"]
        assert "not usable" in refused["message"]


def test_files_that_are_none(worker: Worker, tmp_path: Path) -> None:
    (tmp_path / "noise").write_bytes(b"noise" * 100)
    for form in ("hdf5", "parquet", "arrow"):
        with subject(form, tmp_path / "noise") as (_, _, options, descriptors):
            answer = worker.ask((form, form, options, descriptors), "list", {})
            assert answer["refused"]["message"]


def test_files_come_in_batches_and_each_is_closed_for_the_next(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"a")
    (tmp_path / "b").write_bytes(b"b")
    ours, theirs = socket.socketpair()
    with ours, theirs:
        files = Files(theirs, [os.open(tmp_path / "a", os.O_RDONLY)])
        first = files.next()
        assert os.pread(first, 1, 0) == b"a"
        second = os.open(tmp_path / "b", os.O_RDONLY)
        wire.send(ours, {}, [second])
        os.close(second)
        assert os.pread(files.next(), 1, 0) == b"b"
        assert wire.receive(ours) == ({"more": True}, [])
        wire.send(ours, {})
        with pytest.raises(EOFError):
            files.next()
        files.close()


class Kept:
    """A format of one subject, which counts how often it is closed."""

    closed = 0

    def open_subject(self, *_: object) -> Kept:
        return self

    def act(self, _: object) -> dict[str, Any]:
        return {}

    def explain(self, error: Exception) -> RefusedError:
        return RefusedError(str(error))

    def close(self) -> None:
        self.closed += 1

    def touch(self) -> None:
        pass

    def preload(self) -> None:
        pass


def test_a_subject_that_is_forgotten_is_closed() -> None:
    kept = Kept()
    with served({"kept": kept}) as worker:
        for key, closed in (("a", 0), ("a", 0), ("b", 1), ("b", 1)):
            close = ["a", "never opened"] if key == "b" else []
            assert worker.ask((key, "kept", {}, ()), "look", {}, close=close) == {"ok": {}}
            assert kept.closed == closed


class Exhausted:
    """A format whose library finds no memory."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def open_subject(self, *_: object) -> Any:  # noqa: ANN401 - never returns
        raise self._error

    def touch(self) -> None:
        pass

    def preload(self) -> None:
        pass


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        OSError(errno.ENOMEM, "no room"),
        RuntimeError("HDF5: memory allocation failed for a chunk"),
        ValueError("Unable to allocate 3 GiB"),
    ],
)
def test_libraries_say_in_many_ways_that_memory_is_short(error: Exception) -> None:
    with served({"fake": Exhausted(error)}) as worker:
        assert worker.ask(("key", "fake", {}, []), "act", {}) == {"memory": True}
