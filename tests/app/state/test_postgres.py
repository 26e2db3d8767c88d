"""The records in Postgres: the suite for all stores, and what is special to a database."""

from __future__ import annotations

import contextlib
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import Mock

import psycopg
import pytest

from app.state.base import (
    RecordMissingError,
    StateStore,
    StoreBusyError,
    StoreDamagedError,
    StoreError,
    StoreForeignError,
    StoreReadOnlyError,
    Usage,
)
from app.state.connections import Connections
from app.state.notices import FILES, NodeNotices, file_of
from app.state.postgres import PostgresStateStore
from tests.app.state.suite import MakeStore, StateStoreSuite
from tests.postgres_server import PostgresServer, running_server
from tests.server_process import ROOT
from tests.wire import Wire, wire_to_socket

BLOBS = "s3://bucket"


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with running_server() as server:
        yield server


@pytest.fixture
def url(server: PostgresServer) -> str:
    return server.new_database()


class TestPostgres(StateStoreSuite):
    @pytest.fixture
    def make_store(self, url: str) -> Iterator[MakeStore]:
        opened: list[StateStore] = []

        def make() -> StateStore:
            opened.append(PostgresStateStore(url, BLOBS))
            return opened[-1]

        yield make
        for store in opened:
            store.close()


class TestServer:
    """What is special to a database."""

    @pytest.fixture
    def store(self, url: str) -> Iterator[PostgresStateStore]:
        with contextlib.closing(PostgresStateStore(url, BLOBS, wait=2)) as store:
            yield store

    def test_what_was_acknowledged_survives_a_crash_of_the_server(
        self, server: PostgresServer, store: PostgresStateStore
    ) -> None:
        record = store.compare_and_swap(store.create("view", "x", b"1"), b"2")
        server.stop("immediate")
        for call in (lambda: store.get("view", "x"), lambda: store.touch("view", "x")):
            with pytest.raises(StoreError, match="cannot be reached") as caught:
                call()
            assert caught.value.retry_after is not None
        server.start()
        # Its connections are gone: reads and writes open others.
        assert store.get("view", "x") == record
        assert store.compare_and_swap(record, b"3").value == b"3"

    def test_a_restart_between_two_calls_is_not_noticed(
        self, server: PostgresServer, store: PostgresStateStore
    ) -> None:
        record = store.create("view", "x", b"1")
        server.stop("fast")
        server.start()
        swapped = store.compare_and_swap(record, b"2")
        assert store.get("view", "x") == swapped

    def test_a_refused_change_changes_nothing(self, store: PostgresStateStore) -> None:
        def refuse(_: Usage) -> None:
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            store.create("view", "a.x", b"", admit=refuse)
        with pytest.raises(RecordMissingError):
            store.get("view", "a.x")
        assert store.largest_usage("view") == Usage(0, 0)

    def test_usage_of_nothing_takes_no_row(self, store: PostgresStateStore, url: str) -> None:
        store.create("view", "a.x", b"12")
        assert store.largest_usage("view") == Usage(1, 2)
        assert store.largest_usage("view", "a.") == Usage(1, 2)
        assert store.largest_usage("view", "b.") == Usage()
        store.delete("view", "a.x")
        with psycopg.connect(url) as connection:
            assert connection.execute("SELECT count(*) FROM thalweg_usage").fetchone() == (0,)

    def test_rows_that_others_keep_locked(self, store: PostgresStateStore, url: str) -> None:
        record = store.create("view", "x", b"1")
        with psycopg.connect(url) as other:
            other.execute("SELECT * FROM thalweg_head FOR UPDATE")
            with pytest.raises(StoreBusyError) as caught:
                store.compare_and_swap(record, b"2")
            assert caught.value.retry_after == 1
            assert store.get("view", "x") == record
        assert store.compare_and_swap(record, b"2").value == b"2"

    @pytest.mark.usefixtures("store")
    def test_a_database_that_takes_no_writes(self, url: str) -> None:
        with psycopg.connect(url, autocommit=True) as other:
            name = url.partition("///")[2].partition("?")[0]
            other.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        with pytest.raises(StoreReadOnlyError):
            PostgresStateStore(url, BLOBS)

    @pytest.mark.parametrize(
        ("skew", "words"), [(7200, "7,200 s ahead of"), (-900, "900 s behind")]
    )
    def test_a_node_whose_clock_is_wrong(
        self,
        store: PostgresStateStore,
        url: str,
        monkeypatch: pytest.MonkeyPatch,
        skew: int,
        words: str,
    ) -> None:
        store.check()
        now = time.time
        monkeypatch.setattr(time, "time", lambda: now() + skew)
        calls: list[Callable[[], object]] = [
            store.check,
            store.check_clock,
            lambda: PostgresStateStore(url, BLOBS),
        ]
        for call in calls:
            with pytest.raises(StoreError, match=f"{words} that of the database") as caught:
                call()
            assert "NTP" in str(caught.value.hint)

    def test_a_changed_row_is_damage(self, store: PostgresStateStore, url: str) -> None:
        store.create("view", "x", b"1")
        with psycopg.connect(url) as other:
            other.execute("UPDATE thalweg_head SET value = 'other'")
        with pytest.raises(StoreDamagedError):
            store.get("view", "x")
        with psycopg.connect(url) as other:
            other.execute("DROP TABLE thalweg_head")
        with pytest.raises(StoreDamagedError):
            store.get("view", "x")

    @pytest.mark.usefixtures("store")
    @pytest.mark.parametrize(
        ("change", "blobs", "match"),
        [
            ("", "s3://another", "are in s3://bucket, not in s3://another"),
            ("UPDATE thalweg_schema SET version = 99", BLOBS, "version 99"),
        ],
    )
    def test_a_database_of_others(self, url: str, change: str, blobs: str, match: str) -> None:
        with psycopg.connect(url) as other:
            if change:
                other.execute(change)
        with pytest.raises(StoreForeignError, match=match):
            PostgresStateStore(url, blobs)

    def test_a_database_that_may_lose_commits(self, url: str) -> None:
        with pytest.raises(StoreError, match="synchronous_commit off"):
            PostgresStateStore(f"{url}&options=-csynchronous_commit%3Doff", BLOBS)

    def test_turns_exclude_each_other_and_end_with_their_connection(
        self, store: PostgresStateStore, url: str
    ) -> None:
        with contextlib.closing(PostgresStateStore(url, BLOBS, wait=1)) as other:
            with store.turn("a"), other.turn("b"):
                with pytest.raises(StoreBusyError), other.turn("a"):
                    pass
                with pytest.raises(StoreBusyError), store.turn("c"):
                    pass
            with other.turn("a"):
                pass
        with (
            psycopg.connect(url, autocommit=True) as killer,
            pytest.raises(StoreError, match="cannot be reached"),
            store.turn("a"),
        ):
            killer.execute(_KILL)
        with store.turn("a"):
            pass

    def test_a_network_that_loses_everything_is_noticed(
        self, server: PostgresServer, url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("app.state.connections._LOOK", 0.1)
        with (
            wire_to_socket(f"{server.directory}/.s.PGSQL.5432") as wire,
            contextlib.closing(PostgresStateStore(over(wire, url), BLOBS, wait=1)) as store,
        ):
            record = store.create("view", "x", b"1")
            # Whoever has a turn may take its time.
            with store.turn("a"):
                time.sleep(1.5)
            wire.lose()
            calls: list[Callable[[], object]] = [
                lambda: store.get("view", "x"),
                lambda: store.compare_and_swap(record, b"2"),
            ]
            for call in calls:
                with pytest.raises(StoreError, match="cannot be reached"):
                    call()
            wire.mend()
            # What was sent may have arrived, and may not: as after any lost answer.
            assert store.get("view", "x").value in {b"1", b"2"}

    def test_calls_in_line_do_not_wait_for_a_silent_database_one_after_the_other(
        self, server: PostgresServer, url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("app.state.connections._LOOK", 0.1)
        connect = Mock(wraps=psycopg.connect)
        with (
            wire_to_socket(f"{server.directory}/.s.PGSQL.5432") as wire,
            contextlib.closing(PostgresStateStore(over(wire, url), BLOBS, wait=1)) as store,
            ThreadPoolExecutor(2) as threads,
        ):
            store.create("view", "x", b"1")
            wire.lose()
            monkeypatch.setattr("psycopg.connect", connect)
            calls = [threads.submit(store.get, "view", "x") for _ in range(20)]
            for call in calls:
                with pytest.raises(StoreError, match="cannot be reached"):
                    call.result()
            # Those of the calls that came first, and of one at a time.
            assert connect.call_count <= 5
            wire.mend()
            assert store.get("view", "x").value == b"1"

    def test_connections_that_nobody_uses_are_closed(
        self, store: PostgresStateStore, url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        before = sum(store.connections.counts().values())
        with store.connections.use(), store.connections.use():
            assert store.connections.counts() == {"used": 2, "idle": 0}
        assert store.connections.counts() == {"used": 0, "idle": max(before, 2)}
        with psycopg.connect(url, autocommit=True) as other:

            def wait_for(number: int) -> None:
                count = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
                end = time.monotonic() + 20
                while (found := other.execute(count).fetchone()) != (number,):
                    # What is closed here ends there a moment later.
                    assert time.monotonic() < end, found

            wait_for(3)
            monkeypatch.setattr("app.state.connections._IDLE_SECONDS", 0.0)
            store.list("view")
            wait_for(2)

    def test_notices_reach_other_nodes(
        self, store: PostgresStateStore, url: str, tmp_path: Path
    ) -> None:
        with contextlib.closing(PostgresStateStore(url, BLOBS)) as database:
            here = NodeNotices(tmp_path / "here", store, "one")
            there = NodeNotices(tmp_path / "there", database, "two")
            listener = there.listen()
            there.relay()
            # A relay that has connected gives all notices.
            heard: set[str] = set()
            deadline = time.monotonic() + 20
            while len(heard) < len(FILES) and time.monotonic() < deadline:
                heard |= listener.hear() or set()
            assert heard == set(FILES)
            here.give("run-7")
            select.select([listener.file], [], [], 20)
            assert listener.hear() == {file_of("run-7")}
            for each in (here, there, listener):
                each.close()
                if each is not listener:
                    each.close()


_KILL = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE application_name = 'thalweg' AND datname = current_database()
"""
COUNT = """
import sys
from app.state.connections import Connections
from app.state.notices import NodeNotices
from app.state.postgres import PostgresStateStore
from tests.app.state.suite import increment
store = PostgresStateStore(sys.argv[1], "s3://bucket")
increment(store, "view", "n", int(sys.argv[2]))
"""


def over(wire: Wire, url: str) -> str:
    """The address of a database by way of a wire."""
    database = url.partition("///")[2].partition("?")[0]
    return f"postgresql://thalweg@127.0.0.1:{wire.port}/{database}"


def test_increments_of_two_processes_are_all_counted(url: str) -> None:
    with contextlib.closing(PostgresStateStore(url, BLOBS)) as store:
        store.create("view", "n", b"0")
        command = [sys.executable, "-c", COUNT, url, "60"]
        processes = [subprocess.Popen(command, cwd=ROOT) for _ in range(2)]
        assert [process.wait(60) for process in processes] == [0, 0]
        record = store.get("view", "n")
        assert (record.value, record.generation) == (b"120", 121)


def test_a_silent_database_has_more_time_at_each_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    times: list[int] = []

    def connect(_url: str, *, connect_timeout: int, **_: object) -> None:
        times.append(connect_timeout)
        raise psycopg.errors.ConnectionTimeout

    monkeypatch.setattr("psycopg.connect", connect)
    monkeypatch.setattr("app.state.connections._PATIENCE", 0)
    connections = Connections("postgres://nowhere", 10)
    for _ in range(6):
        with pytest.raises(psycopg.OperationalError), connections.use():
            pass
    assert times == [10, 2, 4, 8, 10, 10]
    connections.close()
