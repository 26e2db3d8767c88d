"""Running an application until a signal, then draining before the end."""

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
from .last_resort import MARGIN_SECONDS, end_after
from .limits import ServerLimits
from .memory import raise_malloc_thresholds
from .protocol import protocol_class

_logger = logging.getLogger(__name__)

START_SECONDS = 120.0
BACKLOG = 2048

DrainHook = Callable[[Drain], None]


class ServerConfig(Config):
    """uvicorn's configuration and ours; sent to worker processes by pickle.

    Attributes:
        limits: Limits of every connection.
        drain: Draining state of this process.
        drain_seconds: Seconds that running requests have to finish.
        drain_delay: Seconds for which a draining server still accepts connections.
        on_drain: Called in the thread of the event loop when draining begins.
        on_worker_end: Called by the supervisor with the pid of a worker that died.
    """

    limits: ServerLimits
    drain: Drain
    drain_seconds: float
    drain_delay: float
    on_drain: DrainHook | None
    on_worker_end: Callable[[int], None] | None = None

    def load(self) -> None:
        """Load the application, and the protocol class, which cannot be pickled."""
        super().load()
        protocol = protocol_class(self.limits)
        if not isinstance(protocol, str):
            self.http_protocol_class = protocol
        reason = raise_malloc_thresholds()
        if reason:
            _logger.info("malloc thresholds unchanged: %s", reason)


class DrainingServer(Server):
    """A server that drains after a signal, and exits with code 0."""

    def __init__(self, config: ServerConfig) -> None:
        super().__init__(config)
        self._settings = config
        self._close_at: float | None = None
        self._notified = False

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to drain; a second signal cuts running requests."""
        del frame
        if self._close_at is not None:
            self.force_exit = self.should_exit = True
            return
        # Not recorded with the captured signals, which uvicorn raises again at the end.
        _logger.info("draining after signal %d", sig)
        delay = self._settings.drain_delay
        self._settings.drain.begin(delay + self._settings.drain_seconds)
        self._close_at = time.monotonic() + delay
        end_after(delay + self._settings.drain_seconds + MARGIN_SECONDS)
        if not self.started:
            self.should_exit = True

    async def on_tick(self, counter: int) -> bool:
        """Return whether to stop accepting; called ten times per second."""
        self._notify()
        if self._close_at is not None and time.monotonic() >= self._close_at:
            self.should_exit = True
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop accepting, wait for running requests, cut the rest."""
        settings = self._settings
        settings.drain.begin(settings.drain_seconds)
        self._notify()
        remaining = settings.drain.left() or 0.0
        margin = min(5.0, settings.drain_seconds / 4)
        loop = asyncio.get_running_loop()
        timer = loop.call_later(max(remaining - margin, 0), settings.drain.hard.set)
        settings.timeout_graceful_shutdown = remaining  # type: ignore[assignment]  # a float works
        await super().shutdown(sockets)
        timer.cancel()

    def _notify(self) -> None:
        if self._settings.drain.draining and not self._notified:
            self._notified = True
            if self._settings.on_drain:
                self._settings.on_drain(self._settings.drain)


class Worker(Process):
    """A worker process that runs our server."""

    config: ServerConfig

    @property
    def server(self) -> Server:
        """The server, created on first use, which is in the worker."""
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
        """Start the workers; announce the address when the first one serves."""
        self.processes = [self._start() for _ in range(self.processes_num)]
        if self.processes[0].wait_until_ready(START_SECONDS):
            announce(self.sockets[0])

    def keep_subprocess_alive(self) -> None:
        """Replace workers that died; give up if one cannot start."""
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
        """Tell all running workers to drain."""
        # A socket left open here would accept connections that no worker answers.
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
    """The server in a service without worker processes."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and announce the address."""
        await super().startup(sockets)
        if sockets and not self.should_exit:
            announce(sockets[0])


def announce(sock: socket.socket) -> None:
    """Print the address the server listens on, as one line on stderr."""
    name = sock.getsockname()
    if sock.family == socket.AF_UNIX:
        address = f"unix:{name}"
    elif sock.family == socket.AF_INET6:
        address = f"http://[{name[0]}]:{name[1]}"
    else:
        address = f"http://{name[0]}:{name[1]}"
    sys.stderr.write(f"listening on {address}\n")
    sys.stderr.flush()


def serve(  # noqa: PLR0913 - the one place where all settings meet
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
        app: An ASGI application, or its ``module:name``, which several workers require.
        host: Address to listen on.
        port: Port to listen on, 0 for a free one; the line ``listening on
            http://host:port`` on stderr tells which.
        uds: Path of a unix socket to listen on instead.
        factory: Whether ``app`` is a function that creates the application.
        workers: Number of processes; a single worker is this process.
        limits: Limits of every connection.
        drain_seconds: Seconds that running requests have after the sockets closed.
        drain_delay: Seconds between the start of draining and the closing of the
            listening socket, for load balancers to notice.
        trusted_proxies: Comma-separated addresses whose ``X-Forwarded`` headers to trust.
        on_drain: Called in each process when draining begins; must be picklable if there
            are several workers.
        on_worker_end: Called by the supervisor with the pid of a worker that died; must be
            picklable too.
        access_log: Whether uvicorn logs each request.
        log_config: Passed to :func:`logging.config.dictConfig`; None leaves logging alone.

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
