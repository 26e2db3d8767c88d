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
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

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

    def url(self, database: str = "postgres") -> str:
        """The address of a database."""
        return f"postgresql:///{database}?host={self.directory}&user={_USER}"

    def new_database(self) -> str:
        """Create a database; return its address."""
        name = f"test{next(self._names)}"
        self.execute(f"CREATE DATABASE {name}")
        return self.url(name)

    def execute(self, statement: str) -> None:
        """Run a statement as the administrator."""
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(statement)

    def start(self) -> None:
        """Start the server, which waits until it answers."""
        options = f"-k {self.directory} -c listen_addresses= -c max_connections=60"
        self._control("start", "-o", options, "-l", str(self.directory / "log"))

    def stop(self, how: str = "immediate") -> None:
        """Stop it; ``immediate`` as a crash does."""
        self._control("stop", "-m", how)

    def kill(self) -> None:
        """Kill it and all of its processes."""
        pid = int((self.directory / "data" / "postmaster.pid").read_text().split()[0])
        os.kill(pid, signal.SIGKILL)

    def _control(self, *arguments: str) -> None:
        run_program(
            self.programs, "pg_ctl", "-D", str(self.directory / "data"), "-s", "-w", *arguments
        )


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
    # In memory: after a crash the server syncs each of its thousand files.
    place = "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108 - a directory in it
    with tempfile.TemporaryDirectory(dir=place) as name:
        directory = Path(name)
        if os.geteuid() == 0:
            shutil.chown(directory, "postgres")
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
