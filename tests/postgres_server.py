"""A Postgres server of the tests' own, on a socket of its directory, for as long as a block."""

from __future__ import annotations

import contextlib
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest

_PLACES = ("/usr/lib/postgresql", "/usr/local/pgsql", "/opt/homebrew/opt")
_USER = "thalweg"


@dataclass
class PostgresServer:
    """A server that may be stopped and started again.

    Attributes:
        programs: directory of its programs.
        directory: of its data and its socket.
    """

    programs: Path
    directory: Path
    _names: Iterator[int] = field(default_factory=itertools.count)

    def url(self, database: str = "postgres", *others: PostgresServer) -> str:
        """The address of a database on this server, or whichever of several may be written."""
        hosts = ",".join(str(server.directory) for server in (self, *others))
        one = f"postgresql:///{database}?host={hosts}&user={_USER}"
        return f"{one}&target_session_attrs=read-write" if others else one

    def new_database(self) -> str:
        """Create a database; return its address."""
        name = f"test{next(self._names)}"
        self.execute(f"CREATE DATABASE {name}")
        return self.url(name)

    def execute(self, statement: str) -> None:
        """Run a statement as the administrator."""
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(statement)

    def query(self, statement: str, *values: object) -> tuple[Any, ...]:
        """Return the first row that a query finds, for the administrator."""
        with psycopg.connect(self.url(), autocommit=True) as connection:
            row = connection.execute(statement, values).fetchone()
        assert row is not None
        return row

    def configure(self, name: str, value: str) -> None:
        """Set a parameter of the running server."""
        self.execute(f"ALTER SYSTEM SET {name} = '{value}'")
        self.execute("SELECT pg_reload_conf()")

    def start(self) -> None:
        """Start the server, which waits until it answers."""
        options = f"-k {self.directory} -c listen_addresses= -c max_connections=60"
        self._control("start", "-o", options, "-l", str(self.directory / "log"))

    def stop(self, how: str = "immediate") -> None:
        """Stop it; ``immediate`` as a crash does."""
        self._control("stop", "-m", how)

    def wait_for(self, primary: PostgresServer) -> None:
        """Wait until a standby has all that its primary has committed."""
        (place,) = primary.query("SELECT pg_current_wal_flush_lsn()")
        while self.query("SELECT pg_last_wal_replay_lsn() >= %s", place) != (True,):
            time.sleep(0.02)

    def promote(self) -> None:
        """Have a standby become a server that may be written."""
        self._control("promote")

    def kill(self) -> None:
        """Kill it and all of its processes."""
        pid = int((self.directory / "data" / "postmaster.pid").read_text().split()[0])
        os.kill(pid, signal.SIGKILL)

    def _control(self, *arguments: str) -> None:
        run_program(
            self.programs, "pg_ctl", "-D", str(self.directory / "data"), "-s", "-w", *arguments
        )


@contextlib.contextmanager
def running_standby(primary: PostgresServer) -> Iterator[PostgresServer]:
    """Provide a server that follows another one."""
    with _directory() as directory:
        standby = PostgresServer(primary.programs, directory)
        copy = ("-D", str(directory / "data"), "-R", "-c", "fast", "--no-sync")
        run_program(
            primary.programs, "pg_basebackup", "-h", str(primary.directory), "-U", _USER, *copy
        )
        standby.start()
        try:
            yield standby
        finally:
            with contextlib.suppress(subprocess.CalledProcessError):
                standby.stop()


@contextlib.contextmanager
def _directory() -> Iterator[Path]:
    # In memory: after a crash the server syncs each of its thousand files.
    place = "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108 - a directory in it
    with tempfile.TemporaryDirectory(dir=place) as name:
        if os.geteuid() == 0:
            shutil.chown(name, "postgres")
        yield Path(name)


def run_program(programs: Path, name: str, *arguments: str) -> None:
    """Run a program of Postgres, which refuses to run as root."""
    user = pwd.getpwnam("postgres").pw_uid if os.geteuid() == 0 else None
    subprocess.run(
        [str(programs / name), *arguments],
        check=True,
        stdout=subprocess.DEVNULL,
        user=user,
        cwd="/",
        timeout=60,
    )


@contextlib.contextmanager
def running_server() -> Iterator[PostgresServer]:
    """Provide a server; skip the test where Postgres is not installed."""
    programs = _programs()
    if programs is None:
        pytest.skip("Postgres is not installed: apt-get install postgresql")
    with _directory() as directory:
        arguments = ("-D", str(directory / "data"), "-A", "trust", "-U", _USER, "--no-sync")
        run_program(programs, "initdb", *arguments)
        server = PostgresServer(programs, directory)
        server.start()
        try:
            yield server
        finally:
            with contextlib.suppress(subprocess.CalledProcessError):
                server.stop()


def _programs() -> Path | None:
    if found := shutil.which("initdb"):
        return Path(found).resolve().parent
    places = [path for place in _PLACES for path in Path(place).glob("*/bin/initdb")]
    return max(places).parent if places else None
