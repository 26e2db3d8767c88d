"""A book of losses that is known row by row, as a sealed run and as a loss set."""

from __future__ import annotations

import asyncio
import itertools
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from app.http.identity import SINGLE_USER
from app.portfolio.contents import OpenSet
from tests.app.runs.uploaded import Uploads
from tests.portfolio_oracle import Set
from tests.streams import Block, Stream

SETS = "/v1/portfolios/loss-sets"
QUERY = "/v1/portfolios/query"
SAMPLES = 3
Losses = dict[tuple[int, int, int], float]
"""By event, summary and sample; sample 0 is the numerical mean."""


@dataclass
class Book:
    """Losses, and when they happen."""

    seed: int = 1
    periods: int = 20
    losses: Losses = field(init=False)
    occurrences: list[tuple[int, int, int]] = field(init=False)
    """(period, day of the year 2000, event)."""

    def __post_init__(self) -> None:
        rng = np.random.default_rng(self.seed)
        self.losses = {
            (event, summary, sample): float(np.float32(rng.integers(1, 1000)))
            for event, summary, sample in itertools.product(range(1, 9), (1, 2, 4), range(4))
            if rng.random() < 0.7
        }
        self.occurrences = sorted(
            (int(rng.integers(1, self.periods + 1)), int(rng.integers(1, 28)), event)
            for event in [*range(1, 8), *range(1, 8), 99]
        )

    def stream(self, events: range = range(1, 9)) -> bytes:
        """The losses as a stream of summaries, with special samples that are no losses."""
        blocks = []
        for event, summary in itertools.product(events, (1, 2, 4)):
            pairs = [(-5, 5000.0), (-3, 700.0)] if summary == 1 else []
            for sample in range(SAMPLES + 1):
                loss = self.losses.get((event, summary, sample), 0.0)
                pairs.append((sample or -1, loss))
            blocks.append(Block(event, summary, tuple(sorted(pairs))))
        return Stream("summary", SAMPLES, 4, tuple(blocks)).encode()

    def occurrence(self) -> bytes:
        """The occurrences as a file."""
        lines = [f"{event},{period},2000,3,{day}\n" for period, day, event in self.occurrences]
        return "".join(["event_id,period_no,occ_year,occ_month,occ_day\n", *lines]).encode()

    def whole(self, groups: dict[int, int] | None = None, factor: float = 1.0) -> Set:
        """What the oracle knows of it; all summaries in group 0 by default."""
        groups = {1: 0, 2: 0, 4: 0} if groups is None else groups
        return Set(self.losses, self.occurrences, groups, factor)


class Desk:
    """A service without a server, and what is asked of it.

    Args:
        directory: of its data.
        settings: of the service.
    """

    run_id: str

    def __init__(self, directory: Path, **settings: Any) -> None:  # noqa: ANN401 - of Settings
        self.uploads = Uploads(directory, **settings)
        self.parts = self.uploads.app.parts

    def run(self, book: Book, *, seal: bool = True, **inputs: str) -> str:
        """A run of a book, in two partitions whose events are not in order."""
        put = self.parts.losses.inputs.put
        given = {"occurrence": put(SINGLE_USER, "occurrence", book.occurrence(), 20).digest}
        made = self.uploads.run(["aal", "ept", "psept"], given | inputs, no_of_periods=book.periods)
        self.uploads.upload(made, book.stream(range(5, 9)), book.stream(range(1, 5)))
        return self.uploads.seal(made).id if seal else made.id

    def info(self, text: str = "summary_id,Region,TIV\n1,N,1000\n2,S,1000\n4,N,1000\n") -> str:
        """Store what summaries are; the digest."""
        put = self.parts.losses.inputs.put
        return str(put(SINGLE_USER, "summary_info", text.encode()).digest)

    def item_run(self) -> tuple[str, Losses]:
        """A run of items, each a summary of set 1; and the losses of set 2, where two are one."""
        put = self.parts.losses.inputs.put
        xref = b"item_id,summary_id,summaryset_id\n1,1,1\n2,2,1\n3,3,1\n1,1,2\n2,1,2\n3,2,2\n"
        book = Book(seed=3)
        inputs = {
            "occurrence": str(put(SINGLE_USER, "occurrence", book.occurrence(), 20).digest),
            "summary_xref": str(put(SINGLE_USER, "summary_xref", xref).digest),
        }
        made = self.uploads.run(["aal"], inputs, no_of_periods=book.periods)
        blocks = []
        for event, (item, old) in itertools.product(range(1, 9), enumerate((1, 2, 4), 1)):
            losses = [book.losses.get((event, old, sample), 0.0) for sample in range(4)]
            pairs = [(sample or -1, loss) for sample, loss in enumerate(losses) if loss]
            # Without exposure and mean, a summary is left out as the peer does.
            blocks.append(Block(event, item, ((-3, 9.0), *pairs)))
        parts = [[b for b in blocks if b.event % 2 == k] for k in (0, 1)]
        self.uploads.upload(made, *(Stream("loss", 3, 4, tuple(part)).encode() for part in parts))
        expected: Losses = defaultdict(float)
        for (event, summary, sample), loss in book.losses.items():
            expected[event, 1 if summary < 3 else 2, sample] += loss
        return self.uploads.seal(made).id, dict(expected)

    def send(self, method: str, path: str, **options: Any) -> httpx.Response:  # noqa: ANN401
        """Make a request; its answer."""

        async def answer() -> httpx.Response:
            async with self.uploads.client() as client:
                return await client.request(method, path, **options)

        return asyncio.run(answer())

    def make(self, run: str, **body: Any) -> httpx.Response:  # noqa: ANN401 - JSON
        return self.send("POST", SETS, json={"run": run, **body})

    def ask(self, form: str = "json", /, **body: Any) -> httpx.Response:  # noqa: ANN401 - JSON
        """A question about the set ``a``, unless others are named."""
        query = {"loss_sets": [{"id": "a"}], **body}
        return self.send("POST", f"{QUERY}?format={form}", json=query)

    def open(self, ident: str) -> OpenSet:
        source = self.parts.portfolios.answers.source
        return source.open(source.sets.find(SINGLE_USER, ident))


def losses_of(opened: OpenSet) -> Losses:
    """All losses of a set, taken out one by one."""
    table, found = opened.losses.table, {}
    for number, event in enumerate(table.event_ids.tolist()):
        for block in range(table.event_starts[number], table.event_starts[number + 1]):
            summary, count = int(table.summary_ids[block]), int(table.counts[block])
            first, at = int(table.samples_at[block]), int(table.losses_at[block])
            for k in range(count):
                key = (event, summary, int(table.samples[first + k]))
                assert key not in found
                found[key] = float(table.losses[at + k])
    return found
