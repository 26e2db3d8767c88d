from __future__ import annotations

import json
import os
import resource
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest

from app.oasis.shims import environment
from core.losses.policy import Policy
from core.losses.reader import LossReader
from tests.app.oasis.shims.tools import (
    FIXTURES,
    RUN,
    clean_environment,
    is_lost,
    logs,
    needs_conformance,
    run,
)
from tests.streams import Block, Stream
from tests.summary_oracle import of_events

XREF = "item_id,summary_id,summaryset_id\n1,1,1\n2,2,1\n1,1,2\n2,1,2\n"
MAP = "loc_id,item_id,building_id\n1,1,1\n1,2,1\n"
LOSSES = ((-5, 9.0), (-3, 50.0), (-1, 2.0), (1, 3.0), (2, 4.0))


@pytest.fixture(autouse=True)
def _run_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clean_environment(monkeypatch, tmp_path)
    Path("input").mkdir()
    Path("input/gulsummaryxref.csv").write_text(XREF)
    Path("input/gul_summary_map.csv").write_text(MAP)


def write_items(path: str = "gul") -> bytes:
    blocks = tuple(Block(event, item, LOSSES) for event in (3, 7) for item in (1, 2))
    octets = Stream("loss", 2, 4, blocks).encode()
    Path(path).write_bytes(octets)
    return octets


def blocks_of(octets: bytes, width: int = 4) -> list[tuple[int, int, dict[int, float]]]:
    """(event, summary, losses by sidx) of every block."""
    reader = LossReader(Policy(float_width=width))
    reader.receive(octets)
    reader.close()
    return [(block.event, block.item, dict(block.losses)) for block in of_events(reader.drain())]


def assert_same_stream(ours: bytes, peers: bytes) -> None:
    """Equal but for the digits that float32 sums lose, and the peer's count of risks."""
    assert len(ours) == len(peers)
    assert ours[:12] == peers[:12]
    for mine, theirs in zip(blocks_of(ours), blocks_of(peers), strict=True):
        assert mine[:2] == theirs[:2]
        assert mine[2].keys() == theirs[2].keys()
        for sidx, loss in theirs[2].items():
            if sidx != -4:
                np.testing.assert_allclose(mine[2][sidx], loss, 5e-7)


@needs_conformance
@pytest.mark.parametrize("case", ["single_summary_set", "multiple_summary_set"])
@pytest.mark.parametrize("perspective", ["gul", "il", "ri"])
def test_streams_and_indices_equal_the_peers_fixtures(case: str, perspective: str) -> None:
    folder = FIXTURES / "summary" / case
    peers = sorted(folder.glob(f"{perspective}_S*_summary.bin"))
    words = [w for n, path in enumerate(peers, 1) for w in (f"-{n}", path.name)]
    if perspective == "ri":
        words = ["-z", "-p", str(folder / "RI_1"), *words]
    else:
        words = ["-p", str(folder), *words]
    stream = FIXTURES / f"summary/{perspective}.bin"
    assert run("summarypy", "-m", "-t", perspective, "-i", stream, *words) == 0
    for path in peers:
        assert_same_stream(Path(path.name).read_bytes(), path.read_bytes())
        index = path.with_suffix(".idx")
        assert Path(index.name).read_bytes() == index.read_bytes()


@needs_conformance
@pytest.mark.parametrize("prepared", [True, False])
@pytest.mark.parametrize("name", ["gul", "il", "ri_IP1", "ri"])
def test_streams_of_a_run_equal_the_peers(name: str, prepared: bool) -> None:
    shutil.rmtree("input")
    shutil.copytree(RUN / "run/input", "input")
    perspective = name.partition("_")[0]
    folder = {"ri_IP1": "input/RI_1", "ri": "input/RI_2"}.get(name, "input")
    if not prepared:
        shutil.rmtree(Path(folder, perspective))
    words = ["-m", "-t", perspective, "-p", folder, "-1", "one.bin", "-2", "two.bin"]
    assert run("summarypy", *words[:5], "-i", RUN / f"streams/{name}_P1.bin", *words[5:]) == 0
    for number, file in ((1, "one"), (2, "two")):
        peers = RUN / f"streams/work/{name}_S{number}_summary/P1"
        assert_same_stream(Path(f"{file}.bin").read_bytes(), peers.with_suffix(".bin").read_bytes())
        assert Path(f"{file}.idx").read_bytes() == peers.with_suffix(".idx").read_bytes()


def test_any_of_the_sets_may_be_asked_for_in_any_order() -> None:
    write_items()
    assert run("summarypy", "-t", "gul", "-i", "gul", "-2", "both", "-1", "each") == 0
    assert [block[:2] for block in blocks_of(Path("each").read_bytes())] == [
        (3, 1), (3, 2), (7, 1), (7, 2),
    ]  # fmt: skip
    both = blocks_of(Path("both").read_bytes())
    assert [block[:2] for block in both] == [(3, 1), (7, 1)]
    assert both[0][2] == {-5: 18.0, -4: 1.0, -1: 4.0, 1: 6.0, 2: 8.0}
    assert not Path("each.idx").exists()


