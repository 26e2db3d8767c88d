"""Posted streams: every report, at the largest size that is admitted or that takes some seconds."""

from __future__ import annotations

import gzip
from dataclasses import dataclass, replace

import numpy as np

from tests.cancellation.leaving import Work
from tests.cancellation.place import Place, Prepare, Table
from tests.streams import make_header

TABLE = Table()
ONE = "POST /v1/losses/{report}"
PERIODS = 1_000_000


def summary_stream(events: int, summaries: int, samples: int) -> bytes:
    """Blocks of all samples, for every event and summary."""
    pairs = ("pairs", [("sidx", "<i4"), ("loss", "<f4")], samples + 2)
    dtype = np.dtype([("event", "<i4"), ("ident", "<i4"), ("exposure", "<f4"), pairs])
    made = np.zeros(events * summaries, dtype)
    made["event"] = np.repeat(np.arange(1, events + 1), summaries)
    made["ident"] = np.tile(np.arange(1, summaries + 1), events)
    made["exposure"] = 1e9
    made["pairs"]["sidx"] = [-1, *range(1, samples + 1), 0]
    losses = np.random.default_rng(1).random((len(made), samples + 1), np.float32)
    made["pairs"]["loss"][:, :-1] = losses * 1e6
    return make_header("summary", samples) + made.tobytes()


def occurrences(events: int, count: int, periods: int = PERIODS) -> bytes:
    """A packed file: events happen in any order."""
    rng = np.random.default_rng(2)
    rows = np.empty((count, 3), "<i4")
    rows[:, 0] = rng.integers(1, events + 1, count)
    rows[:, 1] = rng.integers(1, periods + 1, count)
    rows[:, 2] = rng.integers(700_000, 730_000, count)
    return np.array([1, periods], "<i4").tobytes() + rows.tobytes()


@dataclass(frozen=True, slots=True)
class Size:
    """Of a stream."""

    events: int
    summaries: int
    samples: int
    occurrences: int = 0
    periods: int = PERIODS

    def stream(self, part: float = 1.0) -> bytes:
        """A stream with a part of the events."""
        return summary_stream(max(int(self.events * part), 1), self.summaries, self.samples)


def report(name: str, size: Size, options: str = "") -> Prepare:
    """A posted stream, and when its events happen."""

    def prepare(place: Place, part: float) -> Work:
        query = f"over_bound=try{options}"
        if size.occurrences:
            data = occurrences(size.events, int(size.occurrences * part), size.periods)
            query += f"&occurrence={place.store('occurrence', data)}"
        if name in {"qelt", "qplt"}:
            quantiles = np.linspace(0, 1, 10_000, dtype="<f4").tobytes()
            query += f"&quantiles={place.store('quantiles', quantiles)}"
        return Work("POST", f"/v1/losses/{name}?{query}", size.stream(part))

    return prepare


def summaries_of_items(place: Place, part: float) -> Work:
    """Items that are added up into as many summaries."""
    items = int(1_000_000 * part)
    xref = np.ones((items, 3), "<i4")
    xref[:, 0] = xref[:, 1] = np.arange(1, items + 1)
    digest = place.store("summary_xref", xref.tobytes())
    block = np.zeros(items, [("event", "<i4"), ("item", "<i4"), ("pairs", "<i4,<f4", 4)])
    block["item"] = np.arange(1, items + 1)
    block["pairs"]["f0"] = [-1, 1, 2, 0]
    block["pairs"]["f1"] = [1, 2, 3, 0]
    body = [make_header("loss", 2)]
    for event in range(1, 6):
        block["event"] = event
        body.append(block.tobytes())
    return Work("POST", f"/v1/losses/selt?summary_xref={digest}", b"".join(body))


def several(place: Place, part: float) -> Work:  # noqa: ARG001 - a kind of work
    """Reports in one pass."""
    return Work("POST", "/v1/losses?reports=events,selt,melt", MANY.stream(part))


def put(place: Place, part: float) -> Work:
    """The same, as ``curl -T`` sends it."""
    return replace(several(place, part), method="PUT")


def compressed(place: Place, part: float) -> Work:  # noqa: ARG001 - a kind of work
    """A body that is decoded, for a table that is encoded."""
    coded = ("Content-Encoding: gzip", "Accept-Encoding: zstd")
    return Work("PUT", "/v1/losses/selt", gzip.compress(MANY.stream(part), 1), coded)


LONG = Size(200, 20, 100, 3_000_000)
WIDE = Size(1000, 1, 100, 10_000)
MANY = Size(20_000, 10, 100)
SUMS = Size(1000, 20, 100, 2_000_000)
AT_YEARS = "&return_periods=1000,250,100,10,5,2"

for _name in ("events", "selt", "melt"):
    TABLE.add(ONE, _name, report(_name, MANY))
for _form in ("ndjson", "arrow", "parquet", "frames"):
    TABLE.add(ONE, f"selt in {_form}", report("selt", MANY, f"&format={_form}"))
TABLE.add("PUT /v1/losses/{report}", "a body and a table compressed", compressed)
TABLE.add("POST /v1/losses", "several reports", several)
TABLE.add("PUT /v1/losses", "several reports by PUT", put)
TABLE.add(ONE, "qelt", report("qelt", Size(2000, 10, 100)))
for _name in ("splt", "mplt", "qplt"):
    TABLE.add(ONE, _name, report(_name, LONG))
for _name in ("aal", "alct"):
    TABLE.add(ONE, _name, report(_name, SUMS))
for _name in ("ept", "psept"):
    TABLE.add(ONE, _name, report(_name, WIDE))
for _form in ("png", "svg"):
    TABLE.add(ONE, f"ept as {_form}", report("ept", WIDE, f"&format={_form}"))
for _name, _count, _periods in (
    ("ept at return periods", 100_000, PERIODS),
    # Sums of so many periods and samples are what a request may take.
    ("ept of many occurrences", 4_000_000, 10_000),
):
    _size = Size(1000, 1, 100, _count, _periods)
    TABLE.add(ONE, _name, report("ept", _size, AT_YEARS))
TABLE.add(ONE, "summaries of items", summaries_of_items)
