from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import struct
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from app.command.main import main
from app.command.parser import build_parser
from core.losses.events import StreamHeader
from core.losses.format import Kind
from core.losses.inputs import parse_occurrence
from core.losses.ledger.calendar import ledger_bound, make_calendar
from core.losses.partition_reader import read_streams
from core.losses.reports import REPORTS
from core.losses.samples import SampleSpec, generate_inputs, generate_stream
from core.losses.writer import LossWriter
from tests import oracle
from tests.core.tiles import writers

SPEC = SampleSpec(events=30, summaries=3, samples=20)


@pytest.fixture(scope="module")
def run_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("run")
    (directory / "summary.bin").write_bytes(b"".join(generate_stream(SPEC)))
    for name, data in generate_inputs(SPEC).items():
        (directory / name).write_bytes(data)
    return directory


@pytest.fixture(autouse=True)
def _plain_output(monkeypatch: pytest.MonkeyPatch) -> None:
    # rich reads these, and would colour what the tests compare.
    for name in ("FORCE_COLOR", "CLICOLOR_FORCE"):
        monkeypatch.delenv(name, raising=False)


def server(*args: str, **options: object) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "app.command", *args]
    return subprocess.run(command, capture_output=True, timeout=300, check=False, **options)  # type: ignore[call-overload,no-any-return]


def rows(path: Path) -> list[str]:
    return path.read_text().splitlines()[1:]


def test_all_reports_in_every_format(run_directory: Path, tmp_path: Path) -> None:
    for name in ("csv", "bin", "arrow", "parquet", "ndjson"):
        out = tmp_path / name
        args = ["aggregate", str(run_directory / "summary.bin"), "--out", str(out)]
        args += ["--reports", "events,selt,melt,qelt", "--format", name]
        args += ["--quantiles", str(run_directory / "quantile.csv")]
        assert main([*args, "--expect-events", "30"]) == 0
        assert sorted(p.name for p in out.iterdir()) == [
            f"{report}.{name}" for report in ("events", "melt", "qelt", "selt")
        ]
    assert len(rows(tmp_path / "csv" / "events.csv")) == 30
    bins = (tmp_path / "bin" / "melt.bin").stat().st_size
    assert bins == 44 * len(rows(tmp_path / "csv" / "melt.csv"))


def test_event_rates_from_occurrences_and_from_rates_agree(
    run_directory: Path, tmp_path: Path
) -> None:
    periods = str(max(1000, 10 * SPEC.events))
    inputs = {
        "rates": ["--event-rates", str(run_directory / "event_rates.csv")],
        "bin": ["--occurrence", str(run_directory / "occurrence.bin")],
        "csv": [
            "--occurrence",
            str(run_directory / "occurrence.csv"),
            "--no-of-periods",
            periods,
        ],
    }
    tables = []
    for name, args in inputs.items():
        command = ["aggregate", str(run_directory / "summary.bin"), "--reports", "melt"]
        assert main([*command, *args, "--out", str(tmp_path / name)]) == 0
        tables.append((tmp_path / name / "melt.csv").read_text())
    assert tables[0] == tables[1] == tables[2]
    assert "nan" not in tables[0]


def of_periods(run_directory: Path, out: Path, form: str = "csv") -> list[str]:
    command = ["aggregate", str(run_directory / "summary.bin"), "--out", str(out)]
    command += ["--reports", "splt,mplt,qplt", "--quantiles", "0.5,0.9", "--format", form]
    return [*command, "--occurrence", str(run_directory / "occurrence.bin")]


def test_reports_of_periods_in_every_format(run_directory: Path, tmp_path: Path) -> None:
    for form in ("csv", "bin", "arrow", "parquet", "ndjson"):
        weights = ["--periods", str(run_directory / "periods.csv")]
        assert main([*of_periods(run_directory, tmp_path / form, form), *weights]) == 0
    counts = {}
    for name in ("splt", "mplt", "qplt"):
        lines = rows(tmp_path / "csv" / f"{name}.csv")
        counts[name] = len(lines)
        data = (tmp_path / "bin" / f"{name}.bin").read_bytes()
        assert len(data) == REPORTS[name].dtype(4).itemsize * len(lines)
        table = pq.read_table(tmp_path / "parquet" / f"{name}.parquet")
        assert table.num_rows == len(lines)
        arrow = (tmp_path / "arrow" / f"{name}.arrow").read_bytes()
        assert pa.ipc.open_stream(arrow).read_all().equals(table)
        objects = (tmp_path / "ndjson" / f"{name}.ndjson").read_text().splitlines()
        assert [json.loads(line)["Period"] for line in objects] == table["Period"].to_pylist()
    times = Counter(line.split(",")[0] for line in rows(run_directory / "occurrence.csv"))
    stream = oracle.parse((run_directory / "summary.bin").read_bytes(), 4)
    assert counts["qplt"] == 2 * sum(times[str(block.event)] for block in stream.blocks)
    assert counts["splt"] > counts["mplt"] > 0


