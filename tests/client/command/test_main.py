from __future__ import annotations

import argparse
import io
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import app.client
from app.client import Client, __version__
from app.client.command import post as posting
from app.client.command.arguments import size
from app.client.command.console import Bar, Fetching, Reducing, describe, stopped
from app.client.command.main import build_parser, main
from app.client.errors import ProblemError
from app.client.losses.rows import End
from app.client.losses.saving import Progress

from ..fakes.exchange import Fault
from ..fakes.losses import RECORD, csv, make_stream, tables
from ..fakes.service import FakeService

ROOT = Path(app.client.__file__).parents[2]
STREAM = make_stream(300)
TABLES = tables(STREAM)
CSV = b"Event,Value\n" + csv(TABLES["rows"])
PART = str(20 * RECORD)
COMMAND = [sys.executable, "-m", "app.client"]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "in").write_bytes(STREAM)
    return tmp_path / "in"


def post(service: FakeService, *args: object) -> int:
    return main(
        ["post", "--url", service.url, "--report", "rows", "--part-size", PART, *map(str, args)]
    )


def start(service: FakeService, *args: object, **how: Any) -> subprocess.Popen[bytes]:  # noqa: ANN401
    command = [*COMMAND, "post", "--url", service.url, "--report", "rows", "--part-size", PART]
    return subprocess.Popen([*command, *map(str, args)], cwd=ROOT, stderr=subprocess.PIPE, **how)


@pytest.mark.parametrize("more", ["--mode whole", "--mode duplex --format bin", "--format arrow"])
def test_the_size_of_parts_is_of_parts(
    service: FakeService, source: Path, capsys: pytest.CaptureFixture[str], more: str
) -> None:
    assert post(service, source, "-o", source.with_name("out"), *more.split()) == 2
    assert "--part-size is of mode parts, and this is mode " in capsys.readouterr().err


