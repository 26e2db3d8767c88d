"""The same loop on tuspyserver: what is acknowledged, and what is stored in the end."""

from __future__ import annotations

import contextlib
import http.client
import queue
import socket
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.durable.faults import Faults
from tests.durable.ours import CLIENTS
from tests.fault_proxy import FaultProxy
from tests.interop.suite import loss_stream
from tests.interop.tus import NAMED, OCTETS, VERSION
from tests.interop.wire import Answer, NoAnswer, absolute, ask
from tests.server_process import HOST

PROGRAM = """
import sys, uvicorn
from fastapi import FastAPI
from tuspyserver import create_tus_router
app = FastAPI()
app.include_router(create_tus_router(prefix="files", files_dir=sys.argv[2], max_size=1 << 34))
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="error")
"""
_CHUNK = 8 << 20
_BLOCK = 12 + 8 * 12
_PATIENCE = 60.0
"""Seconds without progress after which an upload counts as lost."""
_READY_SECONDS = 60.0


class PeerLoop:
    """Uploads to tuspyserver, and compares what it stores.

    Args:
        directory: for its files.
        python: an interpreter that has it.
        partitions: uploads of a round.
        mib: of each.
    """

    def __init__(self, directory: Path, python: str, partitions: int, mib: float) -> None:
        self._files = directory / "files"
        self._files.mkdir(parents=True)
        self._python = python
        self._partitions = partitions
        self._stream = loss_stream(int(mib * (1 << 20) / _BLOCK))
        with socket.socket() as free:
            free.bind((HOST, 0))
            self._port: int = free.getsockname()[1]
        self._start()

    def _start(self) -> None:
        command = [self._python, "-c", PROGRAM, str(self._port), str(self._files)]
        self._process = subprocess.Popen(command)
        deadline = time.monotonic() + _READY_SECONDS
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                socket.create_connection((HOST, self._port)).close()
                return
            time.sleep(0.05)
        raise TimeoutError("tuspyserver does not start")

    def _stop(self) -> None:
        self._process.kill()
        self._process.wait()

    def _restart(self) -> None:
        self._stop()
        self._start()

    def run(self, faults: Faults) -> None:
        """Run until there were enough faults."""
        done = threading.Event()
        killer = threading.Thread(target=faults.kill_until, args=(done, self._restart))
        killer.start()
        ends: dict[str, int] = {}
        sent = [0]
        try:
            with FaultProxy([self._port], faults.plan, 1) as proxy:
                while not faults.over or not ends:
                    for end in self._round(proxy.url, faults, sent):
                        ends[end] = ends.get(end, 0) + 1
        finally:
            done.set()
            killer.join()
            self._stop()
        stored = len(self._stream) * sum(ends.values())
        print(f"tuspyserver: uploads {ends}; {faults.describe(sent[0], stored)}")

    def _round(self, url: str, faults: Faults, sent: list[int]) -> list[str]:
        waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
        for partition in range(self._partitions):
            waiting.put(partition)

        def work() -> list[str]:
            found: list[str] = []
            while True:
                try:
                    waiting.get_nowait()
                except queue.Empty:
                    return found
                found.append(self._upload(url, faults, sent))

        with ThreadPoolExecutor(CLIENTS) as threads:
            jobs = [threads.submit(work) for _ in range(CLIENTS)]
            return [end for job in jobs for end in job.result()]

    def _upload(self, url: str, faults: Faults, sent: list[int]) -> str:
        """Upload the stream; how that ended."""
        location, offset = "", -1
        moved = time.monotonic()
        acknowledged = 0
        while offset < len(self._stream):
            if time.monotonic() - moved > _PATIENCE:
                return "stuck"
            before = offset
            try:
                if not location:
                    location = self._create(url)
                    offset = 0
                elif offset < 0:
                    offset = self._offset(location)
                    if offset < acknowledged:
                        return "lost acknowledged bytes"
                else:
                    answer = self._append(location, offset, sent)
                    offset = acknowledged = int(answer.headers["upload-offset"])
                    faults.accepted()
            except (NoAnswer, OSError, KeyError, ValueError, http.client.HTTPException):
                offset = -1
                time.sleep(0.1)
            if offset > before:
                moved = time.monotonic()
        name = location.rpartition("/")[2]
        data = (self._files / name).read_bytes()
        return "right" if data == self._stream else "other bytes"

    def _create(self, url: str) -> str:
        size = {"Upload-Length": str(len(self._stream))}
        answer = ask("POST", f"{url}/files/", {**VERSION, **NAMED, **size})
        return absolute(f"{url}/files/", answer.headers["location"])

    @staticmethod
    def _offset(location: str) -> int:
        answer = ask("HEAD", location, VERSION)
        return int(answer.headers["upload-offset"])

    def _append(self, location: str, offset: int, sent: list[int]) -> Answer:
        piece = self._stream[offset : offset + _CHUNK]
        sent[0] += len(piece)
        return ask("PATCH", location, {**VERSION, **OCTETS, "Upload-Offset": str(offset)}, piece)
