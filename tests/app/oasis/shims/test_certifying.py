"""Streams that look whole, and are not: the tools of a run tell each other."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from app.oasis.shims import environment
from tests.app.oasis.shims.tools import clean_environment, is_lost, logs, run
from tests.streams import Block, Stream

XREF = "item_id,summary_id,summaryset_id\n1,1,1\n2,2,1\n"
LOSSES = ((-3, 50.0), (-1, 2.0), (1, 3.0), (2, 4.0))


@pytest.fixture(autouse=True)
def _run_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clean_environment(monkeypatch, tmp_path)
    for name in ("input", "fifo", "work/gul_S1_summary_palt"):
        Path(name).mkdir(parents=True)
    Path("input/gulsummaryxref.csv").write_text(XREF)
    Path("input/gul_summary_map.csv").write_text("loc_id,item_id,building_id\n1,1,1\n1,2,1\n")
    Path("input/fmsummaryxref.csv").write_text(XREF.replace("item_id", "output"))


def items(events: int, kind: str = "loss") -> bytes:
    blocks = tuple(Block(event, item, LOSSES) for event in range(events) for item in (1, 2))
    return Stream(kind, 2, 4, tuple(b for b in blocks if b.event)).encode()


@contextmanager
def fifos(octets: bytes, name: str) -> Iterator[list[bytes]]:
    """Feed a fifo of items and read that of its summaries."""
    into, out = Path(f"fifo/{name}_P1"), Path(f"fifo/{name}_S1_summary_P1")
    for fifo in (into, out):
        os.mkfifo(fifo)
    copies: list[bytes] = []
    threads = [
        threading.Thread(target=lambda: into.write_bytes(octets), daemon=True),
        threading.Thread(target=lambda: copies.append(out.read_bytes()), daemon=True),
    ]
    for thread in threads:
        thread.start()
    yield copies
    for thread in threads:
        thread.join(20)


def summarise(octets: bytes, name: str) -> tuple[int, bytes]:
    with fifos(octets, name) as copies:
        words = ["-t", name, "-i", f"fifo/{name}_P1", "-1", f"fifo/{name}_S1_summary_P1"]
        code = run("summarypy", *words)
    return code, copies[0]


def through_a_fifo(octets: bytes, tool: str, *words: str) -> int:
    fifo = Path("fifo/gul_S1_elt_ord_P1")
    fifo.unlink(missing_ok=True)
    os.mkfifo(fifo)
    writer = threading.Thread(target=lambda: fifo.write_bytes(octets), daemon=True)
    writer.start()
    code = run(tool, "-i", str(fifo), *words)
    writer.join(20)
    return code


def test_a_copy_that_ends_between_two_blocks_is_told_from_a_whole_one(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """As that of a ``tee`` that is killed when all is written, and it has not copied all."""
    code, whole = summarise(items(9), "gul")
    assert code == 0
    cut = summarise_alone(items(8))
    assert whole.startswith(cut)
    assert len(cut) < len(whole)
    assert through_a_fifo(cut, "eltpy", "-s", "s.csv") == 1
    assert f"does not have the {len(whole)} bytes that were written" in capfd.readouterr().err
    assert not Path("s.csv").exists()
    assert is_lost(logs("eltpy")[0])
    assert through_a_fifo(whole, "eltpy", "-s", "s.csv") == 0
    for octets, expected in ((cut, 1), (whole, 0)):
        # In the work folder, for the reports of whole runs.
        Path("work/gul_S1_summary_palt/P1.bin").write_bytes(octets)
        assert run("eltpy", "-i", "work/gul_S1_summary_palt/P1.bin", "-m", "m.csv") == expected


def summarise_alone(octets: bytes) -> bytes:
    Path("items").write_bytes(octets)
    assert run("summarypy", "-t", "gul", "-i", "items", "-1", "alone") == 0
    return Path("alone").read_bytes()


def test_a_stream_whose_writer_was_killed_is_not_whole_wherever_it_ends(
    capfd: pytest.CaptureFixture[str],
) -> None:
    Path("fifo/gul_S1_summary_P1.written").touch()
    assert through_a_fifo(summarise_alone(items(5)), "eltpy", "-s", "s.csv") == 1
    assert "what writes the stream has ended before it was whole" in capfd.readouterr().err


def test_a_stream_of_a_writer_that_leaves_nothing_is_read(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert through_a_fifo(summarise_alone(items(5)), "eltpy", "-s", "s.csv") == 0
    assert capfd.readouterr().err == ""


def test_the_last_perspective_to_end_fails_if_it_lacks_events_of_another(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    code, _ = summarise(items(9), "gul")
    assert code == 0
    # Another partition has not begun, then is still being read, and will compare.
    for name in ("gul_P2", "gul_P2.events"):
        Path("fifo", name).touch()
        assert summarise(items(7), "ri")[0] == 0
        for fifo in ("ri_P1", "ri_S1_summary_P1"):
            Path("fifo", fifo).unlink()
    for name in ("gul_P2", "gul_P2.events"):
        Path("fifo", name).unlink()
    code, received = summarise(items(7), "ri")
    assert code == 1
    assert "different numbers of events: gul 8, ri 6" in capfd.readouterr().err
    assert through_a_fifo(received, "eltpy", "-s", "s.csv") == 1
    for name in ("ri_P1", "ri_S1_summary_P1"):
        Path(f"fifo/{name}").unlink()
    monkeypatch.setenv("THALWEG_AGGREGATE_OPTIONS", "--differing-events")
    assert summarise(items(7), "ri")[0] == 0


@pytest.mark.parametrize("size", [3, 9000])
def test_a_reader_that_opens_a_fifo_and_never_reads_is_a_fault(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], size: int
) -> None:
    """As a ``tee`` that waits for a reader of its own that was killed."""
    monkeypatch.setattr(environment, "READER_SECONDS", 0.2)
    Path("items").write_bytes(items(size))
    os.mkfifo("S1")
    fd = os.open("S1", os.O_RDONLY | os.O_NONBLOCK)
    assert run("summarypy", "-t", "gul", "-i", "items", "-1", "S1") == 1
    assert "S1: nobody has read it for" in capfd.readouterr().err
    os.close(fd)


def test_a_reader_that_goes_before_it_has_read_all_is_a_fault(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """As a ``tee`` that is killed while all of a small stream waits in the fifo."""
    Path("items").write_bytes(items(3))
    os.mkfifo("S1")
    fd = os.open("S1", os.O_RDONLY | os.O_NONBLOCK)
    killed = threading.Timer(0.3, os.close, (fd,))
    killed.start()
    assert run("summarypy", "-t", "gul", "-i", "items", "-1", "S1") == 1
    assert "the reader of its output has gone" in capfd.readouterr().err
    killed.join()
