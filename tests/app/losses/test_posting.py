"""Bodies in any cuts become rows and marks; parts join to the whole."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.errors import (
    DataChangedError,
    DrainingError,
    InvalidOptionError,
    TokenForeignError,
    problem_of,
)
from app.http.decompression import decoder
from app.losses.encoding import row_encoder
from app.losses.posting import Ending, Posting
from app.losses.request import LossRequest, parse_reports
from app.losses.rows import next_chunk
from app.losses.selection import RowSelection, parse_ids
from app.losses.spool import Mark, Spool
from app.losses.tokens import Checkpoints, identity_of, read_mark
from app.tokens import KeyRing, new_key
from core.errors import (
    CancelledError,
    CoreError,
    LimitError,
    ReportError,
    TruncatedError,
    WorkStoppedError,
)
from core.losses.analysis import Analysis
from core.losses.events import Position
from core.losses.inputs import Occurrence
from core.losses.parameters import ReportInputs
from core.losses.policy import Policy
from tests.streams import QUANTILES, Block, Stream, feed, random_cuts, random_stream, streams

RING = KeyRing([new_key()])
SMALL = Stream("summary", 3, 4, tuple(Block(e, 1, ((1, 2.0), (3, 4.0))) for e in (4, 7, 9)))


def request(
    stream: Stream,
    reports: tuple[str, ...],
    *,
    partial: bool = False,
    **more: Any,  # noqa: ANN401
) -> LossRequest:
    quantiles = QUANTILES if "qelt" in reports else None
    policy = Policy(float_width=stream.width)
    return LossRequest(
        reports=reports, policy=policy, inputs=ReportInputs(quantiles), partial=partial, **more
    )


class Desk:
    """Posts parts of one stream, each as a server that knows nothing of the others."""

    def __init__(self, directory: Path, stream: Stream, report: str, form: str) -> None:
        self.directory = directory
        self.stream = stream
        self.report = report
        self.form = form

    def post(self, body: list[bytes], token: str | None, *, partial: bool) -> tuple[bytes, Ending]:
        wanted = request(self.stream, (self.report,), partial=partial)
        checkpoints = Checkpoints(RING, wanted.identity)
        after = None if token is None else checkpoints.read(token)
        spool = Spool(self.directory, memory=500, limit=10**9)
        posting = Posting(wanted, decoder(None, None), spool, after)
        for piece in body:
            posting.feed(memoryview(piece))
        ending = posting.finish()
        begun = ending.mark is None or ending.mark.position.offset > 0
        titled = begun and posting.start.position.offset == 0
        answer = row_encoder(
            self.form, wanted, checkpoints.token, posting.start, duplex=False, titled=titled
        )
        made = answer.begin()
        while len(spool):
            made += next_chunk(answer, spool).buffers
        made += answer.end(ending)
        spool.close()
        return b"".join(made), ending

    def token(self, mark: Mark) -> str:
        wanted = request(self.stream, (self.report,))
        return Checkpoints(RING, wanted.identity).token(mark)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("spool")


@given(streams(kinds=("summary",)), st.integers(0, 2**32 - 1), st.sampled_from(["csv", "bin"]))
def test_the_tables_of_parts_join_to_the_table_of_the_whole(
    directory: Path, stream: Stream, seed: int, form: str
) -> None:
    rng = np.random.default_rng(seed)
    report = str(rng.choice(["events", "selt", "melt", "qelt"]))
    desk = Desk(directory, stream, report, form)
    octets = stream.encode()
    whole, _ = desk.post([octets], None, partial=False)
    joined, token, at, tail = b"", None, 0, 0
    for edge in sorted(rng.integers(0, len(octets), int(rng.integers(0, 5))).tolist()):
        # A part may end before the unfinished event's bytes that were seen before: 412.
        if edge < at + tail:
            continue
        body = random_cuts(rng, octets[at:edge], int(rng.integers(0, 4)))
        made, ending = desk.post(body, token, partial=True)
        assert ending.mark is not None
        assert ending.reason == ending.completeness == "partial"
        token, at, tail = desk.token(ending.mark), ending.mark.position.offset, ending.mark.tail
        assert at + tail == edge
        assert len(token) <= 100
        joined += made
    made, ending = desk.post(random_cuts(rng, octets[at:], 3), token, partial=False)
    assert joined + made == whole
    assert (ending.bytes, ending.events) == (len(octets), len({b.event for b in stream.blocks}))


@given(streams(kinds=("summary",), max_events=3), st.data())
def test_a_part_that_begins_otherwise_is_refused(
    directory: Path, stream: Stream, data: st.DataObject
) -> None:
    octets = stream.encode()
    cut = data.draw(st.integers(12, len(octets)))
    desk = Desk(directory, stream, "melt", "bin")
    _, ending = desk.post([octets[:cut]], None, partial=True)
    assert ending.mark is not None
    if not ending.mark.tail:
        return
    token, at = desk.token(ending.mark), ending.mark.position.offset
    changed = bytearray(octets[at:])
    changed[data.draw(st.integers(0, ending.mark.tail - 1))] ^= 1
    with pytest.raises(DataChangedError):
        desk.post(random_cuts(np.random.default_rng(cut), bytes(changed), 2), token, partial=False)
    with pytest.raises(DataChangedError, match="ends"):
        desk.post([octets[at : cut - 1]], token, partial=True)


def test_a_cut_in_a_block_is_an_error_at_the_end_only(directory: Path) -> None:
    desk = Desk(directory, SMALL, "melt", "csv")
    octets = SMALL.encode()
    made, ending = desk.post([octets[:-3]], None, partial=True)
    assert ending.events == 1
    assert made.count(b"\n") == 1 + 2
    with pytest.raises(TruncatedError):
        desk.post([octets[:-3]], None, partial=False)


def test_a_token_is_of_one_request_only() -> None:
    melt, selt = request(SMALL, ("melt",)), request(SMALL, ("selt",))
    token = Checkpoints(RING, melt.identity).token(Mark(Position()))
    again = request(SMALL, ("melt",), expect_events=3)
    assert Checkpoints(RING, again.identity).read(token).position.offset == 0
    with pytest.raises(TokenForeignError):
        Checkpoints(RING, selt.identity).read(token)
    others = [
        LossRequest(reports=("melt",), policy=Policy(nan="zero")),
        LossRequest(reports=("melt",), policy=Policy(float_width=8)),
        LossRequest(reports=("melt",), selection=RowSelection(parse_ids("1"))),
        LossRequest(reports=("melt", "selt")),
    ]
    assert len({melt.identity, selt.identity, *(other.identity for other in others)}) == 6


def test_what_one_option_ends_with_is_not_taken_for_the_beginning_of_the_next() -> None:
    half = np.array([0.5], np.float32)
    quantiles = np.array([0.1, 0.5], np.float32)
    two = LossRequest(reports=("qelt",), inputs=ReportInputs(quantiles))
    one = LossRequest(
        reports=("qelt",),
        inputs=ReportInputs(quantiles[:1]),
        selection=RowSelection(half.view(np.int32)),
    )
    assert two.identity != one.identity
    assert identity_of((b"ab", b"c")) != identity_of((b"a", b"bc"))
    assert identity_of((b"", b"a")) != identity_of((b"a", b""))


def test_a_report_of_a_run_cannot_be_suspended() -> None:
    """Nothing continues within the stream: the client has to post it again."""
    ids = np.array([4, 7], np.int32)
    occurrence = Occurrence(2, ids, np.array([1, 2], np.int32), ids.astype(np.int64))
    post = Posting(
        LossRequest(reports=("events", "aal"), inputs=ReportInputs(occurrence=occurrence)),
        decoder(None, None),
        Spool(Path(), 1 << 20, 1 << 20),
    )
    post.feed(memoryview(SMALL.encode()))
    with pytest.raises(DrainingError) as caught:
        post.suspend()
    assert caught.value.retry_after


def test_identities_are_frozen() -> None:
    """Tokens of an earlier server go on where they said."""
    plain = LossRequest(reports=("melt",))
    assert plain.identity.hex() == "98bcbf0376bf6515"
    full = LossRequest(
        reports=("qelt", "melt"),
        inputs=ReportInputs(np.array([0.1, 0.5], np.float32)),
        policy=Policy(float_width=8, nan="zero"),
        selection=RowSelection(np.array([1, 5], np.int32)),
    )
    assert full.identity.hex() == "4cefb2f39664e88b"


@pytest.mark.parametrize(
    ("events", "resumed", "covers"),
    [
        ((1, 2, 3, 4), False, "whole"),
        ((1, 3, 2, 4), False, "whole"),
        ((1, 2, 3, 4), True, "whole"),
        ((1, 3, 2, 4), True, "since resume"),
    ],
)
def test_a_part_says_which_events_were_looked_up(
    directory: Path, events: tuple[int, ...], resumed: bool, covers: str
) -> None:
    stream = SMALL.with_blocks(Block(event, 1) for event in events)
    octets, desk, token = stream.encode(), Desk(directory, stream, "melt", "bin"), None
    if resumed:
        begun = stream.with_blocks(stream.blocks[:2]).encode()
        _, ending = desk.post([begun], None, partial=True)
        assert ending.mark is not None
        token, octets = desk.token(ending.mark), octets[ending.mark.position.offset :]
    _, part = desk.post([octets], token, partial=True)
    _, whole = desk.post([octets], token, partial=False)
    assert part.reopened_check == whole.reopened_check == covers


def test_marks_survive_their_token() -> None:
    stream = random_stream(np.random.default_rng(3), events=9)
    for kind in ("gul", "coverage", "loss", "summary"):
        made = Stream(kind, 100, 8, stream.blocks, summary_set=-7)
        outcome: list[Position] = []
        analysis = Analysis(
            ["events"],
            lambda *_: None,
            policy=Policy(float_width=8),
            at_event=outcome.append,
        )
        analysis.receive(made.encode())
        mark = Mark(outcome[-1], 12345, 2**64 - 1)
        checkpoints = Checkpoints(RING, b"12345678")
        token = checkpoints.token(mark)
        assert checkpoints.read(token) == mark
        assert read_mark(RING.verify(token).token) == mark


# -- formats -------------------------------------------------------------------------


def lines(made: bytes) -> Iterator[dict[str, Any]]:
    return (json.loads(line) for line in made.splitlines())


def test_ndjson_has_checkpoints_and_an_end(directory: Path) -> None:
    desk = Desk(directory, SMALL, "melt", "ndjson")
    octets = SMALL.encode()
    made, _ = desk.post([octets[:60], octets[60:]], None, partial=False)
    kinds = [
        "checkpoint" if "checkpoint" in x else "end" if "end" in x else "row" for x in lines(made)
    ]
    assert kinds == [
        *("checkpoint", "row", "row", "row", "row"),
        *("checkpoint", "row", "row", "checkpoint", "end"),
    ]
    *_, last = lines(made)
    assert last["end"]["reason"] == "complete"
    assert last["end"]["token"] is None


def test_arrow_batches_carry_tokens(directory: Path) -> None:
    stream = random_stream(np.random.default_rng(8), events=20)
    desk = Desk(directory, stream, "melt", "arrow")
    octets = stream.encode()
    made, _ = desk.post(random_cuts(np.random.default_rng(1), octets, 6), None, partial=False)
    reader = pa.ipc.open_stream(made)
    seen, rows, last = 0, 0, None
    while True:
        try:
            batch, about = reader.read_next_batch_with_custom_metadata()
        except StopIteration:
            break
        rows += batch.num_rows
        if about is not None:
            seen += 1
            last = dict(about)
    assert seen > 1
    assert last is not None
    assert int(last[b"offset"]) == len(octets)
    assert rows == len(feed([octets], ["melt"]).rows["melt"]) // 44


def test_a_list_of_ids_has_a_limit() -> None:
    with pytest.raises(InvalidOptionError, match="more than 1,000,000 ids"):
        parse_ids("1-1000001", "event_ids")
    assert len(parse_ids("1-1000000")) == 1_000_000


def test_reports_are_checked_before_the_body() -> None:
    assert parse_reports("melt, selt") == ("melt", "selt")
    for text in ("", "melt,melt", "xelt"):
        with pytest.raises(InvalidOptionError):
            parse_reports(text)
    with pytest.raises(ReportError):
        LossRequest(reports=("qelt",))
    with pytest.raises(InvalidOptionError):
        LossRequest(reports=("events",), selection=RowSelection(parse_ids("1")))


def test_every_error_of_the_engine_has_a_status() -> None:
    def tree(kind: type[CoreError]) -> Iterator[type[CoreError]]:
        yield kind
        for child in kind.__subclasses__():
            yield from tree(child)

    for kind in tree(CoreError):
        # What the service never uses may have been imported by other tests.
        if kind.code in {"core", "starved"} or kind.__module__.startswith("core.compat"):
            continue
        needed: dict[str, Any] = {"limit": "size", "allowed": 1} if kind is LimitError else {}
        found = problem_of(kind("words", offset=3, hint="do", **needed))
        if kind in {WorkStoppedError, CancelledError}:
            assert found.status == 503  # another server may do the work
        else:
            assert 400 <= found.status < 500
        assert found.to_json()["offset"] == 3
    larger = problem_of(LimitError("words", limit="max_blocks", allowed=5)).to_json()
    assert (larger["allowed"], larger["setting"]) == (5, "THALWEG_MAX_BLOCKS")
    assert problem_of(LimitError("words", limit="line", allowed=5)).to_json()["setting"] is None
    assert problem_of(RuntimeError("secret")).detail == "the server failed; its log says why"
