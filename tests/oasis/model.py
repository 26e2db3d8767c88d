"""A small model on disk, and real runs of it: plain, with the runner, and with the executables.

Runs are commands of oasislmf. A run of kind ``losses`` has a reader that throws the streams of
items away: what it costs is the first half of any run, and the rest of another is the output half.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from app.oasis.runner import RUNNER, write_runner
from app.oasis.shims.installing import write_shims
from tests.oasis_runs import RUN
from tests.server_process import ROOT

DISCARD = """#!{python}
import os, sys, threading
streams = [b.partition("=")[2] for a, b in zip(sys.argv, sys.argv[1:]) if a == "--stream"]
def drain(path):
    with open(path, "rb", 0) as file:
        while file.read(1 << 20):
            pass
threads = [threading.Thread(target=drain, args=(path,)) for path in streams]
word = os.open(sys.argv[sys.argv.index("--confirm") + 1], os.O_RDWR)
for thread in threads: thread.start()
for thread in threads: thread.join()
os.read(word, 64)
"""
"""A stand-in for our command that reads the streams of items and does nothing with them."""

MONITOR = "oasis_exec_monitor.sh"
HELPERS = (
    *(MONITOR, "socket-server", "oasislmf model", "resource_tracker"),
    *("sleep", "sed", "find", "rm "),
)
"""What merely tells the progress, watches or waits, and the command itself: nothing of losses."""
MODES = ("plain", "runner", "shims")
EXPOSURE = {"-x": "location", "-y": "account", "-i": "ri_info", "-s": "ri_scope", "-z": "keys"}


@dataclass
class Cost:
    """Wall and CPU seconds of a run, and its peaks in bytes."""

    wall: float = 0.0
    cpu: float = 0.0
    disk: int = 0
    memory: int = 0
    left: int = 0
    """Bytes in ``output`` at the end."""
    ticks: int = 0
    """CPU time of the script's processes, in clock ticks, as far as samples show it."""