def test_inputs_may_be_parquet(run_directory: Path, tmp_path: Path) -> None:
    for name in ("occurrence", "periods", "quantile", "event_rates"):
        table = pa_csv.read_csv(run_directory / f"{name}.csv")
        pq.write_table(table, tmp_path / f"{name}.parquet")
    command = ["aggregate", str(run_directory / "summary.bin"), "--reports", "melt,qplt"]
    for form, folder in (("csv", run_directory), ("parquet", tmp_path)):
        inputs = {"quantiles": "quantile", "event-rates": "event_rates"}
        inputs |= {"occurrence": "occurrence", "periods": "periods"}
        files = [[f"--{option}", str(folder / f"{name}.{form}")] for option, name in inputs.items()]
        count = ["--no-of-periods", str(SPEC.periods)]
        out = ["--out", str(tmp_path / form)]
        assert main([*command, *count, *out, *(word for pair in files for word in pair)]) == 0
    for name in ("melt.csv", "qplt.csv"):
        got = (tmp_path / "parquet" / name).read_bytes()
        assert got == (tmp_path / "csv" / name).read_bytes()


def logged(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    return {line["event"]: line for line in lines}


def test_event_rates_win_over_occurrences_and_it_is_said(
    run_directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rates = tmp_path / "rates.csv"
    rates.write_text("1,0.125\n")
    command = ["aggregate", str(run_directory / "summary.bin"), "--report", "melt"]
    command += ["--occurrence", str(run_directory / "occurrence.bin")]
    command += ["--event-rates", str(rates), "--out", str(tmp_path)]
    assert main(command) == 0
    assert rows(tmp_path / "melt.csv")[0].split(",")[3] == "0.125000"
    line = logged(capsys)["event rates are those of --event-rates, not of --occurrence"]
    assert (line["level"], line["file"]) == ("warning", str(rates))


def test_what_streams_and_occurrences_do_not_share_is_counted(
    run_directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    occurrence = tmp_path / "occurrence.csv"
    occurrence.write_text("1,1,2063,1,31\n1,2,2063,3,31\n31,1,2063,3,31\n32,1,2063,3,31\n")
    weights = tmp_path / "periods.csv"
    weights.write_text("1,0.5\n2,0.4\n")
    command = ["aggregate", str(run_directory / "summary.bin"), "--reports", "splt"]
    command += ["--occurrence", str(occurrence), "--no-of-periods", "2", "--out", str(tmp_path)]
    assert main([*command, "--periods", str(weights)]) == 0
    lines = logged(capsys)
    absent = lines["events never occur, so they have no rows by period"]
    assert (absent["level"], absent["events"], absent["of"]) == ("warning", 29, 30)
    text = "events of the occurrence file are not in the streams: is a partition missing?"
    assert (lines[text]["level"], lines[text]["events"], lines[text]["of"]) == ("warning", 2, 3)
    assert lines["period weights do not sum to 1"]["sum"] == 0.9
    assert not any("last nine tenths" in line for line in lines)
    keys = {tuple(line.split(",")[:6]) for line in rows(tmp_path / "splt.csv")}
    assert keys == {
        ("1", "0.500000", "1", "2063", "1", "31"),
        ("2", "0.400000", "1", "2063", "3", "31"),
    }


@pytest.mark.parametrize("threads", ["1", "2"])
def test_losses_without_exposure_are_told_where_tables_lack_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], threads: str
) -> None:
    block = struct.pack("<iififif", 1, 1, 0.0, 1, 4.0, 0, 0.0)
    stream = tmp_path / "summary.bin"
    stream.write_bytes(struct.pack("<iii", 1 | 3 << 24, 2, 1) + block)
    for reports, told in (("melt", True), ("qelt", True), ("selt", False)):
        inputs = ["--quantiles", "0.5"] if reports == "qelt" else []
        command = ["aggregate", str(stream), "--reports", reports, "--threads", threads, *inputs]
        assert main(command) == 0
        log = capsys.readouterr().err
        assert ("blocks with losses have exposure 0" in log) is told


def test_the_bound_of_sums_is_stated_before_the_pass(
    run_directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    occurrence = run_directory / "occurrence.bin"
    command = ["aggregate", str(run_directory / "summary.bin"), "--reports", "melt,aal"]
    assert main([*command, "--occurrence", str(occurrence), "--out", str(tmp_path)]) == 0
    lines = logged(capsys)
    calendar = make_calendar(parse_occurrence(occurrence.read_bytes()))
    bound = ledger_bound(calendar, SPEC.samples, SPEC.float_width)
    stated = lines["memory bound per summary"]
    assert (stated["bytes"], stated["memory"]) == (bound.state_bytes, bound.least_budget)
    names = list(lines)
    assert names.index("memory bound per summary") < names.index("reports written")


def test_one_report_to_standard_output(run_directory: Path) -> None:
    done = server("aggregate", str(run_directory / "summary.bin"))
    assert done.returncode == 0
    assert done.stdout.startswith(b"EventId,Blocks,AnalyticalMean")
    assert done.stdout.count(b"\n") == 31


@pytest.mark.parametrize(("options", "begun"), [([], False), (["--live"], True)])
def test_nothing_is_on_standard_output_before_the_stream_is_known_to_be_whole(
    run_directory: Path,
    tmp_path: Path,
    capfdbinary: pytest.CaptureFixture[bytes],
    options: list[str],
    *,
    begun: bool,
) -> None:
    cut = tmp_path / "cut.bin"
    cut.write_bytes((run_directory / "summary.bin").read_bytes()[:-30])
    for form in ("csv", "arrow", "ndjson"):
        command = ["aggregate", str(cut), "--reports", "selt", "--format", form, *options]
        assert main([*command, "--no-progress"]) == 1
        captured = capfdbinary.readouterr()
        assert b"[stream-truncated]" in captured.err
        assert (len(captured.out) > 1000) is begun
        assert begun or captured.out == b""


def test_a_table_and_sums_appear_together_or_not_at_all(
    run_directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["aggregate", str(run_directory / "summary.bin"), "--reports", "melt,aal"]
    command += ["--occurrence", str(run_directory / "occurrence.bin"), "--no-progress"]
    command += ["--out", str(tmp_path / "out"), "--partial-out"]
    (tmp_path / "out" / "directory").mkdir(parents=True)
    # All files are safe, and the last one finds its name taken.
    assert main([*command, str(tmp_path / "out" / "directory")]) == 1
    assert "Is a directory" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["directory"]


def test_standard_input(run_directory: Path, tmp_path: Path) -> None:
    data = (run_directory / "summary.bin").read_bytes()
    done = server("aggregate", "-", "--reports", "melt", input=data)
    assert done.returncode == 0
    named = ["aggregate", str(run_directory / "summary.bin"), "--reports", "melt"]
    assert main([*named, "--out", str(tmp_path)]) == 0
    assert done.stdout == (tmp_path / "melt.csv").read_bytes()


def test_a_standard_input_that_does_not_block(run_directory: Path) -> None:
    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    data = (run_directory / "summary.bin").read_bytes()
    command = [sys.executable, "-m", "app.command", "aggregate", "-"]
    process = subprocess.Popen(
        command, stdin=read_end, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    os.close(read_end)
    with os.fdopen(write_end, "wb") as file:
        file.write(data)
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    assert out.count(b"\n") == 31


def test_fifos_merged_by_event(run_directory: Path, tmp_path: Path) -> None:
    whole = (run_directory / "summary.bin").read_bytes()
    events = split_by_event(whole)
    paths = [tmp_path / "a", tmp_path / "b", tmp_path / "c"]
    writers = []
    for i, path in enumerate(paths):
        os.mkfifo(path)
        data = whole[:12] + b"".join(events[i::3])
        writers.append(threading.Thread(target=path.write_bytes, args=(data,)))
        writers[-1].start()
    command = ["aggregate", *map(str, paths), "--reports", "melt", "--order", "event"]
    assert main([*command, "--idle-timeout", "60", "--out", str(tmp_path / "merged")]) == 0
    for writer in writers:
        writer.join()
    single = ["aggregate", str(run_directory / "summary.bin"), "--reports", "melt"]
    assert main([*single, "--out", str(tmp_path / "single")]) == 0
    merged = (tmp_path / "merged" / "melt.csv").read_bytes()
    assert merged == (tmp_path / "single" / "melt.csv").read_bytes()


def split_by_event(stream: bytes) -> list[bytes]:
    """The blocks of each event of a summary stream, found in the plainest way."""
    events: dict[int, bytes] = {}
    at = 12
    while at < len(stream):
        end = at + 12
        while stream[end : end + 4] != bytes(4):
            end += 8
        event = int.from_bytes(stream[at : at + 4], "little")
        events[event] = events.get(event, b"") + stream[at : end + 8]
        at = end + 8
    return list(events.values())


def test_a_tee_into_two_fifos_that_would_deadlock_names_the_starving_stream(
    tmp_path: Path,
) -> None:
    """One writer fills the first fifo before it touches the second."""
    spec = SampleSpec(events=600, summaries=5, samples=50)
    whole = b"".join(generate_stream(spec))
    events = split_by_event(whole)
    assert len(whole) > 4 * 65536, "it must not fit the pipe"
    paths = [tmp_path / "a", tmp_path / "starving"]
    for path in paths:
        os.mkfifo(path)

    def write() -> None:
        with paths[1].open("wb") as second, paths[0].open("wb") as first:
            try:
                first.write(whole[:12] + b"".join(events[1:]))
                first.flush()
                second.write(whole[:12] + events[0])
            except BrokenPipeError:
                return

    # The reader's other end must exist for the writer to open both.
    writer = threading.Thread(target=write)
    command = [sys.executable, "-m", "app.command", "aggregate", *map(str, paths)]
    command += ["--reports", "selt", "--order", "event", "--read-ahead", "1000"]
    process = subprocess.Popen([*command, "--out", str(tmp_path / "out")], stderr=subprocess.PIPE)
    writer.start()
    _, err = process.communicate(timeout=120)
    writer.join()
    assert process.returncode == 1
    assert b"[starved]" in err
    assert b"starving" in err
    assert not list((tmp_path / "out").glob("*"))


@pytest.mark.parametrize(
    ("damage", "code", "words"),
    [
        (lambda _: b"", "stream-empty", "empty"),
        (lambda d: d[:5], "stream-truncated", "header"),
        (lambda d: d[:-3], "stream-truncated", r"event 30"),
        (lambda d: b"\1\0\0\0" + d[4:], "stream-unsupported", "cdf"),
        (lambda d: d + b"\0" * 12, "event-id", "event id 0"),
        (lambda d: d + b"junk", "stream-truncated", "ends inside"),
    ],
)
def test_bad_streams_leave_no_report(
    run_directory: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    damage: object,
    code: str,
    words: str,
) -> None:
    data = damage((run_directory / "summary.bin").read_bytes())  # type: ignore[operator]
    (tmp_path / "bad.bin").write_bytes(data)
    out = tmp_path / "out"
    status = main(["aggregate", str(tmp_path / "bad.bin"), "--out", str(out)])
    err = capsys.readouterr().err
    assert status == 1
    assert f"[{code}]" in err
    assert re.search(words, err)
    assert "byte" in err
    assert "bad.bin" in err
    assert not list(out.glob("*"))


def test_partitions_that_do_not_belong_together(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, samples in (("a", 10), ("b", 20)):
        writer = LossWriter(StreamHeader(Kind.SUMMARY, 1, 3, samples, 1, 4))
        block = writer.block(samples, 1, [1], [1.0], 1.0)
        (tmp_path / name).write_bytes(writer.begin() + block)
    status = main(["aggregate", str(tmp_path / "a"), str(tmp_path / "b")])
    assert status == 1
    assert "[stream-mismatch]" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--reports", "atlas"], "no report 'atlas'"),
        (["--reports", "selt,melt,melt"], "report melt is asked for twice"),
        (["--reports", "melt,selt"], "--out"),
        (["--reports", "qelt"], "quantiles"),
        (["--quantiles", "0.5"], "QELT or QPLT is not wanted"),
        (["--quantiles", "0.5,abc"], "--quantiles: value 2: quantile 'abc'"),
        (["--reports", "splt"], "SPLT needs occurrences"),
        (["--reports", "melt", "--periods", "PERIODS"], "period weights are given, but"),
        (["--no-of-periods", "5"], "--occurrence"),
        (["--reports", ""], "no report is wanted"),
        (["--reports", ",aal"], "no report ''"),
        (["--reports", "AAL"], "Did you mean aal?"),
        (["--reports", "ylt"], "Use mplt, splt or qplt"),
        (["--reports", "katpy"], "several streams with thalweg-server aggregate"),
        (["--return-periods", "50"], "Add ept or psept, or leave --return-periods out"),
        (["--return-periods", "250.7"], "return_period '250.7' is not"),
        (["--quantiles", "no.csv"], "there is no file 'no.csv'"),
        (["--max-samples", "0"], "--max-samples"),
    ],
)
def test_a_wrong_command_is_told_apart_from_wrong_data(
    run_directory: Path, capsys: pytest.CaptureFixture[str], args: list[str], words: str
) -> None:
    args = [str(run_directory / "periods.bin") if arg == "PERIODS" else arg for arg in args]
    assert main(["aggregate", str(run_directory / "summary.bin"), *args]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("args", [["aggregate"], ["--nan", "maybe"], ["nonsense"], []])
def test_usage_errors_exit_with_2(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(args)
    assert caught.value.code == 2
    assert "usage" in capsys.readouterr().err


@pytest.mark.parametrize("seconds", ["nan", "inf", "-1", "0", "x", "3e6"])
def test_an_idle_timeout_is_of_some_seconds(
    capsys: pytest.CaptureFixture[str], seconds: str
) -> None:
    for command in (["aggregate"], ["summarise", "--summary-xref", "x.bin"]):
        with pytest.raises(SystemExit) as caught:
            main([*command, "x.bin", f"--idle-timeout={seconds}"])
        assert caught.value.code == 2
        assert f"it is '{seconds}': give seconds" in capsys.readouterr().err


def test_weights_of_other_periods_than_the_occurrences_are_refused(
    run_directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weights = tmp_path / "periods.csv"
    weights.write_text("1,0.5\n2,0.5\n")
    command = of_periods(run_directory, tmp_path / "out")
    assert main([*command, "--periods", str(weights)]) == 1
    error = capsys.readouterr().err
    assert f"{SPEC.periods - 2} of {SPEC.periods} periods have no weight" in error
    assert not (tmp_path / "out").exists()


def test_a_summary_report_from_an_item_stream_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = SampleSpec(events=3, summaries=2, samples=5, kind=Kind.GUL)
    (tmp_path / "gul.bin").write_bytes(b"".join(generate_stream(spec)))
    assert main(["aggregate", str(tmp_path / "gul.bin"), "--reports", "melt"]) == 1
    assert "cannot be made from" in capsys.readouterr().err
    assert main(["aggregate", str(tmp_path / "gul.bin"), "--out", str(tmp_path)]) == 0
    assert len(rows(tmp_path / "events.csv")) == 3


def test_a_reader_that_leaves_early_ends_it_quietly(tmp_path: Path) -> None:
    spec = SampleSpec(events=400, summaries=5, samples=100)
    (tmp_path / "s.bin").write_bytes(b"".join(generate_stream(spec)))
    command = [sys.executable, "-m", "app.command", "aggregate", str(tmp_path / "s.bin")]
    process = subprocess.Popen(
        [*command, "--reports", "selt"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout
    process.stdout.read(10)
    process.stdout.close()
    assert process.wait(120) == 141
    assert process.stderr
    assert b"Traceback" not in process.stderr.read()
    process.stderr.close()


def test_an_interrupt_leaves_nothing_behind(run_directory: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "endless")
    command = [sys.executable, "-m", "app.command", "aggregate", str(tmp_path / "endless")]
    process = subprocess.Popen([*command, "--out", str(tmp_path / "out")], stderr=subprocess.PIPE)
    with (tmp_path / "endless").open("wb", buffering=0) as file:
        file.write((run_directory / "summary.bin").read_bytes()[:10_000])
        while not list((tmp_path / "out").glob(".*")):
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    assert not list((tmp_path / "out").iterdir())
    assert process.stderr
    assert b"Traceback" not in process.stderr.read()
    process.stderr.close()


def test_inspect(run_directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(run_directory / "summary.bin")]) == 0
    text = capsys.readouterr().out
    assert "summary stream, 20 samples, f4 losses, summary set 1" in text
    assert "30 (ids ascending)" in text
    assert "event ids              1 to 30" in text
    assert main(["inspect", "--json", str(run_directory / "summary.bin")]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["events"] == 30
    assert found["fault"] is None
    assert found["header"]["kind"] == "summary"


def test_inspect_names_the_first_fault(
    run_directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = bytearray((run_directory / "summary.bin").read_bytes())
    data[24:28] = (99).to_bytes(4, "little")  # the first sidx of the first block
    (tmp_path / "bad.bin").write_bytes(data)
    assert main(["inspect", "--json", str(tmp_path / "bad.bin")]) == 1
    fault = json.loads(capsys.readouterr().out)["fault"]
    assert (fault["code"], fault["offset"], fault["event"]) == ("sample-range", 24, 1)
    assert main(["inspect", str(tmp_path / "bad.bin")]) == 1
    assert "[sample-range]" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("end", "code"), [("header", "stream-concatenated"), ("cut", "stream-truncated")]
)
def test_inspect_counts_the_whole_blocks_before_a_fault(
    run_directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], end: str, code: str
) -> None:
    data = (run_directory / "summary.bin").read_bytes()
    with (run_directory / "summary.bin").open("rb") as file:
        starts = {e.event_id: (e.offset, len(e)) for _, e in read_streams([file], order="event")}
    last = starts[30][0]
    more = data[:12] + data[last:] if end == "header" else data[last : last + 20]
    (tmp_path / "bad.bin").write_bytes(data[:last] + more)
    assert main(["inspect", "--json", str(tmp_path / "bad.bin")]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["fault"]["code"] == code
    assert (found["bytes"], found["events"], found["highest_event"]) == (last, 29, 29)
    most = max(blocks for event, (_, blocks) in starts.items() if event < 30)
    assert found["most_blocks"] == most
    (tmp_path / "bad.bin").write_bytes(data[: starts[30][0] - 1])
    assert main(["inspect", str(tmp_path / "bad.bin")]) == 1
    text = capsys.readouterr().out
    assert "29 (ids ascending; blocks of the last may be missing)" in text
    assert "event ids              1 to 29" in text


def test_inspect_knows_the_inputs_of_reports(
    run_directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "periods.csv").write_text("period_no,weighting\n1,0.5\n2,0.5\n")
    for path, name in (
        (run_directory / "occurrence.bin", "occurrence"),
        (tmp_path / "periods.csv", "periods"),
    ):
        assert main(["inspect", str(path)]) == 1
        out, error = capsys.readouterr()
        assert (out, f"the input {name}: give it as that one to aggregate" in error) == ("", True)
    (tmp_path / "notes.txt").write_text("of a meeting")
    assert main(["inspect", str(tmp_path / "notes.txt")]) == 1
    assert "no known format begins like this" in capsys.readouterr().err
    for name, found in (("empty.npy", "the file is empty"), ("empty.bin", "the stream is empty")):
        (tmp_path / name).touch()
        assert main(["inspect", str(tmp_path / name)]) == 1
        assert found in "".join(capsys.readouterr())


def test_inspect_names_the_option_of_wide_losses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sample", "--events", "9", "--float-width", "8", "-o", str(tmp_path)]) == 0
    capsys.readouterr()
    assert main(["inspect", str(tmp_path / "summary.bin")]) == 1
    assert "read the stream with --float-width 8" in capsys.readouterr().out


def test_sample_makes_what_aggregate_reads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args = ["sample", "--events", "5", "--samples", "7", "--out", str(tmp_path)]
    assert main(args) == 0
    assert "summary.bin" in capsys.readouterr().out
    reports = ["--reports", "melt,qelt", "--out", str(tmp_path / "out")]
    inputs = ["--quantiles", str(tmp_path / "input" / "quantile.bin")]
    inputs += ["--occurrence", str(tmp_path / "input" / "occurrence.bin")]
    assert main(["aggregate", str(tmp_path / "summary.bin"), *reports, *inputs]) == 0
    again = ["sample", "--kind", "gul", "--events", "2", "--out", str(tmp_path)]
    assert main(again) == 2
    assert not (tmp_path / "gul.bin").exists()
    assert main([*again, "--force"]) == 0
    assert main(["inspect", str(tmp_path / "gul.bin")]) == 0
    assert main(["sample", "--density", "7", "--out", str(tmp_path)]) == 1


def test_events_are_logged_at_debug_level(
    run_directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["aggregate", str(run_directory / "summary.bin"), "--reports", "melt"]
    assert main(["--log-level", "debug", *command, "--out", str(tmp_path)]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    events = [line for line in lines if line["event"] == "event"]
    assert [line["EventId"] for line in events] == list(range(1, 31))
    assert {"Blocks", "SampleMean"} <= set(events[0])
    assert [p.name for p in tmp_path.iterdir()] == ["melt.csv"]


def test_every_option_has_a_help_text() -> None:
    parser = build_parser()
    commands: Any = parser._subparsers._group_actions[0].choices  # type: ignore[union-attr]
    for each in [parser, *commands.values()]:
        for action in each._actions:
            documented = action.help or action.dest in {"out", "kind"} or action.choices
            assert documented, action.dest


def test_aggregate_reads_a_stream_that_is_piped_in(run_directory: Path, tmp_path: Path) -> None:
    piped = server("aggregate", input=(run_directory / "summary.bin").read_bytes())
    assert piped.returncode == 0, piped.stderr
    named = ["aggregate", str(run_directory / "summary.bin"), "--reports", "events"]
    assert main([*named, "--out", str(tmp_path)]) == 0
    assert piped.stdout == (tmp_path / "events.csv").read_bytes() != b""


SPARING = """
import sys
from app.command.main import main
assert main(sys.argv[1:]) == 0
foreign = {"pyarrow", "pydantic", "rich", "matplotlib", "core.tiles", "core.pipelines"}
print(*sorted(foreign & sys.modules.keys()))
"""


def test_an_aggregation_imports_only_the_libraries_that_it_needs(
    run_directory: Path, tmp_path: Path
) -> None:
    stream, occurrence = (str(run_directory / name) for name in ("summary.bin", "occurrence.bin"))
    args = ["aggregate", stream, "--reports", "aal", "--occurrence", occurrence, "--no-progress"]
    main([*args, "--out", str(tmp_path)])  # compiles the kernels, where that is still to be done
    command = [sys.executable, "-c", SPARING, *args, "--out", str(tmp_path), "--force"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_aggregate_refuses_options_without_effect(
    run_directory: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(run_directory)
    files = "summary.bin", "--occurrence", "occurrence.bin"
    for report, option, said in (
        ("psept", ("--curves", "F"), "PSEPT has none of the curves F. Name some of its curves W"),
        ("aal", ("--tvar", "weight"), "tvar is given, but EPT or PSEPT is not wanted"),
        ("aal", ("--tvar=count",), "tvar is given, but EPT or PSEPT is not wanted"),
        ("ept", ("--confidence", "0.95"), "confidence is given, but ALCT is not wanted"),
        ("aal", ("--confidence", "0.9"), "confidence is given, but ALCT is not wanted"),
        (
            "melt",
            ("--memory-budget", "1GB"),
            "--memory-budget is of reports of whole runs, and none",
        ),
        ("melt", ("--spill-dir", ".", "--out", "out"), "--spill-dir is of reports of whole runs"),
        ("melt", ("--spill-dir", ".", "--live"), "--spill-dir is of reports of whole runs"),
        ("aal", ("--perspective", "il"), "--perspective applies only with --plot. Add it, or"),
        ("aal", ("--theme", "light"), "--theme applies only with --plot"),
        ("aal", ("--sets", "1"), "--sets applies only with --summary-xref"),
        ("aal", ("--stream", "gul=x"), "--stream applies only with --run-dir"),
        ("melt", ("--live", "--out", "m.csv"), "--live is of standard output, fifos and devices"),
        ("melt", ("--read-ahead", "10"), "--read-ahead applies only with --order event"),
        ("aal", ("--plot", "x.png", "--plot-format", "svg"), "--plot x.png is not svg"),
    ):
        code = main(["aggregate", *files, "--reports", report, *option])
        assert (code, said in capfd.readouterr().err) == (2, True)
    for command, said in (
        (["merge", "m.csv", "--float-width", "8"], "--float-width is of packed records"),
        (["merge", "m.csv", "--live", "--out", "o.csv"], "--live is of standard output"),
        (["aggregate", "summary.bin", "--threads", "0"], "--threads: it is 0: give a number"),
    ):
        with contextlib.suppress(SystemExit):
            assert main(command) == 2
        assert said in capfd.readouterr().err
    # Rows that wait for the end of the stream take memory, and then the directory.
    assert main(["aggregate", *files, "--reports", "melt", "--spill-dir", "."]) == 0


def test_names_of_the_other_program_and_of_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    for words, said in (
        ("post x.bin", "post is a command of thalweg: thalweg post"),
        ("aggregate x.bin --rp 5", "Did you mean --return-periods?"),
        ("aggregate x.bin --url http://x", "only the commands of thalweg ask a service"),
        ("aggregate x.bin --reports ept aal", "no blanks: --reports ept,aal"),
        ("aggregate x.bin --return-periods 9 5", "no blanks: --return-periods 9,5"),
        ("inspect x.raw --sig-shape 16 16", "no blanks: --sig-shape 16,16"),
        ("split x.bin y.bin --partitions 2", "unexpected: y.bin\n"),
        ("aggregate missing.bin -o x.csv --report melt", "missing.bin"),
    ):
        with contextlib.suppress(SystemExit):
            main(words.split())
        assert said in capsys.readouterr().err


def test_aggregate_needs_a_stream() -> None:
    master, terminal = os.openpty()
    try:
        ended = server("aggregate", stdin=terminal)
    finally:
        os.close(master)
        os.close(terminal)
    assert ended.returncode == 2
    assert b"no stream is named" in ended.stderr


def test_commands_that_do_not_serve_start_without_the_web_framework() -> None:
    script = "import sys; from app.command.main import main; main(['aggregate', '--help'])\n"
    seen = (
        "import atexit, sys\n"
        "web = {'fastapi', 'starlette', 'uvicorn'}\n"
        "atexit.register(lambda: print(sorted(web & set(sys.modules)), file=sys.stderr))\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", seen + script], check=False, capture_output=True, text=True
    )
    assert ended.returncode == 0
    assert ended.stderr.strip() == "[]"


def test_a_stream_whose_last_block_has_no_end_is_accepted_if_asked(
    run_directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def aggregate(path: Path, *options: str) -> int:
        named = ["aggregate", str(path), "--reports", "events", *options]
        return main([*named, "--out", str(tmp_path / path.stem)])

    data = (run_directory / "summary.bin").read_bytes()
    cut = tmp_path / "cut.bin"
    cut.write_bytes(data[:-8])
    assert aggregate(cut) == 1
    assert "stream-truncated" in capsys.readouterr().err
    assert aggregate(cut, "--missing-end", "accept") == 0
    assert "unterminated" in capsys.readouterr().err
    assert aggregate(run_directory / "summary.bin") == 0
    whole = tmp_path / "summary" / "events.csv"
    assert (tmp_path / "cut" / "events.csv").read_bytes() == whole.read_bytes()


def test_a_sample_of_items_in_partitions_is_complete(tmp_path: Path) -> None:
    sample = ["sample", "--kind", "gul", "--events", "30", "--partitions", "3"]
    assert main([*sample, "--out", str(tmp_path)]) == 0
    streams = [str(tmp_path / f"gul_P{part}.bin") for part in (1, 2, 3)]
    inputs = tmp_path / "input"
    options = ["--occurrence", str(inputs / "occurrence.bin"), "--return-periods", "100,10"]
    options += ["--summary-xref", str(inputs / "gulsummaryxref.bin"), "--reports", "ept,aal"]
    assert main(["aggregate", *streams, *options, "--out", str(tmp_path / "out")]) == 0
    assert len(rows(tmp_path / "out" / "S1_aal.csv")) == 20
    assert len(rows(tmp_path / "out" / "S2_aal.csv")) == 2
    assert main([*sample[:-1], "31", "--out", str(tmp_path)]) == 2


def test_a_single_table_may_be_a_file(
    run_directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stream, out = str(run_directory / "summary.bin"), tmp_path / "melt.parquet"
    assert main(["aggregate", stream, "--report", "melt", "--out", str(out)]) == 0
    assert out.read_bytes().startswith(b"PAR1")
    wrong = {
        ("--report", "melt", "--out", "melt.xlsx"): "does not end in",
        ("--report", "melt,selt", "--out", "melt.csv"): "takes one of 2 tables",
        ("--report", "melt", "--format", "bin", "--out", "melt.csv"): "does not end in bin",
    }
    for options, said in wrong.items():
        assert main(["aggregate", stream, *options]) == 2
        assert said in capsys.readouterr().err
    (tmp_path / "x.csv").write_text("item_id,summary_id,summaryset_id\n1,1,1\n1,1,2\n")
    xref = ["--summary-xref", str(tmp_path / "x.csv")]
    assert main(["aggregate", stream, "--report", "melt", *xref, "--out", "melt.csv"]) == 2
    assert "of summaries already, leave --summary-xref out" in capsys.readouterr().err


def test_files_are_replaced_if_asked_for(
    run_directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = ["aggregate", str(run_directory / "summary.bin"), "--reports", "aal,ept"]
    run += ["--occurrence", str(run_directory / "occurrence.bin"), "--out", str(tmp_path)]
    run += ["--return-periods", "10"]
    for name, more in (
        ("ept.csv", []),
        ("sums.part", ["--partial-out", str(tmp_path / "sums.part")]),
        ("aal.svg", ["--plot", str(tmp_path)]),
    ):
        (tmp_path / name).write_bytes(b"precious")
        assert main([*run, *more]) == 2
        said = f"{tmp_path / name} exists. Give --force to replace it, or another --out"
        assert said in capsys.readouterr().err
        assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"precious"]
        assert main([*run, *more, "--force"]) == 0
        assert (tmp_path / name).read_bytes() != b"precious"
        for path in tmp_path.iterdir():
            path.unlink()


def test_return_periods_that_no_period_tells_are_logged(
    run_directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = ["aggregate", str(run_directory / "summary.bin"), "--reports", "ept"]
    run += ["--occurrence", str(run_directory / "occurrence.bin"), "--return-periods"]
    for years, is_said in (("10", False), ("9999999", True)):
        assert main([*run, years, "--out", str(tmp_path / years)]) == 0
        said = "the periods are too few for longer return periods" in capsys.readouterr().err
        assert said is is_said


def test_more_periods_than_the_occurrences_use_are_logged(
    run_directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    occurrence = tmp_path / "occurrence.csv"
    occurrence.write_text("1,1,2063,1,31\n2,9,2063,3,31\n")
    command = ["aggregate", str(run_directory / "summary.bin"), "--reports", "aal"]
    command += ["--occurrence", str(occurrence), "--out", str(tmp_path), "--no-of-periods", "91"]
    assert main(command) == 0
    text = "no event occurs in the last nine tenths of the periods: is their number right?"
    line = logged(capsys)[text]
    assert (line["periods"], line["last_used"]) == (91, 9)


def test_rows_of_some_summaries_and_events(
    run_directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def written(*options: str) -> list[str]:
        out = tmp_path / "selt.csv"
        stream = str(run_directory / "summary.bin")
        run = ["aggregate", stream, "--reports", "selt", "--no-progress", *options]
        assert main([*run, "--out", str(out), "--force"]) == 0
        return out.read_text().splitlines()

    head, *rows = written()
    ids = [line.split(",")[:2] for line in rows]
    event, summary = ids[len(ids) // 2]
    wanted = [row for row, pair in zip(rows, ids, strict=True) if pair == [event, summary]]
    assert written("--event-ids", event, "--summary-ids", f"{summary},2147483647") == [
        head,
        *wanted,
    ]
    assert wanted != rows
    said = capsys.readouterr().err
    assert "no row is of" not in said
    assert '"option": "--summary-ids", "ids": "2147483647"' in said
    assert "--event-ids" not in said
    assert written("--event-ids", "2147483647") == [head]
    assert "no row is of" in capsys.readouterr().err
    stream, occurrence = run_directory / "summary.bin", run_directory / "occurrence.bin"
    run = ["aggregate", str(stream), "--reports", "ept", "--occurrence", str(occurrence)]
    assert main([*run, "--event-ids", "1", "--out", str(tmp_path / "ept.csv")]) == 2
    assert (
        "ept has no column EventId. Leave --event-ids out, or ask for reports that have"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    "wrong", [["--max-samples", "x"], ["--max-samples", "-1"], ["--sets", "1;2"], ["--sets", ""]]
)
def test_what_is_not_a_number_is_quoted(
    wrong: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["aggregate", "-", *wrong])
    assert f"{wrong[1]!r} is not a number" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "nearest"),
    [
        ("agregate in", "aggregate"),
        ("aggregate in --reprts=melt", "--reports"),
        ("aggregate in --format cvs", "csv"),
        ("keys lst", "list"),
        ("serve --prt 9", "--port"),
        ("serve --url x", "--host"),
    ],
)
def test_the_nearest_word_is_named(
    capsys: pytest.CaptureFixture[str], line: str, nearest: str
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(line.split())
    assert caught.value.code == 2
    assert capsys.readouterr().err.endswith(f"Did you mean {nearest}?\n")


def test_inspect_looks_for_frames_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Small numbers of columns are like the first bytes of a stream, and of many an input."""
    frames = np.ones((3, 4, 8), "<i2")
    (tmp_path / "scan.mrc").write_bytes(writers.mrc(frames, 1))
    assert main(["inspect", str(tmp_path / "scan.mrc")]) == 0
    assert "sig_shape     [4, 8]" in capsys.readouterr().out
    np.arange(0x20000, 0x20000 + 48, dtype="<i4").tofile(tmp_path / "scan.raw")
    assert main(["inspect", str(tmp_path / "scan.raw")]) == 1
    assert "Of frames without a header, give --dtype and --sig-shape" in capsys.readouterr().err


def test_what_registration_would_refuse(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And what it would note."""
    np.zeros((6, 4, 4), "<u2").tofile(tmp_path / "scan.raw")
    args = ["inspect", str(tmp_path / "scan.raw"), "--dtype", "<u2", "--sig-shape", "4,4"]
    assert main([*args, "--nav-shape", "2,2"]) == 2
    assert "--nav-shape [2, 2] has 4 positions, but there are 6 frames" in capsys.readouterr().err
    assert main([*args, "--nav-shape", "2,3"]) == 0
    assert "nothing confirms" not in capsys.readouterr().out
    assert main(args) == 0
    assert "nothing confirms dtype and sig_shape" in capsys.readouterr().out
