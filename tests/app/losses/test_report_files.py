"""Reports of whole runs from the command line: at once, in partitions, spilled, merged."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from app.command.main import main
from app.losses.spilling import SpilledFile
from core.errors import LimitError
from core.losses.inputs import encode_occurrence, encode_periods, encode_return_periods
from tests.runs import RunCase, random_run
from tests.streams import Block, Stream

REPORTS = "aal,aal_mean,alct,ept,psept"


class Folder:
    """Files of a run, and the command on them."""

    def __init__(self, path: Path, case: RunCase, parts: int = 3) -> None:
        self.path = path
        inputs = case.inputs
        (path / "occurrence.bin").write_bytes(encode_occurrence(inputs["occurrence"], "bin"))
        self.inputs = ["--occurrence", str(path / "occurrence.bin")]
        self.whole = [*self.inputs]
        for name, encode in (
            ("periods", encode_periods),
            ("return_periods", encode_return_periods),
        ):
            if name in inputs:
                file = path / f"{name}.csv"
                file.write_bytes(encode(inputs[name], "csv"))
                self.whole += [f"--{name.replace('_', '-')}", str(file)]
        streams = case.partitions(np.random.default_rng(0), parts)
        self.streams = []
        for i, stream in enumerate(streams):
            (path / f"p{i}.bin").write_bytes(stream.encode())
            self.streams.append(str(path / f"p{i}.bin"))

    def run(self, out: str, *arguments: str, reports: str = REPORTS) -> int:
        # The options come first: an option may take any number of files.
        options = ["--reports", reports, "--no-progress", "--force", "--out", str(self.path / out)]
        return main(["aggregate", *options, *arguments])

    def tables(self, out: str) -> dict[str, bytes]:
        return {file.name: file.read_bytes() for file in (self.path / out).iterdir()}


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    losses = tuple((s, float(s * s)) for s in range(1, 31))
    blocks = tuple(
        Block(e, i, ((-1, 5.0 * e), *losses[e % 3 :: 2])) for e in range(1, 301) for i in (1, 2, 7)
    )
    occurrences = tuple((e, 1 + (e * k) % 12) for e in range(1, 298) for k in (1, 5))
    return Folder(
        tmp_path,
        RunCase(Stream("summary", 30, 4, blocks), 12, occurrences, returns=(12, 10, 5, 2)),
    )


def test_any_way_to_the_tables_gives_the_same_bytes(folder: Folder) -> None:
    assert folder.run("whole", *folder.whole, *folder.streams) == 0
    whole = folder.tables("whole")
    assert set(whole) == {f"{name}.csv" for name in REPORTS.split(",")}
    assert all(len(octets.splitlines()) > 1 for octets in whole.values())

    assert folder.run("small", *folder.whole, "--memory-budget", "200kB", *folder.streams) == 0
    assert folder.tables("small") == whole

    parts = []
    for i, stream in enumerate(folder.streams):
        parts.append(str(folder.path / f"{i}.part"))
        command = (*folder.inputs, "--partial-out", parts[-1], stream)
        assert folder.run(f"part{i}", *command, reports="aal") == 0
    assert folder.run("merged", *folder.whole, "--partials", *parts[::-1]) == 0
    assert folder.tables("merged") == whole

    both = str(folder.path / "both.part")
    command = (*folder.inputs, "--partial-out", both, "--partials", parts[2], parts[0])
    assert folder.run("both", *command, reports="aal") == 0
    assert folder.run("mixed", folder.streams[1], *folder.whole, "--partials", both) == 0
    assert folder.tables("mixed") == whole


def test_reports_of_events_come_in_the_same_pass(folder: Folder) -> None:
    reports = f"selt,melt,events,{REPORTS}"
    assert folder.run("all", *folder.whole, *folder.streams, reports=reports) == 0
    assert folder.run("whole", *folder.whole, *folder.streams) == 0
    assert folder.tables("whole").items() <= folder.tables("all").items()


def test_random_runs_with_weights_and_odd_losses(tmp_path: Path) -> None:
    for seed in range(3):
        folder = Folder(tmp_path, random_run(np.random.default_rng(seed), samples=5), 2)
        with np.errstate(over="ignore", invalid="ignore"):
            assert folder.run("whole", *folder.whole, *folder.streams) == 0
            assert folder.run("again", *folder.whole, *folder.streams[::-1]) == 0
        assert folder.tables("whole") == folder.tables("again")


def _refused(
    folder: Folder, capfd: pytest.CaptureFixture[str], *arguments: str, **options: str
) -> str:
    assert folder.run("refused", *arguments, **options) != 0
    assert not list(folder.path.glob("refused/*"))
    return capfd.readouterr().err


def test_what_does_not_fit_is_refused(folder: Folder, capfd: pytest.CaptureFixture[str]) -> None:
    part = str(folder.path / "0.part")
    command = (*folder.inputs, "--partial-out", part, folder.streams[0])
    assert folder.run("part", *command, reports="aal") == 0
    alone = {"reports": "aal"}
    twice = _refused(folder, capfd, *folder.inputs, "--partials", part, part, **alone)
    assert "the same partition comes a second time" in twice
    again = _refused(folder, capfd, folder.streams[0], *folder.inputs, "--partials", part, **alone)
    assert "of its events are in another partition too" in again
    melt = _refused(folder, capfd, *folder.inputs, "--partials", part, reports="melt")
    assert "MELT cannot be made from partial files alone" in melt
    foreign = _refused(folder, capfd, *folder.inputs, "--partials", folder.streams[0], **alone)
    assert "does not begin with TWLEDGER" in foreign
    gone = _refused(folder, capfd, *folder.inputs, "--partials", "/no/such.part", **alone)
    assert "/no/such.part: cannot be read" in gone
    assert "digest" in _refused(folder, capfd, "--partials", part, **alone)
    few = _refused(
        folder, capfd, *folder.inputs, "--partials", part, "--expect-events", "9999", **alone
    )
    assert "stream-incomplete" in few
    assert "9,999 were declared" in few
    size = ("--partials", part, "--expect-bytes", "1")
    assert "partial files are none" in _refused(folder, capfd, *folder.inputs, *size, **alone)
    out = str(folder.path / "one.csv")
    alike = ["aggregate", *folder.inputs, "--partials", part, "--reports", "aal", "--out", out]
    assert main(alike) == 0
    assert (folder.path / "one.csv").is_file()
    bare = _refused(folder, capfd, "--partials", part, reports="events")
    assert "partial files need occurrences" in bare
    tiny = _refused(folder, capfd, *folder.whole, "--memory-budget", "20kB", *folder.streams)
    assert "Raise --memory-budget to" in tiny


def test_a_full_disk_leaves_no_report(
    folder: Folder, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(_file: object, _data: memoryview) -> None:
        raise LimitError(os.strerror(errno.ENOSPC), limit="disk", allowed=0)

    monkeypatch.setattr(SpilledFile, "append", write)
    budget = ("--memory-budget", "200kB")
    message = _refused(folder, capfd, *folder.whole, *budget, *folder.streams)
    assert "No space left on device" in message
