"""A job in a process of its own, which holds nothing else: its death harms nobody.

The process runs a program that is started anew, whatever the worker is and holds. The worker
keeps the job meanwhile, and waits. The memory that the process asks for is entered in the ledger
of the worker: the two talk over a connection, on which the process sends

    None                          it has begun with the job
    (owner, purpose, bytes)       to hold so much more, which is answered with None or the refusal
    (owner, purpose, -bytes)      to hold so much less, without an answer
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import sys
import threading
from collections import Counter
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe
from pathlib import Path

from app.engine.ledger import Ledger
from app.errors import BusyError, ServiceError
from app.server.place import count_memory_kills, describe_end
from app.settings import METRICS_DIRECTORY, Settings

from .jobs import Job

BESIDE_BYTES = 1 << 30
"""Memory of such a process that is not entered: code, threads, pieces of files, small things."""
PROGRAM = "app.command.alone"
"""Module that computes a job; its arguments are a descriptor and the id of its parent."""


@dataclass(frozen=True, slots=True)
class Death:
    """How a process ended that did not end well."""

    own: bool
    """Whether its job is to blame: it had begun, and did not fall to the need of others."""
    reason: str


class Alone:
    """Computes jobs, one at a time, each in a process of its own.

    Args:
        settings: those of the service.
        ledger: where the memory of the process is entered.
    """

    def __init__(self, settings: Settings, ledger: Ledger) -> None:
        self._settings = settings
        self._ledger = ledger
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False

    def run(self, job: Job) -> Death | None:
        """Compute a job that was claimed; return None if the process ended as it should.

        Raises:
            OSError: no process can be started.
        """
        kills = count_memory_kills()
        # A process that is started begins with the largest size of the one that starts it.
        inherited = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        here, remote = Pipe()
        with here:
            with remote:
                process = self._start(remote.fileno())
            lent = self._attend(here, job)
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        with self._lock:
            self._process = None
            _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if not process.returncode:
            return None
        out_of_memory = count_memory_kills() > kills
        end = describe_end(process.returncode, out_of_memory=out_of_memory)
        used, known = usage.ru_maxrss << 10, usage.ru_maxrss > inherited
        size = f"{'' if known else 'no more than '}{used >> 20} MiB"
        why = f"{end.reason} at {size} of memory"
        # The kernel ends it first, whoever has taken the memory.
        innocent = out_of_memory and not (known and used >= (lent or 0) + BESIDE_BYTES)
        own = lent is not None and not innocent
        return Death(own, why if end.hint is None else f"{why}; {end.hint}")

    def _start(self, descriptor: int) -> subprocess.Popen[bytes]:
        environment = {k: v for k, v in os.environ.items() if k != METRICS_DIRECTORY}
        path = environment.get("PYTHONPATH", "").split(os.pathsep)
        root = str(Path(__file__).parents[3])
        environment["PYTHONPATH"] = os.pathsep.join([*filter(None, path), root])
        process = subprocess.Popen(  # noqa: S603 - our own module
            [sys.executable, "-P", "-m", PROGRAM, str(descriptor), str(os.getpid())],
            stdin=subprocess.DEVNULL,
            pass_fds=[descriptor],
            env=environment,
            start_new_session=True,
        )
        with self._lock:
            self._process = process
        if self._stopped:
            self.stop()
        return process

    def _attend(self, connection: Connection, job: Job) -> int | None:
        """Lend memory to the process until it ends; return how much, None if it has not begun."""
        begun, most = False, 0
        held: Counter[tuple[str, str]] = Counter()
        try:
            connection.send((self._settings, job))
            while True:
                message = connection.recv()
                if message is None:
                    begun = True
                    continue
                owner, purpose, nbytes = message
                if nbytes > 0:
                    refusal = self._lend(owner, purpose, nbytes)
                    held[owner, purpose] += 0 if refusal else nbytes
                    most = max(most, held.total())
                    connection.send(refusal)
                else:
                    self._ledger.remove(owner, purpose, -nbytes)
                    held[owner, purpose] += nbytes
        except (EOFError, OSError):
            return most if begun else None
        finally:
            for (owner, purpose), nbytes in held.items():
                if nbytes:
                    self._ledger.remove(owner, purpose, nbytes)

    def _lend(self, owner: str, purpose: str, nbytes: int) -> ServiceError | None:
        try:
            self._ledger.add(owner, purpose, nbytes)
        except ServiceError as e:
            return e.with_traceback(None)
        return None

    def stop(self) -> None:
        """Have the process give its job back, and each that is started from now on."""
        self._stopped = True
        with self._lock:
            if self._process is not None:
                os.kill(self._process.pid, signal.SIGTERM)


class LentLedger(Ledger):
    """The ledger of such a process: what is held is held in that of its parent, too."""

    def __init__(self, connection: Connection, limit: int, share: int) -> None:
        super().__init__(limit, share)
        self._connection = connection
        self._turn = threading.Lock()

    def add(self, owner: str, purpose: str, nbytes: int) -> None:
        """See Ledger."""
        super().add(owner, purpose, nbytes)
        try:
            with self._turn:
                self._connection.send((owner, purpose, nbytes))
                refusal = self._connection.recv()
        except (EOFError, OSError):
            # A moment later this process ends, too, and must not say until then that it failed.
            refusal = BusyError("the worker has ended that lends memory")
        if refusal is not None:
            super().remove(owner, purpose, nbytes)
            raise refusal

    def remove(self, owner: str, purpose: str, nbytes: int) -> None:
        """See Ledger."""
        super().remove(owner, purpose, nbytes)
        with self._turn, contextlib.suppress(OSError):
            self._connection.send((owner, purpose, -nbytes))
