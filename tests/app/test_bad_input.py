"""Whatever is wrong with a request, its answer says what, where, and nothing else happens."""

from __future__ import annotations

import base64
import http.client
import itertools
import json
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from backports.zstd import CompressionParameter
from backports.zstd import compress as zstd_compress

from app.errors import KINDS
from app.losses.tables import table_encoder
from app.tokens import Key, KeyRing, Token
from core.errors import OptionError
from core.losses.policy import Policy
from core.losses.reports import REPORTS
from core.losses.samples import SampleSpec, generate_inputs
from tests.app.conftest import KEY, MAX_BODY, MAX_INPUT, ORIGIN, TOKEN_KEYS
from tests.app.harness import (
    PROBLEM,
    Answer,
    Contract,
    Frame,
    Headers,
    Post,
    Service,
    ask,
    ask_in_duplex,
    check_problem,
    chunked,
    compress,
    compress_whole,
    head,
    read_frames,
    rows_of_frames,
    wait_until,
    with_query,
)
from tests.scale import PURE_PYTHON
from tests.streams import LETTERS, TYPES, Block, Collector, Stream, feed

pytestmark = pytest.mark.skipif(
    PURE_PYTHON, reason="the server is a process of its own, whatever kernels are here"
)
NAN = float("nan")
INFINITY = float("inf")
INT_MAX = 2**31 - 1
INT_MIN = -(2**31)
SAMPLES = 4
GOOD = (
    Block(1, 1, ((-5, 9.0), (-1, 2.0), (1, 1.0), (3, 2.0))),
    Block(1, 2, ((-1, 2.0), (2, 1.0))),
    Block(2, 1, ((1, 4.0), (2, 0.0), (4, 1.0)), 5.0),
)
AFTER = Block(INT_MAX, 1, ((1, 1.0),))
INPUTS = generate_inputs(SampleSpec(events=8, summaries=2, samples=4))
MIB = 1 << 20

STATUS = {
    **dict.fromkeys(
        ["stream-empty", "stream-header", "stream-truncated", "stream-incomplete"], 400
    ),
    **dict.fromkeys(["stream-excess", "event-id", "event-reopened", "block-id"], 400),
    **dict.fromkeys(["block-repeated", "exposure", "terminator", "sample-range"], 400),
    **dict.fromkeys(["sample-repeated", "input", "bad-request", "content-encoding"], 400),
    **dict.fromkeys(
        ["framing", "token-malformed"],
        400,
    ),
    **dict.fromkeys(["limit", "too-large", "decompression-bomb"], 413),
    **dict.fromkeys(["stream-unsupported", "unsupported-encoding"], 415),
    **dict.fromkeys(
        ["sample-order", "event-order", "loss-not-finite", "loss-negative", "report", "option"],
        422,
    ),
}


def good(kind: str = "summary", width: int = 4) -> Stream:
    return Stream(kind, SAMPLES, width, GOOD)


def report_of(stream: Stream) -> str:
    return "melt" if stream.kind == "summary" else "events"


def is_problem(answer: Answer, code: str, status: int = 0, **members: Any) -> Any:  # noqa: ANN401
    """Check that an answer is this problem; returns the document."""
    assert answer.media_type == PROBLEM, answer.body[:500]
    found = answer.json()
    check_problem(found, answer)
    assert found["code"] == code, found
    assert answer.status == (status or STATUS[code])
    assert found | members == found
    return found


# -- streams -------------------------------------------------------------------------


@dataclass(frozen=True)
class Fault:
    """A stream with something wrong in it."""

    name: str
    stream: Stream
    data: bytes
    code: str
    start: int = 0
    """Bytes before it that are a good stream, 0 if there are none."""
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def query(self) -> dict[str, object]:
        width = {} if self.stream.width == 4 else {"float_width": "8"}
        return {**width, **self.options}

    def expected(self) -> dict[str, object]:
        """The problem document's place, as the engine tells it in process."""
        known = {name: self.options[name] for name in ("nan", "negative") if name in self.options}
        ends = {name: int(text) for name, text in self.options.items() if "expect" in name}
        policy: Any = Policy(
            int(str(self.query.get("float_width", 4))),
            event_order="ascending" if "order" in self.options else "any",
            max_samples=200_000,
            **known,  # type: ignore[arg-type]
        )
        outcome = feed([self.data], [report_of(self.stream)], policy=policy, **ends)
        assert outcome.error is not None, self.name
        assert outcome.error[1] == self.code
        place = dict(zip(("offset", "event", "block"), outcome.error[3:], strict=True))
        return {"code": self.code, "detail": outcome.error[2]} | {
            name: value for name, value in place.items() if value is not None
        }


def faults_of_headers(stream: Stream) -> Iterator[Fault]:
    yield Fault("no bytes", stream, b"", "stream-empty")
    for size in range(1, len(stream.header)):
        yield Fault(f"{size} bytes", stream, stream.header[:size], "stream-truncated")
    yield Fault("a cdf stream", stream, b"\1\0\0\0" + bytes(40), "stream-unsupported")
    for octets in (b"\0\0\0\0", b"\2\0\0\0", b"\3\0\0\1", b"Even", b"\xff\xff\xff\xff"):
        yield Fault(f"type {octets.hex()}", stream, octets + bytes(64), "stream-header")
    for samples in (0, -1, INT_MIN):
        data = replace(stream, samples=samples).encode()
        yield Fault(f"{samples} samples", stream, data, "stream-header")
    for samples in (200_001, INT_MAX):
        yield Fault(
            f"{samples} samples", stream, replace(stream, samples=samples).encode(), "limit"
        )


def faults_of_blocks(stream: Stream) -> Iterator[Fault]:
    whole = stream.encode()
    start = len(whole)
    last = stream.boundaries()[-2]
    first = 8 + (stream.width if stream.kind == "summary" else 0)

    def fault(name: str, bad: Block, code: str, **options: str) -> Fault:
        data = stream.with_blocks([*stream.blocks, bad, AFTER]).encode()
        return Fault(name, stream, data, code, start, options)

    for cut in (3, first - 1, first, first + stream.width + 5, start - last - 1):
        yield Fault(f"cut {cut} bytes in", stream, whole[: last + cut], "stream-truncated", last)
    for size, code in ((1, "stream-truncated"), (7, "stream-truncated"), (100, "event-id")):
        yield Fault(f"{size} bytes too many", stream, whole + bytes(size), code, start)
    bad = stream.encode_block(Block(3, 3, ((1, 1.0), (1, 2.0), (2, 2.0))))[:-9]
    yield Fault("wrong and cut", stream, whole + bad, "sample-repeated", start)
    for ident in (0, -1, INT_MIN):
        yield fault(f"event {ident}", Block(ident, 1, ((1, 1.0),)), "event-id")
        yield fault(f"block {ident}", Block(3, ident), "block-id")
    yield fault("event reopened", Block(1, 3), "event-reopened")
    yield fault("block repeated", Block(2, 1), "block-repeated")
    for pairs, code in (
        (((SAMPLES + 1, 1.0),), "sample-range"),
        (((1, 1.0), (INT_MAX, 1.0)), "sample-range"),
        (((-6, 1.0),), "sample-range"),
        (((1, 1.0), (2, 1.0), (1, 1.0)), "sample-repeated"),
        (((-1, 1.0), (-1, 1.0)), "sample-repeated"),
        (((1, 1.0), (3, 1.0), (2, 1.0)), "sample-order"),
        (((1, 1.0), (-1, 1.0)), "sample-order"),
    ):
        yield fault(f"sidx {[sidx for sidx, _ in pairs]}", Block(2, 5, pairs), code)
    for loss, code in (
        *((loss, "loss-not-finite") for loss in (NAN, INFINITY, -INFINITY)),
        *((loss, "loss-negative") for loss in (-1.5, -1e-40)),
    ):
        yield fault(f"loss {loss}", Block(2, 5, ((-5, 1.0), (-1, 1.0), (2, loss))), code)
    yield fault("negative, nan=drop", Block(2, 5, ((1, -1.0),)), "loss-negative", nan="drop")
    end = bytearray(stream.encode_block(Block(2, 5, ((1, 1.0),))))
    end[-stream.width :] = struct.pack(f"<{LETTERS[stream.width]}", 1.0)
    data = whole + bytes(end) + stream.encode_block(AFTER)
    yield Fault("end with a loss", stream, data, "terminator", start)
    for exposure in (NAN, INFINITY, -1.0) if stream.kind == "summary" else ():
        yield fault(f"exposure {exposure}", Block(2, 5, (), exposure), "exposure")
    higher = stream.with_blocks([*stream.blocks, Block(9, 1)])
    data = higher.with_blocks([*higher.blocks, Block(8, 1)]).encode()
    begin = len(higher.encode())
    yield Fault("events descend", higher, data, "event-order", begin, {"order": "event"})
    for option, number, code in (
        ("expect_events", 3, "stream-incomplete"),
        ("expect_events", 1, "stream-excess"),
        ("expect_bytes", start + 1, "stream-incomplete"),
        ("expect_bytes", start - 1, "stream-excess"),
    ):
        yield Fault(f"{option}={number}", stream, whole, code, 0, {option: str(number)})


