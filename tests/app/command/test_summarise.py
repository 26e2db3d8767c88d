from __future__ import annotations

import io
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from app.command.main import main
from core.errors import TruncatedError
from core.losses.analysis import aggregate
from core.losses.format import Kind
from core.losses.reader import LossReader
from core.losses.samples import SampleSpec, generate_inputs, generate_stream
from tests.streams import Block, Stream
from tests.summary_oracle import Sets, of_stream, summarised

SPEC = SampleSpec(events=20, summaries=8, samples=12, kind=Kind.GUL)
XREF = "item_id,summary_id,summaryset_id\n" + "".join(
    f"{item},{item % 3 + 1},1\n{item},1,2\n{item},{item},7\n" for item in range(1, 9)
)
MAP = "loc_id,item_id,building_id\n" + "".join(f"{i // 2},{i},1\n" for i in range(1, 9))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("run")
    (directory / "gul.bin").write_bytes(b"".join(generate_stream(SPEC)))
    (directory / "xref.csv").write_text(XREF)
    (directory / "map.csv").write_text(MAP)
    for name, data in generate_inputs(SPEC).items():
        (directory / name).write_bytes(data)
    return directory


def summarise(run: Path, out: Path | str, *options: str, stream: str = "gul.bin") -> int:
    command = ["summarise", str(run / stream), "--summary-xref", str(run / "xref.csv")]
    return main([*command, "--out", str(out), "--no-progress", *options])


def test_streams_and_indices_are_written_for_every_set(run: Path, tmp_path: Path) -> None:
    assert summarise(run, tmp_path, "--summary-map", str(run / "map.csv")) == 0
    assert summarise(run, tmp_path) == 2
    assert summarise(run, tmp_path, "--summary-map", str(run / "map.csv"), "--force") == 0
    names = [f"S{k}_summary.{suffix}" for k in (1, 2, 7) for suffix in ("bin", "idx")]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names)
    for set_id in (1, 2, 7):
        reader = LossReader()
        data = (tmp_path / f"S{set_id}_summary.bin").read_bytes()
        reader.receive(data)
        reader.close()
        events = reader.drain()
        index = (tmp_path / f"S{set_id}_summary.idx").read_bytes()
        assert len(index) == 12 * sum(len(event) for event in events)
        assert reader.header is not None
        assert reader.header.summary_set == set_id


def test_partitions_are_joined_with_offsets_of_the_joined_stream(tmp_path: Path) -> None:
    losses = ((-3, 5.0), (-1, 1.0), (2, 3.0))
    parts = [
        Stream("gul", 3, 4, tuple(Block(e, i, losses) for e in events for i in (1, 2)))
        for events in ((1, 4), (2,), (3, 5))
    ]
    for number, part in enumerate(parts):
        (tmp_path / f"{number}.bin").write_bytes(part.encode())
    (tmp_path / "xref.csv").write_text("item_id,summary_id,summaryset_id\n1,1,1\n2,2,1\n")
    names = [str(tmp_path / f"{number}.bin") for number in range(3)]
    command = ["summarise", *names, "--summary-xref", str(tmp_path / "xref.csv")]
    assert main([*command, "--out", str(tmp_path / "out"), "--no-progress"]) == 0
    whole = parts[0].with_blocks(block for part in parts for block in part.blocks)
    # Files that never block are read one after another.
    stream, index = summarised(of_stream(whole), 3, 4, Sets(((1, 1, 1), (2, 2, 1))), 1)
    assert (tmp_path / "out" / "S1_summary.bin").read_bytes() == stream
    assert (tmp_path / "out" / "S1_summary.idx").read_bytes() == index


def test_reports_of_all_sets_equal_those_of_their_streams(run: Path, tmp_path: Path) -> None:
    assert summarise(run, tmp_path) == 0
    options = ["--reports", "melt,aal,ept", "--occurrence", str(run / "occurrence.bin")]
    options += ["--no-progress", "--out", str(tmp_path / "direct")]
    xref = ["--summary-xref", str(run / "xref.csv")]
    assert main(["aggregate", str(run / "gul.bin"), *options, *xref]) == 0
    assert len(list((tmp_path / "direct").iterdir())) == 9
    for set_id in (1, 2, 7):
        options[-1] = str(tmp_path / f"{set_id}")
        assert main(["aggregate", str(tmp_path / f"S{set_id}_summary.bin"), *options]) == 0
        for report in ("melt", "aal", "ept"):
            direct = tmp_path / "direct" / f"S{set_id}_{report}.csv"
            assert direct.read_bytes() == (tmp_path / f"{set_id}" / f"{report}.csv").read_bytes()


def test_a_single_set_can_be_piped_to_other_commands(run: Path, tmp_path: Path) -> None:
    assert summarise(run, tmp_path) == 0
    command = [sys.executable, "-m", "app.command", "summarise", str(run / "gul.bin")]
    command += ["--summary-xref", str(run / "xref.csv"), "--sets", "2", "--no-progress"]
    piped = subprocess.run(command, capture_output=True, check=True)
    assert piped.stdout == (tmp_path / "S2_summary.bin").read_bytes()


