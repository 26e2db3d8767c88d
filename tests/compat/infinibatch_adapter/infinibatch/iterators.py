"""What the peer's tests take from ``infinibatch.iterators``."""

from core.compat.infinibatch.iterators import *  # noqa: F403 - all of it, as the peer's tests do
