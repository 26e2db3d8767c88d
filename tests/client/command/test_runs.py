"""``thalweg run …``, against the small service."""

from __future__ import annotations

import argparse
import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import app.client
from app.client import ProblemError, Run, Uploading
from app.client.command.arguments import ranges
from app.client.command.console import Bars, told
from app.client.command.main import build_parser, main
from app.client.command.runs import _computed

from ..fakes.clock import FakeClock
from ..fakes.exchange import Fault
from ..fakes.faces import leftovers
from ..fakes.runs import RUN, Stored
from ..fakes.service import FakeService

ROOT = Path(app.client.__file__).parents[2]
DATA = bytes(range(256)) * 400


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(service: FakeService, *args: object) -> int:
    return main(["run", *map(str, args), "--url", service.url])


def upload(service: FakeService, *args: object) -> int:
    return main(["run", "upload", "--url", service.url, "--retries", "0", *map(str, args)])


@pytest.mark.parametrize("command", ["post stream --report melt", f"run fetch {RUN} --report melt"])
def test_an_ending_that_is_no_format(
    service: FakeService, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    assert main([*command.split(), "-o", "a.xlsx", "--url", service.url]) == 2
    assert "no format 'xlsx': end --out in csv, " in capsys.readouterr().err
    assert not service.seen


def test_a_run_from_beginning_to_end(
    service: FakeService, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "occurrence.bin").write_bytes(b"when")
    files = [tmp_path / f"p{i}.bin" for i in (1, 2, 3)]
    for file in files:
        file.write_bytes(file.name.encode() + DATA)
    created = ("--perspective", "gul", "--report", "melt,ept", "--return-periods", "50,10")
    assert run(service, "create", *created, "--occurrence", "occurrence.bin") == 0
    assert service.run.spec["options"] == {"return_periods": [50, 10]}
    assert list(service.run.spec["inputs"]) == ["occurrence"]
    assert upload(service, RUN, *files, "--partition", 4) == 0
    for partition, file in enumerate(files, 4):
        assert service.run.streams[f"s{partition}"].data == file.read_bytes()
    assert run(service, "status", RUN) == 0
    assert run(service, "seal", RUN) == 0
    service.run.report = b"rows\n"
    assert run(service, "fetch", RUN, "--report", "melt,ept", "-o", "out") == 0
    assert leftovers(tmp_path / "out") == ["ept.csv", "melt.csv"]
    assert run(service, "fetch", RUN, "--report", "ept", "-o", "out") == 2
    service.run.told = {"Thalweg-Selected-Rows": "0"}
    assert run(service, "fetch", RUN, "--report", "ept", "-o", "out", "--force") == 0
    assert run(service, "fetch", RUN, "--report", "ept", "-o", "one.parquet") == 0
    assert (tmp_path / "one.parquet").read_bytes() == b"rows\n"
    assert service.seen[-1].query["format"] == "parquet"
    out, err = capsys.readouterr()
    assert out.splitlines()[0] == RUN
    assert f"  partition 4: complete, {6 + len(DATA):,} of {6 + len(DATA):,} bytes" in out
    assert f"partition 6: {files[2]}: 102,406 bytes are stored" in err
    assert "out/ept.csv exists: give --force to replace it, or another -o" in err
    assert "no row is of the chosen summaries and events" in err
    assert out.endswith("done\n")
    assert run(service, "list") == 0
    assert run(service, "delete", RUN, "--partition", 5) == 0
    assert sorted(service.run.streams) == ["s4", "s6"]
    assert run(service, "delete", RUN, "--partition", 5) == 2
    assert run(service, "delete", RUN) == 0
    assert not list(tmp_path.glob("*.thalweg-state"))


def test_each_partition_runs_its_own_command(service: FakeService) -> None:
    assert upload(service, RUN, "--partition", "1-3", "--exec", "printf", "of {partition}") == 0
    streams = [service.run.streams[f"s{i}"] for i in (1, 2, 3)]
    assert [bytes(stream.data) for stream in streams] == [b"of 1", b"of 2", b"of 3"]
    assert all(stream.complete for stream in streams)
    assert upload(service, RUN, "--partition", "4", "--exec", "sh", "-c", "echo x; exit 3") == 1
    assert not service.run.streams["s4"].complete


def test_what_is_stored_is_not_uploaded_again_by_the_same_command(
    service: FakeService, tmp_path: Path
) -> None:
    """A part that is complete has no state to continue, but its command runs again with others'."""
    log, failing = tmp_path / "log", tmp_path / "failing"
    failing.touch()
    script = f"echo {{partition}} >> {log}; printf %5000d {{partition}}; test {{partition}} = 1"
    command = ("--partition", "1-2", "--exec", "sh", "-c", f"{script} || ! test -e {failing}")
    assert upload(service, RUN, *command) == 1
    assert [service.run.streams[f"s{i}"].complete for i in (1, 2)] == [True, False]
    failing.unlink()
    log.write_text("")
    assert upload(service, RUN, *command) == 0
    assert log.read_text() == "2\n"
    assert all(service.run.streams[f"s{i}"].complete for i in (1, 2))
    assert not list(tmp_path.glob("*.thalweg-state"))


def test_a_command_that_succeeded_may_be_repeated(
    service: FakeService, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [tmp_path / "p1.bin", tmp_path / "p2.bin"]
    for file in files:
        file.write_bytes(file.name.encode() + DATA)
    assert upload(service, RUN, *files) == 0
    assert "already" not in capsys.readouterr().err
    received = service.run.received
    for command in (files, files[::-1], files[1:], ["--partition", 2, files[1]]):
        assert upload(service, RUN, *command) == 0
        stored = f"partition 2: {files[1]}: 102,406 bytes are stored already"
        assert stored in capsys.readouterr().err
    assert upload(service, RUN, files[0], "--partition", 2) == 1
    assert (service.run.received, len(service.run.streams)) == (received, 2)


def test_a_run_that_is_done_is_not_said_to_take_what_replaces_a_stream(
    service: FakeService, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [tmp_path / f"part-{i}.bin" for i in range(3)]
    for i, file in enumerate(files):
        file.write_bytes(DATA + bytes([i]))
    service.run.spec = {"options": {"partitions": 2}}
    assert upload(service, RUN, *files[:2]) == 0
    assert upload(service, RUN, files[2]) == 2
    assert "streams of 2: --partition N --replace uploads one" in capsys.readouterr().err
    # The service says what becomes of one that is done: it takes none.
    service.run.state = "done"
    upload(service, RUN, files[2])
    assert "--replace" not in capsys.readouterr().err


def test_files_that_are_stored_stay_so_when_the_command_runs_again(
    service: FakeService, tmp_path: Path
) -> None:
    files = [tmp_path / "p1.bin", tmp_path / "p2.bin"]
    files[0].write_bytes(DATA)
    assert upload(service, RUN, *files) == 1
    files[1].write_bytes(DATA)
    assert upload(service, RUN, *files) == 0
    assert [service.run.streams[f"s{i}"].data for i in (1, 2)] == [DATA] * 2
    assert not list(tmp_path.glob("*.thalweg-state"))


def test_partitions_are_in_the_order_of_their_numbers(service: FakeService, tmp_path: Path) -> None:
    files = [tmp_path / f"part-{i}.bin" for i in (1, 10, 2)]  # as a shell lists them
    for file in files:
        file.write_bytes(file.name.encode())
    assert upload(service, RUN, *files) == 0
    assert upload(service, RUN, *files, "--partition", "11-13") == 0
    found = {stream.partition: bytes(stream.data) for stream in service.run.streams.values()}
    assert [found[i] for i in (1, 2, 3)] == [b"part-1.bin", b"part-2.bin", b"part-10.bin"]
    assert [found[i] for i in (11, 12, 13)] == [b"part-1.bin", b"part-10.bin", b"part-2.bin"]


def test_what_becomes_of_each_file_is_said_before_it_is_sent(
    service: FakeService, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("a10.bin", "a2.bin", "b_P1.bin", "c_P1.bin")
    for name in names:
        (tmp_path / name).write_bytes(name.encode())
    assert upload(service, RUN, *names[:2]) == 0
    first, *_ = capsys.readouterr().err.splitlines()
    assert first == "thalweg: partition 1 is a2.bin, partition 2 is a10.bin"
    for mixed in (names[1:3], names[2:]):
        assert upload(service, RUN, *mixed) == 2
        assert "_P1.bin tells its partition, and other files none or" in capsys.readouterr().err
    assert upload(service, RUN, *names[:3], "--partition", "3-5") == 0
    assert upload(service, RUN, names[2], "--quiet", "--partition", "6") == 0
    assert {stream.partition for stream in service.run.streams.values()} == {1, 2, 3, 4, 5, 6}


def test_a_key_names_a_run_on_every_machine(
    service: FakeService, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        created = ("--perspective", "gul", "--report", "melt", "--idempotency-key", "analysis 7")
        assert run(service, "create", *created, "--label", "flood v3") == 0
    assert service.run.spec["label"] == "flood v3"
    assert service.run.keys == ['"analysis 7"'] * 2
    assert capsys.readouterr().out.splitlines() == [RUN, RUN]


def test_a_run_is_called_something_else(
    service: FakeService, capsys: pytest.CaptureFixture[str]
) -> None:
    for text, label in (("flood v4", "flood v4"), ("", None)):
        assert run(service, "label", RUN, text) == 0
        assert service.run.spec == {"label": label}
    assert capsys.readouterr().out == ""


def test_further_reports_have_inputs_and_options_of_their_own(
    service: FakeService, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "returnperiods.bin").write_bytes(b"when")
    options = ("--return-periods", "returnperiods.bin", "--curves", "Ff")
    assert run(service, "compute", RUN, "--report", "ept", *options) == 0
    assert capsys.readouterr().out == "v1\n"
    body = service.run.spec["more"]
    assert (body["reports"], body["options"]) == (["ept"], {"curves": "Ff"})
    assert list(body["inputs"]) == ["return_periods"]


def test_a_partition_is_replaced_where_that_is_asked_for(
    service: FakeService, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "p1.bin"
    for data in (b"first", b"second"):
        file.write_bytes(data)
        assert upload(service, RUN, file, "--replace") == 0
        assert bytes(service.run.streams["s1"].data) == data
    file.write_bytes(b"third")
    assert upload(service, RUN, file, "--partition", 1) == 1
    assert run(service, "status", RUN, "--json") == 0
    (partition,) = json.loads(capsys.readouterr().out)["partitions"]
    assert (partition["id"], partition["offset"], partition["state"]) == ("s1", 6, "complete")


def test_no_state_keeps_a_partition_from_being_replaced(
    service: FakeService, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, state = tmp_path / "p1.bin", tmp_path / f"{RUN}.thalweg-state" / "1"
    file.write_bytes(DATA)
    service.script[:] = [Fault(stop_reading=100_000)]
    assert upload(service, RUN, file) == 3
    assert state.exists()
    file.write_bytes(DATA[::-1])
    assert upload(service, RUN, file, "--partition", 1) == 1
    assert "has changed since" in capsys.readouterr().err
    assert upload(service, RUN, file, "--replace") == 0
    assert bytes(service.run.streams["s1"].data) == DATA[::-1]
    state.parent.mkdir(exist_ok=True)
    state.write_text("{}")
    assert run(service, "delete", RUN, "--partition", 1) == 0
    assert not state.exists()


def test_files_take_the_lowest_free_partitions(
    service: FakeService, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [tmp_path / f"part-{i}.bin" for i in range(5)]
    for i, file in enumerate(files):
        file.write_bytes(DATA + bytes([i]))
    assert upload(service, RUN, files[0], "--partition", 2) == 0
    assert upload(service, RUN, *files[1:3]) == 0
    assert f"partition 3: {files[2]}: 102" in capsys.readouterr().err
    # What another command began, the same file goes on with, and no other.
    service.script[:] = [Fault(stop_reading=100_000)]
    assert upload(service, RUN, files[3]) == 3
    assert upload(service, RUN, files[4]) == 0
    assert "partition 4 is unfinished: its own file" in capsys.readouterr().err
    assert upload(service, RUN, files[3]) == 0
    order = [0, 1, 0, 2, 3, 4]
    assert [stream.data[-1] for _, stream in sorted(service.run.streams.items())] == order[1:]


def test_what_is_stored_beside_a_failure_is_told_once(
    service: FakeService, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [tmp_path / f"p{i}.bin" for i in (1, 2)]
    for file in files:
        file.write_bytes(file.name.encode() + DATA)
    service.run.spec = {"options": {"partitions": 3}}
    service.script[:] = [None, Fault(stop_reading=100_000)]
    assert upload(service, RUN, *files, "--parallel", 1) == 3
    assert run(service, "status", RUN) == 0
    assert "  1 of 3 partitions complete, 1 begun\n" in capsys.readouterr().out
    assert upload(service, RUN, files[1]) == 0
    assert "partition 1 is stored already" in capsys.readouterr().err
    assert upload(service, RUN, files[1]) == 0
    assert "partition 1" not in capsys.readouterr().err
    assert run(service, "status", RUN) == 0
    assert "  2 of 3 partitions complete\n" in capsys.readouterr().out
    assert not list(tmp_path.glob("*.thalweg-state"))


def test_a_stream_whose_creation_was_the_last_thing_is_gone_on_with(
    service: FakeService, tmp_path: Path
) -> None:
    file, state = tmp_path / "p.bin", tmp_path / f"{RUN}.thalweg-state" / "1"
    file.write_bytes(DATA)
    service.script[:] = [Fault(stop_reading=100_000)]
    assert upload(service, RUN, file, "--retries", 0) == 3
    before = json.loads(state.read_bytes()) | {"stream": None, "offset": 0}
    state.write_text(json.dumps(before))
    service.run.streams["s1"] = Stored(1, None)
    assert upload(service, RUN, file) == 0
    assert service.run.streams["s1"].data == DATA
    assert list(service.run.streams) == ["s1"]
    assert not state.exists()


def test_stdin_is_a_stream(service: FakeService, monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    monkeypatch.setattr(os, "dup", lambda fd: reading if fd == 0 else fd)
    os.write(writing, b"piped")
    os.close(writing)
    assert upload(service, RUN, "-", "--partition", "7") == 0
    assert service.run.streams["s7"].data == b"piped"


def test_one_that_fails_stops_no_other(
    service: FakeService, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    service.run.commit = 1000
    files = [tmp_path / f"p{i}.bin" for i in (1, 2)]
    for file in files:
        file.write_bytes(DATA)
    service.script[:] = [Fault(stop_reading=100_000)]
    assert upload(service, RUN, *files, "missing", "--parallel", "1") == 3
    err = capsys.readouterr().err
    assert "partition 1: the same command goes on where it stopped" in err
    assert "partition 3: missing cannot be read" in err
    assert service.run.streams["s2"].complete
    service.run.received = 0
    assert upload(service, RUN, *files) == 0
    assert service.run.streams["s1"].data == DATA
    assert service.run.received < len(DATA)
    assert leftovers(tmp_path) == ["p1.bin", "p2.bin"]


def test_an_interrupted_command_goes_on(service: FakeService, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "app.client", "run", "upload", RUN, "-", "--url", service.url]
    arrived = threading.Event()
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    service.run.commit = 1
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path, env=environment
    ) as process:
        assert process.stdin is not None
        process.stdin.write(DATA)
        process.stdin.flush()
        while "s1" not in service.run.streams or len(service.run.streams["s1"].data) < len(DATA):
            assert process.poll() is None
            arrived.wait(0.02)
        process.send_signal(signal.SIGINT)
        process.wait(60)  # though stdin stays open
        assert process.returncode == 130
    done = subprocess.run(
        command, input=DATA + b"more", cwd=tmp_path, env=environment, check=True, timeout=60
    )
    assert done.returncode == 0
    assert service.run.streams["s1"].data == DATA + b"more"
    assert leftovers(tmp_path) == []


def test_wrong_usage(service: FakeService, capsys: pytest.CaptureFixture[str]) -> None:
    for wrong in (
        [RUN],
        [RUN, "a", "--exec", "b"],
        [RUN, "a", "b", "--partition", "1,2,3"],
        [RUN, "a", "b", "--partition", "1,1"],
        [RUN, "-", "-"],
    ):
        assert upload(service, *wrong) == 2, wrong
    assert not service.seen
    assert "stdin is one stream" in capsys.readouterr().err


def test_a_file_in_the_place_of_the_run(
    service: FakeService, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "p1.bin").write_bytes(DATA)
    assert upload(service, "p1.bin", RUN) == 2
    assert "p1.bin is a file: thalweg run upload RUN FILE" in capsys.readouterr().err
    assert run(service, "fetch", RUN, "--format", "png", "-o", "big.csv") == 2
    assert "--out big.csv does not end in png" in capsys.readouterr().err
    assert not service.seen


def test_the_reports_to_fetch_are_those_of_the_variant() -> None:
    of_results = {"own": {"reports": ["melt", "ept"]}, "v1": {"reports": ["aal"]}}
    known = Run(RUN, "done", None, {"reports": ["melt"], "results": of_results})
    for variant, reports in ((None, ["melt", "ept"]), ("v1", ["aal"])):
        assert _computed(argparse.Namespace(variant=variant), known) == reports
    with pytest.raises(ValueError, match="no variant v2"):
        _computed(argparse.Namespace(variant="v2"), known)


def test_a_variant_that_is_computed_is_waited_for_and_one_that_failed_says_why() -> None:
    results = {"own": {"reports": ["melt"]}, "v1": {"reports": [], "problem": {"detail": "why"}}}
    document: dict[str, Any] = {"reports": ["melt"], "results": results}
    document["computing"] = [{"variant": "v2", "reports": ["ept"]}]
    known = Run(RUN, "done", None, document)
    assert _computed(argparse.Namespace(variant="v2"), known) == ["ept"]
    with pytest.raises(ValueError, match="v1 could not be computed: why"):
        _computed(argparse.Namespace(variant="v1"), known)


def test_a_run_is_followed_until_it_ends(
    service: FakeService,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "p1.bin").write_bytes(DATA)
    assert run(service, "create", "--perspective", "gul", "--report", "melt") == 0
    assert upload(service, RUN, tmp_path / "p1.bin") == 0
    service.run.state, service.run.computing = "computing", 3
    capsys.readouterr()
    looks: list[float] = []
    monkeypatch.setattr("app.client.command.runs.time.sleep", looks.append)
    assert run(service, "status", RUN, "--follow") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines if line.startswith(RUN)] == ["computing", "done"]
    assert len(looks) == 3
    # The stream did not change, so it is told once.
    assert sum("partition 1: complete" in line for line in lines) == 1
    service.run.problem = {"status": 422, "code": "invalid-input", "detail": "why"}
    service.run.state = "failed"
    assert run(service, "status", RUN, "--follow") == 1
    assert "why" in capsys.readouterr().err
    assert run(service, "status", RUN, "--follow", "--json") == 2


def test_files_that_say_their_partition_are_that_one(
    service: FakeService, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [tmp_path / f"summary_P{i}.bin" for i in (1, 3)]
    for file in files:
        file.write_bytes(file.name.encode())
    assert upload(service, RUN, *files) == 0
    assert f"partition 3: {files[1]}: " in capsys.readouterr().err
    assert sorted(service.run.streams) == ["s1", "s3"]
    other = tmp_path / "rest.bin"
    other.write_bytes(b"no number")
    assert upload(service, RUN, other) == 0
    assert sorted(service.run.streams) == ["s1", "s2", "s3"]


def test_what_the_service_notes_is_said_with_the_options_of_the_command(
    service: FakeService, capsys: pytest.CaptureFixture[str]
) -> None:
    service.run.document = {
        "notes": ["seal it with return_periods, such as 250,100"],
        "results": {"own": {"reports": ["aal"]}},
        "computing": [{"variant": "v2", "reports": ["ept"]}],
    }
    assert run(service, "status", RUN) == 0
    out = capsys.readouterr().out
    assert "  seal it with --return-periods, such as 250,100\n" in out
    assert "  variant own: aal\n  variant v2: ept (computing)\n" in out
    assert run(service, "seal", RUN, "--return-periods", "250,100", "--curves", "F") == 0
    assert service.run.changed == {"options": {"return_periods": [250, 100], "curves": "F"}}
    assert "seal it with --return-periods" in capsys.readouterr().err


def test_a_single_report_goes_into_a_folder_that_is_named_as_one(
    service: FakeService, tmp_path: Path
) -> None:
    service.run.state = "done"
    assert run(service, "fetch", RUN, "--report", "ept", "-o", "new/") == 0
    assert leftovers(tmp_path / "new") == ["ept.csv"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (f"run compute {RUN} --report ept --rp 5", "Did you mean --return-periods?"),
        (f"run compute {RUN} --report ept --summary-ids 5", "run fetch"),
        ("aggregate x.bin", "aggregate is a command of thalweg-server"),
        ("post P1.bin P2.bin --report melt", "thalweg run create"),
        (f"run compute {RUN} --report ept --return-periods 0.004", "250 for the probability"),
        (
            "portfolio price tower.json wind --format bin",
            "'json', 'csv', 'ndjson', 'arrow', 'parquet'",
        ),
        (f"run compute {RUN} --report ept --return-periods 250y", "whole number of years"),
    ],
)
def test_options_and_commands_that_are_elsewhere(
    capsys: pytest.CaptureFixture[str], words: str, said: str
) -> None:
    with pytest.raises(SystemExit):
        main(words.split())
    assert said in capsys.readouterr().err


def test_a_service_that_is_not_running(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    assert main(["run", "list", "--retries", "0", "--url", f"http://127.0.0.1:{port}"]) == 3
    said = capsys.readouterr().err
    assert "refused: is the service running? Name it with --url or THALWEG_URL" in said


def test_members_of_a_run_are_told_as_options() -> None:
    problem = {"code": "option", "detail": "options.return_periods.1 must be a whole number"}
    assert "--return-periods.1 must be" in told(ProblemError(422, problem))
    problem = {"code": "option", "detail": "reports.0: there is no report 'x'"}
    assert "--reports: there is no" in told(ProblemError(422, problem))
    problem |= {"detail": '"of": "net" needs a programme', "hint": 'Give {"layers": […]}'}
    assert "--of net needs a programme. Give --programme FILE" in told(ProblemError(422, problem))
    problem["hint"] = 'Give {"group_by": ["SummaryId"], "insured_value": …}, of a loss set'
    said = "Give --group-by SummaryId --insured-value NAME, of a loss set"
    assert said in told(ProblemError(422, problem))
    refused: dict[str, object] = {
        "code": "seal-refused",
        "detail": "no",
        "inputs": ["return_periods"],
    }
    assert "run input RUN return_periods FILE" in told(ProblemError(409, refused))
    for words, run in ((["run", "seal", "5eed"], "5eed"), (["portfolio", "show", "5eed"], "RUN")):
        said = told(ProblemError(409, refused), build_parser().parse_args(words))
        assert f"run input {run} return_periods FILE" in said


def test_ranges() -> None:
    assert ranges("3") == [3]
    assert ranges("1,4-6, 9") == [1, 4, 5, 6, 9]


def test_bars_have_a_line_for_each_partition() -> None:
    out, clock = io.StringIO(), FakeClock()
    bars = Bars(out, [1, 2], clock)
    clock.now = 1.0
    bars(Uploading(1, 1_000_000, 2_000_000))
    clock.now = 2.0
    bars(Uploading(2, 5_000_000, None))
    bars(Uploading(2, 6_000_000, None))
    drawn = out.getvalue()
    assert "     1   50% [############            ] 1.0/2.0 MB" in drawn
    assert "     2  5.0 MB" in drawn
    assert "   all  6.0 MB" in drawn
    assert "7.0 MB" not in drawn
    bars.clear()
    assert out.getvalue().endswith("\r\x1b[2A\x1b[J")
