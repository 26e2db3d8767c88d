"""An abuser beside a well-behaved owner: ``python -m tests.abuse --seconds 600``.

First both have keys, then neither, and the abuser calls from another address. The owner's
answers must be right and its small reads quick, memory must stay below the documented bound,
and nothing may be left afterwards. Prints what was seen; the exit code is 1 if any of it
failed.
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from app.settings import Settings
from app.state.api_keys import digest_key, new_secret
from tests.abuse.files import MIB, write_hostile_files, write_owner_files
from tests.abuse.owner import Owner, idle_quantile
from tests.abuse.requests import Caller
from tests.abuse.waits import Waits
from tests.app.harness import wait_until
from tests.e2e.service import Service

SHARE = 0.99
LEAST_SECONDS = 0.05
"""Latency of small reads that is fine in any case."""
LEFT = 120.0
"""Seconds after which nothing of the abuser may be left."""


class Run:
    """One run against a server of its own.

    Args:
        directory: for its files; must have room for some 100 MB.
        keys: whether callers have keys.
        lanes: processes of the service, as its setting says.
    """

    def __init__(self, directory: Path, *, keys: bool, lanes: str) -> None:
        root = directory / "root"
        root.mkdir(parents=True)
        write_owner_files(root)
        write_hostile_files(root)
        owner_key, abuser_key = (new_secret(), new_secret()) if keys else (None, None)
        settings: dict[str, object] = {"dataset_roots": root, "lanes": lanes}
        settings["decoder_idle_seconds"] = 5
        if owner_key is not None and abuser_key is not None:
            digests = f"owner:{digest_key(owner_key)},abuser:{digest_key(abuser_key)}"
            settings["api_keys"] = digests
        self.peak = 0
        self.failures: list[str] = []
        self.service = Service(directory / "service", **settings)
        self.bound = documented_bound(Settings(), len(self.service.worker_pids()))
        self._owner = Caller(self.service.port, owner_key)
        self._waits = Waits(self._owner)
        self._abuser_key = abuser_key
        self._address = "127.0.0.1" if keys else "127.0.0.2"

    def run(self, seconds: float) -> None:
        """Abuse for some seconds, and look at the service before, during and afterwards."""
        owner = Owner(self._owner)
        idle = idle_quantile(owner, min(10.0, seconds / 4), SHARE)
        before = self._leftovers()
        stop = threading.Event()
        with self._abuser() as abuser, self._watch(stop):
            threading.Timer(seconds, stop.set).start()
            owner.run(stop)
            report = abuser.communicate(b"", timeout=120.0)[0].decode()
        busy, limit = owner.quantile(SHARE), max(10 * idle, LEAST_SECONDS)
        print(f"abuser: {report.strip()}")
        self._check(abuser.returncode == 0, f"the abuser ended with {abuser.returncode}")
        print(f"owner: {dict(owner.done)}, refused {dict(owner.refused)}")
        print(f"small reads, p99: {idle * 1e3:.1f} ms idle, {busy * 1e3:.1f} ms under abuse")
        print(self._waits)
        print(f"memory: {self.peak / MIB:.0f} MiB at most of {self.bound / MIB:.0f}")
        self._check(not owner.wrong, f"the owner was answered wrongly: {owner.wrong[:5]}")
        self._check(busy <= limit, f"small reads took {busy:.3f} s, above {limit:.3f}")
        self._check(self.peak <= self.bound, f"{self.peak} bytes are above {self.bound}")
        self._check(min(owner.done.values(), default=0) > 0, "the owner got nothing")
        self._check_leftovers(before)

    def _check(self, holds: bool, failure: str) -> None:
        if not holds:
            self.failures.append(failure)

    @contextlib.contextmanager
    def _abuser(self) -> Iterator[subprocess.Popen[bytes]]:
        command = [sys.executable, "-m", "tests.abuse.abuser", str(self.service.port)]
        command += ["--address", self._address]
        if self._abuser_key is not None:
            # In one word: a key may begin with a dash.
            command += [f"--key={self._abuser_key}"]
        abuser = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            yield abuser
        finally:
            abuser.kill()
            abuser.wait()

    @contextlib.contextmanager
    def _watch(self, stop: threading.Event) -> Iterator[None]:
        """Note the peak of memory of all processes of the service, and its waits."""

        def watch() -> None:
            while not stop.wait(0.1):
                self.peak = max(self.peak, sum(map(_resident, self._processes())))

        def look() -> None:
            while not stop.wait(1.0):
                self._waits.look()

        threads = [threading.Thread(target=watch), threading.Thread(target=look)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            stop.set()
            for thread in threads:
                thread.join()

    def _processes(self) -> list[int]:
        """The server's processes and their descendants."""
        found, left = [], self.service.worker_pids()
        while left:
            pid = left.pop()
            found.append(pid)
            with contextlib.suppress(OSError):
                for task in Path(f"/proc/{pid}/task").iterdir():
                    left += map(int, (task / "children").read_text().split())
        return found

    def _leftovers(self) -> dict[str, int]:
        """Counts of everything that abuse might leave behind."""
        metrics = self.service.metrics() if self._abuser_key is None else {}
        pids = self._processes()
        return {
            "processes": len(pids),
            "threads": sum(len(list(Path(f"/proc/{p}/task").iterdir())) for p in pids),
            "descriptors": sum(len(list(Path(f"/proc/{p}/fd").iterdir())) for p in pids),
            "buffers": int(metrics.get("thalweg_buffers_used", 0)),
            "spools": sum(1 for _ in (self.service.data_dir / "spool").glob("*")),
        }

    def _check_leftovers(self, before: dict[str, int]) -> None:
        """Wait until what the abuse took is given back."""
        # Pools of each process keep a few threads, files and decoders for later requests.
        count = len(self.service.worker_pids())
        slack = {"processes": 2 * count, "threads": 16 * count, "descriptors": 40 * count}

        def given_back() -> bool:
            now = self._leftovers()
            return all(now[name] <= before[name] + slack.get(name, 0) for name in now)

        try:
            wait_until(given_back, LEFT)
        except AssertionError:
            self.failures.append(f"left: {self._leftovers()}, before {before}")
        self._check(not self.service.failures(), f"logged: {self.service.failures()[:3]}")
        begin = time.monotonic()
        self._check(self.service.stop() == 0, "the service did not end well")
        print(f"stopped in {time.monotonic() - begin:.1f} s")