@dataclass
class Model:
    """The model in a folder, and how it is run.

    Args:
        work: folder of everything.
        peer: python of oasislmf.
        scale: times the locations.
        weighted: whether periods have weights, so that tied losses have points of any order.
        light: ask only for the outputs of one set of gul and ri.
        settings: of the analysis, besides.
    """

    work: Path
    peer: Path
    scale: int = 1
    weighted: bool = True
    light: bool = False
    settings: dict[str, Any] = field(default_factory=dict)
    packages: dict[str, Path] = field(default_factory=dict)
    first: Path | None = None
    """Folder before all others on PATH."""
    service: str | None = None
    """Address of a service, to which the mode ``service`` uploads."""

    @property
    def shims(self) -> Path:
        """Folder of our executables."""
        return self.work / "packages" / "shims"

    def folder(self, name: str) -> Path:
        """Directory of a run; of a name that nothing else has, as it is emptied."""
        return self.work / "runs" / name

    def prepare(self) -> None:
        """Generate the model and its portfolio, and the input files of a run.

        A folder that has them is used as it is, with programs of today.
        """
        prepared = self.work / "prepared.json"
        options = json.dumps([self.scale, self.weighted, self.light])
        if prepared.exists() and prepared.read_text() == options:
            self._write_packages()
            return
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir(parents=True)
        for name in ("tmp", "runs", "packages"):
            (self.work / name).mkdir()
        shutil.copytree(RUN / "model", self.work / "model")
        for path in self.work.rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o644)
        self.write_settings()
        self._scale()
        self._call([str(self.peer), "gen.py"], self.work / "model")
        self._call(["bash", "tobin.sh"], self.work / "model")
        if not self.weighted:
            (self.work / "model" / "model_data" / "periods.bin").unlink()
        command = ["oasislmf", "model", "generate-oasis-files", "-o", str(self.work / "input")]
        self._call([*command, *self._exposure()], self.work)
        self._write_packages()
        prepared.write_text(options)

    def write_settings(self) -> None:
        """Write the settings of the analysis."""
        document = json.loads((RUN / "run" / "analysis_settings.json").read_text())
        if self.light:
            document["il_output"] = False
            del document["ri_inuring_priorities"]
            for name in ("gul", "ri"):
                document[f"{name}_summaries"] = document[f"{name}_summaries"][1:]
        document.update(self.settings)
        (self.work / "analysis_settings.json").write_text(json.dumps(document))

    def _scale(self) -> None:
        """As many locations in each area, in the same three accounts."""
        if self.scale > 1:
            source = self.work / "model" / "gen.py"
            text = source.read_text().replace(
                "range(1,NL+1):\n    acc=1+(i-1)//6",
                f"range(1,{self.scale}*NL+1):\n    acc=1+(i-1)%16//6",
            )
            text = text.replace("'WTC',cov,i,", "'WTC',cov,1+(i-1)%NL,")
            assert f"{self.scale}*NL" in text
            source.write_text(text)

    def _write_packages(self) -> None:
        launcher = self.work / "thalweg-server"
        launcher.write_text(
            f'#!/bin/bash\nPYTHONPATH={ROOT} exec {sys.executable} -m app.command "$@"\n'
        )
        client = self.work / "thalweg"
        client.write_text(launcher.read_text().replace("app.command", "app.client"))
        client.chmod(0o755)
        discard = self.work / "discard"
        discard.write_text(DISCARD.format(python=sys.executable))
        for server, name in ((launcher, "runner"), (launcher, "service"), (discard, "losses")):
            server.chmod(0o755)
            package = self.work / "packages" / name
            self.packages[name] = write_runner(package, server=server, client=client).parent
        write_shims(self.shims)

    def _exposure(self) -> list[str]:
        folder = self.work / "model" / "exposure"
        return [w for flag, name in EXPOSURE.items() for w in (flag, str(folder / f"{name}.csv"))]

    def environ(self, mode: str = "plain") -> dict[str, str]:
        """Variables of the commands of a run."""
        folders = [str(self.peer.parent), os.environ["PATH"]]
        if mode == "shims":
            folders.insert(0, str(self.shims))
        if self.first is not None:
            folders.insert(0, str(self.first))
        dropped = ("PYTHON", "THALWEG_OASIS_")
        plain = {name: v for name, v in os.environ.items() if not name.startswith(dropped)}
        if mode == "service":
            assert self.service is not None
            plain["THALWEG_OASIS_URL"] = self.service
        return plain | {
            "PATH": os.pathsep.join(folders),
            "OASIS_TMPDIR": str(self.work / "tmp"),
        }

    def _call(self, command: Sequence[str], cwd: Path, mode: str = "plain") -> None:
        done = subprocess.run(
            command,
            cwd=cwd,
            env=self.environ(mode),
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        assert done.returncode == 0, done.stdout.decode(errors="replace")[-4000:]

    def command(self, action: str, run: Path, mode: str, *options: str) -> list[str]:
        """A command of oasislmf for a run: ``run``, ``generate-losses``, or a half of it."""
        package = ["-p", str(self.packages[mode])] if mode in self.packages else []
        inputs = self._exposure() if action == "run" else ["-o", str(self.work / "input")]
        return [
            *("oasislmf", "model", action, *inputs),
            *("-a", str(self.work / "analysis_settings.json")),
            *("-d", str(self.work / "model" / "model_data"), "-r", str(run)),
            *(*package, *options),
        ]

    def start(
        self, mode: str, run: Path, processes: int, *options: str, action: str = "generate-losses"
    ) -> subprocess.Popen[bytes]:
        """Start a run, which logs into the file of its name."""
        shutil.rmtree(run, ignore_errors=True)
        self._check(mode)
        command = self.command(action, run, mode, "-n", str(processes), *options)
        with log_of(run).open("wb") as log:
            return subprocess.Popen(
                command,
                cwd=self.work,
                env=self.environ(mode),
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def run(
        self, mode: str, name: str, processes: int, *options: str, action: str = "generate-losses"
    ) -> Cost:
        """Run to the end; return its cost."""
        cost = Cost()
        run = self.folder(name)
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        process = self.start(mode, run, processes, *options, action=action)
        stop = threading.Event()
        watch = threading.Thread(target=_watch, args=(self, run, cost, stop))
        watch.start()
        try:
            code = process.wait()
        finally:
            stop.set()
            watch.join()
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert code == 0, f"{name} failed: see {log_of(run)}"
        cost.wall = time.perf_counter() - start
        cost.cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        cost.left = size_of(run / "output")
        return cost

    def _check(self, mode: str) -> None:
        """See that a run is of its mode: without a runner oasislmf takes its own, silently."""
        if mode in self.packages:
            assert (self.packages[mode] / RUNNER).is_file()
        found = shutil.which("eltpy", path=self.environ(mode)["PATH"])
        assert found is not None
        assert (Path(found).parent == self.shims) is (mode == "shims")

    def run_chunks(self, mode: str, name: str, chunks: int) -> None:
        """Compute each chunk by itself, merge their work folders, and write the outputs."""
        run = self.folder(name)
        shutil.rmtree(run, ignore_errors=True)
        self._check(mode)
        options = ["-n", str(chunks), "--max-process-id", str(chunks)]
        for chunk in range(1, chunks + 1):
            number = ["--process-number", str(chunk)]
            command = self.command("generate-losses-chunk", run, mode, *options, *number)
            self._call(command, self.work, mode)
        for chunk in range(1, chunks + 1):
            shutil.copytree(run / f"{chunk}.work", run / "work", dirs_exist_ok=True)
        command = self.command("generate-losses-output", run, mode, *options)
        self._call(command, self.work, mode)


def log_of(run: Path) -> Path:
    """Where a run says what it does."""
    return run.with_name(f"{run.name}.log")


def processes_of(run: Path) -> Iterator[tuple[int, str]]:
    """Processes of a run, whose working directory is its folder: id and command."""
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            with suppress(OSError):
                if (path / "cwd").readlink() == run:
                    words = (path / "cmdline").read_bytes().split(b"\0")
                    yield int(path.name), b" ".join(words).decode(errors="replace")


def kill_all(run: Path) -> None:
    """Kill the processes that a run has left."""
    for pid, _ in list(processes_of(run)):
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def size_of(folder: Path) -> int:
    """Bytes that the files of a folder take on disk."""
    size = 0
    for path in folder.rglob("*"):
        with suppress(OSError):
            if not path.is_symlink():
                size += path.lstat().st_blocks * 512
    return size


class CpuClock:
    """CPU time that processes of losses and outputs have had: it does not depend on the load."""

    def __init__(self) -> None:
        self._ticks: dict[int, int] = {}

    def read(self, run: Path) -> int:
        """Clock ticks so far."""
        for pid, command in processes_of(run):
            if any(name in command for name in HELPERS):
                continue
            with suppress(OSError, IndexError):
                words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                self._ticks[pid] = int(words[11]) + int(words[12])
        return sum(self._ticks.values())


def _watch(model: Model, run: Path, cost: Cost, stop: threading.Event) -> None:
    """Sample the disk used, and the memory of all processes, with shared pages counted once."""
    pause = 0.3
    clock = CpuClock()
    while not stop.wait(pause):
        cost.ticks = clock.read(run)
        start = time.perf_counter()
        cost.disk = max(cost.disk, size_of(run) + size_of(model.work / "tmp"))
        resident = 0
        for pid, _ in processes_of(run):
            with suppress(OSError, ValueError, IndexError):
                text = Path(f"/proc/{pid}/smaps_rollup").read_text()
                resident += int(text.partition("\nPss:")[2].split()[0]) * 1024
        cost.memory = max(cost.memory, resident)
        # Looking takes time itself, the more the more processes there are.
        pause = max(0.3, 15 * (time.perf_counter() - start))
