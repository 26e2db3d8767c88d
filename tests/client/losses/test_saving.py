"""Saved tables: what a cut or a kill leaves behind, another call completes."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from app.client import (
    ConnectionFailed,
    End,
    ProblemError,
    Progress,
    ProtocolError,
    SourceError,
    StateError,
)
from app.client.files import state as state_file
from app.client.files.outputs import Mark
from app.client.files.state import StateFile
from app.client.losses.saving import MEMBER, State
from tests.scale import SOAK

from ..conftest import Connect
from ..fakes.exchange import Fault
from ..fakes.losses import RECORD, csv, make_stream, tables
from ..fakes.service import FakeService

STREAM = make_stream(40)
TABLES = tables(STREAM)
PART = 9 * RECORD
WANTED = {
    "csv": b"Event,Value\n" + csv(TABLES["rows"]),
    "bin": TABLES["rows"].tobytes(),
    "arrow": b"arrow" + TABLES["rows"].tobytes(),
    "parquet": b"parquet" + TABLES["rows"].tobytes(),
}


Save: TypeAlias = Callable[..., End]


@pytest.fixture
def save(connect: Connect) -> Save:
    def run(service: FakeService, *args: Any, retries: int = 8, **how: Any) -> End:  # noqa: ANN401
        report = how.pop("report", "rows")
        with connect(service, retries=retries) as client:
            return client.losses.save(report, *args, **{"part_size": PART} | how)

    return run


def test_an_ending_that_is_no_format_is_refused(
    save: Save, tmp_path: Path, service: FakeService
) -> None:
    with pytest.raises(ValueError, match="there is no format 'xlsx': choose csv, ndjson, bin"):
        save(service, STREAM, tmp_path / "out.xlsx")
    assert not service.seen


@pytest.mark.parametrize("table_format", WANTED)
def test_every_format(save: Save, tmp_path: Path, service: FakeService, table_format: str) -> None:
    end = save(service, STREAM, tmp_path / "out", table_format)
    assert end == End("complete", "declared", 40, len(STREAM), "whole")
    assert (tmp_path / "out").read_bytes() == WANTED[table_format]
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


@pytest.mark.filterwarnings("always:no row is of")
@pytest.mark.parametrize("found", [0, 2])
def test_ids_that_no_row_has_are_told(
    save: Save, tmp_path: Path, recwarn: pytest.WarningsRecorder, found: int
) -> None:
    """A part may have none: the whole stream counts."""
    faults: list[Fault | None] = [Fault(end={"selected_rows": number}) for number in (found, 0)]
    with FakeService(faults) as service:
        size = len(STREAM) - RECORD
        end = save(service, STREAM, tmp_path / "out", "csv", part_size=size, summary_ids="99")
    assert end.selected_rows == found
    assert bool(recwarn) is (found == 0)


@pytest.mark.parametrize("live", [False, True])
@pytest.mark.parametrize("mode", ["parts", "whole"])
def test_a_pipe_gets_every_row(save: Save, service: FakeService, mode: str, live: bool) -> None:
    service.script[:] = [None, Fault(cut=300), Fault(cut=0)]
    read_end, write_end = os.pipe()
    save(service, STREAM, write_end, "csv", mode=mode, live=live)
    os.close(write_end)
    with open(read_end, "rb") as file:  # noqa: PTH123 - a descriptor
        assert file.read() == WANTED["csv"]


def test_ndjson_has_rows_only(save: Save, tmp_path: Path, service: FakeService) -> None:
    save(service, STREAM, tmp_path / "parts", "ndjson")
    save(service, STREAM, tmp_path / "whole", "ndjson", mode="whole")
    assert (tmp_path / "parts").read_bytes() == (tmp_path / "whole").read_bytes()
    assert (tmp_path / "parts").read_bytes().count(b"\n") == len(TABLES["rows"])


@pytest.mark.parametrize("table_format", WANTED)
def test_cuts_leave_no_trace(save: Save, tmp_path: Path, table_format: str) -> None:
    for cut in range(0, 700, 61 if SOAK else 140):
        for chunked in (True, False):
            script = [None, Fault(cut=cut), Fault(cut=cut + 5), None, Fault(stop_reading=5)]
            with FakeService(script, chunked=chunked) as service:
                save(service, STREAM, tmp_path / "out", table_format)
            assert (tmp_path / "out").read_bytes() == WANTED[table_format]


@pytest.mark.parametrize("chunked", [True, False])
def test_a_table_cut_at_every_byte(
    stride: int, connect: Connect, tmp_path: Path, chunked: bool
) -> None:
    stream = STREAM[: 30 * RECORD]
    wanted = b"Event,Value\n" + csv(tables(stream)["rows"])
    cut, requests = 0, 0
    while requests != 2:
        with (
            FakeService([Fault(cut=cut)], chunked=chunked) as service,
            connect(service) as client,
        ):
            client.losses.save("rows", stream, tmp_path / "out", part_size=20 * RECORD)
            requests = len(service.losses)
        assert (tmp_path / "out").read_bytes() == wanted, f"cut after {cut} bytes"
        cut += stride


@pytest.mark.parametrize("table_format", ["csv", "bin"])
def test_another_call_goes_on(save: Save, tmp_path: Path, table_format: str) -> None:
    (tmp_path / "in").write_bytes(STREAM)
    out, state = tmp_path / "out", tmp_path / "state"
    calls = 0
    sizes = []
    while not out.exists():
        calls += 1
        with FakeService([None, None, Fault(cut=200)]) as service:
            try:
                save(service, tmp_path / "in", out, table_format, state=state, retries=0)
            except (ConnectionFailed, ProtocolError):
                assert state.exists()
            sizes += [seen.size for seen in service.losses]
    assert calls > 3
    assert out.read_bytes() == WANTED[table_format]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in", "out"]
    assert sum(sizes) < 3 * len(STREAM)


def test_what_changed_is_not_gone_on_with(connect: Connect, tmp_path: Path) -> None:
    source, out, state = tmp_path / "in", tmp_path / "out", tmp_path / "state"
    source.write_bytes(STREAM)

    def save(script: list[Fault | None], report: str = "rows", table_format: str = "csv") -> None:
        with FakeService(script) as service, connect(service, retries=0) as client:
            client.losses.save(report, source, out, table_format, state=state, part_size=PART)

    with pytest.raises(ConnectionFailed):
        save([None, Fault(cut=0)])
    for report, table_format in (("count", "csv"), ("rows", "bin")):
        with pytest.raises(StateError, match="rows as csv"):
            save([], report, table_format)
    source.write_bytes(STREAM[:-RECORD])
    with pytest.raises(StateError, match="changed"):
        save([])
    state.unlink()
    source.write_bytes(STREAM)
    save([])
    assert out.read_bytes() == WANTED["csv"]


def test_without_a_state_nothing_is_left_behind(connect: Connect, tmp_path: Path) -> None:
    with (
        FakeService([None, Fault(cut=0)]) as service,
        connect(service, retries=0) as client,
        pytest.raises(ConnectionFailed),
    ):
        client.losses.save("rows", STREAM, tmp_path / "out", part_size=PART)
    assert not list(tmp_path.iterdir())


def test_a_refusal_keeps_what_was_done(connect: Connect, tmp_path: Path) -> None:
    with FakeService([None, Fault(status=422)]) as service, connect(service) as client:
        with pytest.raises(ProblemError):
            client.losses.save(
                "rows", STREAM, tmp_path / "out", state=tmp_path / "s", part_size=PART
            )
        assert (tmp_path / "s").exists()
        client.losses.save("rows", STREAM, tmp_path / "out", state=tmp_path / "s", part_size=PART)
    assert (tmp_path / "out").read_bytes() == WANTED["csv"]


def test_a_source_without_identity_is_skipped(connect: Connect, tmp_path: Path) -> None:
    def pieces() -> Any:  # noqa: ANN401
        return (STREAM[i : i + 33] for i in range(0, len(STREAM), 33))

    out, state = tmp_path / "out", tmp_path / "state"
    with (
        FakeService([None, None, Fault(cut=0)]) as service,
        connect(service, retries=0) as client,
    ):
        with pytest.raises(ConnectionFailed):
            client.losses.save("rows", pieces(), out, state=state, part_size=PART)
        other = b"\2" + STREAM[1:]
        with pytest.raises(SourceError, match="has changed"):
            client.losses.save("rows", iter([other]), out, state=state, part_size=PART)
        with pytest.raises(SourceError, match="were read before"):
            client.losses.save("rows", iter([STREAM[:10]]), out, state=state, part_size=PART)
        client.losses.save("rows", pieces(), out, state=state, part_size=PART)
    assert out.read_bytes() == WANTED["csv"]


def test_several_reports_in_one_pass(connect: Connect, tmp_path: Path) -> None:
    out, state = tmp_path / "out", tmp_path / "state"
    for script in ([None, None, Fault(cut=400)], []):
        with (
            FakeService(list(script), split=3) as service,
            connect(service, retries=0) as client,
        ):
            try:
                client.losses.save(
                    ["rows", "count"], STREAM, out, "bin", state=state, part_size=PART, mode="parts"
                )
            except ConnectionFailed:
                continue
    assert {p.name: p.read_bytes() for p in out.iterdir()} == {
        f"{name}.bin": table.tobytes() for name, table in TABLES.items()
    }


def test_a_duplex_bin(connect: Connect, tmp_path: Path) -> None:
    with FakeService([Fault(cut=900)]) as service, connect(service) as client:
        client.losses.save("rows", STREAM, tmp_path / "out", "bin", mode="duplex")
    assert (tmp_path / "out").read_bytes() == WANTED["bin"]


def test_what_cannot_be(connect: Connect, tmp_path: Path) -> None:
    no: dict[str, Any] = {}
    with FakeService() as service, connect(service) as client:
        for table_format, how in (
            ("xls", no),
            ("csv", {"mode": "duplex"}),
            ("parquet", {"mode": "parts"}),
            ("csv", {"mode": "sideways"}),
            ("csv", {"part_size": 0}),
        ):
            with pytest.raises(ValueError, match=r"."):
                client.losses.save("rows", STREAM, tmp_path / "out", table_format, **how)
        with pytest.raises(ValueError, match="frames only"):
            client.losses.save(["rows", "count"], STREAM, tmp_path / "out", "csv")
        assert not [p for p in tmp_path.iterdir() if p.is_file()]


def test_the_observer_is_told(
    connect: Connect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_file, "INTERVAL", 0)
    told: list[Progress] = []
    with FakeService() as service, connect(service) as client:
        client.losses.save(
            "rows",
            STREAM,
            tmp_path / "o",
            state=tmp_path / "s",
            part_size=PART,
            progress=told.append,
        )
        rows: list[Progress] = []
        list(client.losses.post("rows", STREAM, part_size=PART, progress=rows.append))
    assert len(told) > 3
    assert rows[-1].total == len(STREAM)
    assert [p.bytes for p in told] == sorted(p.bytes for p in told)


STATE = State(
    ("melt", "qelt"),
    "bin",
    "t",
    77,
    {"size": 5, "mtime_ns": 1 << 60, "head": "ab"},
    "0f",
    {"melt": Mark(3, "cd"), "qelt": Mark(0, "ef")},
)


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    file = StateFile(tmp_path / "state", MEMBER)
    file.save(asdict(STATE))
    assert file.load(State.parse) == STATE
    file.save(asdict(replace(STATE, source=None)))
    loaded = file.load(State.parse)
    assert loaded is not None
    assert loaded.source is None


def test_the_form_on_disk(tmp_path: Path) -> None:
    """Files of earlier versions stay valid."""
    StateFile(tmp_path / "state", MEMBER).save(asdict(STATE))
    assert json.loads((tmp_path / "state").read_bytes()) == {
        "thalweg_state": 1,
        "reports": ["melt", "qelt"],
        "format": "bin",
        "token": "t",
        "offset": 77,
        "source": {"size": 5, "mtime_ns": 1 << 60, "head": "ab"},
        "passed": "0f",
        "outputs": {"melt": {"size": 3, "xxh3": "cd"}, "qelt": {"size": 0, "xxh3": "ef"}},
    }


@pytest.mark.parametrize(
    "text",
    ["{}", '{"thalweg_state": 1, "reports": 5}', '{"thalweg_state": 1, "reports": []}'],
)
def test_what_is_no_state(tmp_path: Path, text: str) -> None:
    (tmp_path / "state").write_text(text)
    with pytest.raises(StateError):
        StateFile(tmp_path / "state", MEMBER).load(State.parse)


def test_it_fits_what_it_was_made_for_only() -> None:
    STATE.check(("melt", "qelt"), "bin", STATE.source)
    with pytest.raises(StateError, match="melt,qelt as bin"):
        STATE.check(("melt",), "bin", STATE.source)
    with pytest.raises(StateError, match="as bin"):
        STATE.check(("melt", "qelt"), "csv", STATE.source)
    with pytest.raises(StateError, match="changed"):
        STATE.check(("melt", "qelt"), "bin", {"size": 6})
