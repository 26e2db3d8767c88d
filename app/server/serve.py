"""Running an application until a signal, and ending in good order."""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from uvicorn import Config, Server
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors.multiprocess import Multiprocess, Process

from .drain import Drain
from .limits import ServerLimits
from .memory import raise_malloc_thresholds
from .protocol import protocol_class

_logger = logging.getLogger(__name__)

START_SECONDS = 120.0
BACKLOG = 2048

DrainHook = Callable[[Drain], None]


class ServerConfig(Config):
    """uvicorn's configuration with ours beside it; sent to worker processes by pickle.

    Attributes:
        limits: Of every connection.
        drain: Of this process.
        drain_seconds: Grace of running requests.
        drain_delay: Seconds of accepting connections while draining.
        on_drain: Called in the event loop's thread when draining begins.
        on_worker_end: Called by the supervisor with the pid of a worker that died.
    """

    limits: ServerLimits
    drain: Drain
    drain_seconds: float
    drain_delay: float
    on_drain: DrainHook | None
    on_worker_end: Callable[[int], None] | None = None

    def load(self) -> None:
        """Load the application, and the protocol class, which no pickle could carry."""
        super().load()
        protocol = protocol_class(self.limits)
        if not isinstance(protocol, str):
            self.http_protocol_class = protocol
        reason = raise_malloc_thresholds()
        if reason:
            _logger.info("malloc thresholds left alone: %s", reason)


class DrainingServer(Server):
    """A server that announces its end before it stops accepting, and exits with 0."""

    def __init__(self, config: ServerConfig) -> None:
        super().__init__(config)
        self._settings = config
        self._close_at: float | None = None
        self._told = False

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to drain; a second signal cuts what runs."""
        del frame
        if self._close_at is not None:
            self.force_exit = self.should_exit = True
            return
        # Not put among the captured signals: uvicorn would die of it again at the end.
        _logger.info("draining after signal %d", sig)
        delay = self._settings.drain_delay
        self._settings.drain.begin(delay + self._settings.drain_seconds)
        self._close_at = time.monotonic() + delay
        if not self.started:
            self.should_exit = True

    async def on_tick(self, counter: int) -> bool:
        """Whether to stop accepting; asked ten times a second."""
        self._tell()
        if self._close_at is not None and time.monotonic() >= self._close_at:
            self.should_exit = True
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop accepting, wait for running requests, cut the rest."""
        settings = self._settings
        settings.drain.begin(settings.drain_seconds)
        self._tell()
        left = settings.drain.left() or 0.0
        margin = min(5.0, settings.drain_seconds / 4)
        loop = asyncio.get_running_loop()
        timer = loop.call_later(max(left - margin, 0), settings.drain.hard.set)
        settings.timeout_graceful_shutdown = left  # type: ignore[assignment]  # asyncio takes it
        await super().shutdown(sockets)
        timer.cancel()

    def _tell(self) -> None:
        if self._settings.drain.draining and not self._told:
            self._told = True
            if self._settings.on_drain:
                self._settings.on_drain(self._settings.drain)


class Worker(Process):
    """A worker process with our server in it."""

    config: ServerConfig

    @property
    def server(self) -> Server:
        """The server, made on first use: in the worker."""
        if self._server is None:
            self._server = DrainingServer(self.config)
        return self._server


class Supervisor(Multiprocess):
    """Keeps a number of workers running."""

    def __init__(self, config: ServerConfig, sockets: list[socket.socket]) -> None:
        super().__init__(config, sockets)
        self._settings = config
        self.failed = False

    def init_processes(self) -> None:
        """Start the workers, and say so when the first one serves."""
        self.processes = [self._start() for _ in range(self.processes_num)]
        if self.processes[0].wait_until_ready(START_SECONDS):
            announce(self.sockets[0])

    def keep_subprocess_alive(self) -> None:
        """Replace workers that died; give up when one cannot start."""
        for index, process in enumerate(self.processes):
            if self.should_exit.is_set():
                return
            if process.is_alive(timeout=self._settings.timeout_worker_healthcheck):
                continue
            process.kill()
            process.join()
            if self._settings.on_worker_end and process.pid is not None:
                self._settings.on_worker_end(process.pid)
            if process.exitcode == STARTUP_FAILURE:
                self.failed = True
                self.should_exit.set()
                return
            _logger.error("worker %s died with %s", process.pid, process.exitcode)
            self.processes[index] = self._start()

    def terminate_all(self) -> None:
        """Ask all workers that live to drain."""
        # Open here it would take connections that no worker answers any more.
        for sock in self.sockets:
            sock.close()
        for process in self.processes:
            if process.process.is_alive():
                process.terminate()

    def handle_hup(self) -> None:
        """Do nothing: a restart is a new deployment."""

    handle_ttin = handle_ttou = handle_hup

    def _start(self) -> Worker:
        worker = Worker(self._settings, self.sockets)
        worker.start()
        return worker