def faults(stream: Stream) -> list[Fault]:
    return [*faults_of_headers(stream), *faults_of_blocks(stream)]


SUMMARY_FAULTS = faults(good())
OTHER_FAULTS = [
    fault
    for kind, width in itertools.product(TYPES, (4, 8))
    if (kind, width) != ("summary", 4)
    for fault in faults(good(kind, width))
]
WAYS = [(sized, coding) for sized in (True, False) for coding in (None, "gzip", "zstd")]


def post_of(fault: Fault, *, sized: bool, coding: str | None, **query: object) -> Post:
    """The fault in two pieces, what is good being the first."""
    pieces = [fault.data[: fault.start], fault.data[fault.start :]]
    headers = [] if coding is None else [("Content-Encoding", coding)]
    path = with_query(f"/v1/losses/{report_of(fault.stream)}", {**fault.query, **query})
    return Post(path, compress(coding, pieces), headers, sized)


def is_fault(found: Any, expected: Mapping[str, object]) -> None:  # noqa: ANN401 - JSON
    named = ("code", "detail", "offset", "event", "block")
    assert {name: found[name] for name in named if name in found} == expected


def name_of(value: object) -> str | None:
    if not isinstance(value, Fault):
        return None
    return f"{value.stream.kind}{value.stream.width} {value.name}"


@pytest.mark.parametrize("fault", SUMMARY_FAULTS, ids=name_of)
def test_a_fault_is_named_however_it_is_posted(
    service: Service, contract: Contract, fault: Fault
) -> None:
    expected = fault.expected()
    for sized, coding in WAYS:
        post = post_of(fault, sized=sized, coding=coding)
        answer = contract.check("POST", post.path, ask(service, post))
        is_fault(is_problem(answer, fault.code, resume_offset=0), expected)


@pytest.mark.parametrize("fault", OTHER_FAULTS, ids=name_of)
def test_a_fault_in_a_stream_of_every_kind(service: Service, fault: Fault) -> None:
    expected = fault.expected()
    for query in ({}, {"duplex": "true", "format": "frames"}):
        answer = ask(service, post_of(fault, sized=True, coding=None, **query))
        if answer.status == 200:
            assert query
            frames = read_frames(answer.body)
            assert frames[-1].kind == "ERROR"
            is_fault(frames[-1].header["problem"], expected)
        else:
            is_fault(is_problem(answer, fault.code), expected)


BEHIND_ROWS = [fault for fault in SUMMARY_FAULTS if fault.start]


def rows_in_process(fault: Fault, data: bytes) -> bytes:
    outcome = feed([data], ["melt"], policy=Policy(fault.stream.width))
    return outcome.rows.get("melt", b"")


def goes_on(service: Service, fault: Fault, token: str, offset: int) -> bytes:
    """Rows of what should have followed, posted from the last good token on."""
    rest = [*fault.stream.blocks, replace(AFTER, event=INT_MAX - 7)]
    data = fault.stream.with_blocks(rest).encode()
    query = {**fault.query, "after": token, "format": "bin"}
    answer = ask(service, Post(with_query("/v1/losses/melt", query), [data[offset:]]))
    assert answer.status == 200, answer.body
    return answer.body


@pytest.mark.parametrize("fault", BEHIND_ROWS, ids=name_of)
@pytest.mark.parametrize("form", ["frames", "ndjson", "csv", "bin"])
def test_a_fault_behind_rows_that_were_sent(service: Service, fault: Fault, form: str) -> None:
    expected = fault.expected()
    for sized, coding in WAYS:
        post = post_of(fault, sized=sized, coding=coding, duplex="true", format=form)
        answer = ask_in_duplex(service, post)
        assert answer.status == 200
        if form == "frames":
            ends_frames(service, fault, answer, expected)
        elif form == "ndjson":
            ends_ndjson(service, fault, answer, expected)
        else:
            is_broken_off(fault, answer, form)


def ends_frames(
    service: Service, fault: Fault, answer: Answer, expected: Mapping[str, object]
) -> None:
    assert answer.whole
    frames = read_frames(answer.body)
    *_, error = frames
    assert error.kind == "ERROR"
    assert "END" not in {frame.kind for frame in frames}
    check_problem(error.header["problem"])
    is_fault(error.header["problem"], expected)
    token, offset = error.header["token"], error.header["offset"]
    before = rows_of_frames(frames).get("melt", b"")
    assert before == rows_in_process(fault, fault.data[:offset])
    whole = [*fault.stream.blocks, replace(AFTER, event=INT_MAX - 7)]
    rows = rows_in_process(fault, fault.stream.with_blocks(whole).encode())
    assert before + goes_on(service, fault, token, offset) == rows


def ends_ndjson(
    service: Service, fault: Fault, answer: Answer, expected: Mapping[str, object]
) -> None:
    assert answer.whole
    *lines, last = [json.loads(line) for line in answer.body.splitlines()]
    assert last.keys() == {"error", "token", "offset"}
    check_problem(last["error"])
    is_fault(last["error"], expected)
    checkpoints = [line["checkpoint"] for line in lines if "checkpoint" in line]
    assert checkpoints[-1] == {"token": last["token"], "offset": last["offset"]}
    known = lines[: lines.index({"checkpoint": checkpoints[-1]})]
    before = [line for line in known if "checkpoint" not in line]
    rows = rows_in_process(fault, fault.data[: last["offset"]])
    assert len(before) == len(rows) // REPORTS["melt"].dtype(fault.stream.width).itemsize
    assert goes_on(service, fault, last["token"], last["offset"])


def is_broken_off(fault: Fault, answer: Answer, form: str) -> None:
    """It has rows of whole blocks, and cannot be taken for whole."""
    assert not answer.whole
    collector = Collector()
    report = REPORTS["melt"]
    policy = Policy(fault.stream.width)
    rows = feed([fault.data[: fault.start]], ["melt"], policy=policy).rows["melt"]
    collector("melt", np.frombuffer(rows, report.dtype(fault.stream.width)))
    encoder = table_encoder(form, report, fault.stream.width)
    table = bytes(encoder.begin())
    table += bytes(encoder.encode(np.frombuffer(rows, report.dtype(fault.stream.width))))
    assert len(answer.body) > len(encoder.begin())
    assert table.startswith(answer.body)