def test_nan_is_no_loss() -> None:
    blocks = (Block(3, 1, ((-3, 5.0), (-1, 1.0), (1, float("nan")), (2, 4.0))),)
    Path("gul").write_bytes(Stream("loss", 2, 4, blocks).encode())
    assert run("summarypy", "-t", "gul", "-i", "gul", "-1", "S1") == 0
    assert blocks_of(Path("S1").read_bytes())[0][2] == {-5: 0.0, -4: 1.0, -1: 1.0, 2: 4.0}


def test_losses_of_eight_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = (Block(3, 1, ((-3, 5.0), (-1, 0.1), (1, 1e-9))),)
    Path("gul").write_bytes(Stream("loss", 2, 8, blocks).encode())
    monkeypatch.setenv("OASIS_FLOAT", "float64")
    assert run("summarypy", "-t", "gul", "-i", "gul", "-1", "S1") == 0
    assert blocks_of(Path("S1").read_bytes(), 8)[0][2][1] == 1e-9


def test_a_faulty_stream_leaves_no_file_and_names_its_event_for_a_replay(
    capfd: pytest.CaptureFixture[str],
) -> None:
    octets = write_items()
    Path("gul").write_bytes(octets[:-12])
    assert run("summarypy", "-m", "-t", "gul", "-i", "gul", "-1", "S1.bin", "-2", "S2.bin") == 1
    assert "gul: the stream ends inside" in capfd.readouterr().err
    assert list(Path().glob("*S1*")) == []
    assert json.loads(Path("event_error.json").read_text()) == {"event_id": 7}
    assert is_lost(logs("summarypy")[0])


def test_a_full_disk_leaves_none_of_the_files(capfd: pytest.CaptureFixture[str]) -> None:
    blocks = tuple(Block(event, item, LOSSES) for event in range(1, 99) for item in (1, 2))
    Path("gul").write_bytes(Stream("loss", 2, 4, blocks).encode())
    words = ["-m", "-t", "gul", "-i", "gul", "-1", "S1.bin", "-2", "S2.bin"]
    assert run("summarypy", *words) == 0
    sizes = sorted({path.stat().st_size for path in Path().glob("S*")})
    assert len(sizes) == 4
    for path in Path().glob("S*"):
        path.unlink()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    for size in sizes:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size - 1, limits[1]))
        code = run("summarypy", *words)
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert code == 1
        assert "cannot be written: File too large" in capfd.readouterr().err
        assert list(Path().glob("*S*")) == []


def test_readers_of_a_fifo_fail_too_when_the_stream_is_faulty(
    capfd: pytest.CaptureFixture[str],
) -> None:
    octets = write_items()
    Path("gul").write_bytes(octets[:-12])
    os.mkfifo("S1")
    received: list[bytes] = []
    reader = threading.Thread(target=lambda: received.append(Path("S1").read_bytes()))
    reader.start()
    assert run("summarypy", "-t", "gul", "-i", "gul", "-1", "S1") == 1
    reader.join()
    Path("received").write_bytes(received[0])
    assert run("eltpy", "-i", "received", "-s", "s.csv") == 1
    assert "ends inside" in capfd.readouterr().err


def test_a_fifo_without_a_reader_is_a_fault(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(environment, "READER_SECONDS", 0.1)
    write_items()
    os.mkfifo("S1")
    assert run("summarypy", "-t", "gul", "-i", "gul", "-1", "S1") == 1
    assert "nobody has read it for" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["-t", "gul", "-i", "gul", "-3", "S3"], "no summary set 3"),
        (["-t", "gul", "-i", "gul", "1", "S1"], "not understood"),
        (["-t", "gul", "-i", "gul", "-1"], "not understood"),
        (["-t", "gul", "-i", "gul"], "not understood"),
        (["-i", "gul", "-1", "S1"], "-t gul"),
        (["-t", "il", "-i", "gul", "-1", "S1"], "fmsummaryxref"),
        (["-t", "gul", "-i", "gul", "-p", "x", "-1", "S1"], "or name the one of the xref with -p"),
        (["-t", "gul", "-i", "gul", "-1", "S", "-2", "S"], "two outputs have the name S"),
        (["-t", "gul", "-i", "absent", "-1", "S1"], "absent"),
        (["-t", "gul", "-i", "gul", "-1", "no/S1"], "no/S1"),
        (["-t", "gul", "-i", "input/gulsummaryxref.csv", "-1", "S1"], "gulsummaryxref.csv"),
    ],
)
def test_what_cannot_be_summarised_is_a_fault(
    words: list[str], reason: str, capfd: pytest.CaptureFixture[str]
) -> None:
    write_items()
    assert run("summarypy", *words) == 1
    error = capfd.readouterr().err
    assert reason in error
    assert error.count("\n") == 1
    assert not Path("S1").exists()
