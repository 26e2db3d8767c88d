"""Quotas: how much each owner may store, by count and by bytes.

The store of heads counts what each owner has, within the transaction that stores one thing
more, and asks the quota there. So a limit is neither passed by workers that store at the
same time, nor forgotten by a crash.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from app.errors import QuotaExceededError

from .base import Admit, Usage

_RETRY = 10
"""Seconds after which a client may hope that something of its own has expired."""


@dataclass(frozen=True, slots=True)
class Limit:
    """How much one owner may have of one kind."""

    name: str
    """Name of the kind, in the plural, for people."""
    count: int
    nbytes: int


class Quotas:
    """The quotas of a service.

    Args:
        limits: the limit of each kind; others are unlimited.
    """

    def __init__(self, limits: Mapping[str, Limit]) -> None:
        self._limits = dict(limits)

    @property
    def limits(self) -> Mapping[str, Limit]:
        """The limit of each kind."""
        return self._limits

    def admission(self, kind: str, count: int, nbytes: int) -> Admit | None:
        """Return what admits a change to an owner's usage; None if the kind is unlimited.

        It raises QuotaExceededError if the change exceeds the limit. A change that adds
        nothing is admitted even where a limit was lowered below what is stored.

        Args:
            kind: kind of the heads.
            count: number of heads that the change adds.
            nbytes: number of bytes that it adds.
        """
        limit = self._limits.get(kind)
        if limit is None:
            return None

        def admit(usage: Usage) -> None:
            if count > 0 and usage.count > limit.count:
                used = usage.count - count
                refuse(f"{limit.name}.count", limit.count, used, retry_after=_RETRY)
            if nbytes > 0 and usage.nbytes > limit.nbytes:
                used = usage.nbytes - nbytes
                refuse(f"{limit.name}.bytes", limit.nbytes, used, retry_after=_RETRY)

        return admit


def refuse(limit: str, allowed: int, used: int, *, retry_after: int) -> None:
    """Raise the error for a limit that is reached.

    Raises:
        QuotaExceededError: always.
    """
    what, _, unit = limit.partition(".")
    counted, setting = f"{allowed} {what}", what.upper()
    if unit != "count":
        counted, setting = f"{allowed} bytes of {what}", f"{setting.removesuffix('S')}_BYTES"
    raise QuotaExceededError(
        f"an owner may have {counted}",
        hint="Delete what is not needed, or ask the operator for more",
        retry_after=retry_after,
        limit=limit,
        setting=f"THALWEG_QUOTA_{setting}",
        allowed=allowed,
        used=used,
    )
