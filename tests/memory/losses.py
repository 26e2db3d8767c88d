"""Posts of loss streams: every report in every format, and what small inputs declare."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

import numpy as np

from core.losses.inputs import Occurrence, encode_occurrence
from core.losses.inputs.rows import MAX_POINTS
from core.losses.reports import REPORTS
from tests.app.harness import with_query
from tests.e2e.samples import large_stream
from tests.memory.desk import Desk, Prepare, Request, Table
from tests.streams import make_header

TABLE = Table("losses")
ONE, MANY = "POST /v1/losses/{report}", "POST /v1/losses"
INT_MAX = 2**31 - 1
MIB = 1 << 20
FORMATS = ("csv", "ndjson", "arrow", "parquet", "bin", "frames")
PERIODS = 1000


def stream_of(
    events: int, *, samples: int = 10, blocks: int = 2, first: int = 1, kind: str = "summary"
) -> bytes:
    """A stream of full blocks."""
    exposure = [("exposure", "<f4")] if kind == "summary" else []
    pairs = ("pairs", [("sidx", "<i4"), ("loss", "<f4")], samples + 2)
    made = np.zeros(
        events * blocks, np.dtype([("event", "<i4"), ("ident", "<i4"), *exposure, pairs])
    )
    made["event"] = first + np.arange(len(made)) // blocks
    made["ident"] = 1 + np.arange(len(made)) % blocks
    made["pairs"]["sidx"] = [-1, *range(1, samples + 1), 0]
    losses = np.random.default_rng(1).random((len(made), samples + 1), np.float32)
    made["pairs"]["loss"][:, :-1] = losses * 1e5
    return make_header(kind, samples) + made.tobytes()


def occurrence(events: int, periods: int = PERIODS, each: int = 1) -> bytes:
    """Occurrences of events from 1 on, ``each`` so many, over all periods."""
    ids = np.repeat(np.arange(1, events + 1, dtype=np.int32), each)
    numbers = (np.arange(len(ids)) % periods + 1).astype(np.int32)
    return encode_occurrence(Occurrence(periods, ids, numbers, numbers.astype(np.int64)), "bin")


def weights(periods: int) -> bytes:
    """Weights of so many periods."""
    rows = np.zeros(periods, np.dtype([("period", "<i4"), ("weight", "<f8")]))
    rows["period"], rows["weight"] = np.arange(1, periods + 1), 1 / periods
    return rows.tobytes()


def options_of(desk: Desk, *reports: str, events: int = 4000) -> dict[str, str]:
    """What these reports need."""
    needs = {need.name for report in reports for need in REPORTS[report].needs}
    given = {}
    if "quantiles" in needs:
        given["quantiles"] = "0.1,0.5,0.9"
    if "occurrence" in needs:
        given["occurrence"] = desk.input("occurrence", occurrence(events))
    if {"ept", "psept"} & {*reports}:
        given["return_periods"] = "250,100,50"
    return given


def ordinary() -> bytes:
    """A stream of some hundred kilobytes."""
    return stream_of(4000)


def posting(
    report: str, form: str, made: Callable[[], bytes] = ordinary, *, events: int = 4000
) -> Prepare:
    """A post of a stream, after one of few events."""

    def prepare(desk: Desk) -> Request:
        path = f"/v1/losses/{report}"
        path = with_query(path, {"format": form, **options_of(desk, report, events=events)})
        desk.send(Request.of("POST", path, stream_of(3)))
        return Request.of("POST", path, made())

    return prepare


for _report in REPORTS:
    TABLE.add(ONE, f"{_report} in csv", posting(_report, "csv"))
for _form in FORMATS[1:]:
    TABLE.add(ONE, f"melt in {_form}", posting("melt", _form))
    TABLE.add(ONE, f"splt in {_form}", posting("splt", _form))
for _form in ("svg", "png"):
    TABLE.add(ONE, f"ept in {_form}", posting("ept", _form))
    TABLE.add(ONE, f"aal in {_form}", posting("aal", _form))
TABLE.add(ONE, "selt of 64 MiB", posting("selt", "bin", lambda: large_stream(64)))
TABLE.add(ONE, "melt of 64 MiB", posting("melt", "csv", lambda: large_stream(64)))


@TABLE.case("PUT /v1/losses/{report}")
def melt_in_duplex(desk: Desk) -> Request:
    desk.send(Request.of("PUT", "/v1/losses/melt?duplex=true", stream_of(3)))
    return Request.of("PUT", "/v1/losses/melt?duplex=true", large_stream(16))


@TABLE.case(MANY)
def five_reports_at_once(desk: Desk) -> Request:
    names = ("events", "selt", "melt", "qelt", "aal")
    path = with_query("/v1/losses", {"reports": ",".join(names), **options_of(desk, *names)})
    desk.send(Request.of("POST", path, stream_of(3)))
    return Request.of("POST", path, stream_of(4000))


@TABLE.case("PUT /v1/losses")
def two_reports_by_put(desk: Desk) -> Request:
    path = "/v1/losses?reports=selt,melt"
    desk.send(Request.of("PUT", path, stream_of(3)))
    return Request.of("PUT", path, stream_of(4000))


@TABLE.case(ONE)
def a_part(desk: Desk) -> Request:
    desk.send(Request.of("POST", "/v1/losses/melt", stream_of(3), {"Upload-Complete": "?0"}))
    return Request.of("POST", "/v1/losses/melt", large_stream(16), {"Upload-Complete": "?0"})


@TABLE.case(ONE)
def compressed(desk: Desk) -> Request:
    from gzip import compress

    coded = {"Content-Encoding": "gzip", "Accept-Encoding": "zstd"}
    desk.send(Request.of("POST", "/v1/losses/melt", compress(stream_of(3)), coded))
    return Request.of("POST", "/v1/losses/melt", compress(stream_of(40_000), 1), coded)


# -- what inputs declare -------------------------------------------------------------


def declaring(report: str, periods: int, **options: str) -> Prepare:
    """A tiny stream, and occurrences that declare so many periods in twenty bytes."""

    def prepare(desk: Desk) -> Request:
        known = options_of(desk, report)
        desk.send(Request.of("POST", with_query(f"/v1/losses/{report}", known), stream_of(3)))
        digest = desk.input("occurrence", struct.pack("<iiiii", 1, periods, 1, periods, 1))
        path = with_query(f"/v1/losses/{report}", {**known, "occurrence": digest, **options})
        return Request.of("POST", path, stream_of(2))

    return prepare


for _report, _row in REPORTS.items():
    if any(need.name == "occurrence" for need in _row.needs):
        _name = f"{_report} of the largest number of periods"
        TABLE.add(ONE, _name, declaring(_report, INT_MAX), hostile=True)
        _name = f"{_report} of 100 million periods"
        TABLE.add(ONE, _name, declaring(_report, 100_000_000, over_bound="try"), hostile=True)
TABLE.add(
    ONE,
    "melt with rates of the largest number of periods",
    declaring("melt", INT_MAX),
    hostile=True,
)


def every_point(report: str) -> Prepare:
    """All points of curves of many periods."""

    def prepare(desk: Desk) -> Request:
        path = f"/v1/losses/{report}?format=bin&over_bound=try&occurrence="
        desk.send(Request.of("POST", path + desk.input("occurrence", occurrence(3)), stream_of(3)))
        digest = desk.input("occurrence", occurrence(20_000, 1_000_000, 50))
        return Request.of("POST", path + digest, stream_of(20_000, samples=10, blocks=2))

    return prepare


for _report in ("ept", "psept", "aal", "alct"):
    TABLE.add(ONE, f"{_report} of a million occurrences", every_point(_report), hostile=True)


@TABLE.case(ONE, hostile=True)
def the_largest_number_of_samples(desk: Desk) -> Request:
    desk.send(Request.of("POST", "/v1/losses/selt", stream_of(3)))
    data = stream_of(1, samples=200_000, blocks=1)
    return Request.of("POST", "/v1/losses/selt?format=ndjson", data)


@TABLE.case(ONE, hostile=True)
def ten_events_of_the_largest_number_of_samples(desk: Desk) -> Request:
    path = with_query("/v1/losses/qelt", {"quantiles": "0.1,0.5", "format": "bin"})
    desk.send(Request.of("POST", path, stream_of(3)))
    return Request.of("POST", path, stream_of(2, samples=200_000, blocks=8))


@TABLE.case(ONE, hostile=True)
def the_largest_number_of_samples_in_sums(desk: Desk) -> Request:
    known = options_of(desk, "psept")
    path = with_query("/v1/losses/psept", {**known, "over_bound": "try"})
    desk.send(Request.of("POST", path, stream_of(3)))
    return Request.of("POST", path, stream_of(8, samples=200_000, blocks=1))


@TABLE.case(ONE, hostile=True)
def more_samples_declared_than_allowed(desk: Desk) -> Request:
    known = options_of(desk, "aal")
    path = with_query("/v1/losses/aal", {**known, "expect_samples": INT_MAX, "over_bound": "try"})
    desk.send(Request.of("POST", with_query("/v1/losses/aal", known), stream_of(3)))
    return Request.of("POST", path, stream_of(2, samples=10))


@TABLE.case(ONE, hostile=True)
def an_event_of_a_million_blocks(desk: Desk) -> Request:
    desk.send(Request.of("POST", "/v1/losses/melt?format=bin", stream_of(3)))
    return Request.of(
        "POST", "/v1/losses/melt?format=bin", stream_of(1, samples=1, blocks=1_000_000)
    )


@TABLE.case(ONE, hostile=True)
def a_million_blocks_in_an_event_without_rows(desk: Desk) -> Request:
    desk.send(Request.of("POST", "/v1/losses/events", stream_of(3)))
    return Request.of("POST", "/v1/losses/events", stream_of(1, samples=1, blocks=1_000_000))


def quantiles(report: str, count: int) -> Prepare:
    """Many quantiles of every block."""

    def prepare(desk: Desk) -> Request:
        known = options_of(desk, report) | {"format": "bin"}
        desk.send(Request.of("POST", with_query(f"/v1/losses/{report}", known), stream_of(3)))
        many = np.unique(np.linspace(0, 1, count, dtype="<f4")).tobytes()
        known["quantiles"] = desk.input("quantiles", many)
        return Request.of("POST", with_query(f"/v1/losses/{report}", known), stream_of(40))

    return prepare


for _report in ("qelt", "qplt"):
    TABLE.add(ONE, f"{_report} of many quantiles", quantiles(_report, MAX_POINTS), hostile=True)


@TABLE.case(ONE, hostile=True)
def ept_of_many_return_periods(desk: Desk) -> Request:
    known = options_of(desk, "ept")
    desk.send(Request.of("POST", with_query("/v1/losses/ept", known), stream_of(3)))
    known["return_periods"] = desk.input(
        "return_periods", np.arange(MAX_POINTS, 0, -1, dtype="<i4").tobytes()
    )
    return Request.of("POST", with_query("/v1/losses/ept", known), stream_of(4000))


@TABLE.case(ONE, hostile=True)
def a_million_weights(desk: Desk) -> Request:
    known = options_of(desk, "splt")
    desk.send(Request.of("POST", with_query("/v1/losses/splt", known), stream_of(3)))
    known["occurrence"] = desk.input("occurrence", occurrence(4000, 1_000_000))
    known["periods"] = desk.input("periods", weights(1_000_000))
    return Request.of("POST", with_query("/v1/losses/splt", known), stream_of(4000))


@TABLE.case(ONE, hostile=True)
def a_million_occurrences_of_one_event(desk: Desk) -> Request:
    known = options_of(desk, "splt")
    desk.send(Request.of("POST", with_query("/v1/losses/splt", known), stream_of(3)))
    known |= {"occurrence": desk.input("occurrence", occurrence(1, 1_000_000, 1_000_000))}
    known |= {"format": "bin"}
    return Request.of("POST", with_query("/v1/losses/splt", known), stream_of(1))


@TABLE.case(ONE, hostile=True)
def a_million_event_rates(desk: Desk) -> Request:
    desk.send(Request.of("POST", "/v1/losses/melt", stream_of(3)))
    text = "EventIds,Event_rates\n" + "".join(f"{n},0.5\n" for n in range(1, 1_000_001))
    digest = desk.input("event_rates", text.encode())
    return Request.of("POST", f"/v1/losses/melt?event_rates={digest}", stream_of(3))


@TABLE.case(ONE, hostile=True)
def a_hundred_thousand_ranges_of_summaries(desk: Desk) -> Request:
    desk.send(Request.of("POST", "/v1/losses/melt?summary_ids=1-9", stream_of(3)))
    ids = ",".join(f"{n}-{n + 1}" for n in range(1, 15_000, 3))[:50_000].rstrip(",-")
    return Request.of("POST", f"/v1/losses/melt?summary_ids={ids}", stream_of(30))


@TABLE.case(ONE, hostile=True)
def all_summaries_by_one_range(desk: Desk) -> Request:
    desk.send(Request.of("POST", "/v1/losses/melt?summary_ids=1-9", stream_of(3)))
    return Request.of("POST", f"/v1/losses/melt?summary_ids=1-{INT_MAX}", stream_of(30))


# -- summary sets --------------------------------------------------------------------


def xref(items: int, sets: int) -> bytes:
    """A summary of its own for each item, in every set."""
    rows = np.zeros((sets, items), np.dtype([("item", "<i4"), ("summary", "<i4"), ("set", "<i4")]))
    rows["item"] = rows["summary"] = np.arange(1, items + 1)
    rows["set"] = np.arange(1, sets + 1)[:, None]
    return rows.tobytes()


def item_sets(items: int, sets: int, report: str = "melt", blocks: int = 2) -> Prepare:
    """A stream of items, added up into sets."""

    def prepare(desk: Desk) -> Request:
        known = {"reports": report, **options_of(desk, report)}
        small = desk.input("summary_xref", xref(4, 2))
        path = with_query("/v1/losses", {**known, "summary_xref": small})
        desk.send(Request.of("POST", path, stream_of(3, kind="gul")))
        digest = desk.input("summary_xref", xref(items, sets))
        path = with_query("/v1/losses", {**known, "summary_xref": digest})
        return Request.of("POST", path, stream_of(20, kind="gul", blocks=blocks))

    return prepare


TABLE.add(MANY, "two sets of items", item_sets(100, 2, blocks=100))
TABLE.add(MANY, "a hundred sets", item_sets(1000, 100), hostile=True)
TABLE.add(MANY, "a hundred sets of sums", item_sets(1000, 100, "aal"), hostile=True)
TABLE.add(MANY, "a hundred sets of many items", item_sets(80_000, 100), hostile=True)
TABLE.add(MANY, "a million items", item_sets(4_000_000, 1), hostile=True)


@TABLE.case(MANY, hostile=True)
def items_far_apart(desk: Desk) -> Request:
    desk.send(
        Request.of(
            "POST",
            f"/v1/losses?reports=melt&summary_xref={desk.input('summary_xref', xref(4, 2))}",
            stream_of(3, kind="gul"),
        )
    )
    digest = desk.input(
        "summary_xref", struct.pack("<9i", 1, INT_MAX, 1, INT_MAX, 1, 1, 2, 2, INT_MAX)
    )
    path = f"/v1/losses?reports=melt&summary_xref={digest}"
    return Request.of("POST", path, stream_of(3, kind="gul", blocks=1))


@TABLE.case(ONE, hostile=True)
def summaries_described_by_much_text(desk: Desk) -> Request:
    small = desk.input("summary_info", b"summary_id,name\n1,a\n2,b\n")
    desk.send(Request.of("POST", f"/v1/losses/melt?summary_info={small}", stream_of(3)))
    text = "summary_id,name\n" + "".join(f"{n},{'x' * 200}{n}\n" for n in range(1, 40_001))
    digest = desk.input("summary_info", text.encode())
    return Request.of(
        "POST", f"/v1/losses/melt?format=arrow&summary_info={digest}", stream_of(4000)
    )


@TABLE.case(ONE, hostile=True)
def one_long_description_among_many(desk: Desk) -> Request:
    small = desk.input("summary_info", b"summary_id,name\n1,a\n2,b\n")
    desk.send(Request.of("POST", f"/v1/losses/melt?summary_info={small}", stream_of(3)))
    text = "summary_id,name\n" + "".join(f"{n},x\n" for n in range(2, 20_001)) + f"1,{'y' * 800}\n"
    digest = desk.input("summary_info", text.encode())
    return Request.of("POST", f"/v1/losses/melt?format=arrow&summary_info={digest}", stream_of(400))


@TABLE.case(ONE, hostile=True)
def bombs_of_zeros(desk: Desk) -> Request:
    import zlib
    from gzip import compress

    desk.send(
        Request.of("POST", "/v1/losses/melt", compress(stream_of(3)), {"Content-Encoding": "gzip"})
    )
    deflate = zlib.compressobj(9, wbits=31)

    def zeros() -> Iterator[bytes]:
        yield deflate.compress(stream_of(3))
        for _ in range(64):
            yield deflate.compress(bytes(16 * MIB))
        yield deflate.flush()

    data = b"".join(zeros())
    return Request.of("POST", "/v1/losses/melt", data, {"Content-Encoding": "gzip"})


def at_once(count: int, report: str) -> Prepare:
    """Posts of whole runs, all at the same time."""

    def prepare(desk: Desk) -> object:
        import threading

        known = options_of(desk, report)
        desk.send(Request.of("POST", with_query(f"/v1/losses/{report}", known), stream_of(3)))
        known |= {
            "occurrence": desk.input("occurrence", occurrence(400, 400, 20)),
            "over_bound": "try",
        }
        request = Request.of(
            "POST", with_query(f"/v1/losses/{report}", known), stream_of(400, samples=200, blocks=8)
        )

        def post() -> int:
            threads = [threading.Thread(target=desk.do, args=(request,)) for _ in range(count)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            return 200

        return post

    return prepare  # type: ignore[return-value]


for _report in ("ept", "alct", "psept"):
    TABLE.add(ONE, f"{_report} four at once", at_once(4, _report), hostile=True)
