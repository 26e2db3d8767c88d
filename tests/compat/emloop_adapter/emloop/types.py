"""What the peer's tests take from ``emloop.types``."""

from core.compat.emloop import Stream, TimeProfile

__all__ = ["Stream", "TimeProfile"]
