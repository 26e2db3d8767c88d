"""Blobs in an object store: the suite for all stores, and what is special to objects."""

from __future__ import annotations

import contextlib
import http.server
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import obstore
import pytest
from obstore.exceptions import GenericError
from obstore.store import MemoryStore, S3Store

from app.state.base import Record, StoreDamagedError, StoreError
from app.state.blobs import BlobConflictError, BlobMissingError, BlobStore, BlobWriter
from app.state.object_layout import OBJECT, Extent, ObjectBlobWriter
from app.state.object_service import check_objects, open_objects
from app.state.objects import ObjectBlobStore
from app.state.sqlite import SqliteStateStore
from tests.app.state.blob_suite import BlobStoreSuite, MakeStore, pattern

if TYPE_CHECKING:
    from obstore import UpdateVersion


class TestObjects(BlobStoreSuite):
    @pytest.fixture
    def make_store(self, tmp_path: Path) -> MakeStore:
        objects = MemoryStore()

        def make() -> BlobStore:
            return ObjectBlobStore(SqliteStateStore(tmp_path / "state.db"), objects)

        return make


class TestFaults:
    """What is special to objects."""

    @pytest.fixture
    def objects(self) -> MemoryStore:
        return MemoryStore()

    @pytest.fixture
    def store(self, tmp_path: Path, objects: MemoryStore) -> ObjectBlobStore:
        return ObjectBlobStore(SqliteStateStore(tmp_path / "state.db"), objects)

    def test_what_a_dead_writer_left_is_passed_over(
        self, store: ObjectBlobStore, objects: MemoryStore
    ) -> None:
        store.append("run", "x", 0, b"begin")
        dead = store.writer("run", "x", 5)
        dead.write(b"never acknowledged")
        store_only(dead)
        assert store.range("run", "x") == b"begin"
        assert store.append("run", "x", 5, b" and end") == 13
        assert store.range("run", "x") == b"begin and end"
        # It was only slow, and lost.
        dead.write(b" at all")
        with pytest.raises(BlobConflictError) as caught:
            dead.commit()
        assert caught.value.size == 13
        assert len(paths(objects)) == 4
        assert store.range("run", "x") == b"begin and end"

    def test_a_store_that_fails_once_loses_nothing(
        self, store: ObjectBlobStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        writer = store.writer("run", "x", 0)
        data = pattern(2 * OBJECT + 5)
        failures = iter([GenericError("503 Slow Down"), None, GenericError("reset")])
        create = store.create_object

        def fail(extent: Extent, view: memoryview) -> None:
            if (error := next(failures, None)) is not None:
                raise error
            create(extent, view)

        monkeypatch.setattr(store, "create_object", fail)
        for at in range(0, len(data), OBJECT):
            with contextlib.suppress(StoreError):
                writer.write(data[at : at + OBJECT])
        with contextlib.suppress(StoreError):
            writer.commit()
        assert writer.commit() == len(data)
        assert store.range("run", "x") == data

    def test_an_answer_that_was_lost(
        self, store: ObjectBlobStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        writer = store.writer("run", "x", 0)
        create = store.create_object
        lost = iter([True])

        def create_and_fail(extent: Extent, view: memoryview) -> None:
            create(extent, view)
            if next(lost, False):
                raise GenericError("the connection was lost")

        monkeypatch.setattr(store, "create_object", create_and_fail)
        writer.write(b"stored all the same")
        with pytest.raises(StoreError):
            writer.commit()
        assert writer.commit() == 19
        assert store.range("run", "x") == b"stored all the same"

    @pytest.mark.parametrize("harm", ["cut", "flipped", "gone", "swapped"])
    def test_damage_is_told_and_mended(
        self, store: ObjectBlobStore, objects: MemoryStore, harm: str
    ) -> None:
        data = pattern(OBJECT + 100)
        store.put("input", "x", data)
        first, second = paths(objects)
        content = bytearray(
            bytes(memoryview(obstore.get_range(objects, first, start=0, length=1 << 24)))
        )
        content[700_000] ^= 4
        if harm == "cut":
            obstore.put(objects, first, bytes(content[:-1]))
        elif harm == "flipped":
            obstore.put(objects, first, bytes(content))
        elif harm == "gone":
            obstore.delete(objects, second)
        else:
            obstore.copy(objects, first, second)
        with pytest.raises(StoreDamagedError):
            store.range("input", "x")
        assert store.put("input", "x", data)
        assert store.range("input", "x") == data
        assert len(paths(objects)) == 2

    def test_garbage_is_removed_once_it_is_old_by_the_clock_of_the_store(
        self, store: ObjectBlobStore, objects: MemoryStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store.append("run", "x", 0, b"kept")
        store.append("run", "x", 4, pattern(OBJECT + 1))
        kept = paths(objects)
        writer = store.writer("run", "x", OBJECT + 5)
        writer.write(b"not committed")
        store_only(writer)
        store.append("run", "x", OBJECT + 5, b"committed")
        obstore.put(objects, "run/y/0123456789abcdef/0000000000000000.0", b"of no blob")
        obstore.put(objects, "run/x/0123456789abcdef/0000000000000000.0", b"of an earlier one")
        obstore.put(objects, "somebody", b"else's")
        assert store.clean() == 0
        store.clock = lambda: time.time() + 4000
        assert store.clean() == 0
        monkeypatch.setattr("app.state.objects._ABANDONED", -60.0)
        assert store.clean() == 3
        # The probe tells the time.
        assert len(paths(objects)) == len(kept) + 3
        store.delete("run", "x")
        assert paths(objects) == ["probe", "somebody"]

    @pytest.mark.parametrize("place", [0, OBJECT - 1, OBJECT, OBJECT + 4])
    def test_a_single_other_byte_is_other_content(self, store: ObjectBlobStore, place: int) -> None:
        data = bytearray(pattern(OBJECT + 5))
        assert store.put("input", "x", data)
        assert not store.put("input", "x", data)
        data[place] ^= 1
        with pytest.raises(BlobConflictError):
            store.put("input", "x", data)

    def test_what_is_touched_while_it_is_deleted_is_deleted(
        self, store: ObjectBlobStore, objects: MemoryStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store.put("input", "x", b"1")
        delete = store.records.delete
        touches = iter([5000.0])

        def touch_first(kind: str, record_id: str, seen: Record) -> None:
            for when in touches:
                store.touch("input", "x", when)
            delete(kind, record_id, seen)

        monkeypatch.setattr(store.records, "delete", touch_first)
        store.delete("input", "x")
        assert paths(objects) == []
        with pytest.raises(BlobMissingError):
            store.info("input", "x")

    def test_a_head_that_is_none_of_a_blob(self, store: ObjectBlobStore) -> None:
        store.records.create("b_run", "x", b"[]")
        with pytest.raises(StoreDamagedError):
            store.range("run", "x")
        assert [blob.id for blob in store.list("run").blobs] == ["x"]
        store.delete("run", "x")
        assert store.list("run").blobs == ()


def test_requests_are_noted_and_what_is_expected_has_not_failed(tmp_path: Path) -> None:
    noted: list[tuple[str, bool]] = []
    records, objects = SqliteStateStore(tmp_path / "state.db"), MemoryStore()
    store = ObjectBlobStore(
        records, objects, note=lambda operation, _, failed: noted.append((operation, failed))
    )
    store.put("input", "x", b"12")
    assert store.range("input", "x") == b"12"
    (path,) = paths(objects)
    obstore.delete(objects, path)
    with pytest.raises(StoreError):
        store.range("input", "x")
    store.delete("input", "x")
    assert noted == [("put", False), *[("get", False)] * 2]


class TestConditions:
    """Stores that a service refuses."""

    def test_one_that_keeps_its_promises(self) -> None:
        objects = MemoryStore()
        check_objects(objects)
        assert paths(objects) == []

    @pytest.mark.parametrize(
        ("ignored", "match"), [("create", "created an object twice"), ("e_tag", "had changed")]
    )
    def test_one_that_ignores_conditions(
        self, monkeypatch: pytest.MonkeyPatch, ignored: str, match: str
    ) -> None:
        put = obstore.put

        def put_anyway(
            objects: MemoryStore,
            path: str,
            data: bytes,
            *,
            mode: UpdateVersion | Literal["create"] | None = None,
            use_multipart: bool,
        ) -> object:
            conditional = mode == "create" if ignored == "create" else isinstance(mode, dict)
            how: Any = None if conditional else mode
            return put(objects, path, data, mode=how, use_multipart=use_multipart)

        monkeypatch.setattr(obstore, "put", put_anyway)
        with pytest.raises(StoreError, match=match) as caught:
            check_objects(MemoryStore())
        assert "conditional writes" in str(caught.value.hint)

    def test_one_that_answers_a_range_with_the_whole(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(obstore, "get_range", lambda *_, **__: b"0123456789")
        with pytest.raises(StoreError, match="range"):
            check_objects(MemoryStore())

    @pytest.mark.parametrize(
        ("status", "code", "match"),
        [
            (403, "SignatureDoesNotMatch", "refuses the credentials of the service"),
            (401, "InvalidAccessKeyId", "refuses the credentials of the service"),
            (403, "RequestTimeTooSkewed", "refuses the clock of this machine"),
            (404, "NoSuchBucket", "there is no such bucket, or its endpoint is another"),
            (400, "InvalidRequest", "cannot be used: .*InvalidRequest"),
        ],
    )
    def test_one_that_says_what_is_wrong(self, status: int, code: str, match: str) -> None:
        with answering(status, code) as objects, pytest.raises(StoreError, match=match):
            check_objects(objects)

    @pytest.mark.parametrize("url", ["s3://", "nonsense", "ftp://x/y"])
    def test_addresses_of_none(self, url: str) -> None:
        with pytest.raises(StoreError, match="malformed"):
            open_objects(url)


@contextlib.contextmanager
def answering(status: int, code: str) -> Iterator[S3Store]:
    """Provide a store whose server refuses everything."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(f"<Error><Code>{code}</Code></Error>".encode())

        do_DELETE = do_PUT  # noqa: N815 - as its base asks it

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield S3Store(
            "tests",
            endpoint=f"http://127.0.0.1:{server.server_port}",
            access_key_id="an-identity",
            secret_access_key="a-secret",  # noqa: S106 - of nobody
            region="us-east-1",
            client_options={"allow_http": True},
        )
        server.shutdown()
        thread.join()


def store_only(writer: BlobWriter) -> None:
    """Store what a writer was given, without the commit: its process died in between."""
    assert isinstance(writer, ObjectBlobWriter)
    writer._store_waiting()


def paths(objects: MemoryStore) -> list[str]:
    return sorted(found["path"] for page in obstore.list(objects) for found in page)