def test_a_faulty_stream_leaves_nothing_and_what_is_live_visibly_cut(
    run: Path, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    data = (run / "gul.bin").read_bytes()
    (tmp_path / "cut.bin").write_bytes(data[:-20])
    out = tmp_path / "out"
    cut = str(tmp_path / "cut.bin")
    assert summarise(run, out, stream=cut) == 1
    assert not list(out.iterdir())
    assert summarise(run, "-", "--sets", "2", stream=cut) == 1
    assert capfdbinary.readouterr().out == b""
    assert summarise(run, "-", "--sets", "2", "--live", stream=cut) == 1
    assert summarise(run, str(tmp_path / "files"), "--live") == 2
    piped = capfdbinary.readouterr()
    assert b"[stream-truncated]" in piped.err
    assert len(piped.out) > 100
    with pytest.raises(TruncatedError):
        aggregate(piped.out, ["melt"])


def test_a_full_disk_leaves_no_stream_whichever_file_finds_no_room(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert summarise(run, tmp_path / "whole") == 0
    sizes = sorted({path.stat().st_size for path in (tmp_path / "whole").iterdir()})
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        for size in sizes:
            resource.setrlimit(resource.RLIMIT_FSIZE, (size - 1, limits[1]))
            assert summarise(run, tmp_path / "out") == 1
            assert not list((tmp_path / "out").iterdir())
            assert "cannot be written: File too large" in capsys.readouterr().err
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_zeros_are_written_if_asked_for(run: Path, tmp_path: Path) -> None:
    assert summarise(run, tmp_path / "without") == 0
    assert summarise(run, tmp_path / "with", "--zeros") == 0
    sizes = [(tmp_path / d / "S7_summary.bin").stat().st_size for d in ("without", "with")]
    assert sizes[0] < sizes[1]


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (
            ["--sets", "3"],
            1,
            r"there is no summary set 3. Choose from the sets of the xref: 1, 2, 7",
        ),
        (["--sets", "1,1"], 1, "a summary set is requested twice"),
        (["--expect-events", "21"], 1, "has 20 events, but 21 were declared"),
        (["--summary-map", "lacking"], 1, "the summary map lacks items of the xref: 2, 3"),
    ],
)
def test_what_is_wrong_is_said(
    run: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    code: int,
    message: str,
) -> None:
    lacking = tmp_path / "lacking.csv"
    lacking.write_text("loc_id,item_id,building_id\n1,1,1\n")
    given = [str(lacking) if option == "lacking" else option for option in options]
    assert summarise(run, tmp_path / "out", *given) == code
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["aggregate", "gul.bin", "--sets", "1"], "--sets applies only with --summary-xref"),
        (["aggregate", "gul.bin", "--summary-map", "m"], "--summary-map applies only with"),
        (["aggregate", "gul.bin", "XREF"], "standard output takes a single report"),
        (["summarise", "gul.bin", "XREF"], "standard output takes the stream of a single set"),
        (
            ["aggregate", "gul.bin", "XREF", "--partial-out", "p", "--reports", "aal", "OCC"],
            "a partial file is of one summary set",
        ),
        (
            ["aggregate", "--partials", "p", "XREF", "--reports", "aal", "OCC"],
            "a summary xref is for streams of items",
        ),
        (
            ["summarise", "gul.bin", "gul.bin", "XREF", "--expect-events", "3", "OUT"],
            "a single stream",
        ),
    ],
)
def test_options_that_contradict_each_other_are_usage_errors(
    run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    args: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(run)
    stands_for = {
        "XREF": ["--summary-xref", "xref.csv"],
        "OCC": ["--occurrence", "occurrence.bin", "--out", str(tmp_path)],
        "OUT": ["--out", str(tmp_path)],
    }
    command = [word for arg in args for word in stands_for.get(arg, [arg])]
    assert main([*command, "--no-progress"]) == 2
    assert message in capsys.readouterr().err


def test_a_stream_of_summaries_is_not_summarised_again(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert summarise(run, tmp_path) == 0
    assert summarise(run, tmp_path / "out", stream=str(tmp_path / "S1_summary.bin")) == 1
    assert "a stream of summaries already" in capsys.readouterr().err


def test_the_sums_of_a_set_can_be_kept_as_a_partial_file(run: Path, tmp_path: Path) -> None:
    inputs = ["--occurrence", str(run / "occurrence.bin"), "--no-progress", "--reports", "aal"]
    xref = ["--summary-xref", str(run / "xref.csv"), "--sets", "1"]
    partial = str(tmp_path / "one.part")
    first = ["aggregate", str(run / "gul.bin"), *inputs, *xref]
    assert main([*first, "--out", str(tmp_path / "a"), "--partial-out", partial]) == 0
    assert main(["aggregate", "--partials", partial, *inputs, "--out", str(tmp_path / "b")]) == 0
    direct = (tmp_path / "a" / "S1_aal.csv").read_bytes()
    assert direct == (tmp_path / "b" / "aal.csv").read_bytes()
    assert io.BytesIO(direct).readline().startswith(b"SummaryId")
