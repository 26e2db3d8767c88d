"""Faults of posted loss streams: each is named and placed, however it is posted."""

from __future__ import annotations

import itertools
import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from app.losses.tables import table_encoder
from core.losses.policy import Policy
from core.losses.reports import REPORTS
from tests.app.harness import (
    Answer,
    Contract,
    Post,
    Service,
    ask,
    ask_in_duplex,
    check_problem,
    chunked,
    compress,
    head,
    is_problem,
    wait_until,
    with_query,
)
from tests.app.losses.posts import AFTER, INT_MAX, INT_MIN, SAMPLES, WAYS, Way, good
from tests.frames import Frame, read_frames, rows_of_frames
from tests.scale import THOROUGH
from tests.streams import LETTERS, TYPES, Block, Collector, Stream, feed
from tests.tokens import undated

NAN = float("nan")
INFINITY = float("inf")


def report_of(stream: Stream) -> str:
    return "melt" if stream.kind == "summary" else "events"


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
_OTHER = [pair for pair in itertools.product(TYPES, (4, 8)) if pair != ("summary", 4)]
# The engine's tests have all faults of all kinds: here each has a third, and others than the last.
OTHER_FAULTS = [
    fault
    for place, (kind, width) in enumerate(_OTHER)
    for number, fault in enumerate(faults(good(kind, width)))
    if THOROUGH or (number - place) % 3 == 0
]


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


def ways(place: int, count: int) -> Sequence[Way]:
    """Ways to send a case, of which the next ones are sent in others; all of them if thorough."""
    return WAYS if THOROUGH else [WAYS[(place + 5 * k) % len(WAYS)] for k in range(count)]


@pytest.mark.parametrize("fault", SUMMARY_FAULTS, ids=name_of)
def test_a_fault_is_named_however_it_is_posted(
    service: Service, contract: Contract, fault: Fault
) -> None:
    expected = fault.expected()
    for sized, coding in ways(SUMMARY_FAULTS.index(fault), 3):
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


AFTER_ROWS = [fault for fault in SUMMARY_FAULTS if fault.start]
FORMS = ["frames", "ndjson", "csv", "bin"]


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


@pytest.mark.parametrize("fault", AFTER_ROWS, ids=name_of)
@pytest.mark.parametrize("form", FORMS)
def test_a_fault_after_rows_that_were_sent(service: Service, fault: Fault, form: str) -> None:
    expected = fault.expected()
    place = AFTER_ROWS.index(fault) + FORMS.index(form)
    for sized, coding in ways(place, 1):
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
    assert checkpoints[-1]["offset"] == last["offset"]
    assert undated(checkpoints[-1]["token"]) == undated(last["token"])
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
    """Nothing of them is left, though more run at once than buffers are kept."""
    fault = next(fault for fault in SUMMARY_FAULTS if fault.code == "event-id")
    count = 14
    before = service.metric("thalweg_requests_running")
    with ExitStack() as stack:
        clients = [stack.enter_context(service.connect()) for _ in range(count)]
        post = post_of(fault, sized=True, coding=None)
        first, last = post.wire()
        for client in clients:
            client.sendall(post.head() + first)
        wait_until(lambda: service.metric("thalweg_requests_running") == before + count)
        for client in clients:
            client.sendall(last)
        for client in clients:
            is_fault(is_problem(Answer(client), fault.code), fault.expected())
    wait_until(lambda: service.metric("thalweg_requests_running") == before)
    assert service.metric("thalweg_buffers_used") == 0


def test_a_fault_of_the_chunks_after_rows(service: Service) -> None:
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
