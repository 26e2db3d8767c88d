"""The readiness of the service: of this worker, and of the others as the board shows them.

A balancer asks whichever worker accepts its connection, and sends requests to all of them. So
any worker answers for all, and one that fails, or whose event loop stands still, makes the
service not ready. A worker that is being replaced does not, for ten seconds: the others have
its connections meanwhile, and a service with seven workers of eight can take requests. Where
workers have lanes, those are the others of its lane: a lane without any worker that is ready
makes the service not ready.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from app.server.board import Board, WorkerSlot

from .monitor import Monitor, Part, problems_of

_SILENCE = 5.0
"""Seconds without a beat after which a worker counts as stuck."""
_REPLACEMENT = 10.0
"""Seconds that the replacement of a worker may take."""
_STARTING = {"kernels"}
"""Parts that fail while a worker starts."""


@dataclass(slots=True, eq=False)
class Readiness:
    """Answers whether the service is ready.

    Args:
        monitor: that of this worker.
        board: what the others say.
        slot: that of this worker.
        poisoned: counts jobs that were given up. They are shown, and make nothing unready.
    """

    _monitor: Monitor
    _board: Board
    _slot: WorkerSlot
    _poisoned: Callable[[], int]
    _ready_at: dict[int, float] = field(default_factory=dict, init=False)

    async def describe(self, *, draining: bool) -> dict[str, Any]:
        """Describe the readiness, in the form of the answer of ``/readyz``.

        Args:
            draining: whether the server is shutting down.
        """
        parts = await self._monitor.fresh_parts()
        reasons = [part.problem for part in parts.values() if part.problem is not None]
        workers = [self._worker(slot, parts) for slot in self._board.workers]
        for worker in workers:
            if worker["worker"] != self._slot.index and worker["status"] == "not ready":
                lane = f", {worker['lane']}" if "lane" in worker else ""
                reasons += [f"worker {worker['worker']}{lane}: {why}" for why in worker["reasons"]]
        reasons += _empty_lanes(workers)
        if draining:
            reasons.append("the server is shutting down")
        answer: dict[str, Any] = {"status": "not ready" if reasons else "ready"}
        if reasons:
            answer["reasons"] = reasons
        answer["parts"] = {name: part.to_json() for name, part in parts.items()}
        answer["workers"] = workers
        if poisoned := self._poisoned():
            answer["poisoned_jobs"] = poisoned
        return answer

    def _worker(self, slot: WorkerSlot, own: Mapping[str, Part]) -> dict[str, Any]:
        described = {"worker": slot.index, **({"lane": slot.lane} if slot.lane else {})}
        if slot.index == self._slot.index:
            problems = {name: p.problem for name, p in own.items() if p.problem is not None}
        else:
            problems = self._problems_of(slot)
        now = time.monotonic()
        if not problems:
            self._ready_at[slot.index] = now
            return {**described, "status": "ready"}
        lasted = now - self._ready_at.get(slot.index, float("-inf"))
        replaced = lasted < _REPLACEMENT and set(problems) <= _STARTING
        status = "being replaced" if replaced else "not ready"
        return {**described, "status": status, "reasons": list(problems.values())}

    def _problems_of(self, slot: WorkerSlot) -> dict[str, str]:
        report, beaten = slot.report(), slot.beaten
        if report is None or not beaten:
            return {"kernels": self._board.compiling or "it has not started"}
        silence = time.monotonic() - beaten
        if silence > _SILENCE:
            return {"loop": f"its event loop has stood still for {silence:.0f} s"}
        return problems_of(report["parts"])


def _empty_lanes(workers: list[dict[str, Any]]) -> list[str]:
    """Return why requests of a lane would wait whose workers are all being replaced."""
    states: defaultdict[str, set[str]] = defaultdict(set)
    for worker in workers:
        if "lane" in worker:
            states[worker["lane"]].add(worker["status"])
    return [
        f"all workers of the lane {lane} are being replaced"
        for lane, found in states.items()
        if found == {"being replaced"}
    ]
