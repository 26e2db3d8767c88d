"""The blocking shell: performs effects in the caller's thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from functools import partial
from typing import Any, TypeVar

from .answers import call
from .effects import (
    Ask,
    Drop,
    Effect,
    Finish,
    Join,
    Receive,
    Sleep,
    Spawn,
    Steps,
    Work,
)
from .http import Address, Connection, Pool
from .requests import Head, Reply, Request

T = TypeVar("T")

_PATIENCE = 0.05
"""Seconds between two attempts to interrupt a thread: it may be between connections."""


def pause(seconds: float, stopped: threading.Event) -> None:
    """Wait, or until another thread stops the shell."""
    stopped.wait(seconds)


class BlockingShell:
    """Performs the effects of one operation, on one connection at a time.

    Args:
        pool: of connections.
        workers: threads for steps that run beside the others.
        release: called when the shell is closed.
        stopped: set by another thread to stop the operation.
    """

    def __init__(
        self,
        pool: Pool,
        *,
        workers: int = 1,
        release: Callable[[], None] | None = None,
        stopped: threading.Event | None = None,
    ) -> None:
        self._pool = pool
        self._release = release
        self._stopped = stopped or threading.Event()
        self._connection: Connection | None = None
        self._interrupt: Callable[[], None] | None = None
        self._workers = workers
        self._executor: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()
        self._beside: dict[Future[Any], BlockingShell] = {}
        self._closed = False

    def __del__(self) -> None:
        self.close(wait_for_workers=False)

    def run(self, steps: Steps[T]) -> T:
        """Run an operation; what it returns.

        Raises:
            Exception: whatever the operation raises.
        """
        resume: Callable[[], Effect] = partial(steps.send, None)
        while True:
            try:
                effect = resume()
            except StopIteration as stop:
                result: T = stop.value
                return result
            try:
                resume = partial(steps.send, self.perform(effect))
            except BaseException as error:  # noqa: BLE001 - the operation decides
                resume = partial(steps.throw, error)

    def perform(self, effect: Effect) -> Any:  # noqa: ANN401 - one branch an effect
        """Perform one effect; its result.

        Raises:
            ThalwegError: it failed.
            CancelledError: the shell was stopped.
        """
        if self._stopped.is_set():
            raise CancelledError
        match effect:
            case Receive(view):
                return self._in_use().receive(view)
            case Ask():
                self.drop()
                return self._ask(effect)
            case Finish():
                self._finish()
            case Drop():
                self.drop()
            case Sleep(seconds):
                pause(seconds, self._stopped)
            case Work():
                return self._work(effect)
            case Spawn(steps):
                return self._spawn(steps)
            case Join(job):
                return job.result()
        return None

    def _in_use(self) -> Connection:
        assert self._connection is not None  # noqa: S101 - for the type checker
        return self._connection

    def _ask(self, ask: Ask) -> Head:
        self._connection = self._pool.take()
        return self._connection.send(ask.request, ask.body, duplex=ask.duplex, interim=ask.interim)

    def _work(self, work: Work) -> Any:  # noqa: ANN401 - whatever it returns
        self._interrupt = work.interrupt
        try:
            return work.function()
        finally:
            self._interrupt = None

    def _finish(self) -> None:
        connection, self._connection = self._in_use(), None
        if connection.finish():
            self._pool.give(connection)

    def drop(self) -> None:
        """Close the connection in use, if any."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    # -- steps beside these ------------------------------------------------------------

    def _spawn(self, steps: Steps[Any]) -> Future[Any]:
        if self._executor is None:
            self._executor = ThreadPoolExecutor(self._workers, "thalweg-worker")
        shell = BlockingShell(self._pool, stopped=threading.Event())
        with self._lock:
            job = self._executor.submit(shell.run_and_close, steps)
            self._beside[job] = shell
        job.add_done_callback(self._forget)
        return job

    def _forget(self, job: Future[Any]) -> None:
        with self._lock:
            self._beside.pop(job, None)

    def run_and_close(self, steps: Steps[T]) -> T:
        """Run an operation and close the shell."""
        try:
            return self.run(steps)
        finally:
            self.close()

    def stop(self) -> None:
        """Make the thread that runs the operation give up."""
        self._stopped.set()
        connection, interrupt = self._connection, self._interrupt
        if connection is not None:
            connection.hang_up()
        if interrupt is not None:
            interrupt()

    def _stop_workers(self, *, wait_for_them: bool) -> None:
        executor, self._executor = self._executor, None
        if executor is None:
            return
        executor.shutdown(wait=False, cancel_futures=True)
        while running := self._running():
            for shell in running.values():
                shell.stop()
            if not wait_for_them:
                return
            wait(running, _PATIENCE)
        executor.shutdown()

    def _running(self) -> dict[Future[Any], BlockingShell]:
        with self._lock:
            return {job: shell for job, shell in self._beside.items() if not job.done()}

    def close(self, *, wait_for_workers: bool = True) -> None:
        """Close the connection in use and stop what runs beside it; once."""
        if self._closed:
            return
        self._closed = True
        self._stop_workers(wait_for_them=wait_for_workers)
        self.drop()
        if self._release is not None:
            self._release()


class BlockingRunner:
    """Runs operations of one client.

    Args:
        address: of the service.
        retries: failures in a row to tolerate.
    """

    def __init__(self, address: Address, retries: int) -> None:
        self._pool = Pool(address)
        self.retries = retries

    def shell(
        self, *, workers: int = 1, release: Callable[[], None] | None = None
    ) -> BlockingShell:
        """A shell for one operation."""
        return BlockingShell(self._pool, workers=workers, release=release)

    def run(
        self, steps: Steps[T], *, workers: int = 1, release: Callable[[], None] | None = None
    ) -> T:
        """Run an operation in a shell of its own."""
        return self.shell(workers=workers, release=release).run_and_close(steps)

    def at_once(self, steps: Steps[T]) -> T:
        """What an operation returns; with asyncio it is run later."""
        return self.run(steps)

    def call(self, request: Request) -> Reply:
        """Send a small request until it is answered."""
        return self.run(call(request, self.retries))

    def close(self) -> None:
        """Close the idle connections."""
        self._pool.close()