def test_the_wrong_width_is_named(service: Service) -> None:
    pairs = tuple((sidx, 1000.5 + sidx) for sidx in (-5, -1, *range(1, 21)))
    for width in (4, 8):
        stream = Stream("summary", 20, width, (Block(12345, 3, pairs),))
        post = Post(f"/v1/losses/melt?float_width={12 - width}", [stream.encode()])
        answer = ask(service, post)
        assert answer.status in {400, 422}
        assert f"float_width={width}" in answer.json()["hint"]


@pytest.mark.parametrize("report", ["selt", "melt", "qelt"])
@pytest.mark.parametrize("kind", ["gul", "coverage", "loss"])
def test_a_report_that_cannot_be_made_from_this_stream(
    service: Service, kind: str, report: str
) -> None:
    query = {"quantiles": "0.5"} if report == "qelt" else {}
    post = Post(with_query(f"/v1/losses/{report}", query), [good(kind).encode()])
    assert "events" in is_problem(ask(service, post), "report", offset=0)["hint"]


def test_many_faults_at_once(service: Service) -> None:
    """More buffers than are kept for the next requests are given back after faults."""
    fault = next(fault for fault in SUMMARY_FAULTS if fault.code == "event-id")
    count = 14
    before = service.metric("thalweg_buffers_used")
    with ExitStack() as stack:
        clients = [stack.enter_context(service.connect()) for _ in range(count)]
        post = post_of(fault, sized=True, coding=None)
        first, last = post.wire()
        for client in clients:
            client.sendall(post.head() + first)
        wait_until(lambda: service.metric("thalweg_buffers_used") == before + 2 * count)
        for client in clients:
            client.sendall(last)
        for client in clients:
            is_fault(is_problem(Answer(client), fault.code), fault.expected())
    wait_until(lambda: service.metric("thalweg_buffers_used") == before)


# -- options -------------------------------------------------------------------------

BAD_OPTIONS = [
    ("melt", "nonsense=1", "nonsense"),
    ("melt", "Format=csv", "Format"),
    ("melt", "format=", "format"),
    ("melt", "format=xml", "format"),
    ("melt", "format=CSV", "format"),
    ("melt", "float_width=2", "float_width"),
    ("melt", "float_width=", "float_width"),
    ("melt", "nan=ignore", "nan"),
    ("melt", "negative=zero", "negative"),
    ("melt", "sample_order=descending", "sample_order"),
    ("melt", "order=ascending", "order"),
    ("melt", "duplex=perhaps", "duplex"),
    ("melt", "no_of_periods=0", "no_of_periods"),
    ("melt", "no_of_periods=5", "no_of_periods"),
    ("melt", "no_of_periods=2147483648", "no_of_periods"),
    ("melt", "no_of_periods=ten", "no_of_periods"),
    ("melt", "expect_events=-1", "expect_events"),
    ("melt", "expect_events=1.5", "expect_events"),
    ("melt", "expect_events=99999999999999999999", "expect_events"),
    ("melt", "expect_bytes=1e9", "expect_bytes"),
    ("melt", "expect_bytes=", "expect_bytes"),
    ("melt", "event_rates=0.5", "event_rates"),
    ("melt", "event_rates=" + "A" * 32, "event_rates"),
    ("melt", "event_rates=../../../../../../etc/passwd", "event_rates"),
    ("melt", "occurrence=", "occurrence"),
    *(
        ("selt", f"summary_ids={text}", "summary_ids")
        for text in (
            *("", ",", "a", "0", "-1", "1-", "-", "5-1", "1,,2", "1.5", "1_0", "%2B1", "1%202"),
            *("2147483648", "1-2147483647", "1-1000001", "1-2-3", "%D9%A3", "9" * 5000),
        )
    ),
    ("events", "summary_ids=1", "summary_ids"),
    *(
        ("qelt", f"quantiles={text}", "quantiles")
        for text in ("", "x", "0.1,", "0.1,0.1", "2", "-0.1", "nan", "inf", "0.1;0.2", "%FF")
    ),
    ("melt", "nan=drop&nan=drop", "nan"),
    ("melt", "format=csv&format=bin", "format"),
    ("melt", "x=1&x=1", "x"),
    ("melt", "%00=1", "\0"),
    ("nonsense", "", "report"),
    ("MELT", "", "report"),
]


@pytest.mark.parametrize(("report", "query", "option"), BAD_OPTIONS)
def test_a_bad_option_is_named(
    service: Service, contract: Contract, report: str, query: str, option: str
) -> None:
    path = f"/v1/losses/{report}?{query}"
    for method in ("POST", "PUT"):
        answer = ask(service, Post(path, [good().encode()], method=method))
        is_problem(contract.check(method, path, answer), "option", option=option)


@pytest.mark.parametrize(
    "query",
    ["", "reports=", "reports=,", "reports=melt,melt", "reports=melt,nonsense", "reports=x"],
)
def test_bad_reports(service: Service, query: str) -> None:
    answer = ask(service, Post(f"/v1/losses?{query}", [good().encode()]))
    is_problem(answer, "option", option="reports")


def test_many_options_that_do_not_exist(service: Service) -> None:
    """Their number does not hold up others: it is not looked at twice."""
    names = ["".join(letters) for letters in itertools.product("ABCDEFGHIJKLMNOPQRS", repeat=3)]
    path = f"/v1/losses/melt?{'&'.join(names)}"
    start = time.perf_counter()
    is_problem(ask(service, Post(path, [b""])), "option", option="AAA")
    assert time.perf_counter() - start < 5


def test_inputs_that_are_missing_or_not_wanted(service: Service) -> None:
    data = good().encode()
    rates = put(service, "event_rates", INPUTS["event_rates.csv"]).json()["digest"]
    for path in (
        "/v1/losses/qelt",
        "/v1/losses?reports=melt,qelt",
        "/v1/losses/melt?quantiles=0.5",
        f"/v1/losses/selt?event_rates={rates}",
    ):
        is_problem(ask(service, Post(path, [data])), "report")


@pytest.mark.parametrize(
    "headers",
    [
        *([("Upload-Complete", text)] for text in ("", "0", "?2", "yes", "?0, ?1", "\xff")),
        *(
            [("Upload-Length", text)]
            for text in ("", "-1", "1e3", "abc", "9" * 19, "0x10", "\xb2", "12 13", "1_0")
        ),
        [("Upload-Complete", "?0"), ("Upload-Complete", "?1")],
        [("Upload-Complete", "?1"), ("Upload-Complete", "?1")],
        [("Upload-Length", "10"), ("Upload-Length", "12")],
    ],
)
def test_nonsense_about_the_upload(service: Service, headers: Headers) -> None:
    answer = ask(service, Post("/v1/losses/melt", [good().encode()], headers))
    assert headers[0][0] in is_problem(answer, "bad-request")["detail"]


def test_declarations_that_contradict_each_other_or_the_body(service: Service) -> None:
    data = good().encode()
    rates = put(service, "event_rates", INPUTS["event_rates.csv"]).json()["digest"]
    occurrence = put(service, "occurrence", INPUTS["occurrence.bin"]).json()["digest"]
    both = f"event_rates={rates}&occurrence={occurrence}"
    partial = ("Upload-Complete", "?0")
    cases: list[tuple[str, Headers, str, dict[str, Any]]] = [
        ("expect_bytes=12", [("Upload-Length", "13")], "bad-request", {}),
        ("", [("Upload-Length", str(len(data) + 1))], "stream-incomplete", {"offset": len(data)}),
        ("", [("Upload-Length", str(len(data) - 1))], "stream-excess", {"offset": len(data) - 1}),
        ("", [("Upload-Length", "0")], "stream-excess", {"offset": 0}),
        ("", [partial, ("Upload-Length", "5")], "stream-excess", {"offset": 5}),
        ("expect_events=1", [partial], "stream-excess", {"event": 2}),
        ("duplex=true", [partial], "option", {"option": "duplex"}),
        (both, [], "option", {"option": "occurrence"}),
        (f"occurrence={occurrence}&no_of_periods=3", [], "option", {"option": "no_of_periods"}),
    ]
    for query, headers, code, members in cases:
        answer = ask(service, Post(f"/v1/losses/melt?{query}", [data], headers))
        is_problem(answer, code, **members)
    length = [("Upload-Length", str(len(data)))]
    answer = ask(service, Post(f"/v1/losses/melt?expect_bytes={len(data)}", [data], length))
    assert answer.status == 200
    assert answer.getheader("Thalweg-Completeness") == "declared"