class Single(DrainingServer):
    """The server of this very process."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and say so."""
        await super().startup(sockets)
        if sockets and not self.should_exit:
            announce(sockets[0])


def announce(sock: socket.socket) -> None:
    """Print where the server listens, in one line on stderr."""
    name = sock.getsockname()
    if sock.family == socket.AF_UNIX:
        where = f"unix:{name}"
    elif sock.family == socket.AF_INET6:
        where = f"http://[{name[0]}]:{name[1]}"
    else:
        where = f"http://{name[0]}:{name[1]}"
    sys.stderr.write(f"listening on {where}\n")
    sys.stderr.flush()


def serve(  # noqa: PLR0913 - the one place all of it comes together
    app: str | Callable[..., Any],
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    uds: str | None = None,
    factory: bool = False,
    workers: int = 1,
    limits: ServerLimits | None = None,
    drain_seconds: float = 30.0,
    drain_delay: float = 0.0,
    trusted_proxies: str | None = None,
    on_drain: DrainHook | None = None,
    on_worker_end: Callable[[int], None] | None = None,
    access_log: bool = False,
    log_config: dict[str, Any] | None = None,
) -> int:
    """Serve until SIGTERM or SIGINT; must be called in the main thread.

    Args:
        app: An ASGI application, or ``module:name`` of one, which more than one worker
            needs.
        host: Address to listen at.
        port: 0 for a free one; ``listening on http://host:port`` is printed on stderr.
        uds: Path of a unix socket instead.
        factory: Whether ``app`` makes the application.
        workers: Processes; one of them is this one where there is only one.
        limits: Of every connection.
        drain_seconds: How long running requests may go on after the sockets closed.
        drain_delay: Seconds between the start of draining and the closing of the
            listening socket, for load balancers to notice.
        trusted_proxies: Addresses, comma-separated, whose ``X-Forwarded`` headers count.
        on_drain: Called in each process when draining begins; with more workers than
            one it must be picklable.
        on_worker_end: Called with the pid of a worker that died, by the process that
            starts another; picklable too.
        access_log: Whether uvicorn logs each request.
        log_config: For :func:`logging.config.dictConfig`; None leaves logging alone.

    Returns:
        Exit code: 0 after a signal, even if requests were cut; 3 if the start failed.

    Raises:
        SystemExit: With code 3, if the application cannot be loaded or the socket bound.
    """
    config = ServerConfig(
        app,
        host=host,
        port=port,
        uds=uds,
        factory=factory,
        workers=workers,
        loop="uvloop",
        http="httptools",
        access_log=access_log,
        log_config=log_config,
        proxy_headers=trusted_proxies is not None,
        forwarded_allow_ips=trusted_proxies or "",
        server_header=False,
        backlog=BACKLOG,
        timeout_worker_healthcheck=30,
    )
    config.limits = limits or ServerLimits()
    config.drain = Drain()
    config.drain_seconds, config.drain_delay = drain_seconds, drain_delay
    config.on_drain = on_drain
    config.on_worker_end = on_worker_end
    sock = config.bind_socket()
    try:
        return _run(config, sock)
    finally:
        sock.close()
        if uds:
            Path(uds).unlink(missing_ok=True)


def _run(config: ServerConfig, sock: socket.socket) -> int:
    if config.workers > 1:
        supervisor = Supervisor(config, [sock])
        supervisor.run()
        return STARTUP_FAILURE if supervisor.failed else 0
    server = Single(config)
    server.run([sock])
    return 0 if server.started else STARTUP_FAILURE
