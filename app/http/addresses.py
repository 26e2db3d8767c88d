"""Addresses of resources, as clients reach them."""

from __future__ import annotations

import ipaddress
import re

from starlette.types import Scope

from app.server.limits import PEER_EXTENSION, Peers

_HOST = re.compile(r"[A-Za-z0-9.-]{1,253}(:[0-9]{1,5})?|\[[0-9A-Fa-f:.]{2,45}\](:[0-9]{1,5})?")

_LOCAL = "local"
"""Stands for clients without an address: those of a Unix socket."""


class Addresses:
    """Builds the addresses of resources.

    An address is absolute where the operator says how clients reach the service, or a
    trusted proxy does; elsewhere it is a path. The ``Host`` of a request is no such
    statement: its client writes it, and a cache may show the answer to somebody else.

    Args:
        public_url: base of all addresses, or None.
        trusted_proxies: addresses and networks whose X-Forwarded-Host counts,
            comma-separated, or ``*``.
    """

    def __init__(self, public_url: str | None, trusted_proxies: str | None = None) -> None:
        self._public_url = None if public_url is None else public_url.rstrip("/")
        self._proxies = Peers(trusted_proxies)

    def of(self, scope: Scope, path: str) -> str:
        """Return the address of a path: a URL, or the path itself."""
        if self._public_url is not None:
            return self._public_url + path
        hosts = [value for name, value in scope["headers"] if name == b"x-forwarded-host"]
        peer = (scope.get("extensions") or {}).get(PEER_EXTENSION)
        if len(hosts) == 1 and self._proxies.covers(peer):
            host = hosts[0].decode("latin-1").strip()
            if _HOST.fullmatch(host):
                return f"{scope['scheme']}://{host}{path}"
        return path


def client_address(scope: Scope) -> str:
    """Return who is charged for a request without a key: the address it came from.

    Of IPv6 addresses the first 64 bits count, for a client usually has all that begin so.
    """
    client = scope.get("client")
    if not client:
        return _LOCAL
    host: str = client[0]
    return host if ":" not in host else _of_version_6(host)


def _of_version_6(host: str) -> str:
    try:
        address = ipaddress.IPv6Address(host.partition("%")[0])
    except ValueError:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, 64), strict=False))