@pytest.mark.parametrize("accept", ["image/png", "text/html, image/*;q=0.5", "*/*;q=0", "csv"])
def test_no_format_that_is_accepted(service: Service, contract: Contract, accept: str) -> None:
    path = "/v1/losses/melt"
    answer = ask(service, Post(path, [good().encode()], [("Accept", accept)]))
    is_problem(contract.check("POST", path, answer), "not-acceptable", 406)
    answer = ask(service, Post(f"{path}?format=csv", [good().encode()], [("Accept", accept)]))
    assert answer.status == 200


def test_an_accept_header_in_several_lines(service: Service) -> None:
    headers = [("Accept", "image/png"), ("Accept", "application/x-ndjson")]
    answer = ask(service, Post("/v1/losses/melt", [good().encode()], headers))
    assert answer.media_type == "application/x-ndjson"


@pytest.mark.parametrize("reports", ["melt,selt", "melt"])
def test_reports_of_one_pass_come_in_frames(service: Service, reports: str) -> None:
    path = f"/v1/losses?reports={reports}"
    for form in ("csv", "ndjson", "bin", "arrow", "parquet"):
        answer = ask(service, Post(f"{path}&format={form}", [good().encode()]))
        is_problem(answer, "not-acceptable", 406)
    answer = ask(service, Post(path, [good().encode()], [("Accept", "text/csv")]))
    is_problem(answer, "not-acceptable", 406)
    answer = ask(service, Post(path, [good().encode()]))
    assert read_frames(answer.body)[-1].kind == "END"


# -- inputs --------------------------------------------------------------------------


def put(service: Service, name: str, data: bytes, headers: Headers = (), query: str = "") -> Answer:
    return ask(service, Post(f"/v1/inputs/{name}{query}", [data], headers, method="PUT"))


BAD_INPUTS = [
    ("quantiles", b""),
    ("quantiles", b"quantile\n"),
    ("quantiles", b"quantile\n0.5\n1.5\n"),
    ("quantiles", b"quantile\nhalf\n"),
    ("quantiles", struct.pack("<ff", 0.5, 7.0)),
    ("quantiles", b"\0\0\0"),
    ("quantiles", bytes(400)),
    ("event_rates", b""),
    ("event_rates", b"EventIds,Event_rates\n1,-1\n"),
    ("event_rates", b"EventIds,Event_rates\n1,0.5\n1,0.5\n"),
    ("event_rates", b"EventIds,Event_rates\n0,0.5\n"),
    ("event_rates", b"\xff\xfe\x00"),
    ("occurrence", b""),
    ("occurrence", b"event_id,period_no,occ_date_id\n1,0,1\n"),
    ("occurrence", b"event_id\n1\n"),
    ("occurrence", INPUTS["occurrence.bin"][:-3]),
    ("occurrence", bytes(8)),
]


@pytest.mark.parametrize(("name", "data"), BAD_INPUTS)
def test_a_bad_input(service: Service, contract: Contract, name: str, data: bytes) -> None:
    for coding in (None, "gzip", "zstd"):
        headers = [] if coding is None else [("Content-Encoding", coding)]
        body = data if coding is None else compress_whole(coding, data)
        answer = contract.check("PUT", f"/v1/inputs/{name}", put(service, name, body, headers))
        is_problem(answer, "input")


def test_inputs_that_are_not_there(service: Service) -> None:
    digest = "0" * 32
    for path, name in (
        (f"/v1/losses/melt?event_rates={digest}", "event_rates"),
        (f"/v1/losses/melt?occurrence={digest}", "occurrence"),
        (f"/v1/losses/qelt?quantiles={digest}", "quantiles"),
    ):
        answer = ask(service, Post(path, [good().encode()]))
        assert f"/v1/inputs/{name}" in is_problem(answer, "input-gone", 410)["hint"]
    # The digest of one kind of input is none of another.
    rates = put(service, "event_rates", INPUTS["event_rates.csv"]).json()["digest"]
    answer = ask(service, Post(f"/v1/losses/qelt?quantiles={rates}", [good().encode()]))
    is_problem(answer, "input-gone", 410)


def test_options_of_inputs(service: Service) -> None:
    data = INPUTS["occurrence.csv"]
    for query, option in (
        ("?nonsense=1", "nonsense"),
        ("?no_of_periods=0", "no_of_periods"),
        ("?no_of_periods=9&no_of_periods=9", "no_of_periods"),
    ):
        is_problem(put(service, "occurrence", data, query=query), "option", option=option)
    is_problem(put(service, "nonsense", data), "option", option="name")
    digest = put(service, "occurrence", data).json()["digest"]
    for query, option in (("", "no_of_periods"), ("&no_of_periods=3", "no_of_periods")):
        path = f"/v1/losses/melt?occurrence={digest}{query}"
        is_problem(ask(service, Post(path, [good().encode()])), "option", option=option)


