"""Serving an application: the socket, the supervisor, and what each worker runs."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import structlog

from .board import Board, WorkerSlot
from .drain import Drain
from .lanes.table import Table
from .lanes.template import Loading
from .lanes.wiring import Wiring
from .limits import ServerLimits
from .memory import bound_memory, offer_to_be_killed
from .place import SLACK_BYTES
from .supervisor import END_SECONDS, STARTUP_FAILURE, Supervisor

if TYPE_CHECKING:
    from .worker import ServerConfig

BACKLOG = 2048


def serve(  # noqa: PLR0913 - the one place where all settings meet
    create: Callable[[WorkerSlot], Any],
    *,
    board: Board,
    limits: ServerLimits,
    host: str = "127.0.0.1",
    port: int = 8000,
    lanes: Lanes | None = None,
    drain_seconds: float = 30.0,
    drain_delay: float = 0.0,
    trusted_proxies: str | None = None,
    on_worker_end: Callable[[int], None] | None = None,
) -> int:
    """Serve until SIGTERM or SIGINT; must be called in the main thread, and without others.

    This process becomes the supervisor; the application is loaded and run by workers.

    Args:
        create: Returns the ASGI application of the worker with a slot.
        board: Has a slot for each worker.
        limits: Limits of every connection.
        host: Address to listen on.
        port: Port to listen on, 0 for a free one; the line ``listening on
            http://host:port`` on stderr tells which.
        lanes: What to load; None if all workers serve all requests.
        drain_seconds: Seconds that running requests have after the sockets closed.
        drain_delay: Seconds between the start of draining and the closing of the
            listening socket, for load balancers to notice.
        trusted_proxies: Comma-separated addresses whose ``X-Forwarded`` headers to trust.
        on_worker_end: Called by the supervisor with the pid of a worker that died.

    Returns:
        Exit code: 0 after a signal, even if requests were cut; otherwise that of the worker
        that could not start, 3 if it has none.

    Raises:
        SystemExit: With code 3, if the socket cannot be bound.
    """
    sock = _bind(host, port)
    address = describe_address(sock)

    def run(slot: WorkerSlot, control: socket.socket | None = None) -> int:
        from .worker import run_worker  # noqa: PLC0415 - only workers need uvicorn

        config = _config(partial(create, slot), limits, trusted_proxies)
        config.drain = Drain()
        config.drain_seconds, config.drain_delay = drain_seconds, drain_delay
        config.slot, config.address = slot, address
        if lanes is None or control is None:
            return run_worker(config, [sock])
        bound_memory(2 * (lanes.memory + SLACK_BYTES))
        offer_to_be_killed()
        config.table = lanes.table()
        return run_worker(config, [], control)

    stop_seconds = drain_delay + drain_seconds + END_SECONDS
    supervisor = Supervisor(board, run, [sock], stop_seconds)
    supervisor.on_end = on_worker_end
    if lanes is not None:
        sock.listen(BACKLOG)
        loading = Loading(lanes.imports, lanes.compiling, lanes.warms, run)
        supervisor.wiring = Wiring(board, loading, [sock], limits, drain_delay)
        supervisor.memory = lanes.memory + SLACK_BYTES
    try:
        return supervisor.run()
    finally:
        sock.close()


@dataclass(frozen=True)
class Lanes:
    """What the processes of a service with lanes load.

    Attributes:
        imports: imports the application.
        compiling: returns what compiles the kernels in a process of its own; None if they are
            compiled.
        warms: loads the kernels.
        table: returns the lanes of all routes.
        memory: bytes that requests of a process may hold.
    """

    imports: Callable[[], object]
    compiling: Callable[[], Callable[[], object] | None]
    warms: Callable[[], object]
    table: Callable[[], Table]
    memory: int


def _config(
    create: Callable[[], Any], limits: ServerLimits, trusted_proxies: str | None
) -> ServerConfig:
    from .protocol import protocol_class  # noqa: PLC0415 - as above
    from .worker import ServerConfig  # noqa: PLC0415 - as above

    return ServerConfig(
        create,
        factory=True,
        loop="uvloop",
        http=protocol_class(limits),
        ws="none",
        access_log=False,
        log_config=None,
        proxy_headers=trusted_proxies is not None,
        forwarded_allow_ips=trusted_proxies or "",
        server_header=False,
        backlog=BACKLOG,
    )


_LISTEN = "Name an address of this machine with --host, and a port that is free with --port"


def _bind(host: str, port: int) -> socket.socket:
    """Bind the listening socket, which all workers share.

    Raises:
        SystemExit: it cannot be bound.
    """
    address = (host, port)
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
    except OSError as e:
        sock.close()
        structlog.get_logger().error(
            "cannot listen", address=str(address), reason=e.strerror, hint=_LISTEN
        )
        raise SystemExit(STARTUP_FAILURE) from e
    sock.setblocking(False)
    return sock


def describe_address(sock: socket.socket) -> str:
    """Return the address of a listening socket, as the line on stderr tells it."""
    name = sock.getsockname()
    host = f"[{name[0]}]" if sock.family == socket.AF_INET6 else name[0]
    return f"http://{host}:{name[1]}"
