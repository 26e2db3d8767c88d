"""Absolute addresses of resources, as clients reach them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Addresses:
    """Makes absolute addresses.

    Args:
        public_url: base of all addresses; None for that of each request.
    """

    public_url: str | None

    def of(self, base: str, path: str) -> str:
        """The address of a path, ``base`` being that of the request."""
        return (self.public_url or base).rstrip("/") + path