def test_an_input_that_is_too_large(service: Service) -> None:
    data = b"quantile\n" + b"0.5\n" * (MAX_INPUT // 4)
    is_problem(put(service, "quantiles", data), "too-large")
    for coding in ("gzip", "zstd"):
        headers = [("Content-Encoding", coding)]
        for bomb in (data, bytes(200 * MIB)):
            small = compress_whole(coding, bomb)
            assert len(small) < MAX_INPUT + MIB
            is_problem(put(service, "quantiles", small, headers), "too-large")


# -- compressed bodies ---------------------------------------------------------------


def repetitive(size: int) -> bytes:
    """A valid stream that compresses to a thousandth."""
    samples = 2000
    one = good("loss").with_blocks(
        [Block(1, 1, tuple((sidx, 1.0) for sidx in range(1, samples + 1)))]
    )
    header = replace(one, samples=samples).header
    block = np.frombuffer(one.encode()[len(header) :], "<i4")
    blocks = np.tile(block, (size // block.nbytes, 1))
    blocks[:, 0] = np.arange(1, len(blocks) + 1)
    return header + blocks.tobytes()


def peak_of(service: Service, post: Post) -> tuple[Answer, int]:
    """The answer, and the memory it took at most beyond that of another one like it."""
    ask(service, replace(post, pieces=[post.pieces[0][:1000]]))
    service.reset_peak()
    before = service.memory()
    return ask(service, post), service.memory("VmHWM") - before


def test_a_bomb_that_is_a_valid_stream(service: Service) -> None:
    headers = [("Content-Encoding", "zstd")]
    bomb = zstd_compress(repetitive(80 * MIB))
    answer, peak = peak_of(service, Post("/v1/losses/events", [bomb], headers))
    is_problem(answer, "decompression-bomb", resume_offset=0)
    assert peak < 32 * MIB


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_bombs_of_zeros(service: Service, guarded: Service, coding: str) -> None:
    headers = [("Content-Encoding", coding)]
    bomb = compress_whole(coding, bytes(200 * MIB))
    answer, peak = peak_of(service, Post("/v1/losses/events", [bomb], headers))
    is_problem(answer, "stream-header", offset=0)
    assert peak < 32 * MIB
    headers.append(("Authorization", f"Bearer {KEY}"))
    post = Post("/v1/inputs/quantiles", [bomb], headers, method="PUT")
    answer, peak = peak_of(guarded, post)
    is_problem(answer, "decompression-bomb")
    # Inputs are held in memory, this one as far as any body may be decoded.
    assert peak < 160 * MIB


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_what_is_as_small_but_honest_is_taken(service: Service, coding: str) -> None:
    honest = repetitive(32 * MIB)
    post = Post(
        "/v1/losses/events", [compress_whole(coding, honest)], [("Content-Encoding", coding)]
    )
    answer, peak = peak_of(service, post)
    assert answer.status == 200
    assert answer.getheader("Thalweg-Bytes") == str(len(honest))
    assert peak < 32 * MIB


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_many_empty_frames(service: Service, coding: str) -> None:
    """They take no memory, and no more time than a bomb."""
    frame = compress_whole(coding, b"")
    data = good().encode()
    start = time.perf_counter()
    for frames, status in ((1000, 200), (4 * MIB // len(frame), 413)):
        body = frame * frames + compress_whole(coding, data)
        answer = ask(service, Post("/v1/losses/melt", [body], [("Content-Encoding", coding)]))
        assert answer.status == status, answer.body
    is_problem(answer, "decompression-bomb")
    assert time.perf_counter() - start < 5


def damaged_bodies(coding: str, data: bytes) -> Iterator[bytes]:
    body = compress_whole(coding, data)
    yield from (body[:size] for size in (1, 5, 12, len(body) // 2, len(body) - 5, len(body) - 1))
    yield data
    yield b"\0" + body
    yield body + b"\0"
    yield body + b"garbage"
    yield body + body[:7]
    yield body[:20] + bytes(octet ^ 0x55 for octet in body[20:40]) + body[40:]


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_damaged_compression(service: Service, contract: Contract, coding: str) -> None:
    blocks = [Block(e, 1, ((1, float(e * 7919 % 1013)),)) for e in range(1, 50)]
    data = good().with_blocks(blocks).encode()
    headers = [("Content-Encoding", coding)]
    for body in damaged_bodies(coding, data):
        answer = ask(service, Post("/v1/losses/melt", [body], headers))
        contract.check("POST", "/v1/losses/melt", answer)
        # What is decoded before the damage is noticed is looked at first.
        assert answer.status in {400, 422}, body
        assert answer.json()["code"] in STATUS
    for body in (b"\x1f", b"\x28\xb5", b"garbage, all of it", data):
        answer = ask(service, Post("/v1/losses/melt", [body], headers))
        is_problem(answer, "content-encoding", resume_offset=0)
    # Several frames, one after the other, are one stream.
    pieces = [compress_whole(coding, data[at : at + 100]) for at in range(0, len(data), 100)]
    answer = ask(service, Post("/v1/losses/melt", [b"".join(pieces)], headers))
    assert answer.status == 200
    assert answer.body == ask(service, Post("/v1/losses/melt", [data])).body


def test_a_window_that_is_too_large(service: Service) -> None:
    options: dict[int, int] = {
        CompressionParameter.window_log: 27,
        CompressionParameter.checksum_flag: 1,
    }
    body = zstd_compress(repetitive(9 * MIB), options=options)
    answer = ask(service, Post("/v1/losses/events", [body], [("Content-Encoding", "zstd")]))
    # A frame that tells its size is no larger than that.
    assert answer.status == 200 or is_problem(answer, "content-encoding")


@pytest.mark.parametrize(
    "codings", [["br"], ["deflate"], ["gzip, gzip"], ["gzip", "zstd"], ["gzip", "gzip"], ["\xff"]]
)
def test_an_unknown_coding(service: Service, contract: Contract, codings: Sequence[str]) -> None:
    headers = [("Content-Encoding", coding) for coding in codings]
    for method, path in (("POST", "/v1/losses/melt"), ("PUT", "/v1/inputs/quantiles")):
        answer = ask(service, Post(path, [good().encode()], headers, method=method))
        is_problem(contract.check(method, path, answer), "unsupported-encoding")


def test_a_body_that_is_too_large(guarded: Service) -> None:
    key = ("Authorization", f"Bearer {KEY}")
    data = good("loss").with_blocks([Block(e, 1) for e in range(1, MAX_BODY // 16)]).encode()
    assert len(data) < MAX_BODY
    for body, status in ((data, 200), (data + bytes(MAX_BODY), 413)):
        for coding in (None, "gzip", "zstd"):
            headers = [key] if coding is None else [key, ("Content-Encoding", coding)]
            sent = body if coding is None else compress_whole(coding, body)
            for sized in (True, False):
                answer = ask(guarded, Post("/v1/losses/events", [sent], headers, sized))
                assert answer.status == status or answer.json()["code"] == "event-id"
    large = data + b"".join(
        good("loss").encode_block(Block(e, 1)) for e in range(MAX_BODY, MAX_BODY + 100)
    )
    assert len(large) > MAX_BODY
    answer = ask(guarded, Post("/v1/losses/events", [large], [key]))
    assert "Upload-Complete" in is_problem(answer, "too-large", resume_offset=0)["hint"]


# -- tokens --------------------------------------------------------------------------

PARTIAL = ("Upload-Complete", "?0")
STREAM = good().with_blocks(
    [Block(event, ident, ((1, float(event)),)) for event in range(1, 9) for ident in (1, 2)]
)


def ring(use: str, *, ident: int | None = None) -> KeyRing:
    """A ring that signs with the key the service has for this use."""
    known, secret = TOKEN_KEYS[use]
    return KeyRing([Key(known if ident is None else ident, "sign", bytes.fromhex(secret))])


def resign(token: str, use: str, *, ident: int | None = None) -> str:
    verified = ring("sign").verify(token)
    return ring(use, ident=ident).sign(verified.token)


@dataclass(frozen=True)
class Cut:
    """A stream that was posted in part."""

    data: bytes
    token: str
    offset: int
    seen: int


@pytest.fixture(scope="module")
def cut(service: Service) -> Cut:
    data = STREAM.encode()
    seen = STREAM.boundaries()[9] + 10
    answer = ask(service, Post("/v1/losses/melt", [data[:seen]], [PARTIAL]))
    assert answer.status == 200
    token = str(answer.getheader("Thalweg-Token"))
    offset = int(str(answer.getheader("Thalweg-Offset")))
    assert offset < seen
    return Cut(data, token, offset, seen)


def go_on(service: Service, cut: Cut, token: str, *, body: bytes | None = None) -> Answer:
    path = with_query("/v1/losses/melt", {"after": token})
    return ask(service, Post(path, [cut.data[cut.offset :] if body is None else body]))


def inspect(service: Service, token: object, route: str = "inspect") -> Answer:
    body = json.dumps({"token": token}).encode()
    headers = [("Content-Type", "application/json")]
    return ask(service, Post(f"/v1/tokens/{route}", [body], headers))


def test_the_token_is_good(service: Service, cut: Cut) -> None:
    assert go_on(service, cut, cut.token).status == 200
    said = inspect(service, cut.token).json()
    assert (said["offset"], said["use"], said["key"]) == (cut.offset, "sign", 3)
    assert said["unfinished_bytes"] == cut.seen - cut.offset
    assert len(cut.token) <= 100


def encode(octets: bytes) -> str:
    return base64.urlsafe_b64encode(octets).rstrip(b"=").decode()


def decode(token: str) -> bytes:
    return base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))


def signed(octets: bytes) -> str:
    """A token of these bytes with a signature that is right."""
    secret = TOKEN_KEYS["sign"][1]
    from app.tokens import _signature

    return encode(octets + _signature(Key(3, "sign", bytes.fromhex(secret)), octets))


def test_malformed_tokens(service: Service, contract: Contract, cut: Cut) -> None:
    token, octets = cut.token, decode(cut.token)
    body = octets[:-16]
    malformed = [
        *("", "x", "nonsense", " ", "a b", "\0", "ü", "=" * 8, "A" * 600, token + "=", token + "A"),
        *(f" {token}", f"{token} ", f"{token}\n", token[:-1], f"{token}{token}", f"{token}==="),
        token.replace("-", "+").replace("_", "/") + "+",
        *(token[:size] for size in range(1, 45)),
        encode(octets[:30]),
        signed(b"\7" + body[1:]),
        signed(body[:2] + b"\2" + body[3:]),
        signed(body + b"\0"),
        signed(body + b"\x80"),
        signed(body[:-1]),
        signed(body[:20]),
        signed(body[:19] + b"\xff" * 12),
        signed(body[:19] + b"\x80\0" + body[20:]),
    ]
    for bad in malformed:
        path = with_query("/v1/losses/melt", {"after": bad})
        for answer in (go_on(service, cut, bad), inspect(service, bad)):
            contract.check("POST", path, answer)
            code = answer.json()["code"]
            # A token of another kind may be one of another request.
            assert code == "token-malformed" or (
                code in {"token-forged", "token-foreign"} and len(bad) > 45
            ), bad
    for text in (token + "=", token[:20]):
        is_problem(go_on(service, cut, text), "token-malformed", 400)


def test_a_token_that_is_not_canonical(service: Service, cut: Cut) -> None:
    octets = decode(cut.token)
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    same = [
        last
        for last in alphabet
        if last != cut.token[-1] and decode(cut.token[:-1] + last) == octets
    ]
    assert len(same) == {0: 0, 1: 15, 2: 3}[len(octets) % 3]
    for last in same:
        answer = go_on(service, cut, cut.token[:-1] + last)
        is_problem(answer, "token-malformed", 400)


def test_no_bit_of_a_token_can_be_changed(service: Service, cut: Cut) -> None:
    octets = decode(cut.token)
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=20)
    for bit in range(8 * len(octets)):
        forged = bytearray(octets)
        forged[bit // 8] ^= 1 << bit % 8
        path = with_query("/v1/losses/melt", {"after": encode(bytes(forged))})
        connection.request("POST", path, cut.data[cut.offset :])
        answer = connection.getresponse()
        found = json.loads(answer.read())
        check_problem(found)
        assert (answer.status, found["code"]) == (403, "token-forged")
    connection.close()


def test_a_signature_that_is_cut_or_of_nothing(service: Service, cut: Cut) -> None:
    octets = decode(cut.token)
    for forged in (octets[:-16] + bytes(16), octets[:-1], octets + b"\1", octets[:-16] + octets):
        answer = go_on(service, cut, encode(forged))
        is_problem(answer, "token-forged", 403)


def test_tokens_of_other_requests(service: Service, contract: Contract, cut: Cut) -> None:
    rates = put(service, "event_rates", INPUTS["event_rates.csv"]).json()["digest"]
    for path in (
        "/v1/losses/selt?",
        "/v1/losses/events?",
        "/v1/losses/qelt?quantiles=0.5&",
        "/v1/losses?reports=melt,selt&",
        "/v1/losses/melt?float_width=8&",
        "/v1/losses/melt?nan=drop&",
        "/v1/losses/melt?negative=keep&",
        "/v1/losses/melt?sample_order=any&",
        "/v1/losses/melt?order=event&",
        "/v1/losses/melt?summary_ids=1&",
        f"/v1/losses/melt?event_rates={rates}&",
    ):
        answer = ask(service, Post(f"{path}after={cut.token}", [cut.data[cut.offset :]]))
        is_problem(contract.check("POST", path, answer), "token-foreign", 409)
    for path in ("/v1/losses/melt?format=frames", "/v1/losses/melt?duplex=true"):
        answer = ask(service, Post(f"{path}&after={cut.token}", [cut.data[cut.offset :]]))
        assert answer.status == 200
    other = Token(1, bytes(8), bytes(8), (0,) * 10)
    is_problem(go_on(service, cut, ring("sign").sign(other)), "token-foreign", 409)


def test_tokens_that_hold_what_cannot_be(service: Service, cut: Cut) -> None:
    token = ring("sign").verify(cut.token).token
    for at, value in ((0, 9), (1, 200), (2, 5), (3, 0), (6, 2**31), (7, 2)):
        state = (*token.state[:at], value, *token.state[at + 1 :])
        bad = ring("sign").sign(replace(token, state=state))
        is_problem(go_on(service, cut, bad), "token-malformed", 400)
        is_problem(inspect(service, bad), "token-malformed", 400)
    for state in ((), token.state[:-1], (*token.state, 0)):
        bad = ring("sign").sign(replace(token, state=state))
        is_problem(go_on(service, cut, bad), "token-malformed", 400)
    # A header that was never whole cannot have an offset behind it.
    bad = ring("sign").sign(replace(token, state=(0,) * 5 + token.state[5:]))
    is_problem(go_on(service, cut, bad), "token-malformed", 400)


def test_keys_that_are_old_or_unknown(service: Service, contract: Contract, cut: Cut) -> None:
    assert go_on(service, cut, resign(cut.token, "accept")).status == 200
    old = resign(cut.token, "refresh-only")
    answer = go_on(service, cut, old)
    contract.check("POST", "/v1/losses/melt", answer)
    assert "/v1/tokens/refresh" in is_problem(answer, "token-retired", 410)["hint"]
    assert inspect(service, old).json()["use"] == "refresh-only"
    fresh = inspect(service, old, "refresh").json()["token"]
    assert inspect(service, fresh).json()["key"] == 3
    assert go_on(service, cut, fresh).status == 200
    for stranger in (resign(cut.token, "sign", ident=77), resign(cut.token, "accept", ident=3)):
        for answer in (go_on(service, cut, stranger), inspect(service, stranger, "refresh")):
            is_problem(answer, "token-forged", 403)


def test_data_that_is_not_what_the_token_stands_for(service: Service, cut: Cut) -> None:
    rest = cut.data[cut.offset :]
    tail = cut.seen - cut.offset
    changed = bytearray(rest)
    changed[tail - 1] ^= 1
    first = bytearray(rest)
    first[0] ^= 1
    later = bytearray(rest)
    later[12:16] = struct.pack("<i", 99)
    bodies = [bytes(changed), bytes(first), bytes(later), cut.data, rest[8:], rest[: tail - 1]]
    bodies += [b"", rest[:1], b"\0" + rest, cut.data[cut.offset - 40 :]]
    for body in bodies:
        for sized, coding in WAYS:
            sent = body if coding is None else compress_whole(coding, body)
            headers = [] if coding is None else [("Content-Encoding", coding)]
            for query in ({}, {"duplex": "true", "format": "frames"}):
                path = with_query("/v1/losses/melt", {"after": cut.token, **query})
                answer = ask(service, Post(path, [sent], headers, sized))
                found = is_problem(answer, "data-changed", 412)
                assert found["resume_offset"] == cut.offset
    for body in (b"", rest[: tail - 1], bytes(first)):
        path = with_query("/v1/losses/melt", {"after": cut.token})
        answer = ask(service, Post(path, [body], [PARTIAL]))
        found = is_problem(answer, "data-changed", 412)
        assert go_on(service, cut, found["token"]).status == 200


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 422),
        (b"null", 422),
        (b"[]", 422),
        (b"{}", 422),
        (b"{", 422),
        (b'"x"', 422),
        (b'{"token": 5}', 422),
        (b'{"token": null}', 422),
        (b'{"token": "\\ud800"}', 422),
        (b'{"token": "x", "more": 1}', 422),
        (b'{"token": "' + b"A" * 5000 + b'"}', 422),
        (b'{"token": "\xff"}', 400),
        (b"[" * 20_000, 400),
        (b'{"token": "' + b"A" * 40_000 + b'"}', 413),
        (b" " * MIB, 413),
    ],
)
def test_bodies_that_hold_no_token(
    service: Service, contract: Contract, body: bytes, status: int
) -> None:
    for route, sized in itertools.product(("inspect", "refresh"), (True, False)):
        path = f"/v1/tokens/{route}"
        answer = ask(service, Post(path, [body], [("Content-Type", "application/json")], sized))
        assert contract.check("POST", path, answer).status == status
        assert "option" not in answer.json()
    answer = ask(service, Post("/v1/tokens/inspect", [body], [("Content-Type", "text/plain")]))
    assert answer.status in {413, 422}


def test_a_large_body_for_tokens_takes_no_memory(service: Service) -> None:
    service.reset_peak()
    before = service.memory()
    headers = [("Content-Type", "application/json")]
    answer = ask(service, Post("/v1/tokens/inspect", [bytes(24 * MIB)], headers))
    is_problem(answer, "too-large")
    assert service.memory("VmHWM") - before < 16 * MIB


# -- who comes in --------------------------------------------------------------------

BAD_KEYS: list[Headers] = [
    [],
    [("Authorization", "")],
    [("Authorization", "Bearer")],
    [("Authorization", "Bearer ")],
    [("Authorization", KEY)],
    [("Authorization", f"Basic {KEY}")],
    [("Authorization", "Bearer another key")],
    [("Authorization", f"Bearer {KEY}x")],
    [("Authorization", "Bearer \xff\xfe")],
    [("X-Authorization", f"Bearer {KEY}")],
]


@pytest.mark.parametrize("headers", BAD_KEYS)
def test_nobody_comes_in_without_a_key(guarded: Service, headers: Headers) -> None:
    contract = Contract.of(guarded)
    for method, path in (
        ("POST", "/v1/losses/melt"),
        ("PUT", "/v1/losses/melt"),
        ("POST", "/v1/losses?reports=melt"),
        ("PUT", "/v1/inputs/quantiles"),
        ("POST", "/v1/tokens/inspect"),
        ("POST", "/v1/tokens/refresh"),
        ("GET", "/v1/nothing"),
        ("POST", "/%761/losses/melt"),
    ):
        answer = ask(guarded, Post(path, [good().encode()], headers, method=method))
        contract.check(method, path, answer)
        is_problem(answer, "unauthorized", 401)
    for path in ("/healthz", "/readyz", "/metrics", "/docs", "/openapi.json", "/problems/busy"):
        assert guarded.get(path).status == 200


def test_the_right_key(guarded: Service) -> None:
    for text in (f"Bearer {KEY}", f"bearer  {KEY} "):
        answer = ask(guarded, Post("/v1/losses/melt", [good().encode()], [("Authorization", text)]))
        assert answer.status == 200


@pytest.mark.parametrize("sized", [True, False])
def test_a_body_is_not_read_without_a_key(guarded: Service, sized: bool) -> None:
    """Its client gets the whole answer nevertheless, though it reads only when all is sent."""
    before = guarded.metric("thalweg_body_bytes_total")
    guarded.reset_peak()
    memory = guarded.memory()
    answer = ask(guarded, Post("/v1/losses/melt", [bytes(24 * MIB)], sized=sized))
    is_problem(answer, "unauthorized", 401)
    assert answer.whole
    assert answer.getheader("Connection") == "close"
    assert guarded.metric("thalweg_body_bytes_total") == before
    assert guarded.memory("VmHWM") - memory < 16 * MIB


def test_nobody_is_told_to_go_on_without_a_key(guarded: Service) -> None:
    expect = [("Expect", "100-continue"), ("Content-Length", "100")]
    with guarded.connect() as client:
        client.sendall(head("POST", "/v1/losses/melt", expect))
        first = client.recv(12)
        assert first == b"HTTP/1.1 401"
    data = good().encode()
    expect = [("Expect", "100-continue"), ("Content-Length", str(len(data)))]
    with guarded.connect() as client:
        client.sendall(
            head("POST", "/v1/losses/melt", [*expect, ("Authorization", f"Bearer {KEY}")])
        )
        assert client.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.sendall(data)
        assert Answer(client).status == 200


def test_nobody_is_told_to_go_on_with_a_bad_query(service: Service) -> None:
    expect = [("Expect", "100-continue"), ("Content-Length", "100")]
    for path in ("/v1/losses/melt?x=1", "/v1/losses/qelt", "/v1/losses/melt?after=x", "/nothing"):
        with service.connect() as client:
            client.sendall(head("POST", path, expect))
            assert client.recv(10) == b"HTTP/1.1 4"


def test_trailers_are_no_headers(service: Service, guarded: Service) -> None:
    data = good().encode()
    trailers = (
        f"Authorization: Bearer {KEY}\r\nX-Request-Id: from-a-trailer\r\nUpload-Complete: ?0\r\n"
        "Content-Encoding: gzip\r\nAccept: application/x-ndjson\r\nUpload-Length: 5\r\n"
    ).encode()
    wire = chunked([data], last=b"0\r\n" + trailers + b"\r\n")
    start = head("POST", "/v1/losses/melt", [("Transfer-Encoding", "chunked")])
    with guarded.connect() as client:
        client.sendall(start + wire)
        is_problem(Answer(client), "unauthorized", 401)
    with service.connect() as client:
        # Neither this request nor the next one on the connection takes them for headers.
        for _ in range(2):
            client.sendall(start + wire)
            answer = Answer(client)
            assert answer.status == 200
            assert answer.media_type == "text/csv"
            assert answer.getheader("Upload-Complete") == "?1"
            assert answer.getheader("Thalweg-Completeness") == "undeclared"
            assert answer.getheader("X-Request-Id") != "from-a-trailer"


# -- other routes and methods --------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        *("/", "/v1", "/v1/", "/v1/nothing", "/v1/losses/", "/v1/losses/melt/", "/v1/losses/a/b"),
        *("/v1/inputs", "/v1/tokens", "/v1/tokens/other", "/problems", "/problems/", "/docs/"),
        *("//v1/losses/melt", "/v1/losses%2Fmelt%2F", "/../etc/passwd", "/problems/nothing"),
        *("/problems/%00", "/problems/%FF", "/problems/a%0d%0ab", "/openapi.yaml", "/%ff"),
    ],
)
def test_nothing_is_there(service: Service, contract: Contract, path: str) -> None:
    for method in ("GET", "POST"):
        answer = ask(service, Post(path, [b"abc"], method=method))
        if path.startswith("/problems/") and method == "POST":
            continue
        is_problem(contract.check(method, path, answer), "not-found", 404)


def test_methods_that_are_not_there(service: Service, contract: Contract) -> None:
    allowed = {
        "/v1/losses/melt": {"POST", "PUT"},
        "/v1/losses": {"POST"},
        "/v1/inputs/quantiles": {"PUT"},
        "/v1/tokens/inspect": {"POST"},
        "/v1/tokens/refresh": {"POST"},
        "/healthz": {"GET", "HEAD"},
        "/readyz": {"GET", "HEAD"},
        "/metrics": {"GET", "HEAD"},
        "/openapi.json": {"GET", "HEAD"},
        "/docs": {"GET", "HEAD"},
        "/problems/busy": {"GET", "HEAD"},
    }
    for path, methods in allowed.items():
        for method in {"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"} - methods:
            answer = ask(service, Post(path, [b""], method=method))
            contract.check(method, path, answer)
            is_problem(answer, "method-not-allowed", 405)
            assert set(str(answer.getheader("Allow")).split(", ")) == methods


@pytest.mark.parametrize(
    "path", ["/healthz", "/readyz", "/metrics", "/docs", "/openapi.json", "/problems/busy"]
)
def test_head(service: Service, path: str) -> None:
    answer = service.get(path, method="HEAD")
    assert answer.status == 200
    assert not answer.body
    assert answer.media_type == service.get(path).media_type
    with service.connect() as client:
        # Nothing of a body stands in the way of the next answer.
        for method, body in (("HEAD", b""), ("GET", b'{"status":"ok"}')):
            client.sendall(head(method, "/healthz" if body else path))
            assert Answer(client, method).body == body


@pytest.mark.parametrize("path", ["/v1/losses/melt", "/nothing", "/problems/nothing"])
def test_head_of_what_is_not_there(service: Service, path: str) -> None:
    answer = service.get(path, method="HEAD")
    assert answer.status in {404, 405}
    assert not answer.body


@pytest.mark.parametrize("code", sorted(KINDS))
def test_every_problem_is_explained(service: Service, code: str) -> None:
    answer = service.get(f"/problems/{code}")
    assert answer.status == 200
    assert answer.media_type == "text/html"
    text = answer.body.decode()
    assert code in text
    assert f"Status {KINDS[code].status}" in text
    assert KINDS[code].title in text
    assert f"/problems/{code}" in service.get("/docs").body.decode()


def test_the_table_of_problems_is_sound() -> None:
    for code, kind in KINDS.items():
        assert code == code.lower().strip()
        assert 400 <= kind.status < 600
        assert kind.title
        assert kind.explanation.endswith(".")
    assert {code: KINDS[code].status for code in STATUS} == STATUS
    assert OptionError.code in KINDS


# -- headers -------------------------------------------------------------------------


@pytest.mark.parametrize("ident", ["a", "req-1:2/3+4=", "x" * 128, "~!@#$%^&*()"])
def test_the_id_of_a_request_comes_back(service: Service, ident: str) -> None:
    headers = [("X-Request-Id", ident)]
    for post in (
        Post("/v1/losses/melt", [good().encode()], headers),
        Post("/v1/losses/melt", [b"bad"], headers),
        Post("/nothing", [b""], headers),
    ):
        answer = ask(service, post)
        assert answer.getheader("X-Request-Id") == ident
        if answer.status != 200:
            assert answer.json()["request_id"] == ident


@pytest.mark.parametrize("ident", ["", "x" * 129, "a b", "\xe9", "a\tb"])
def test_what_is_no_id_is_replaced(service: Service, ident: str) -> None:
    answer = service.get("/healthz", [("X-Request-Id", ident)])
    assert answer.status == 200
    fresh = str(answer.getheader("X-Request-Id"))
    assert fresh != ident
    assert len(fresh) == 16
    assert answer.headers.get_all("X-Request-Id") == [fresh]


def test_a_trace_goes_on_in_the_log(service: Service) -> None:
    trace, span = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
    ask(service, Post("/v1/losses/melt", [b"x"], [("traceparent", f"00-{trace}-{span}-01")]))
    wait_until(lambda: f'"trace_id": "{trace}"' in service.log())
    for text in ("", "nonsense", f"00-{trace}", f"00-{trace.upper()}-{span}-01", "0" * 1000):
        answer = ask(service, Post("/v1/losses/melt", [b"x"], [("traceparent", text)]))
        assert answer.status == 400
    assert trace.upper() not in service.log()


def test_pages_of_other_origins(service: Service, guarded: Service) -> None:
    asked = [
        ("Origin", ORIGIN),
        ("Access-Control-Request-Method", "POST"),
        ("Access-Control-Request-Headers", "authorization,upload-complete,x-own"),
    ]
    for server in (service, guarded):
        answer = server.get("/v1/losses/melt", asked, method="OPTIONS")
        assert answer.status == 200
        assert answer.getheader("Access-Control-Allow-Origin") == ORIGIN
        assert "POST" in str(answer.getheader("Access-Control-Allow-Methods"))
        allowed = str(answer.getheader("Access-Control-Allow-Headers")).lower()
        assert "upload-complete" in allowed
    # Whatever the answer is, a page may read it.
    for server, path, status in (
        (service, "/v1/losses/melt", 200),
        (service, "/v1/losses/melt?x=1", 422),
        (service, "/nothing", 404),
        (guarded, "/v1/losses/melt", 401),
    ):
        answer = ask(server, Post(path, [good().encode()], [("Origin", ORIGIN)]))
        assert answer.status == status
        assert answer.getheader("Access-Control-Allow-Origin") == ORIGIN
        exposed = str(answer.getheader("Access-Control-Expose-Headers")).split(", ")
        for name in ("Thalweg-Token", "Thalweg-Offset", "Upload-Complete", "X-Request-Id"):
            assert name in exposed
    stranger = [("Origin", "https://elsewhere.example")]
    answer = ask(service, Post("/v1/losses/melt", [good().encode()], stranger))
    assert answer.getheader("Access-Control-Allow-Origin") is None
    answer = service.get("/v1/losses/melt", [*stranger, *asked[1:]], method="OPTIONS")
    assert answer.status == 400


# -- the connection ------------------------------------------------------------------


@pytest.mark.parametrize(
    "wire",
    [
        head(
            "POST", "/v1/losses/melt", [("Content-Length", "5"), ("Transfer-Encoding", "chunked")]
        ),
        head("POST", "/v1/losses/melt", [("Content-Length", "-5")]),
        head("POST", "/v1/losses/melt", [("Content-Length", "5"), ("Content-Length", "6")]),
        head("POST", "/v1/losses/melt", [("Transfer-Encoding", "gzip, chunked")]),
        head("POST", "/v1/losses/melt", [("Transfer-Encoding", "identity")]),
        head("POST", "/v1/losses/melt", [("X" * 70_000, "1")]),
        head("POST", f"/v1/losses/melt?after={'A' * 70_000}"),
        head("GET", "/healthz", [(f"X-{n}", "1") for n in range(300)]),
        b"NONSENSE / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100) + b"\r\n\r\n",
        b"GET /healthz HTTP/9.9\r\n\r\n",
    ],
)
def test_what_is_no_request(service: Service, wire: bytes) -> None:
    with service.connect() as client:
        client.sendall(wire)
        answer = Answer(client)
    check_problem(answer.json(), answer)
    assert answer.status in {400, 431, 501}
    assert answer.getheader("Connection") == "close"


BAD_CHUNKS = [
    b"zz\r\n",
    b"-1\r\n",
    b"5\r\nabcdefgh\r\n",
    b"5\nabcde\n",
    b"5;\n",
    b"\r\n",
    b"f" * 20,
]


@pytest.mark.parametrize("chunks", BAD_CHUNKS)
def test_chunks_that_are_none(service: Service, contract: Contract, chunks: bytes) -> None:
    start = head("POST", "/v1/losses/melt", [("Transfer-Encoding", "chunked")])
    first = chunked([good().encode()], last=b"")
    for wire in (chunks, first + chunks):
        with service.connect() as client:
            client.sendall(start + wire)
            answer = Answer(client)
        contract.check("POST", "/v1/losses/melt", answer)
        found = is_problem(answer, "framing", 400)
        assert found["resume_offset"] == 0


def test_a_fault_of_the_chunks_behind_rows(service: Service) -> None:
    path = "/v1/losses/melt?duplex=true&format=frames"
    with service.connect() as client:
        start = head("POST", path, [("Transfer-Encoding", "chunked")])
        client.sendall(start + chunked([good().encode()], last=b""))
        answer = Answer(client, read=False)
        client.sendall(b"zz\r\n")
        answer.read_body()
    frames: list[Frame] = read_frames(answer.body)
    assert answer.whole
    assert frames[-1].kind == "ERROR"
    assert frames[-1].header["problem"]["code"] == "framing"
    assert frames[-1].header["offset"] == good().boundaries()[2]


def test_a_client_that_leaves(service: Service) -> None:
    for sized in (True, False):
        post = Post("/v1/losses/melt?duplex=true", [good().encode(), b"x" * 100], sized=sized)
        with service.connect() as client:
            client.sendall(post.head() + post.wire()[0])
            assert Answer(client, read=False).status == 200
    wait_until(service.is_idle)
