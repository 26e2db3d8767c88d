"""The protocol class that uvicorn gets: ours, or its own where ours cannot build on it."""

from __future__ import annotations

import asyncio
import inspect
import logging

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from .departures import Departures
from .limits import ServerLimits
from .peers import Connections, Peers
from .protocol import BodyProtocol
from .spreading import Spread

_logger = logging.getLogger(__name__)

_BUILT_ON = frozenset(
    {"_start_asgi_task", "_should_upgrade", "_unset_keepalive_if_required"}
    | {"handle_websocket_upgrade", "on_headers_complete", "timeout_keep_alive_handler"}
)
"""Methods of uvicorn's class that ours overrides or calls."""


def protocol_class(limits: ServerLimits) -> type[asyncio.Protocol] | str:
    """Return a protocol class with these limits, for ``uvicorn.Config(http=...)``.

    Returns:
        The class; or ``"auto"``, after a warning, if the installed uvicorn is unsuitable.
    """
    reason = _unsuitable()
    if reason:
        _logger.warning("uvicorn %s: %s; serving without limits", uvicorn.__version__, reason)
        return "auto"
    connected = Connections(limits.connections, limits.address_connections, Peers(limits.proxies))
    attributes = {"limits": limits, "connected": connected, "departures": Departures()}
    attributes |= {"starts": Spread(), "partings": Spread()}
    return type("LimitedBodyProtocol", (BodyProtocol,), attributes)


def _unsuitable() -> str | None:
    """Return why our class cannot build on the installed uvicorn; None if it can."""
    version = tuple(int(part) for part in uvicorn.__version__.split(".")[:2] if part.isdigit())
    if not (0, 50) <= version < (0, 60):
        return "this version is not supported"
    lost = [name for name in sorted(_BUILT_ON) if not hasattr(HttpToolsProtocol, name)]
    if lost:
        return f"HttpToolsProtocol has no {lost[0]}"
    required = {"scope", "transport", "flow", "message_event", "on_response", "expect_100_continue"}
    missing = required - set(inspect.signature(RequestResponseCycle).parameters)
    return f"its cycle takes no {', '.join(sorted(missing))}" if missing else None
