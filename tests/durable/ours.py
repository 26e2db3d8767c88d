"""The loop on our service: runs that nothing may change."""

from __future__ import annotations

import contextlib
import os
import queue
import random
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path

from xxhash import xxh3_64

from app.client import Client, Run, ThalwegError, Uploaded
from core.losses.samples import SampleSpec, generate_inputs
from tests.durable.command import UploadCommand
from tests.durable.faults import Faults
from tests.durable.reading import Readers
from tests.e2e.service import KEY
from tests.fault_proxy import FaultProxy
from tests.interop.suite import loss_stream
from tests.server_process import ServerProcess

CLIENTS = 3
REPORTS = ("melt", "aal", "ept")
_PERIODS = 1000
_SAMPLES = 30
_BLOCK = 12 + 8 * (_SAMPLES + 2)
_RETRIES = 10_000
"""Failures in a row: the loop ends when it is done, and restarts take as long as they take."""


class OurLoop:
    """Uploads, follows and seals runs.

    Args:
        directory: for the server's data and the files to upload.
        partitions: of each run.
        mib: of each partition.
        seed: of the instants of faults.
    """

    kills_lanes = False
    """Whether single processes are killed instead of the server."""

    def __init__(self, directory: Path, partitions: int, mib: float, seed: int) -> None:
        (directory / "root").mkdir(parents=True)
        self._directory = directory
        self._partitions = partitions
        self._events = int(mib * (1 << 20) / _BLOCK)
        self._seed = seed
        self._servers = self._start_servers()
        self._readers: Readers | None = None
        self._draw = random.Random(seed)  # noqa: S311 - repeatable
        spec = SampleSpec(events=self._events * partitions, periods=_PERIODS)
        self._inputs = generate_inputs(spec)
        self._command: UploadCommand | None = None
        self._faults = Faults(0, 0, seed)
        self._sent = self._stored = 0
        self.rounds = self.wrong = 0
        for i in range(partitions):
            stream = loss_stream(self._events, _SAMPLES, 1 + i * self._events)
            (directory / f"{i + 1}.bin").write_bytes(stream)

    def _start_servers(self) -> list[ServerProcess]:
        return [
            ServerProcess(
                self._directory / "service",
                "--workers=2",
                token_keys=KEY,
                dataset_roots=self._directory / "root",
            )
        ]

    def run(self, faults: Faults) -> bool:
        """Run until there were enough faults; whether every run was right."""
        began = time.monotonic()
        try:
            right, _ = self._round(self._servers[0].url, Faults(0, 0, 0))
            print(f"undisturbed: {right}, {time.monotonic() - began:.1f} s", flush=True)
            return self._disturb(faults, right)
        finally:
            self.kill()

    def _disturb(self, faults: Faults, right: dict[str, str]) -> bool:
        self._faults = faults
        done = threading.Event()
        kill = self._kill_one if self.kills_lanes else self._restart
        killer = threading.Thread(
            target=partial(faults.kill_until, done, kill, often=self.kills_lanes)
        )
        if self.kills_lanes:
            server, source = self._servers[0], self._directory / "1.bin"
            self._readers = Readers(server.url, server.port, self._directory / "root", source)
        killer.start()
        try:
            with FaultProxy(
                [server.port for server in self._servers], faults.plan, self._seed
            ) as proxy:
                while not faults.over or not self.rounds:
                    found, uploads = self._round(proxy.url, faults)
                    self.rounds += 1
                    self.wrong += found != right
                    self._sent += sum(upload.sent for upload in uploads)
                    self._stored += sum(upload.bytes for upload in uploads)
                    state = "as undisturbed" if found == right else f"WRONG: {found}"
                    print(f"run {self.rounds}: {state}; {self._costs()}", flush=True)
        finally:
            done.set()
            killer.join()
            if self._readers is not None:
                self._readers.stop()
        print(self.describe(), flush=True)
        return not (self.wrong or (self._readers and self._readers.wrong))

    def _costs(self) -> str:
        return self._faults.describe(self._sent, self._stored)

    def describe(self) -> str:
        """What was seen by now."""
        reads = "" if self._readers is None else f"; {self._readers.describe()}"
        return f"ours: {self.wrong} of {self.rounds} runs wrong; {self._costs()}{reads}"

    def kill(self) -> None:
        """Kill the server, and the client that is a process."""
        if self._command is not None:
            self._command.end()
        for server in self._servers:
            server.kill()

    def _kill_one(self) -> None:
        """Kill a process that answers requests; others go on, and it is replaced."""
        pids = [pid for pid in self._servers[0].worker_pids() if _answers(pid)]
        if pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._draw.choice(pids), signal.SIGKILL)

    def _restart(self) -> None:
        server = self._draw.choice(self._servers)
        server.kill()
        server.start()

    def _round(self, url: str, faults: Faults) -> tuple[dict[str, str], list[Uploaded]]:
        """One run from creation to reports; digests of its rows and reports, and its uploads."""
        with Client(url, retries=_RETRIES) as client:
            run = client.runs.create(
                "gul",
                REPORTS,
                inputs={"occurrence": self._inputs["occurrence.csv"]},
                partitions=self._partitions,
                no_of_periods=_PERIODS,
            )
            with ThreadPoolExecutor(CLIENTS + 1) as threads:
                rows = threads.submit(self._follow, url, run)
                uploads = self._upload(url, run, faults, threads.submit)
                try:
                    client.runs.seal(run)
                except ThalwegError:
                    # Else the follower waits for it to be repaired.
                    client.runs.delete(run)
                    raise
                found = {"rows": rows.result()}
            for report in REPORTS:
                path = self._directory / f"{report}.csv"
                client.runs.report(run, report, path)
                found[report] = xxh3_64(path.read_bytes()).hexdigest()
            client.runs.delete(run)
        return found, uploads

    def _upload(
        self, url: str, run: Run, faults: Faults, submit: Callable[..., Future[list[Uploaded]]]
    ) -> list[Uploaded]:
        waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
        every = range(1, self._partitions + 1)
        # The last client is a process, with partitions of its own.
        own = {p: self._directory / f"{p}.bin" for p in every if p % CLIENTS == 0}
        for partition in every:
            if partition not in own:
                waiting.put(partition)
        command = self._command = UploadCommand(url, own, self._directory / f"{run.id}.states")

        def work() -> list[Uploaded]:
            done: list[Uploaded] = []
            with Client(url, retries=_RETRIES) as client:
                while True:
                    try:
                        partition = waiting.get_nowait()
                    except queue.Empty:
                        return done
                    source = self._directory / f"{partition}.bin"
                    done.append(
                        client.runs.upload(
                            run, source, partition=partition, progress=faults.accepted
                        )
                    )

        def work_apart() -> list[Uploaded]:
            command.run(run.id, faults)
            return []

        jobs = [submit(work_apart), *(submit(work) for _ in range(CLIENTS - 1))]
        uploads = [upload for job in jobs for upload in job.result()]
        faults.rest()
        return uploads

    @staticmethod
    def _follow(url: str, run: Run) -> str:
        """The digest of all rows, as a follower gets them."""
        digest = xxh3_64()
        with Client(url, retries=_RETRIES) as client:
            for table in client.runs.rows(run, "melt", follow=True):
                digest.update(table.rows.tobytes())
        return digest.hexdigest()


def _answers(pid: int) -> bool:
    """Whether a process of the service is one that answers requests: others have one thread."""
    with contextlib.suppress(OSError):
        return len(list(Path(f"/proc/{pid}/task").iterdir())) > 1
    return False
