"""Posting against a service that misbehaves: every row once, and nothing else."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

from app.client import Client, ConnectionFailed, End, ProblemError, ProtocolError
from app.client.losses.requests import Mode
from tests.scale import SOAK

from ..conftest import Connect
from ..fakes.clock import FakeClock
from ..fakes.exchange import Fault
from ..fakes.frames import END, BytesReader, frame
from ..fakes.losses import RECORD, make_stream, tables
from ..fakes.service import FakeService

STREAM = make_stream(12)
WHOLE = tables(STREAM)["rows"].tobytes()
PART = 7 * RECORD + 3
MODES: tuple[Mode, ...] = ("parts", "whole", "duplex")


class Outcome(NamedTuple):
    rows: bytes
    end: End | None
    token: str | None
    offset: int


Post = Callable[..., Outcome]


@pytest.fixture
def post(connect: Connect) -> Post:
    def run(service: FakeService, source: Any = STREAM, **how: Any) -> Outcome:  # noqa: ANN401
        with connect(service, retries=how.pop("retries", 8), timeout=10) as client:
            answer = client.losses.post("rows", source, **{"part_size": PART} | how)
            rows = b"".join(part.tobytes() for part in answer)
            return Outcome(rows, answer.end, answer.token, answer.offset)

    return run


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("chunked", [True, False])
def test_every_mode_gives_every_row(post: Post, mode: Mode, chunked: bool) -> None:
    with FakeService(chunked=chunked, heartbeats=True) as service:
        got = post(service, mode=mode)
    assert got.rows == WHOLE
    assert got.end == End("complete", "declared", 12, len(STREAM), "whole")
    assert (got.token, got.offset) == (None, len(STREAM))


@pytest.mark.parametrize("part_size", [1, RECORD, 3 * RECORD, 1 << 20])
def test_parts_of_every_size(post: Post, service: FakeService, part_size: int) -> None:
    assert post(service, part_size=part_size).rows == WHOLE
    assert service.losses[-1].headers["upload-complete"] == "?1"
    assert all(seen.partial for seen in service.losses[:-1])


def test_a_part_grows_until_an_event_fits(post: Post, service: FakeService) -> None:
    stream = make_stream(1)[:RECORD] * 500 + make_stream(3, seed=2)
    assert post(service, stream, part_size=RECORD).rows == tables(stream)["rows"].tobytes()
    sizes = [seen.size for seen in service.losses]
    assert sum(sizes) < 5 * len(stream)
    assert len(sizes) < 20


@pytest.mark.parametrize("mode", MODES)
def test_an_answer_cut_at_every_byte(post: Post, mode: Mode, stride: int) -> None:
    stream = make_stream(3, 3)
    expected = tables(stream)["rows"].tobytes()
    # Every third byte in a normal run, other ones in each mode.
    cut, step = (0, 1) if SOAK else (MODES.index(mode), 3)
    while True:
        fault = Fault(cut=cut)
        with FakeService([fault], split=1) as service:
            got = post(service, stream, part_size=PART, mode=mode)
            requests = len(service.losses)
        assert got.rows == expected, f"cut after {cut} bytes"
        if requests == (1 if mode != "parts" else -(-len(stream) // PART)):
            break
        cut += step * stride
    assert cut > 400


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(10))
def test_many_cuts_in_a_row(post: Post, mode: Mode, seed: int) -> None:
    rng = np.random.default_rng(seed)
    script: list[Fault | None] = [Fault(cut=int(rng.integers(0, 4000))) for _ in range(8)]
    with FakeService(script, split=2) as service:
        assert post(service, mode=mode).rows == WHOLE


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("at", [0, 1, 100, len(STREAM)])
def test_a_reset_during_the_request(post: Post, mode: Mode, at: int) -> None:
    with FakeService([Fault(stop_reading=at), None, Fault(stop_reading=at)]) as service:
        assert post(service, mode=mode).rows == WHOLE


def test_an_iterator_is_posted_again_after_faults(post: Post) -> None:
    for mode in MODES:
        pieces = (STREAM[i : i + 50] for i in range(0, len(STREAM), 50))
        with FakeService([Fault(cut=300), Fault(stop_reading=40), Fault(cut=700)]) as service:
            got = post(service, pieces, mode=mode)
        assert got.rows == WHOLE
        assert got.end is not None
        assert got.end.completeness == "undeclared"


@pytest.mark.parametrize("status", [408, 429, 502, 503, 504])
def test_the_moment_was_wrong(post: Post, status: int) -> None:
    refusal = Fault(status=status, headers={"Retry-After": "0"})
    with FakeService([None, refusal, refusal, None, refusal]) as service:
        assert post(service).rows == WHOLE


def test_retry_after_is_respected(post: Post, clock: FakeClock) -> None:
    with FakeService([Fault(status=503, headers={"Retry-After": "70"})]) as service:
        assert post(service).rows == WHOLE
    assert clock.pauses == [70]


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 412, 413, 415, 422, 500])
def test_a_refusal_is_not_repeated(post: Post, status: int) -> None:
    problem = {"code": "some-code", "detail": "why", "offset": 7, "event": 3, "hint": "Do that"}
    with FakeService([None, Fault(status=status, problem=problem)]) as service:
        with pytest.raises(ProblemError) as caught:
            post(service)
        assert len(service.losses) == 2
    error = caught.value
    assert (error.status, error.code, error.offset, error.event) == (status, "some-code", 7, 3)
    assert str(error) == "[some-code] why (at byte 7, event 3). Do that"


def test_data_that_changed_is_refused(post: Post, client: Client, service: FakeService) -> None:
    answer = client.losses.post("rows", STREAM, part_size=PART)
    next(answer)
    token, offset = answer.token, answer.offset
    answer.close()
    changed = bytearray(STREAM)
    changed[offset + 9] ^= 1
    with pytest.raises(ProblemError) as caught:
        post(service, bytes(changed), after=token, offset=offset)
    assert caught.value.code == "data-changed"


def test_a_wrong_checksum_is_fetched_again(post: Post) -> None:
    for at in range(0, 600, 37):

        def damage(answer: bytes, at: int = at) -> bytes:
            return answer[:at] + bytes([answer[at] ^ 64]) + answer[at + 1 :]

        with FakeService([Fault(change=damage)]) as service:
            assert post(service, mode="whole").rows == WHOLE
            assert len(service.losses) == 2


def test_a_cut_inside_a_group_repeats_no_row(post: Post) -> None:
    stream = make_stream(1, 1) + _long_event(2, 50) + _long_event(3, 1)
    expected = tables(stream)["rows"].tobytes()
    for cut in range(1000, 9000, 501):
        with FakeService([Fault(cut=cut)], split=3) as service:
            assert post(service, stream, mode="whole").rows == expected


def _long_event(event: int, records: int) -> bytes:
    return (np.int32(event).tobytes() + bytes(12)) * records


def test_it_gives_up(post: Post) -> None:
    with FakeService([Fault(cut=0)] * 99) as service:
        with pytest.raises(ConnectionFailed):
            post(service, retries=3)
        assert len(service.losses) == 4
    with FakeService([Fault(status=503)] * 99) as service:
        with pytest.raises(ProblemError):
            post(service, retries=2)
        assert len(service.losses) == 3
    script: list[Fault | None] = [Fault(change=lambda answer: answer[:-1])] * 99
    with FakeService(script) as service, pytest.raises((ProtocolError, ConnectionFailed)):
        post(service, retries=2)
    with pytest.raises(ConnectionFailed):
        post(service, retries=0)


def test_faults_between_progress_do_not_add_up(post: Post) -> None:
    script: list[Fault | None] = [Fault(cut=0), None] * 30
    with FakeService(script) as service:
        assert post(service, part_size=2 * RECORD, retries=1).rows == WHOLE


def test_parts_are_no_longer_than_the_service_allows(post: Post) -> None:
    allowed = {"code": "too-large", "limit": "body", "allowed": 3 * RECORD}
    with FakeService([Fault(status=413, problem=allowed)]) as service:
        assert post(service).rows == WHOLE
        assert [seen.size for seen in service.losses][:2] == [PART, 3 * RECORD]
    # One that is longer whatever is done, and one that is refused for another reason.
    for problem, requests in ((allowed, 2), (allowed | {"limit": "max_samples"}, 1)):
        with FakeService([Fault(status=413, problem=problem)] * 9) as service:
            with pytest.raises(ProblemError, match="too-large"):
                post(service)
            assert len(service.losses) == requests


def test_parts_that_a_proxy_refuses_are_halved(post: Post) -> None:
    stream = make_stream(1500, 30)
    with FakeService([Fault(status=413)] * 2) as service:
        assert post(service, stream, part_size=1 << 18).rows == tables(stream)["rows"].tobytes()
        assert [seen.size for seen in service.losses][:3] == [1 << 18, 1 << 17, 1 << 16]


def test_an_early_refusal_stops_the_upload(post: Post) -> None:
    stream = STREAM * 20_000
    with FakeService([Fault(early=True, status=401)]) as service:
        with pytest.raises(ProblemError) as caught:
            post(service, stream, mode="whole")
        assert caught.value.status == 401


def test_a_stream_that_is_wrong_is_an_error(post: Post) -> None:
    wrong = STREAM[: 20 * RECORD] + bytes(RECORD) + STREAM[20 * RECORD :]
    for mode in MODES:
        with FakeService() as service, pytest.raises(ProblemError) as caught:
            post(service, wrong, mode=mode)
        assert caught.value.code == "event-id"
    with FakeService() as service, pytest.raises(ProblemError) as caught:
        post(service, STREAM[:-1])
    assert (caught.value.code, caught.value.offset) == ("stream-truncated", len(STREAM) - 1)


def test_duplex_hands_out_rows_before_an_error(client: Client) -> None:
    wrong = STREAM + bytes(RECORD)
    pieces = (wrong[i : i + RECORD] for i in range(0, len(wrong), RECORD))
    got: list[bytes] = []
    answer = client.losses.post("rows", pieces, mode="duplex")
    with pytest.raises(ProblemError):
        got.extend(rows.tobytes() for rows in answer)
    assert WHOLE.startswith(b"".join(got))
    assert got


def test_duplex_gives_rows_while_it_sends(client: Client) -> None:
    more = threading.Event()

    def pieces() -> Any:  # noqa: ANN401
        yield STREAM[: 20 * RECORD]
        assert more.wait(10), "no row came before the stream ended"
        yield STREAM[20 * RECORD :]

    answer = client.losses.post("rows", pieces(), mode="duplex")
    got = [next(answer).tobytes()]
    more.set()
    got += [rows.tobytes() for rows in answer]
    assert b"".join(got) == WHOLE


def test_every_token_resumes_exactly(post: Post, client: Client, service: FakeService) -> None:
    answer = client.losses.post("rows", STREAM, part_size=PART)
    before = b""
    for rows in answer:
        before += rows.tobytes()
        if answer.token is None:
            break
        rest = post(service, after=answer.token, offset=answer.offset)
        assert before + rest.rows == WHOLE


def test_several_reports(client: Client, service: FakeService) -> None:
    answer = client.losses.post(("rows", "count"), STREAM, part_size=PART)
    got: dict[str, bytes] = {}
    for name, rows in answer:
        got[name] = got.get(name, b"") + rows.tobytes()
    assert got == {name: table.tobytes() for name, table in tables(STREAM).items()}
    assert service.losses[0].query["reports"] == "rows,count"


def test_what_is_declared(post: Post, service: FakeService) -> None:
    post(service, expect_events=12, quantiles=[0.1, 0.5], summary_ids=[1, 5])
    for seen in service.losses:
        assert seen.headers["upload-length"] == str(len(STREAM))
        assert seen.query["quantiles"] == "0.1,0.5"
        assert seen.query["summary_ids"] == "1,5"
        assert ("expect_events" in seen.query) is not seen.partial


def test_inputs_are_put_first_and_again_when_gone(post: Post) -> None:
    gone = Fault(status=410, problem={"code": "input-gone"})
    with FakeService([None, gone]) as service:
        assert post(service, event_rates=b"1,0.5\n").rows == WHOLE
        (digest,) = service.inputs
        puts = [seen for seen in service.seen if seen.method == "PUT"]
        assert len(puts) == 2
        assert all(seen.query["event_rates"] == digest for seen in service.losses)
    with FakeService([gone]) as service, pytest.raises(ProblemError):
        post(service, event_rates="abc")
    with FakeService([gone, gone]) as service, pytest.raises(ProblemError):
        post(service, event_rates=b"1,0.5\n")


def test_a_retired_token_is_refreshed(post: Post) -> None:
    retired = Fault(status=410, problem={"code": "token-retired"})
    with FakeService([None, retired]) as service:
        assert post(service).rows == WHOLE
        assert any(seen.target == "/v1/tokens/refresh" for seen in service.seen)


def test_a_service_that_stops_is_gone_on_with(post: Post) -> None:
    for mode in ("parts", "whole"):
        for events in range(5):
            with FakeService([Fault(drain=events), None, Fault(drain=0)]) as service:
                got = post(service, mode=mode, part_size=12 * RECORD)
                assert got.rows == WHOLE
                assert len(service.losses) > 1


def test_an_answer_that_ends_a_stream_of_which_more_follows(post: Post) -> None:
    whole = {"reason": "complete", "completeness": "undeclared", "token": None, "offset": None}
    with FakeService([None, Fault(end=whole)]) as service:
        with pytest.raises(ProtocolError, match="of which more follows"):
            post(service, retries=0)
        assert service.losses[-1].partial


def test_an_answer_that_goes_on_beyond_what_was_posted(post: Post) -> None:
    with FakeService([Fault(end={"offset": PART + 1})]) as service:
        with pytest.raises(ProtocolError, match="beyond"):
            post(service, retries=0)
        assert len(service.losses) == 1
    at = 7 * RECORD
    with FakeService([Fault(end={"offset": at, "token": f"{at}.0.0.0.0"})]) as service:
        assert post(service, part_size=at, retries=0).offset == len(STREAM)


def test_an_empty_stream_is_one_request(post: Post, service: FakeService) -> None:
    assert post(service, b"").rows == b""
    assert [seen.size for seen in service.losses] == [0]


def test_duplex_falls_back_to_parts_where_it_cannot_work(post: Post) -> None:
    with FakeService([Fault(cut=0)] * 2) as service:
        assert post(service, mode="duplex").rows == WHOLE
        assert [s.query.get("duplex") for s in service.losses][-1] is None


def test_heartbeats_may_come_between_any_frames(post: Post) -> None:
    for mode in MODES:
        for split in (1, 2, 9):
            with FakeService(heartbeats=True, split=split) as service:
                assert post(service, mode=mode).rows == WHOLE
                assert len(service.losses) < 2 or mode == "parts"


def ends(**more: Any) -> Callable[[bytes], bytes]:  # noqa: ANN401
    """Replaces the answer by its END frame alone, with other members."""

    def change(answer: bytes) -> bytes:
        *_, end = BytesReader().receive(answer)
        return frame(END, end.header | more, b"", 0)

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (ends(reason="complete"), "ends a stream of which more follows"),
        (ends(offset=PART + 1), f"resumes at {PART + 1}, beyond {PART}"),
        (ends(reason="count"), "ended with count"),
        (ends(reason="drain"), "the server is stopping"),
    ],
    ids=["complete", "beyond", "count", "drain"],
)
def test_an_end_that_cannot_be(post: Post, change: Callable[[bytes], bytes], message: str) -> None:
    with (
        FakeService([Fault(change=change)]) as service,
        pytest.raises((ProtocolError, ConnectionFailed), match=message),
    ):
        post(service, retries=0)


@pytest.mark.parametrize("lie", [{"reason": "complete"}, {"offset": PART + 1}], ids=str)
def test_no_row_is_lost_by_an_end_that_cannot_be(post: Post, lie: dict[str, Any]) -> None:
    with FakeService([Fault(change=ends(**lie))]) as service:
        assert post(service).rows == WHOLE
        assert service.losses[1].query.get("after") is None


def test_a_last_part_of_which_more_follows(post: Post) -> None:
    lie = ends(reason="partial", token="0.0.0.0.0", offset=0)  # noqa: S106 - of the fake
    with (
        FakeService([Fault(change=lie)]) as service,
        pytest.raises(ProtocolError, match="ended with partial"),
    ):
        post(service, part_size=1 << 20, retries=0)


def test_a_service_without_its_key_is_given_up(post: Post) -> None:
    """A token that stays retired is refreshed once, not for ever."""
    retired = Fault(status=410, problem={"code": "token-retired"})
    with FakeService([None, *[retired] * 9]) as service:
        with pytest.raises(ProblemError) as caught:
            post(service)
        assert caught.value.code == "token-retired"
        assert [s.path for s in service.seen].count("/v1/tokens/refresh") == 1
