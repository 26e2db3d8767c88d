"""What the peer's tests take from ``infinibatch.datasets``."""

from core.compat.infinibatch.datasets import bump_seed, chunked_dataset_iterator

__all__ = ["bump_seed", "chunked_dataset_iterator"]
