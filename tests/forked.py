"""Servers forked from a process that has imported the service and loaded its kernels.

The suite starts some sixty servers. Each would spend two seconds of a core on imports and
kernels, a fifth of what all tests take. So the processes that run the command are forked from
one that has done both: everything after that (settings, supervisor, workers) is theirs.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO

from prometheus_client import values

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["tests.warm_service"])


def share_forkserver() -> None:
    """Have every process that is forked from here on use one server of forks.

    Each would start its own, because it is no parent of that one.
    """
    forkserver.ensure_running()
    forkserver._forkserver.ensure_running = lambda: None  # type: ignore[method-assign]


Command = Callable[[Sequence[str]], int]


class ForkedProcess:
    """A process that runs a command line of the service; used like a ``Popen``.

    Args:
        command: runs the arguments and returns the exit code; a function of a module.
        arguments: those of the command line.
        log: file for its standard error, opened for appending.
        environment: all its variables.
        directory: where it runs.
        piped: whether its standard input and output are pipes; else there is nothing.

    Attributes:
        stdin: what its standard input reads, if piped.
        stdout: what its standard output writes, if piped.
    """

    def __init__(
        self,
        command: Command,
        arguments: Sequence[str],
        *,
        log: IO[bytes],
        environment: Mapping[str, str],
        directory: Path,
        piped: bool = False,
    ) -> None:
        self.stdin: IO[bytes] | None = None
        self.stdout: IO[bytes] | None = None
        if piped:
            its_input, input_end = os.pipe()
            output_end, its_output = os.pipe()
            self.stdin, self.stdout = os.fdopen(input_end, "wb"), os.fdopen(output_end, "rb")
        else:
            its_input, its_output = (
                os.open(os.devnull, os.O_RDONLY),
                os.open(os.devnull, os.O_WRONLY),
            )
        # As connections, because multiprocessing hands those over.
        standard = (
            Connection(its_input, writable=False),
            Connection(its_output, readable=False),
            Connection(os.dup(log.fileno()), readable=False),
        )
        args = (command, list(arguments), standard, dict(environment), str(directory))
        self._process = _FORKS.Process(target=_run, args=args)
        self._process.start()
        for end in standard:
            end.close()
        assert self._process.pid is not None
        self.pid: int = self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        code = self._process.exitcode
        if code is None:
            raise subprocess.TimeoutExpired(str(self._process), timeout or 0.0)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _run(
    command: Command,
    arguments: list[str],
    standard: tuple[Connection, Connection, Connection],
    environment: dict[str, str],
    directory: str,
) -> None:
    for number, end in enumerate(standard):
        os.dup2(end.fileno(), number)
        end.close()
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(directory)
    if environment.get("THALWEG_LANES") != "one":
        # The library decides it when it is imported, by a variable that the service sets.
        values.ValueClass = values.MultiProcessValue()  # type: ignore[no-untyped-call]
    # multiprocessing has put the null device in the place of standard input.
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - to the end
    sys.exit(command(arguments))
