"""What the peer's tests take from ``emloop.datasets``."""
