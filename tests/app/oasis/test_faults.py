"""A run that cannot be trusted leaves no output and says why."""

from __future__ import annotations

import os
import resource
import struct
import threading
from pathlib import Path

import numpy as np
import pytest

from app.command.main import main
from app.oasis.files import locked
from core.errors import InputError
from tests.oasis_runs import RUN, copy_run, only_gul, streams

pytestmark = pytest.mark.skipif(not RUN.is_dir(), reason="the peer's conformance data are not here")

BEFORE = {path.name for path in (RUN / "run" / "output").iterdir()} if RUN.is_dir() else set()


def _fails(directory: Path, *options: str) -> None:
    assert main(["aggregate", "--run-dir", str(directory), *options]) != 0
    assert {path.name for path in (directory / "output").iterdir()} == BEFORE


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return copy_run(tmp_path / "run", only_gul)


def _fifo(directory: Path, name: str, octets: bytes) -> threading.Thread:
    path = directory / name
    os.mkfifo(path)
    thread = threading.Thread(target=path.write_bytes, args=(octets,), daemon=True)
    thread.start()
    return thread


def test_the_width_of_losses_is_that_of_the_run(
    directory: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _fails(directory, *streams(["gul"], [1]), "--float-width", "8")
    assert "Set OASIS_FLOAT=f8, as all tools of the run read it" in capsys.readouterr().err
    monkeypatch.setenv("OASIS_FLOAT", "f8")
    _fails(directory, *streams(["gul"], [1]))
    assert "OASIS_FLOAT=f4 has to be set for the whole run" in capsys.readouterr().err


def test_a_fifo_that_is_cut(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    octets = (RUN / "streams" / "gul_P2.bin").read_bytes()
    writer = _fifo(directory, "cut", octets[: len(octets) // 2 + 2])
    _fails(directory, *streams(["gul"], [1]), f"--stream=gul={directory / 'cut'}")
    writer.join()
    assert "[stream-truncated]" in (err := capsys.readouterr().err)
    assert "cut" in err


def test_a_fifo_whose_writer_writes_nothing(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    writer = _fifo(directory, "empty", b"")
    _fails(directory, *streams(["gul"], [1]), f"--stream=gul={directory / 'empty'}")
    writer.join()
    assert "stream" in capsys.readouterr().err


def test_a_fifo_that_nobody_writes_is_named_after_a_time(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(directory / "silent")
    named = [*streams(["gul"], [1]), f"--stream=gul={directory / 'silent'}"]
    _fails(directory, *named, "--idle-timeout", "0.2")
    err = capsys.readouterr().err
    assert f"{directory / 'silent'}: no bytes arrived for 0.2 seconds" in err
    assert "gul_P1" not in err


def test_a_full_disk(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    confirm = directory / "confirm"
    os.mkfifo(confirm)
    word = os.open(confirm, os.O_RDWR)
    os.write(word, b"complete\n")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        _fails(directory, *streams(["gul"]), "--confirm", str(confirm))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        os.close(word)
    assert "cannot be written" in capsys.readouterr().err
    # The readers of other perspectives wait for this, and leave no outputs without it.
    assert not (directory / "confirm.events").exists()


def test_a_missing_stream(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _fails(directory)
    assert (
        "asks for outputs of gul, but there is no stream of it"
        in capsys.readouterr().err.replace("settings ask", "settings asks")
    )
    _fails(directory, "--stream=gul=nowhere.bin")
    assert "nowhere.bin: cannot be opened" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("stream", "message"),
    [
        ("gull=x", "does not say what it is a stream of"),
        ("il=x", "asks for no output of il"),
        ("gul_S3=x", "no stream of it is named"),
        ("gul_IP1=x", "no stream of it is named"),
    ],
)
def test_streams_that_are_not_asked_for(
    directory: Path, capsys: pytest.CaptureFixture[str], stream: str, message: str
) -> None:
    _fails(directory, "--stream", stream)
    assert message in capsys.readouterr().err


def test_two_runs_in_one_directory(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with locked(directory / "output", "gul"):
        assert main(["aggregate", "--run-dir", str(directory), *streams(["gul"])]) == 1
    assert f"another run writes gul in this directory (process {os.getpid()})" in (
        capsys.readouterr().err
    )
    assert main(["aggregate", "--run-dir", str(directory), *streams(["gul"])]) == 0


def test_a_lock_ends_with_its_process(tmp_path: Path) -> None:
    if (child := os.fork()) == 0:
        with locked(tmp_path, "gul"):
            os._exit(0)
    os.waitpid(child, 0)
    with locked(tmp_path, "gul"), pytest.raises(InputError), locked(tmp_path, "gul"):
        pass


def test_outputs_are_completed_only_when_the_run_confirms(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    confirm = directory / "confirm"
    os.mkfifo(confirm)
    # Held open as a script does, and closed without a word when a process has failed.
    opened = threading.Event()

    def script(word: bytes) -> None:
        fd = os.open(confirm, os.O_WRONLY)
        opened.set()
        os.write(fd, word)
        os.close(fd)

    for word in (b"", b"comp"):
        thread = threading.Thread(target=script, args=(word,), daemon=True)
        thread.start()
        _fails(directory, *streams(["gul"]), "--confirm", str(confirm))
        thread.join()
        assert "the run ended before all of its processes" in capsys.readouterr().err
    thread = threading.Thread(target=script, args=(b"complete\n",), daemon=True)
    thread.start()
    options = [*streams(["gul"]), "--confirm", str(confirm)]
    assert main(["aggregate", "--run-dir", str(directory), *options]) == 0
    thread.join()
    assert (directory / "output" / "gul_S1_melt.csv").exists()


def _run_beside(directory: Path, fifos: Path, options: dict[str, list[str]]) -> dict[str, int]:
    """Run a reader for each perspective at the same time, as a script does; return exit codes."""
    fifos.mkdir()
    codes: dict[str, int] = {}
    confirms = {name: fifos / f"thalweg_{name}_P0" for name in options}
    for confirm in confirms.values():
        os.mkfifo(confirm)
    words = [os.open(confirm, os.O_RDWR) for confirm in confirms.values()]

    def read(name: str) -> None:
        command = ["aggregate", "--run-dir", str(directory), "--confirm", str(confirms[name])]
        codes[name] = main([*command, *options[name]])

    threads = [threading.Thread(target=read, args=(name,), daemon=True) for name in options]
    for thread in threads:
        thread.start()
    for word in words:
        os.write(word, b"complete\n")
    for thread in threads:
        thread.join()
    for word in words:
        os.close(word)
    return codes


def test_a_perspective_that_lacks_events_of_another_fails_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = copy_run(tmp_path / "run")
    # What fmpy makes of a pipe that ends after the block of an event: a whole stream.
    octets = (RUN / "streams" / "il_P1.bin").read_bytes()
    words = np.frombuffer(octets, np.int32)[2:].reshape(-1, 2)
    starts = np.concatenate([[0], np.flatnonzero(words[:-1, 0] == 0) + 1])
    first_of_last_event = int(starts[words[starts, 0] == words[starts[-1], 0]][0])
    cut = directory / "cut.bin"
    cut.write_bytes(octets[: 8 + 8 * first_of_last_event])
    gul, il = streams(["gul"]), streams(["il"])
    short = [f"--stream=il={cut}", *streams(["il"], [2])]

    assert _run_beside(directory, tmp_path / "1", {"gul": gul, "il": short}) == {"gul": 1, "il": 1}
    error = capsys.readouterr().err
    assert "different numbers of events: gul 240, il 239" in error
    assert "different numbers of events: il 239, gul 240" in error
    assert {path.name for path in (directory / "output").iterdir()} == BEFORE

    accepted = {"gul": [*gul, "--differing-events"], "il": [*short, "--differing-events"]}
    assert _run_beside(directory, tmp_path / "2", accepted) == {"gul": 0, "il": 0}
    assert _run_beside(directory, tmp_path / "3", {"gul": gul, "il": il}) == {"gul": 0, "il": 0}
    assert len({path.name for path in (directory / "output").iterdir()} - BEFORE) == 44


def test_losses_that_are_not_finite(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    octets = bytearray((RUN / "streams" / "gul_P1.bin").read_bytes())
    octets[-12:-8] = struct.pack("<f", float("nan"))
    path = directory / "nan.bin"
    path.write_bytes(octets)
    named = [f"--stream=gul={path}", *streams(["gul"], [2])]
    _fails(directory, *named)
    assert "[loss-not-finite]" in capsys.readouterr().err
    assert main(["aggregate", "--run-dir", str(directory), *named, "--nan", "zero"]) == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--event-ids", "1,2"], "--event-ids does not apply to --run-dir"),
        (["--reports", "melt"], "--reports does not apply to --run-dir"),
        (["--confidence=0.95"], "--confidence does not apply to --run-dir"),
        (["-o", "-"], "--out does not apply to --run-dir"),
        (["file.bin"], "a run directory has named streams"),
        (["--format", "arrow"], "outputs of a run are csv, parquet, bin, not arrow"),
        (["--chunk", "1/2", "--merge-chunks", "2"], "exclude each other"),
        (["--tables", ".", "--spill-dir", "."], "are not options of runs of a service"),
    ],
)
def test_options_that_the_settings_decide(
    directory: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    assert main(["aggregate", "--run-dir", str(directory), *options]) == 2
    assert message in capsys.readouterr().err
