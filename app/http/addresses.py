"""Absolute URLs of resources, as clients reach them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Addresses:
    """Builds absolute URLs.

    Args:
        public_url: base of all URLs; None for the base of the request.
    """

    public_url: str | None

    def of(self, base: str, path: str) -> str:
        """Return the URL of a path; ``base`` is that of the request."""
        return (self.public_url or base).rstrip("/") + path
