"""Loss sets that are open: their content, checked and indexed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from app.engine.ledger import Kept
from app.http.identity import Identity
from app.state.base import StoreDamagedError

from .contents import OpenSet, open_set
from .records import LossSet, LossSets


@dataclass(frozen=True, slots=True)
class SetSource:
    """Finds loss sets, and keeps the last few of them open."""

    sets: LossSets
    opened: Kept[OpenSet]

    def find(self, who: Identity, ident: str) -> LossSet:
        """Return a loss set of the caller.

        Raises:
            NotFoundError: the caller has no such set.
        """
        return self.sets.find(who, ident)

    def open(self, record: LossSet) -> OpenSet:
        """Open a loss set.

        Raises:
            CoreError, ServiceError: its content is damaged, or there is no memory for it.
        """

        def opened() -> tuple[OpenSet, int]:
            found = open_set(self.sets.blobs, record)
            return found, found.nbytes

        return self.opened.get(record.value["attempt"], opened)

    def check(self, sets: Sequence[OpenSet]) -> None:
        """Check that the disk has delivered all that was read of sets so far.

        Raises:
            StoreDamagedError: a part was read as zeros; the set is opened anew the next time.
        """
        for each in sets:
            try:
                each.losses.check()
            except StoreDamagedError:
                self.opened.forget(each.record.value["attempt"])
                raise