def documented_bound(settings: Settings, workers: int) -> int:
    """Return the memory that the service takes at most, as ``deploy/README.md`` says, in bytes."""
    decoders = settings.decoders * (200 * MIB + settings.decoder_memory)
    return 55 * MIB + settings.memory_limit + workers * 300 * MIB + decoders


def _resident(pid: int) -> int:
    """Memory of a process in bytes, pages shared with others counted whole.

    From counters that the kernel keeps. Exact shares would be smaller, but to find them it
    walks all page tables, and for so long nothing of the process can be mapped or unmapped:
    a thread that allocates would wait with the interpreter's lock in its hand.
    """
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))


def main() -> int:
    """Run with and without keys; exit code 1 if anything failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0, help="of both runs together")
    parser.add_argument("--keys", choices=["with", "without", "both"], default="both")
    parser.add_argument("--lanes", default=Settings().lanes, help="THALWEG_LANES of the service")
    args = parser.parse_args()
    failed = False
    for keys in (True, False):
        if args.keys not in {"both", "with" if keys else "without"}:
            continue
        print(f"{'with' if keys else 'without'} keys", flush=True)
        with tempfile.TemporaryDirectory() as directory:
            run = Run(Path(directory), keys=keys, lanes=args.lanes)
            try:
                run.run(args.seconds / 2)
            finally:
                run.service.kill()
        for failure in run.failures:
            failed = True
            print(f"FAILED: {failure}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
