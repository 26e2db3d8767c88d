"""Loss sets of runs: what they hold, and that they do without the run."""

from __future__ import annotations

import io
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from app.http.identity import SINGLE_USER
from app.portfolio.contents import Shape, open_set, write_contents
from app.portfolio.records import KIND, SetWriter, blobs_without_sets
from app.state.base import StoreDamagedError
from app.state.sweeper import expired_records
from core.portfolio.building import Part
from core.portfolio.losses import Calendar, Occurrences
from tests.app.portfolio.book import SETS, Book, Desk, losses_of

DAY = 86400.0


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    return Desk(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def run(desk: Desk) -> str:
    return desk.run(Book())


def test_a_loss_set_has_the_losses_above_0_of_all_partitions_and_is_mapped(
    desk: Desk, run: str
) -> None:
    answer = desk.make(run, name="a", currency="EUR", summary_info=desk.info())
    assert answer.status_code == 201
    about, book = answer.json(), Book()
    opened = desk.open("a")
    assert losses_of(opened) == book.losses
    assert opened.losses.map is not None
    assert about["rows"] == len(book.losses)
    assert (about["samples"], about["periods"], about["events"]) == (3, 20, 8)
    assert (about["perspective"], about["currency"]) == ("gul", "EUR")
    assert about["dimensions"] == ["Region", "TIV"]
    happens = opened.calendar.occurrences
    found = zip(happens.periods.tolist(), happens.event_ids.tolist(), strict=True)
    assert list(found) == [(period, event) for period, _, event in book.occurrences]
    assert opened.calendar.dated


def test_the_same_request_finds_the_set_and_another_of_its_name_is_refused(
    desk: Desk, run: str
) -> None:
    first = desk.make(run, currency="USD")
    again = desk.make(run, currency="USD")
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json() == again.json()
    desk.make(run, name="taken")
    other = desk.make(run, name="taken", currency="USD")
    assert (other.status_code, other.json()["code"]) == (409, "head-exists")


def test_a_set_outlives_its_run_and_is_listed_until_it_is_deleted(desk: Desk) -> None:
    book = Book(seed=7)
    run = desk.run(book)
    made = (desk.make(run, name="kept")).json()
    assert (desk.send("DELETE", f"/v1/runs/{run}")).status_code == 204
    assert losses_of(desk.open("kept")) == book.losses
    listed = (desk.send("GET", f"{SETS}?after=keps&limit=1")).json()
    assert listed["loss_sets"] == [made]
    assert listed["after"] == "kept"
    assert (desk.send("DELETE", f"{SETS}/kept")).status_code == 204
    assert (desk.send("DELETE", f"{SETS}/kept")).status_code == 404
    left = desk.parts.storage.blobs.list(KIND, "kept.").blobs
    assert left == ()


def test_anybody_reads_the_stored_losses_with_arrow(desk: Desk, run: str) -> None:
    desk.make(run, name="arrow")
    blobs = desk.parts.storage.blobs
    blob = next(b.id for b in blobs.list(KIND, "arrow.").blobs if b.id.endswith("losses"))
    table = pa.ipc.open_stream(io.BytesIO(blobs.range(KIND, blob))).read_all()
    rows = {
        (row["EventId"], row["SummaryId"], sample): loss
        for row in table.to_pylist()
        for sample, loss in zip(row["SampleId"], row["Loss"], strict=True)
    }
    assert rows == Book().losses


def _flip(path: Path, at: int) -> None:
    octets = bytearray(path.read_bytes())
    octets[at] ^= 1
    path.write_bytes(octets)


def test_damage_is_found_before_a_loss_is_used(desk: Desk, run: str) -> None:
    desk.make(run, name="damaged")
    blobs = desk.parts.storage.blobs
    blob = next(b.id for b in blobs.list(KIND, "damaged.").blobs if b.id.endswith("losses"))
    _flip(Path(desk.parts.storage.directory, "blobs", KIND, blob[:2], blob), -200)
    with pytest.raises(StoreDamagedError):
        desk.open("damaged")


def test_what_cannot_be_a_loss_set_says_why(desk: Desk, run: str) -> None:
    opened = desk.run(Book(), seal=False)
    answer = desk.make(opened)
    assert (answer.status_code, answer.json()["code"]) == (409, "report-not-ready")
    without = desk.uploads.run(["melt"])
    desk.uploads.upload(without, Book().stream())
    answer = desk.make(desk.uploads.seal(without).id)
    assert answer.status_code == 422
    assert "no occurrences" in answer.json()["detail"]
    for body, status, word in (
        ({"run": "0" * 32}, 404, "no run"),
        ({"run": run, "name": "a/b"}, 422, "name of a loss set"),
        ({"run": run, "currency": "euro"}, 422, "currency"),
        ({"run": run, "summary_info": "x"}, 422, "digest"),
        ({"run": run, "curency": "EUR"}, 422, "curency is unknown"),
    ):
        answer = desk.send("POST", SETS, json=body)
        assert answer.status_code == status, answer.text
        assert word in answer.json()["detail"]


def test_streams_of_items_are_added_up_into_one_summary_set(desk: Desk) -> None:
    run, expected = desk.item_run()
    answer = desk.make(run)
    assert answer.status_code == 422
    assert "summary sets 1, 2" in answer.json()["detail"]
    answer = desk.make(run, name="items", summary_set=2)
    assert answer.status_code == 201, answer.text
    assert answer.json()["summary_set"] == 2
    assert losses_of(desk.open("items")) == expected


def test_sets_of_two_runs_of_the_same_streams_are_not_added(desk: Desk) -> None:
    for number in (1, 2):
        run, _ = desk.item_run()
        desk.make(run, name=f"cut{number}", summary_set=number)
    sets = [{"id": "cut1"}, {"id": "cut2"}]
    problem = desk.ask(loss_sets=sets, report="averages").json()
    assert "cut2 is of a run of the same streams as cut1" in problem["detail"]


def test_a_block_longer_than_a_batch_is_read_into_memory(desk: Desk) -> None:
    count = 200_000
    samples, losses = np.arange(count, dtype=np.int32), np.ones(count, np.float32)
    event, summary, counts = (np.array([n], np.int32) for n in (3, 1, count))
    part = Part(event, summary, counts, samples, losses)
    happens = Occurrences(np.array([1], np.int32), np.array([3], np.int32), np.zeros(1, np.int64))
    calendar = Calendar(1, happens, np.zeros(0))

    def content(writer: SetWriter) -> Mapping[str, Any]:
        about: dict[str, Any] = {
            "currency": None,
            "perspective": None,
            "summary_set": None,
            "events": 1,
        }
        return about | write_contents(writer, [part], Shape(count, 4), calendar, None)

    sets = desk.parts.portfolios.sets
    record, _ = sets.create(SINGLE_USER, "long", "source", content)
    opened = open_set(sets.blobs, record)
    assert opened.losses.map is None
    table = opened.losses.table
    first = int(table.losses_at[0])
    assert table.counts.tolist() == [count]
    assert table.losses[first : first + count].sum() == count


def test_what_no_record_names_is_swept_after_a_day(desk: Desk) -> None:
    blobs = desk.parts.storage.blobs
    blobs.put(KIND, "gone.0123456789abcdef.losses", b"x")
    now = blobs.info(KIND, "gone.0123456789abcdef.losses").modified
    before = len(blobs.list(KIND).blobs)
    blobs_without_sets(desk.parts.storage.records, blobs, lambda: now + DAY / 2)()
    assert len(blobs.list(KIND).blobs) == before
    blobs_without_sets(desk.parts.storage.records, blobs, lambda: now + 2 * DAY)()
    assert len(blobs.list(KIND).blobs) == before - 1


def test_quotas_count_loss_sets_and_their_bytes(tmp_path: Path) -> None:
    desk = Desk(tmp_path, quota_loss_sets=1)
    run = desk.run(Book())
    assert (desk.make(run, name="one")).status_code == 201
    answer = desk.make(run, name="two")
    assert (answer.status_code, answer.json()["code"]) == (429, "quota-exceeded")
    assert answer.json()["setting"] == "THALWEG_QUOTA_LOSS_SETS"
    assert desk.parts.storage.blobs.list(KIND, "two.").blobs == ()


def test_a_set_that_nobody_used_expires(tmp_path: Path) -> None:
    desk = Desk(tmp_path, loss_set_days=1)
    desk.make(desk.run(Book()), name="old")
    records, now = desk.parts.storage.records, time.time()
    chore = expired_records(records, KIND, DAY, lambda: now + DAY / 2)
    chore()
    assert desk.parts.portfolios.sets.page(SINGLE_USER, "", 9)
    expired_records(records, KIND, DAY, lambda: now + 2 * DAY)()
    assert desk.parts.portfolios.sets.page(SINGLE_USER, "", 9) == []
    assert "expired loss_sets" in desk.parts.sweeper._chores


def test_a_perspective_that_is_not_that_of_the_run_is_refused(desk: Desk, run: str) -> None:
    answer = desk.make(run, name="other", perspective="il")
    assert (answer.status_code, answer.json()["option"]) == (422, "perspective")
    assert "is il, but that of the run is gul" in answer.json()["detail"]
    assert desk.make(run, name="own", perspective="gul").json()["perspective"] == "gul"


def test_summaries_that_summary_info_leaves_out_are_told(desk: Desk) -> None:
    made = desk.make(
        desk.run(Book()), name="lacking", summary_info=desk.info("summary_id,R\n1,N\n")
    )
    losses = Book().losses
    share = 100 * sum(x for key, x in losses.items() if key[1] > 1) / sum(losses.values())
    (note,) = made.json()["notes"]
    assert note.startswith("summary_info leaves out 2 of the summaries with a loss")
    assert f"{share:.3g} % of the losses" in note
    assert note in " ".join(
        desk.ask(loss_sets=[{"id": "lacking"}], report="averages").json()["notes"]
    )


def test_summaries_of_several_currencies_are_no_loss_set(desk: Desk) -> None:
    run = desk.run(Book())
    info = desk.info("summary_id,LocCurrency\n1,EUR\n2,USD\n4,EUR\n")
    problem = desk.make(run, name="mixed", summary_info=info).json()
    assert "summary 2: LocCurrency 'USD' is not 'EUR'" in problem["detail"]
    info = desk.info("summary_id,LocCurrency\n1,EUR\n2,EUR\n4,EUR\n")
    assert desk.make(run, name="mixed", summary_info=info, currency="USD").status_code == 422
    assert desk.make(run, name="mixed", summary_info=info).json()["currency"] == "EUR"
