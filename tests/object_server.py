"""Object stores of the tests' own, on loopback, for as long as a block.

Those that speak S3 are programs of an environment that ``THALWEG_OBJECTS_PYTHON`` names the
interpreter of (``deploy/requirements-objects.txt``); ``THALWEG_AZURITE`` is the path of
``azurite-blob``, which speaks as Azure does. ``make nodes`` sets both.
"""

from __future__ import annotations

import base64
import contextlib
import email.utils
import hashlib
import hmac
import os
import secrets
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import obstore
from obstore.exceptions import BaseError
from obstore.store import ObjectStore, S3Store, from_url

SERVERS = ("moto", "seaweedfs")
"""Those that speak S3, and keep what they promise."""
CARELESS = ("juicefs", "rclone")
"""Those that answer 200 to a conditional write, and ignore the condition."""
AZURITE = "azurite"
_ACCOUNT = "devstoreaccount1"
_ACCOUNT_KEY = base64.b64encode(hashlib.sha512(b"tests").digest()).decode()
_KEY = "thalweg-tests"
_SECONDS = 60.0


def environment_python() -> Path | None:
    """The interpreter of the environment with object stores, if one is named."""
    name = os.environ.get("THALWEG_OBJECTS_PYTHON")
    return Path(name).absolute() if name else None


def installed_servers() -> dict[str, Path]:
    """The servers that can be started, each with a program of its environment."""
    python, azurite = environment_python(), os.environ.get("THALWEG_AZURITE")
    found = {} if python is None else dict.fromkeys((*SERVERS, *CARELESS), python)
    return found | ({AZURITE: Path(azurite).absolute()} if azurite else {})


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
        if self.name == AZURITE:
            return {
                "AZURE_ENDPOINT": f"http://127.0.0.1:{self.port}/{_ACCOUNT}",
                "AZURE_STORAGE_ACCOUNT_NAME": _ACCOUNT,
                "AZURE_STORAGE_ACCOUNT_KEY": _ACCOUNT_KEY,
            }
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
            "AWS_ACCESS_KEY_ID": _KEY,
            "AWS_SECRET_ACCESS_KEY": _KEY,
            "AWS_REGION": "us-east-1",
        }

    @property
    def address(self) -> str:
        """That of the bucket, as a service takes it."""
        return "az://tests" if self.name == AZURITE else "s3://tests"

    def bucket(self, prefix: str = "") -> ObjectStore:
        """Open the bucket of the tests, or what is below a prefix."""
        if self.name == AZURITE:
            config: Any = {name.lower(): value for name, value in self.environment.items()}
            options: Any = {"allow_http": True, "timeout": "20s"}
            return from_url(f"{self.address}/{prefix}", config=config, client_options=options)
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
        # Azurite has one account, of a key that all know, unless it is told another. The gateway of
        # JuiceFS is MinIO's.
        accounts = {
            "AZURITE_ACCOUNTS": f"{_ACCOUNT}:{_ACCOUNT_KEY}",
            "MINIO_ROOT_USER": _KEY,
            "MINIO_ROOT_PASSWORD": _KEY,
        }
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(
                self._command(),
                stdout=log,
                stderr=log,
                cwd=self.directory,
                env=os.environ | accounts,
            )
        end = time.monotonic() + _SECONDS
        while not self._answers():
            assert time.monotonic() < end, (self.directory / "log").read_text()[-2000:]
            time.sleep(0.2)

    def _command(self) -> list[str]:
        programs = self.python.parent
        if self.name == AZURITE:
            place = ["--blobHost", "127.0.0.1", "--blobPort", str(self.port)]
            data = ["--location", str(self.directory), "--silent", "--disableTelemetry"]
            return [str(self.python), *place, *data]
        if self.name == "moto":
            return [str(programs / "moto_server"), "-H", "127.0.0.1", "-p", str(self.port)]
        if self.name == "rclone":
            place = ["--addr", f"127.0.0.1:{self.port}", str(self.directory)]
            return [str(programs / "rclone"), "serve", "s3", *place]
        if self.name == "juicefs":
            return self._juicefs(str(programs / "juicefs"), f"sqlite3://{self.directory}/records")
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
            # These would be at the same ports in every server.
            *("-s3.port.iceberg=0", "-s3.port.lance=0"),
            *ports,
            *grpc,
            "-master.telemetry=false",
        ]

    def _juicefs(self, program: str, records: str) -> list[str]:
        place = ["--storage", "file", "--bucket", f"{self.directory}/blobs"]
        subprocess.run(
            [program, "format", *place, records, "tests"], check=True, capture_output=True
        )
        return [program, "gateway", records, f"127.0.0.1:{self.port}"]

    def _answers(self) -> bool:
        with contextlib.suppress(httpx.HTTPError, BaseError):
            self._create_bucket()
            obstore.put(self.bucket(), "ready", b"")
            return True
        return False

    def _create_bucket(self) -> None:
        url, headers = f"http://127.0.0.1:{self.port}", {}
        if self.name == AZURITE:
            url, headers = f"{url}/{_ACCOUNT}", _signed("tests")
        query = "?restype=container" if headers else ""
        httpx.put(f"{url}/tests{query}", headers=headers, timeout=5)

    def kill(self) -> None:
        """Kill it."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()


def _signed(container: str) -> dict[str, str]:
    """Headers of a request of Azure's that creates a container, for which obstore has no call."""
    headers = {"x-ms-date": email.utils.formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
    named = "".join(f"{name}:{value}\n" for name, value in headers.items())
    text = f"PUT{chr(10) * 12}{named}/{_ACCOUNT}/{_ACCOUNT}/{container}\nrestype:container"
    digest = hmac.new(base64.b64decode(_ACCOUNT_KEY), text.encode(), hashlib.sha256).digest()
    signature = base64.b64encode(digest).decode()
    return {**headers, "Authorization": f"SharedKey {_ACCOUNT}:{signature}"}


@contextlib.contextmanager
def running_objects(name: str, python: Path) -> Iterator[ObjectServer]:
    """Provide a server of one of the programs."""
    with tempfile.TemporaryDirectory() as directory:
        server = ObjectServer(name, python, Path(directory), _free_ports())
        try:
            server.start()
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
