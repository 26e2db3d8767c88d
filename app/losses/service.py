"""The service of loss streams: its parts and limits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from app.engine.buffers import Buffers
from app.engine.ledger import Ledger
from app.engine.workers import Workers
from app.http.bodies import MinimumRate
from app.server.drain import Drain
from app.server.reader import SocketBody
from app.telemetry import Metrics
from app.tokens import KeyRing

from .inputs import Inputs
from .pump import Destination, Pump, T
from .spool import Spools
from .sums_room import Admission


@dataclass(frozen=True, slots=True)
class LossService:
    """The parts that routes of loss streams use."""

    keys: KeyRing
    inputs: Inputs
    spools: Spools
    threads: Workers
    buffers: Buffers
    ledger: Ledger
    metrics: Metrics
    rate: MinimumRate
    """How fast auxiliary files have to arrive; loss streams, where their owner's share is
    spent."""
    max_body: int | None
    """Maximum bytes of a posted stream, as sent and as decoded; None for no limit."""
    max_input: int
    """Maximum bytes of an auxiliary file, as sent and as decoded."""
    max_samples: int
    """Largest accepted len_sample."""
    max_blocks: int
    """Maximum blocks per event."""
    admission: Admission
    """Refuses runs whose sums may need too much."""
    is_spent: Callable[[str], bool]
    """Whether an owner has spent its share of requests or memory."""

    def pump(
        self,
        body: SocketBody,
        destination: Destination[T],
        payer: str,
        drain: Drain,
        progress: Callable[[int], None],
    ) -> Pump[T]:
        """Return what moves a body, at the expense of its payer; see :class:`Pump`."""
        return Pump(
            body,
            destination,
            self.buffers,
            payer,
            threads=self.threads,
            drain=drain,
            progress=progress,
            lent=self.metrics.buffers_used.inc,
            hurry=partial(self._hurry, payer),
        )

    def _hurry(self, payer: str, nbytes: int, seconds: float) -> None:
        """Check the rate of a slow body where its owner has nothing left for other requests.

        Raises:
            StalledError: the body is too slow.
        """
        if self.is_spent(payer):
            self.rate.check(nbytes, seconds)
