"""What the peer's tests take from ``emloop.datasets.stream_wrapper``."""

from core.compat.emloop import StreamWrapper

__all__ = ["StreamWrapper"]
