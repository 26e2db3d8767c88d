"""A database whose standby takes over, while a run is uploaded.

A synchronous standby has all that was acknowledged. One that is not may lack the last commits: the
service then has bytes and tokens that its heads know nothing of, and must neither use the ones nor
believe the others.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urljoin

import httpx
import pytest

from app.client import Client, ProblemError, Run
from tests.e2e.service import KEY
from tests.interop.suite import loss_stream
from tests.interop.tus import OCTETS, VERSION
from tests.postgres_server import PostgresServer, running_server, running_standby
from tests.server_process import ServerProcess

STREAM = loss_stream(20_000, 30)
THIRD = len(STREAM) // 3
_SECONDS = 30.0


@pytest.fixture
def primary() -> Iterator[PostgresServer]:
    with running_server() as server:
        yield server


@dataclass
class Upload:
    """The only partition of a run, appended to part by part."""

    service: str
    client: Client
    run: Run
    url: str

    def append(self, start: int, stop: int) -> httpx.Response:
        headers = {**VERSION, **OCTETS, "Upload-Offset": str(start)}
        return httpx.patch(self.url, content=STREAM[start:stop], headers=headers, timeout=_SECONDS)

    def offset(self) -> int:
        """The offset, once the database answers again."""
        end = time.monotonic() + _SECONDS
        while (answer := httpx.head(self.url, headers=VERSION)).status_code == 503:
            assert time.monotonic() < end
            time.sleep(0.05)
        return int(answer.headers["Upload-Offset"])

    def token(self) -> str:
        """The token after all rows by now."""
        token = [table.token for table in self.client.runs.rows(self.run, "melt")][-1]
        assert token is not None
        return token

    def rows_after(self, token: str) -> int:
        return sum(len(t.rows) for t in self.client.runs.rows(self.run, "melt", after=token))

    def check_report(self, path: Path) -> None:
        """Complete the run, whose report must be that of the stream as it was posted."""
        self.client.runs.seal(self.run)
        self.client.runs.report(self.run, "melt", path)
        posted = httpx.post(f"{self.service}/v1/losses/melt?format=csv", content=STREAM)
        assert path.read_bytes() == posted.content


@pytest.fixture
def standby(primary: PostgresServer) -> Iterator[PostgresServer]:
    with running_standby(primary) as standby:
        yield standby


@pytest.fixture
def service(tmp_path: Path, primary: PostgresServer, standby: PostgresServer) -> Iterator[str]:
    state = primary.url("postgres", standby)
    server = ServerProcess(tmp_path / "service", token_keys=KEY, state=state)
    yield server.url
    server.kill()


@pytest.fixture
def upload(service: str) -> Iterator[Upload]:
    with Client(service) as client:
        run = client.runs.create("gul", ("melt",), partitions=1)
        headers = {**VERSION, "Upload-Length": str(len(STREAM))}
        answer = httpx.post(f"{service}/v1/runs/{run.id}/streams", headers=headers)
        yield Upload(service, client, run, urljoin(service, answer.headers["Location"]))


def fail_over(primary: PostgresServer, standby: PostgresServer) -> None:
    primary.kill()
    standby.promote()


def test_a_synchronous_standby_loses_nothing(
    upload: Upload, primary: PostgresServer, standby: PostgresServer, tmp_path: Path
) -> None:
    primary.configure("synchronous_standby_names", "*")
    assert upload.append(0, THIRD).status_code == 204
    token = upload.token()
    fail_over(primary, standby)
    assert upload.offset() == THIRD
    assert upload.append(THIRD, len(STREAM)).status_code == 204
    assert upload.rows_after(token) > 0
    upload.check_report(tmp_path / "melt.csv")


def test_commits_that_a_standby_never_got_are_noticed(
    upload: Upload, primary: PostgresServer, standby: PostgresServer, tmp_path: Path
) -> None:
    assert upload.append(0, THIRD).status_code == 204
    standby.wait_for(primary)
    standby.configure("primary_conninfo", "")
    assert upload.append(THIRD, 2 * THIRD).status_code == 204
    token = upload.token()
    fail_over(primary, standby)
    # The service has bytes that nobody's head counts: the client sends them again.
    assert upload.offset() == THIRD
    answer = upload.append(2 * THIRD, len(STREAM))
    assert (answer.status_code, answer.json()["code"]) == (409, "offset-mismatch")
    with pytest.raises(ProblemError) as caught:
        upload.rows_after(token)
    assert caught.value.code == "data-changed"
    assert upload.append(THIRD, len(STREAM)).status_code == 204
    upload.check_report(tmp_path / "melt.csv")
