"""The bound of a run's sums: stated in answers, and refused before the body if too large."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from app.errors import InvalidOptionError, TooLargeError
from app.losses.bounds import Admission
from app.losses.request import LossRequest
from core.losses.events import StreamHeader
from core.losses.format import SOURCE_SUMMARY, Kind
from core.losses.inputs import Occurrence, encode_occurrence, encode_summary_xref
from core.losses.ledger.calendar import ledger_bound, make_calendar
from core.losses.parameters import ReportInputs
from core.losses.samples import SampleSpec, generate_stream
from tests.app.harness import Answer, Contract, Post, Service, ask, head, is_problem, with_query
from tests.app.losses.posts import put_input
from tests.frames import read_frames
from tests.streams import Block, Stream
from tests.summary_oracle import Sets

IDS = np.arange(1, 31, dtype=np.int32)
OCCURRENCE = Occurrence(10, IDS, (IDS % 7 + 1).astype(np.int32), IDS.astype(np.int64))
BUSY = 7
HUGE = 2**31 - 1
STREAM = b"".join(generate_stream(SampleSpec(events=20, summaries=3, samples=6)))


def bound(samples: int, summaries: int = 1, width: int = 4) -> Any:  # noqa: ANN401 - of the engine
    return ledger_bound(make_calendar(OCCURRENCE), samples, width, summaries)


def request(report: str = "aal", **options: Any) -> LossRequest:  # noqa: ANN401 - fields
    return LossRequest(reports=(report,), inputs=ReportInputs(occurrence=OCCURRENCE), **options)


@pytest.fixture(scope="module")
def occurrence(service: Service) -> str:
    answer = put_input(service, "occurrence", encode_occurrence(OCCURRENCE, "bin"))
    digest: str = answer.json()["digest"]
    return digest


# -- admission -----------------------------------------------------------------------------


def test_sums_that_fit_exactly_are_admitted_and_one_byte_less_is_refused() -> None:
    wanted = request(expect_samples=100, expect_summaries=50)
    state = bound(100, 50).state_bytes
    memory = bound(100).least_budget
    stated = Admission(memory, state - memory).admit(wanted)
    assert stated is not None
    assert (stated.summaries, stated.samples, stated.bound.state_bytes) == (50, 100, state)
    with pytest.raises(TooLargeError) as caught:
        Admission(memory, state - memory - 1).admit(wanted)
    members = caught.value.members
    assert members["setting"] == "THALWEG_SPOOL_LIMIT"
    assert (members["bound"], members["allowed"]) == (state, state - 1)
    with pytest.raises(TooLargeError) as caught:
        Admission(memory - 1, state).admit(wanted)
    assert caught.value.members["setting"] == "THALWEG_REQUEST_MEMORY"
    assert caught.value.members["bound"] == memory


def test_sums_are_tried_where_that_is_asked_for() -> None:
    wanted = request(expect_samples=100, expect_summaries=50, refuses_over_bound=False)
    assert Admission(0, 0).admit(wanted) is not None


def test_the_bound_is_of_one_summary_where_their_number_is_unknown() -> None:
    header = StreamHeader(Kind.SUMMARY, 1, SOURCE_SUMMARY, 9, 1, 4)
    stated = Admission(0, 0).admit(request(), header)
    assert stated is not None
    assert stated.summaries is None
    assert stated.bound == bound(9)


def test_without_samples_or_sums_nothing_is_bounded() -> None:
    everything = Admission(0, 0)
    assert everything.admit(request(expect_summaries=HUGE)) is None
    assert everything.admit(request("melt", expect_summaries=HUGE, expect_samples=9)) is None


def test_other_samples_than_declared_are_refused() -> None:
    header = StreamHeader(Kind.SUMMARY, 1, SOURCE_SUMMARY, 9, 1, 4)
    with pytest.raises(InvalidOptionError, match="9 samples, but expect_samples is 8"):
        Admission(1 << 40, 0).admit(request("melt", expect_samples=8), header)


# -- over HTTP -----------------------------------------------------------------------------


def test_too_much_is_refused_before_the_body(service: Service, occurrence: str) -> None:
    query = {"occurrence": occurrence, "expect_samples": 1000, "expect_summaries": HUGE}
    path = with_query("/v1/losses/aal", query)
    with service.connect() as client:
        # Not a byte of the body is sent.
        client.sendall(head("POST", path, [("Content-Length", "1000000000")]))
        answer = Answer(client, "POST")
    found = is_problem(answer, "too-large", 413)
    assert found["setting"] == "THALWEG_SPOOL_LIMIT"
    assert found["bound"] == bound(1000, HUGE).state_bytes > found["allowed"]
    assert str(found["bound"]) in found["detail"]
    assert "over_bound=try" in found["hint"]


def test_too_much_is_refused_at_the_header_of_the_stream(
    service: Service, contract: Contract, occurrence: str
) -> None:
    query = {"occurrence": occurrence, "expect_summaries": HUGE, "reports": "melt,aal"}
    path = with_query("/v1/losses", query)
    answer = contract.check("POST", path, ask(service, Post(path, [STREAM])))
    assert is_problem(answer, "too-large", 413)["limit"] == "ledger_bound"
    path = with_query("/v1/losses", query | {"over_bound": "try"})
    assert ask(service, Post(path, [STREAM])).status == 200


def test_answers_state_the_bound(service: Service, occurrence: str) -> None:
    path = with_query("/v1/losses/aal", {"occurrence": occurrence, "expect_summaries": 5})
    answer = ask(service, Post(path, [STREAM]))
    expected = bound(6, 5)
    assert int(answer.getheader("Thalweg-Ledger-Bound") or "") == expected.state_bytes
    end = read_frames(ask(service, Post(f"{path}&format=frames", [STREAM])).body)[-1].header
    assert end["ledger_bound"] == {
        "summaries": 5,
        "samples": 6,
        "state_bytes": expected.state_bytes,
        "memory_bytes": expected.least_budget,
    }
    path = with_query("/v1/losses/aal", {"occurrence": occurrence})
    answer = ask(service, Post(path, [STREAM]))
    assert answer.getheader("Thalweg-Ledger-Bound") is None
    end = read_frames(ask(service, Post(f"{path}&format=frames", [STREAM])).body)[-1].header
    assert end["ledger_bound"]["summaries"] is None
    assert end["ledger_bound"]["state_bytes"] == bound(6).state_bytes


def test_an_xref_tells_the_number_of_summaries(service: Service, occurrence: str) -> None:
    rows = tuple((item, summary, 1) for item, summary in ((1, 1), (2, 1), (3, 2)))
    xref = encode_summary_xref(Sets((*rows, (1, 9, 3), (2, 9, 3), (3, 9, 3))).xref, "bin")
    digest = put_input(service, "summary_xref", xref).json()["digest"]
    query = {"occurrence": occurrence, "summary_xref": digest, "format": "frames"}
    data = Stream("loss", 2, 4, (Block(1, 1, ((-3, 1.0), (-1, 1.0), (1, 2.0))),)).encode()
    path = with_query("/v1/losses/aal", query)
    end = read_frames(ask(service, Post(path, [data])).body)[-1].header
    assert end["ledger_bound"]["summaries"] == 3
    assert end["ledger_bound"]["state_bytes"] == bound(2, 3).state_bytes


def test_samples_are_as_declared(service: Service) -> None:
    path = "/v1/losses/melt?expect_samples=6"
    assert ask(service, Post(path, [STREAM])).status == 200
    answer = ask(service, Post("/v1/losses/melt?expect_samples=7", [STREAM]))
    is_problem(answer, "option", 422, option="expect_samples")


# -- events of only one side ---------------------------------------------------------------


@pytest.mark.parametrize("report", ["splt", "aal", "melt"])
def test_events_that_only_occur_are_counted(
    service: Service, contract: Contract, occurrence: str, report: str
) -> None:
    path = with_query(f"/v1/losses/{report}", {"occurrence": occurrence})
    answer = contract.check("POST", path, ask(service, Post(path, [STREAM])))
    assert answer.getheader("Thalweg-Events-Only-In-Occurrence") == "10"
    assert answer.getheader("Thalweg-Events-Without-Occurrence") == "0"
    end = read_frames(ask(service, Post(f"{path}&format=frames", [STREAM])).body)[-1].header
    assert end["events_only_in_occurrence"] == 10


def test_parts_do_not_tell_which_events_only_occur(service: Service, occurrence: str) -> None:
    path = with_query("/v1/losses/splt", {"occurrence": occurrence})
    first = ask(service, Post(path, [STREAM[:900]], [("Upload-Complete", "?0")]))
    token, begin = (first.getheader(f"Thalweg-{name}") for name in ("Token", "Offset"))
    rest = ask(service, Post(f"{path}&after={token}", [STREAM[int(begin or 0) :]]))
    for answer in (first, rest):
        assert answer.status == 200
        assert answer.getheader("Thalweg-Events-Only-In-Occurrence") is None
