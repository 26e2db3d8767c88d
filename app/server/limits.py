"""Limits of connections: of each, and of those from one address."""

from __future__ import annotations

import ipaddress
from collections import Counter
from dataclasses import dataclass
from typing import TypeVar

PEER_EXTENSION = "thalweg.peer"
"""Address of the other end of the connection, which proxy headers do not change."""

_Key = TypeVar("_Key")

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_LINGERING = 64
"""Refused connections that may stay for a moment, until their clients have read why."""


@dataclass(frozen=True)
class ServerLimits:
    """Bounds of a connection; sizes in bytes, times in seconds.

    Attributes:
        header_bytes: Request line and headers together; beyond it, 431.
        header_count: Number of headers; beyond it, 431.
        header_seconds: From the first byte of a request to the end of its headers; beyond
            it, 408.
        body_idle_seconds: Without a byte of the body while the application waits for one.
        body_seconds: From the end of the headers to the end of the body; None for no limit.
        write_idle_seconds: Without the client taking a byte while some wait to be sent.
        keep_alive_seconds: Without a byte of a further request.
        linger_seconds: For discarding input after an answer sent before the end of the
            body, so that the client can read the answer.
        connections: Of the service with lanes, else of a process; beyond it, 503.
        address_connections: Of them, from one address; beyond it, 429.
        proxies: Addresses that may have any number of them, comma-separated; None for none.
    """

    header_bytes: int = 65536
    header_count: int = 200
    header_seconds: float = 10.0
    body_idle_seconds: float = 30.0
    body_seconds: float | None = None
    write_idle_seconds: float = 60.0
    keep_alive_seconds: float = 15.0
    linger_seconds: float = 2.0
    connections: int = 4096
    address_connections: int = 4096
    proxies: str | None = None


class Peers:
    """A set of addresses.

    Args:
        text: addresses and networks, comma-separated; ``*`` for all, None for none. Names
            are ignored.
    """

    def __init__(self, text: str | None) -> None:
        names = [name.strip() for name in (text or "").split(",") if name.strip()]
        self._everyone = "*" in names
        self._networks = [network for name in names if (network := _network(name)) is not None]

    def covers(self, peer: str | None) -> bool:
        """Whether an address is in the set; None is in no set."""
        if peer is None:
            return False
        if self._everyone:
            return True
        try:
            address = ipaddress.ip_address(peer)
        except ValueError:
            return False
        return any(address in network for network in self._networks)


class Connections:
    """The connections of a service, or of a process, by address.

    Args:
        limit: maximum number of connections.
        share: maximum number of them from one address.
        proxies: addresses that speak for many clients, and have no share.
    """

    def __init__(self, limit: int, share: int, proxies: Peers) -> None:
        self.limit = limit
        self.share = max(share, 1)
        self._proxies = proxies
        self.count = 0
        """Number of connections."""
        self._of_peer: Counter[str] = Counter()

    @property
    def may_linger(self) -> bool:
        """Whether a refused connection may stay until its client has read why."""
        return self.count <= self.limit + _LINGERING

    def add(self, peer: str | None) -> str | None:
        """Count a connection; return the problem code that refuses it, or None.

        Every connection is counted, and removed when it is closed.
        """
        self.count += 1
        own = 1
        if peer is not None:
            own = self._of_peer[peer] = self._of_peer[peer] + 1
        if self.count > self.limit:
            return "busy"
        if own > self.share and not self._proxies.covers(peer):
            return "share-exceeded"
        return None

    def remove(self, peer: str | None) -> None:
        """Count a connection as closed."""
        self.count -= 1
        if peer is not None:
            take_one(self._of_peer, peer)


def take_one(counts: Counter[_Key], key: _Key) -> None:
    """Count one less of something; nothing is kept of what there is none of."""
    if counts[key] > 1:
        counts[key] -= 1
    else:
        del counts[key]


def _network(name: str) -> Network | None:
    try:
        return ipaddress.ip_network(name, strict=False)
    except ValueError:
        return None
