"""Addresses at the other ends of connections: those of trusted proxies, and how many there are."""

from __future__ import annotations

import ipaddress
from collections import Counter
from typing import TypeVar

_Key = TypeVar("_Key")

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_LINGERING = 64
"""Refused connections that may stay for a moment, until their clients have read why."""


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
        self._count = 0
        self._of_peer: Counter[str] = Counter()

    @property
    def count(self) -> int:
        """Number of connections."""
        return self._count

    @property
    def may_linger(self) -> bool:
        """Whether a refused connection may stay until its client has read why."""
        return self._count <= self.limit + _LINGERING

    def add(self, peer: str | None) -> str | None:
        """Count a connection; return the problem code that refuses it, or None.

        Every connection is counted, and removed when it is closed.
        """
        self._count += 1
        own = 1
        if peer is not None:
            own = self._of_peer[peer] = self._of_peer[peer] + 1
        if self._count > self.limit:
            return "busy"
        if own > self.share and not self._proxies.covers(peer):
            return "share-exceeded"
        return None

    def remove(self, peer: str | None) -> None:
        """Count a connection as closed."""
        self._count -= 1
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
