"""Stages around others, which add something to every call and change nothing else."""

from __future__ import annotations

from ..arrays import Indices
from .base import Indexed, Sequential


class WrappedIndexed(Indexed):
    """An indexed stage that looks like the one it wraps; subclasses read its items.

    Args:
        inner: the stage.

    Attributes:
        inner: the stage.
    """

    def __init__(self, inner: Indexed) -> None:
        self.inner = inner
        # Asked for in every call, and a chain of stages would pass it on from one to the next.
        self.schema = inner.schema
        self.length = inner.length

    def element_offsets(self, field: str) -> Indices | None:
        """Offsets of the elements of a ragged field, if the stage knows them."""
        known = getattr(self.inner, "element_offsets", None)
        offsets: Indices | None = None if known is None else known(field)
        return offsets


class WrappedSequential(Sequential):
    """A sequential stage that looks like the one it wraps; subclasses read its items.

    Args:
        inner: the stage.

    Attributes:
        inner: the stage.
    """

    def __init__(self, inner: Sequential) -> None:
        self.inner = inner
        self.schema = inner.schema
        self.initial = self.inner.initial
