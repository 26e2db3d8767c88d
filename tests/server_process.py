"""The service as users run it: a process of its own, and what the system knows of it."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

from app.command.main import main
from tests.forked import Command, ForkedProcess

ROOT = Path(__file__).parents[1]
HOST = "127.0.0.1"

PROGRAM = (sys.executable, "-m", "app.command")
"""Runs the ``thalweg-server`` command."""

Process = subprocess.Popen[bytes] | ForkedProcess

LANES = "front=1,quick=1,long=1"
"""As few processes as lanes can have."""

_LANED = ("tests/contract/", "tests/e2e/")
"""Suites that see the service as its users do: its servers have lanes. All others are single
processes, whose inside some tests look at; so are those that say ``lanes="one"``."""
_START_SECONDS = 120.0
_PREFIX = "THALWEG_"
_LISTENING = re.compile(r"^listening on http://127\.0\.0\.1:(\d+)$", re.MULTILINE)
_FAILURES = ('"level": "error"', "Traceback")


def children_of(pid: int) -> list[int]:
    """Pids of the processes that one has started; none if it has ended."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return [int(pid) for pid in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


class ServerProcess:
    """A server process, ready when this returns.

    Args:
        directory: for its data and its log.
        flags: of the ``serve`` command.
        settings: variables, without their prefix and in lower case.

    Attributes:
        command: the ``thalweg-server`` command: a program, or a function to be called in a
            process that has imported what is needed.
        root: the checkout that a program is taken from.
        piped: whether its standard input and output are pipes.
        port: where it listens; it keeps it when it is started again.
        process: the process.
        data_dir: its data.
        expected_failures: parts of log lines that are no failures in this test.
    """

    command: Sequence[str] | Command = staticmethod(main)
    root = ROOT
    piped = False

    def __init__(self, directory: Path, *flags: str, **settings: object) -> None:
        self.port = 0
        self.data_dir = directory / "data"
        self.expected_failures: list[str] = []
        self._directory = directory
        self._log = directory / "log"
        self._flags = flags
        inherited = {name: v for name, v in os.environ.items() if not name.startswith(_PREFIX)}
        self._environment = {**inherited, "PYTHONPATH": str(self.root)}
        test = os.environ.get("PYTEST_CURRENT_TEST", "")
        several = "workers" in settings or any(flag.startswith("--workers") for flag in flags)
        lanes = LANES if several or test.startswith(_LANED) else "one"
        self.set(**{"lanes": lanes, **settings})
        directory.mkdir(parents=True, exist_ok=True)
        self.start()

    def set(self, **settings: object) -> None:
        """Change settings, for the next start."""
        given = {_PREFIX + name.upper(): str(value) for name, value in settings.items()}
        self._environment |= given

    def run_from(self, root: Path) -> None:
        """Run the program of a checkout, from the next start on."""
        self.command, self.root = PROGRAM, root
        self._environment["PYTHONPATH"] = str(root)

    def start(self) -> None:
        """Start, also again after an end; returns when it is ready."""
        logged = self._log.stat().st_size if self._log.exists() else 0
        place = ["--port", str(self.port), "--data-dir", str(self.data_dir)]
        with self._log.open("ab") as log:
            self.process = self._begin(["serve", *place, *self._flags], log)
        try:
            self._wait_for(lambda: self._listens(logged))
            self._wait_for(self._is_ready)
        except BaseException:
            self.kill()
            raise

    def _begin(
        self, arguments: list[str], log: IO[bytes]
    ) -> subprocess.Popen[bytes] | ForkedProcess:
        environment, directory, command = self._environment, self._directory, self.command
        if callable(command):
            return ForkedProcess(
                command,
                arguments,
                log=log,
                environment=environment,
                directory=directory,
                piped=self.piped,
            )
        pipe = subprocess.PIPE if self.piped else subprocess.DEVNULL
        return subprocess.Popen(
            [*command, *arguments],
            stdin=pipe,
            stdout=pipe,
            stderr=log,
            env=environment,
            cwd=directory,
        )

    def _wait_for(self, done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while not done():
            assert self.process.poll() is None, self.log()
            assert time.monotonic() < deadline, self.log()
            # Asking costs the server time that it needs to become ready.
            time.sleep(0.05)

    def _listens(self, logged: int) -> bool:
        found = _LISTENING.search(self._log.read_bytes()[logged:].decode(errors="replace"))
        if found:
            self.port = int(found[1])
        return found is not None

    def _is_ready(self) -> bool:
        connection = http.client.HTTPConnection(HOST, self.port, timeout=_START_SECONDS)
        with contextlib.closing(connection):
            connection.request("GET", "/readyz")
            return connection.getresponse().status == 200

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    @property
    def pid(self) -> int:
        """That of the only worker, which serves; ``process`` is its supervisor."""
        (pid,) = self.worker_pids()
        return pid

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def failures(self) -> list[str]:
        """Lines of the log about failures of the server's own, but for those expected."""
        lines = [line for line in self.log().splitlines() if any(f in line for f in _FAILURES)]
        return [line for line in lines if not any(text in line for text in self.expected_failures)]

    # -- ends ------------------------------------------------------------------------

    def term(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it as a power cut would."""
        # The kernel ends the workers with their supervisor, a moment later.
        ends = [os.pidfd_open(pid) for pid in self.worker_pids()]
        self.process.kill()
        for end in ends:
            # Not select, which knows the first thousand descriptors of a process only.
            ended = select.poll()
            ended.register(end, select.POLLIN)
            ended.poll(30_000)
            os.close(end)
        self._close()

    def end(self, seconds: float = 60.0) -> int:
        """Wait for it to end by itself; returns the exit code."""
        self.process.wait(seconds)
        return self._close()

    def stop(self) -> int:
        """Ask it to end; returns the exit code."""
        self.term()
        return self.end()

    def _close(self) -> int:
        code = self.process.wait(30)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()
        return code

    # -- what the system knows of it -------------------------------------------------

    def open_files(self) -> list[str]:
        """What descriptors of its processes refer to."""
        targets = []
        for entry in self._listed("fd"):
            with contextlib.suppress(FileNotFoundError):
                targets.append(str(entry.readlink()))
        return targets

    def descriptors(self) -> int:
        return len(self._listed("fd"))

    def threads(self) -> list[str]:
        """Their names."""
        names = []
        for task in self._listed("task"):
            # It may end between the list and the look.
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                names.append((task / "comm").read_text().strip())
        return sorted(names)

    def memory(self, field: str = "VmRSS") -> int:
        """Resident memory in bytes; its peak for ``VmHWM``. What processes share counts often."""
        statuses = [Path(f"/proc/{pid}/status").read_text() for pid in self.worker_pids()]
        return 1024 * sum(int(text.split(f"{field}:")[1].split()[0]) for text in statuses)

    def private(self) -> int:
        """Bytes of memory that its processes have written to and share with nobody."""
        maps = [Path(f"/proc/{pid}/smaps_rollup").read_text() for pid in self.worker_pids()]
        return 1024 * sum(int(text.split("Private_Dirty:")[1].split()[0]) for text in maps)

    def reset_peak(self) -> None:
        """Have the peak of memory begin anew."""
        for pid in self.worker_pids():
            Path(f"/proc/{pid}/clear_refs").write_text("5")

    def cpu_seconds(self) -> float:
        """CPU time of its processes so far."""
        stats = [Path(f"/proc/{pid}/stat").read_text() for pid in self.worker_pids()]
        times = [text.rpartition(")")[2].split()[11:13] for text in stats]
        return sum(int(user) + int(system) for user, system in times) / 100

    def _listed(self, name: str) -> list[Path]:
        pids = self.worker_pids()
        return [entry for pid in pids for entry in Path(f"/proc/{pid}/{name}").iterdir()]

    def worker_pids(self) -> list[int]:
        """Processes that serve; none if the server has ended."""
        return children_of(self.process.pid)