def test_to_a_file(
    service: FakeService, source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert post(service, source, "-o", tmp_path / "out.csv") == 0
    assert (tmp_path / "out.csv").read_bytes() == CSV
    assert "rows: 300 events" in capsys.readouterr().err
    assert post(service, source, "-o", tmp_path / "out.bin", "--quiet") == 0
    assert (tmp_path / "out.bin").read_bytes() == TABLES["rows"].tobytes()
    assert capsys.readouterr().err == ""
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in", "out.bin", "out.csv"]


def test_from_and_to_pipes(service: FakeService) -> None:
    process = start(service, "-", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    out, err = process.communicate(STREAM, timeout=60)
    assert (process.returncode, out) == (0, CSV)
    assert b"undeclared (a stream has no end marker" in err


@pytest.mark.parametrize("live", [False, True])
def test_a_download_that_breaks_leaves_nothing_on_standard_output(live: bool, source: Path) -> None:
    with FakeService([None, None, Fault(cut=0)]) as service:
        options = [*(["--live"] if live else []), "--retries", "0"]
        process = start(service, source, *options, stdout=subprocess.PIPE)
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 3
    assert bool(out) is live
    assert CSV.startswith(out)


def test_a_command(service: FakeService, source: Path, tmp_path: Path) -> None:
    assert post(service, "-o", tmp_path / "out.csv", "--exec", "cat", source) == 0
    assert (tmp_path / "out.csv").read_bytes() == CSV
    script = f"cat {source}; exit 3"
    assert post(service, "-o", tmp_path / "no.csv", "--exec", "sh", "-c", script) == 1
    assert not (tmp_path / "no.csv").exists()


def test_reports_are_refused_before_one_is_written(source: Path, tmp_path: Path) -> None:
    refused = Fault(status=422, problem={"code": "option"})
    with FakeService([None, refused]) as service:
        assert post(service, source, "--report", "rows,count", "-o", tmp_path / "out") == 2
        assert [seen.query["check"] for seen in service.losses] == ["true", "true"]
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("reports", ["rows", "rows,count"])
@pytest.mark.parametrize("form", ["csv", "bin"])
def test_files_are_replaced_if_asked_for(
    service: FakeService,
    source: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    reports: str,
    form: str,
) -> None:
    out = tmp_path / ("out" if "," in reports else f"rows.{form}")
    args = ["--report", reports, "--format", form, "-o", str(out)]
    assert post(service, source, *args) == 0
    first = out / f"rows.{form}" if "," in reports else out
    first.write_bytes(b"precious")
    seen = len(service.seen)
    assert post(service, source, *args) == 2
    said = f"thalweg: {first} exists: give --force to replace it, or another -o"
    assert said in capsys.readouterr().err
    assert len(service.seen) == seen
    assert first.read_bytes() == b"precious"
    assert post(service, source, *args, "--force") == 0
    assert first.read_bytes() != b"precious"


def test_the_same_command_goes_on_with_its_own_files(source: Path, tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(STREAM)
    out, way = str(tmp_path / "out"), ["--part-size", "1M", "--retries", "0"]
    args = ["--report", "rows,count", "-o", out, *way]
    with FakeService([None, None, None, Fault(status=503)]) as service:
        assert post(service, source, *args) == 3
        assert (tmp_path / "out" / "rows.csv").exists()
    with FakeService() as service:
        assert post(service, tmp_path / "other", *args) == 2
        assert post(service, source, *args) == 0
        assert {p.name for p in (tmp_path / "out").iterdir()} == {"rows.csv", "count.csv"}
        assert post(service, source, *args) == 2


def test_a_first_report_that_fails_leaves_no_folder(source: Path, tmp_path: Path) -> None:
    with FakeService([None, None, Fault(status=400)]) as service:
        assert post(service, source, "--report", "rows,count", "-o", tmp_path / "out") == 1
    assert not (tmp_path / "out").exists()


def test_what_is_missing_from_a_table_is_said(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    end = {"selected_rows": 0, "longest_return_period": 1000}
    args = ["--part-size", "1M", "--summary-ids", "9"]
    with FakeService([Fault(end=end), Fault(end=end)]) as service:
        assert post(service, source, *args, "-o", tmp_path / "a.csv") == 0
        said = capsys.readouterr().err
        assert "no row is of the chosen summaries and events" in said
        assert "return periods up to 1,000 years: longer ones have no rows" in said
        assert post(service, source, *args, "-o", tmp_path / "b.csv", "--quiet") == 0
    assert not capsys.readouterr().err


@pytest.mark.parametrize("option", ["--report", "--reports"])
def test_several_reports(service: FakeService, source: Path, tmp_path: Path, option: str) -> None:
    args = ["post", str(source), "--url", service.url, option, "rows,count"]
    assert main([*args, "-o", str(tmp_path / "csv")]) == 0
    assert {p.name: p.read_bytes() for p in (tmp_path / "csv").iterdir()} == {
        f"{name}.csv": b"Event,Value\n" + csv(table) for name, table in TABLES.items()
    }
    before = len(service.losses)
    assert main([*args, "-o", str(tmp_path / "bin"), "--format", "bin"]) == 0
    assert len(service.losses) == before + 1
    assert {p.name: p.read_bytes() for p in (tmp_path / "bin").iterdir()} == {
        f"{name}.bin": table.tobytes() for name, table in TABLES.items()
    }


@pytest.mark.parametrize(
    "args",
    [
        [],
        ["in", "--exec", "cat"],
        ["in", "--report", "rows,count"],
        ["-", "--report", "rows,count", "-o", "out"],
        ["in", "--report", "rows,count", "-o", "out", "--state", "s"],
        ["in", "--state", "s"],
        ["in", "-o", "out", "--live"],
        ["in", "-o", "out", "--mode", "duplex"],
        ["in", "-o", "out.parquet", "--mode", "parts"],
        ["in", "--report", "ept", "--mode", "parts"],
        ["in", "--summary-ids", "x"],
        ["in", "--report", "rows,count", "-o", "in"],
        ["in", "--report", "rows,count", "-o", "new.csv"],
    ],
)
def test_wrong_usage(
    service: FakeService,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    args: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").write_bytes(STREAM)
    assert post(service, *args) == 2
    assert capsys.readouterr().err.startswith("thalweg: ")
    assert not service.seen


@pytest.mark.parametrize(
    "args",
    [
        ["--part-size", "0"],
        ["--part-size", "x"],
        ["--return-periods", "250,x"],
        ["--return-periods", "250.7"],
        ["--return-periods", "250;100"],
        ["--return-periods", "1/250"],
        ["--quantiles", "0.5,nan"],
    ],
)
def test_wrong_options(
    service: FakeService, capsys: pytest.CaptureFixture[str], args: list[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        post(service, "in", *args)
    assert caught.value.code == 2
    assert f"{args[1].rpartition(',')[2]!r} is not a" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ("", "no report is wanted"),
        (",aal", "the name of a report is empty"),
        ("aal,aal", "aal is asked for twice"),
    ],
)
def test_reports_are_named_once_each(
    service: FakeService, capsys: pytest.CaptureFixture[str], names: str, said: str
) -> None:
    with pytest.raises(SystemExit) as caught:
        post(service, "in", "--report", names, "-o", "f.csv")
    assert caught.value.code == 2
    assert said in capsys.readouterr().err
    assert not service.seen


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["batch", "p.json"], "Did you mean batches?"),
        (["pipelines", "lst"], "Did you mean list?"),
        (["inputs", "put", "occurence", "f"], "Did you mean occurrence?"),
        (["run", "create", "--perspective", "GUL"], "Did you mean gul?"),
        (["batches", "p.json", "--tokenfile", "t"], "Did you mean --token-file?"),
        (["batches", "p.json", "--epochs", "3"], 'spec says it: {"op": "permute", "epochs": 3}'),
        (["datasets", "list", "--server", "http://x"], "Did you mean --url?"),
        (["post", "in", "--report", "ept", "aal"], "has commas, and no blanks: --report ept,aal"),
        (["post", "--report", "ept", "aal", "in"], "has commas, and no blanks: --report ept,aal"),
        (["post", "i", "--report", "a", "--return-periods", "9", "5"], ": --return-periods 9,5\n"),
        (["tiles", "scan", "-o", "x.npy", "--sig", "0:2", "-1:"], "no blanks: --sig 0:2,-1:"),
        (["tiles", "scan", "-o", "x.npy", "--tile-shape", "4", "5"], ": --tile-shape 4,5\n"),
        (["post", "in", "x", "--report", "ept"], "unexpected: x. A post is one stream"),
        (["batches", "p.json", "--format", "npy"], "with --out its fields as .npy files"),
        (["batches", "p.json", "--rank", "-1"], "argument --rank: must be 0 or more"),
        (["batches", "p.json", "-n", "-1"], "argument -n/--count: must be 0 or more"),
    ],
)
def test_words_that_are_none(
    args: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(args)
    assert caught.value.code == 2
    assert said in capsys.readouterr().err


def test_a_refusal(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    problem = {
        "code": "loss-not-finite",
        "detail": "NaN",
        "offset": 7,
        "event": 3,
        "hint": "Use expect_events= or nan, not no/event_ids or event_ids.bin",
    }
    with FakeService([Fault(status=400, problem=problem)]) as service:
        assert post(service, source, "-o", tmp_path / "out") == 1
    text = capsys.readouterr().err
    assert "thalweg: [loss-not-finite] NaN (at byte 7, event 3). Use --expect-events or nan" in text
    assert ", not no/event_ids or event_ids.bin" in text
    assert post(service, tmp_path / "none") == 1


@pytest.mark.parametrize(
    ("problem", "code"),
    [
        ({"code": "option"}, 2),
        ({"code": "report"}, 2),
        ({"code": "not-acceptable"}, 2),
        ({"code": "unprocessable"}, 2),
        ({"code": "report", "offset": 0}, 1),
        ({"code": "input"}, 1),
        ({"code": "stream-truncated", "offset": 5}, 1),
    ],
)
def test_a_refusal_of_options_is_wrong_usage(
    source: Path, tmp_path: Path, problem: dict[str, object], code: int
) -> None:
    with FakeService([Fault(status=422, problem=problem)]) as service:
        assert post(service, source, "-o", tmp_path / "out") == code


def test_a_faulty_input_is_named_with_its_option(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    problem = {"code": "input", "source": "event_rates", "detail": "event_rates: cut off"}
    with FakeService([Fault(status=400, problem=problem)]) as service:
        assert post(service, source, "--event-rates", source, "-o", tmp_path / "out") == 1
    assert f"[input] --event-rates {source}: cut off\n" in capsys.readouterr().err


def test_a_folder_takes_a_file_of_the_name_of_the_report(
    service: FakeService, source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "there").mkdir()
    for folder in (tmp_path / "there", f"{tmp_path}/new/"):
        assert post(service, source, "-o", folder) == 0
        assert Path(folder, "rows.csv").read_bytes() == CSV
    capsys.readouterr()
    assert post(service, source, "-o", tmp_path / "no" / "dir" / "x") == 1
    assert capsys.readouterr().err == f"thalweg: there is no folder {tmp_path}/no/dir\n"


def test_a_stream_is_declared_by_its_caller_alone(
    service: FakeService, source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for options, said in (
        ([], "undeclared (the whole file was sent)"),
        (["--expect-events", 300], "declared"),
    ):
        assert post(service, source, "-o", tmp_path / "out", "--force", *options) == 0
        assert capsys.readouterr().err.endswith(f"bytes, completeness {said}\n")


def test_giving_up_and_going_on(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.csv"
    with FakeService([None, None, Fault(cut=0)]) as service:
        assert post(service, source, "-o", out, "--retries", 0) == 3
        assert "the same command resumes" in capsys.readouterr().err
        assert (tmp_path / "out.csv.thalweg-state").exists()
        first = len(service.losses)
        assert post(service, source, "-o", out, "--retries", 0) == 0
        assert service.losses[first].query["after"]
    assert out.read_bytes() == CSV
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in", "out.csv"]


@pytest.mark.parametrize("table_format", ["csv", "bin"])
def test_it_survives_kills(source: Path, tmp_path: Path, table_format: str) -> None:
    out = tmp_path / f"out.{table_format}"
    state = tmp_path / f"out.{table_format}.thalweg-state"
    kills = 0
    with FakeService(delay=0.02) as service:
        while not out.exists():
            before = len(service.losses)
            process = start(service, source, "-o", out)
            wait_for(lambda: len(service.losses) > before + 12 or process.poll() is not None)  # noqa: B023
            if process.poll() is None:
                process.kill()
                kills += 1
            process.communicate()
            assert kills < 99
    assert kills > 1
    assert out.read_bytes() == (CSV if table_format == "csv" else TABLES["rows"].tobytes())
    assert not state.exists()


def wait_for(condition: Any) -> None:  # noqa: ANN401
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_keep_the_state(source: Path, tmp_path: Path, number: int, code: int) -> None:
    out = tmp_path / "out.csv"
    with FakeService(delay=0.02) as service:
        process = start(service, source, "-o", out)
        wait_for(lambda: len(service.losses) > 4)
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
        assert process.returncode == code
        assert b"resumes from there" in err
        assert post(service, source, "-o", out) == 0
    assert out.read_bytes() == CSV


def test_progress_before_a_fault_is_of_use_once_that_is_mended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = tmp_path / "state"
    state.touch()

    def post_in_vain(place: dict[str, int]) -> None:
        try:
            raise ProblemError(400, {"detail": "sidx 3 comes twice", **place}, None)
        finally:
            stopped(None, str(state))

    for problem, tail in (({"offset": 8}, ", once the fault is mended"), ({}, "")):
        with pytest.raises(ProblemError):
            post_in_vain(problem)
        said = f"progress is saved in {state}: the same command resumes from there{tail}\n"
        assert capsys.readouterr().err == f"thalweg: {said}"


def test_a_reader_that_has_gone(service: FakeService, source: Path) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    process = start(service, source, stdout=write_end)
    os.close(write_end)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (141, b"")


def test_deleting_what_the_service_keeps(service: FakeService, tmp_path: Path) -> None:
    (tmp_path / "q").write_text("0.5\n")
    url = ["--url", service.url]
    assert main(["inputs", "put", "quantiles", str(tmp_path / "q"), *url]) == 0
    (digest,) = service.inputs
    assert main(["inputs", "delete", "quantiles", digest, *url]) == 0
    assert not service.inputs
    assert main(["inputs", "delete", "quantiles", digest, *url]) == 1
    service.pipeline.known = True
    assert main(["pipelines", "delete", "p1", *url]) == 0
    assert main(["pipelines", "delete", "p1", *url]) == 1


def test_stages_explain_the_order(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    known = {
        "stages": {"batch": {"about": "Items in batches."}},
        "order": {"about": "The version of the rules.", "example": {"order": 1}},
    }
    monkeypatch.setattr(Client, "stages", lambda _: known)
    assert main(["stages", "--url", "http://127.0.0.1:1"]) == 0
    out = capsys.readouterr().out
    assert out == (
        'batch         Items in batches.\n\norder: The version of the rules.\n\n  {"order": 1}\n'
    )


def test_inputs_and_tokens(
    service: FakeService, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "q").write_text("quantile\n0.5\n")
    assert main(["inputs", "put", "quantiles", str(tmp_path / "q"), "--url", service.url]) == 0
    assert capsys.readouterr().out.strip() in service.inputs
    assert main(["token", "inspect", "1.2", "--url", service.url]) == 0
    assert '"token": "1.2"' in capsys.readouterr().out
    (tmp_path / "t").write_text("1.3\n")
    assert main(["token", "inspect", str(tmp_path / "t"), "--url", service.url]) == 0
    assert '"token": "1.3"' in capsys.readouterr().out
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out == f"thalweg {__version__}\n"


def test_options_reach_the_service(service: FakeService, source: Path, tmp_path: Path) -> None:
    (tmp_path / "rates").write_text("1,0.5\n")
    args: list[object] = ["--quantiles", "0.5,0.9", "--event-rates", tmp_path / "rates"]
    args += ["--float-width", 4, "--nan", "zero", "--negative", "keep", "--order", "event"]
    args += ["--summary-ids", "1-3", "--event-ids", "4,7"]
    args += ["--expect-events", 300, "--no-of-periods", 9]
    assert post(service, source, "-o", tmp_path / "o", *args) == 0
    query = service.losses[-1].query
    (digest,) = service.inputs
    assert query.pop("after")
    assert query == {
        "format": "csv",
        "quantiles": "0.5,0.9",
        "event_rates": digest,
        "float_width": "4",
        "nan": "zero",
        "negative": "keep",
        "order": "event",
        "summary_ids": "1-3",
        "event_ids": "4,7",
        "expect_events": "300",
        "no_of_periods": "9",
    }


def test_the_environment(
    service: FakeService, monkeypatch: pytest.MonkeyPatch, source: Path, tmp_path: Path
) -> None:
    monkeypatch.setenv("THALWEG_URL", service.url)
    monkeypatch.setenv("THALWEG_KEY", "secret")
    assert main(["post", str(source), "--report", "rows", "-o", str(tmp_path / "o")]) == 0
    assert service.seen[0].headers["authorization"] == "Bearer secret"


def test_the_progress_bar(service: FakeService, source: Path, tmp_path: Path) -> None:
    leader, follower = pty.openpty()
    command = [*COMMAND, "post", str(source), "--report", "rows", "--url", service.url]
    command += ["--part-size", PART, "-o", str(tmp_path / "o")]
    process = subprocess.Popen(command, cwd=ROOT, stderr=follower)
    os.close(follower)
    assert process.wait(60) == 0
    drawn = os.read(leader, 1 << 16).decode()
    os.close(leader)
    assert re.search(r"%\ \[[# ]{24}\] 0\.0/0\.0 MB", drawn)


def test_what_the_bar_says() -> None:
    assert describe(Progress(50_000_000, 200_000_000, 1234), 2e7) == (
        " 25% [######                  ] 50.0/200.0 MB  20 MB/s  1,234 events"
    )
    assert describe(Progress(5, None, 0), 0) == "0.0 MB  0 MB/s  0 events"
    assert describe(Progress(5, None, 1), 0) == "0.0 MB  0 MB/s  1 event"
    assert describe(Fetching(5_000_000), 1e6) == "5.0 MB  1 MB/s"
    assert describe(Reducing(1, 4), 0) == " 25% [######                  ] 1 of 4 tiles"


def test_the_bar_is_drawn_now_and_then() -> None:
    now = 0.0
    out = io.StringIO()
    bar = Bar(out, lambda: now)
    for i in range(100):
        now = i / 100
        bar(Progress(i, 100, i))
    bar.clear()
    assert 8 < out.getvalue().count("events") < 12


def _options(parser: Any) -> set[str]:  # noqa: ANN401
    """Options of a parser and of the commands in it."""
    found = set(parser._option_string_actions)
    for group in parser._subparsers._group_actions if parser._subparsers else ():
        found |= {name for command in group.choices.values() for name in _options(command)}
    return found


def test_every_option_of_the_readme_exists() -> None:
    readme = (ROOT / "app" / "client" / "README.md").read_text()
    parser = build_parser()
    known = _options(parser)
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", readme)) - {"--seed"} <= known


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [("7", 7), ("7B", 7), ("2M", 2 << 20), ("2MiB", 2 << 20), ("2 MB", 2_000_000), ("1K", 1024)],
)
def test_sizes_have_units(text: str, nbytes: int) -> None:
    assert size(text) == nbytes
    for wrong in ("0", "MB", f"-{text}", f"{text}x", "1.5MB"):
        with pytest.raises(argparse.ArgumentTypeError, match="is not a size"):
            size(wrong)


@pytest.mark.parametrize("bare", [0, 1200])
def test_losses_without_exposure_are_told(bare: int) -> None:
    end = End("complete", "declared", 3, 90, "whole", blocks_without_exposure=bare)
    text = posting._describe(end, is_declared=True)
    assert ("1,200 blocks with losses have exposure 0" in text) is (bare > 0)
