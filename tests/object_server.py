"""Object stores of the tests' own, on loopback, for as long as a block.

They are programs of an environment that ``THALWEG_OBJECTS_PYTHON`` names the interpreter of, as
``make interop`` does (``deploy/requirements-objects.txt``).
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

SERVERS = ("moto", "seaweedfs")
"""Those that keep what they promise."""
_KEY = "thalweg-tests"
_SECONDS = 60.0


def environment_python() -> Path | None:
    """The interpreter of the environment with object stores, if one is named."""
    name = os.environ.get("THALWEG_OBJECTS_PYTHON")
    return Path(name) if name else None


@dataclass
class ObjectServer:
    """A server that may be stopped and started again.

    Attributes:
        name: of the program.
        directory: of its data.
        port: on loopback.
    """

    name: str
    python: Path
    directory: Path
    port: int
    process: subprocess.Popen[bytes] | None = None

    @property
    def environment(self) -> dict[str, str]:
        """Variables by which a service finds it."""
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
            "AWS_ACCESS_KEY_ID": _KEY,
            "AWS_SECRET_ACCESS_KEY": _KEY,
            "AWS_REGION": "us-east-1",
        }

    def bucket(self, prefix: str = "") -> S3Store:
        """Open the bucket of the tests, or what is below a prefix."""
        return S3Store(
            "tests",
            prefix=prefix or None,
            endpoint=f"http://127.0.0.1:{self.port}",
            access_key_id=_KEY,
            secret_access_key=_KEY,
            region="us-east-1",
            client_options={"allow_http": True, "timeout": "20s"},
            retry_config={"max_retries": 2},
        )

    def start(self) -> None:
        """Start it; returns when the bucket can be written."""
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(
                self._command(), stdout=log, stderr=log, cwd=self.directory
            )
        end = time.monotonic() + _SECONDS
        while not self._answers():
            assert time.monotonic() < end, (self.directory / "log").read_text()[-2000:]
            time.sleep(0.2)

    def _command(self) -> list[str]:
        programs = self.python.parent
        if self.name == "moto":
            return [str(programs / "moto_server"), "-H", "127.0.0.1", "-p", str(self.port)]
        options = ["-dir", str(self.directory), "-ip", "127.0.0.1", "-ip.bind", "127.0.0.1"]
        ports = [
            f"-{role}.port={self.port + k}"
            for k, role in enumerate(("s3", "master", "volume", "filer"))
        ]
        grpc = [
            f"-{role}.port.grpc={self.port + 4 + k}"
            for k, role in enumerate(("s3", "master", "volume", "filer"))
        ]
        return [
            str(programs / "weed"),
            "server",
            *options,
            "-s3",
            *ports,
            *grpc,
            "-master.telemetry=false",
        ]

    def _answers(self) -> bool:
        with contextlib.suppress(httpx.HTTPError, BaseError):
            httpx.put(f"http://127.0.0.1:{self.port}/tests", timeout=5)
            obstore.put(self.bucket(), "ready", b"")
            return True
        return False

    def kill(self) -> None:
        """Kill it."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()


@contextlib.contextmanager
def running_objects(name: str, python: Path) -> Iterator[ObjectServer]:
    """Provide a server of one of the programs."""
    with tempfile.TemporaryDirectory() as directory:
        server = ObjectServer(name, python, Path(directory), _free_ports())
        server.start()
        try:
            yield server
        finally:
            server.kill()


def _free_ports(count: int = 8) -> int:
    """Return the first of some ports that are free, below those that the system gives away."""
    while True:
        first = 20_000 + secrets.randbelow(10_000)
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            for port in range(first, first + count):
                probe = stack.enter_context(socket.socket())
                probe.bind(("127.0.0.1", port))
            return first
