"""Two nodes of one service: one of them loses a store, is told to slow down, or has other keys.

Whatever it is, nothing is lost, nothing is counted twice, and the answer names what has failed. The
nodes share Postgres and an object store, each by wires of its own (``make nodes``).
"""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from app.client import Client, ProblemError, Run
from tests.e2e.service import KEY
from tests.interop.suite import loss_stream
from tests.interop.tus import OCTETS, VERSION
from tests.object_server import ObjectServer, environment_python, running_objects
from tests.postgres_server import PostgresServer, running_server
from tests.server_process import ServerProcess
from tests.slow_objects import slow_objects
from tests.wire import Wire, wire_to, wire_to_socket

STREAM = loss_stream(20_000, 30)
THIRD = len(STREAM) // 3
_SECONDS = 90.0


@pytest.fixture(scope="module")
def database() -> Iterator[PostgresServer]:
    with running_server() as server:
        yield server


@pytest.fixture(scope="module")
def objects() -> Iterator[ObjectServer]:
    python = environment_python()
    if python is None:
        pytest.skip("THALWEG_OBJECTS_PYTHON names no environment with object stores")
    with running_objects("moto", python) as server:
        yield server


@dataclass
class Node:
    """A node, and its ways to the stores."""

    server: ServerProcess
    database: Wire
    objects: Wire

    @property
    def url(self) -> str:
        return self.server.url

    def wait_until(self, status: int) -> dict[str, str]:
        """The parts that fail, once the readiness is this."""
        end = time.monotonic() + _SECONDS
        while (answer := httpx.get(f"{self.url}/readyz", timeout=_SECONDS)).status_code != status:
            assert time.monotonic() < end
            time.sleep(0.1)
        parts = answer.json()["parts"]
        return {name: part["detail"] for name, part in parts.items() if part["status"] != "ok"}


@dataclass
class Place:
    """Where nodes find their stores."""

    database: PostgresServer
    objects: ObjectServer
    directory: Path
    name: str
    prefix: str

    @contextlib.contextmanager
    def node(self, name: str, objects_port: int, key: str = KEY) -> Iterator[Node]:
        with contextlib.ExitStack() as stack:
            socket = f"{self.database.directory}/.s.PGSQL.5432"
            database = stack.enter_context(wire_to_socket(socket))
            objects = stack.enter_context(wire_to(objects_port))
            patch = stack.enter_context(pytest.MonkeyPatch.context())
            for variable, value in self.objects.environment.items():
                patch.setenv(variable, value)
            patch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{objects.port}")
            state = f"postgresql://thalweg@127.0.0.1:{database.port}/{self.name}"
            blobs = f"s3://tests/{self.prefix}"
            server = ServerProcess(
                self.directory / name, token_keys=key, state=state, blobs=blobs, lanes="one"
            )
            stack.callback(server.kill)
            yield Node(server, database, objects)


@pytest.fixture
def place(database: PostgresServer, objects: ObjectServer, tmp_path: Path) -> Place:
    name = database.new_database().partition("///")[2].partition("?")[0]
    return Place(database, objects, tmp_path, name, secrets.token_hex(4))


@pytest.fixture
def nodes(place: Place, objects: ObjectServer) -> Iterator[tuple[Node, Node]]:
    with place.node("a", objects.port) as first, place.node("b", objects.port) as second:
        yield first, second


class Upload:
    """The only partition of a run, whose parts go to any node."""

    def __init__(self, node: Node) -> None:
        with Client(node.url) as client:
            self.run: Run = client.runs.create("gul", ("melt",), partitions=1)
        headers = {**VERSION, "Upload-Length": str(len(STREAM))}
        answer = httpx.post(f"{node.url}/v1/runs/{self.run.id}/streams", headers=headers)
        assert answer.status_code == 201, answer.text
        self.path = httpx.URL(answer.headers["Location"]).path

    def append(self, node: Node, start: int, stop: int) -> httpx.Response:
        headers = {**VERSION, **OCTETS, "Upload-Offset": str(start)}
        content = STREAM[start:stop]
        return httpx.patch(f"{node.url}{self.path}", content=content, headers=headers, timeout=None)  # noqa: S113 - it ends

    def offset(self, node: Node) -> int:
        answer = httpx.head(f"{node.url}{self.path}", headers=VERSION, timeout=_SECONDS)
        return int(answer.headers["Upload-Offset"])

    def check(self, path: Path, *nodes: Node) -> None:
        """Complete the run, whose report must be that of the stream as it was posted."""
        with Client(nodes[0].url) as client:
            client.runs.seal(self.run)
        for node in nodes:
            with Client(node.url) as client:
                client.runs.report(self.run, "melt", path)
            posted = httpx.post(f"{node.url}/v1/losses/melt?format=csv", content=STREAM)
            assert path.read_bytes() == posted.content


@pytest.mark.parametrize("store", ["objects", "database"])
def test_a_node_that_loses_a_store_names_it_and_another_goes_on(
    nodes: tuple[Node, Node], store: str, tmp_path: Path
) -> None:
    lost, other = nodes
    upload = Upload(lost)
    assert upload.append(lost, 0, THIRD).status_code == 204
    wire: Wire = getattr(lost, store)
    wire.lose()
    answers: list[httpx.Response] = []
    stuck = threading.Thread(target=lambda: answers.append(upload.append(lost, THIRD, 2 * THIRD)))
    stuck.start()
    assert set(lost.wait_until(503)) == {"store"}
    # What was acknowledged is there, and no more.
    assert upload.offset(other) == THIRD
    assert other.wait_until(200) == {}
    assert upload.append(other, THIRD, 2 * THIRD).status_code == 204
    wire.mend()
    stuck.join(_SECONDS)
    # It was too late, and is not counted.
    (answer,) = answers
    assert answer.status_code in {409, 503}, answer.text
    assert lost.wait_until(200) == {}
    assert upload.offset(lost) == 2 * THIRD
    assert upload.append(lost, 2 * THIRD, len(STREAM)).status_code == 204
    upload.check(tmp_path / "melt.csv", lost, other)


def test_a_database_that_never_answers_is_told_by_its_name(nodes: tuple[Node, Node]) -> None:
    lost, _ = nodes
    upload = Upload(lost)
    lost.database.lose()
    answer = httpx.get(f"{lost.url}/v1/runs/{upload.run.id}", timeout=_SECONDS)
    assert (answer.status_code, answer.json()["code"]) == (503, "store")
    assert "database of the state" in answer.json()["detail"]
    assert "Retry-After" in answer.headers
    lost.database.mend()
    assert httpx.get(f"{lost.url}/v1/runs/{upload.run.id}", timeout=_SECONDS).status_code == 200


def test_an_object_store_that_is_asked_too_often(
    place: Place, objects: ObjectServer, tmp_path: Path
) -> None:
    with slow_objects(objects.port) as slow, place.node("a", slow.server_port) as node:
        upload = Upload(node)
        slow.refused = 3
        assert upload.append(node, 0, THIRD).status_code == 204
        assert slow.refused == 0
        slow.refused = 10**6
        answer = upload.append(node, THIRD, 2 * THIRD)
        assert (answer.status_code, answer.json()["code"]) == (503, "store")
        assert "object store" in answer.json()["detail"]
        assert "Retry-After" in answer.headers
        assert set(node.wait_until(503)) == {"store"}
        slow.refused = 3
        offset = upload.offset(node)
        assert THIRD <= offset <= 2 * THIRD
        assert upload.append(node, offset, len(STREAM)).status_code == 204
        upload.check(tmp_path / "melt.csv", node)


@pytest.mark.parametrize("other_key", ["8:sign", "7:sign"])
def test_nodes_with_different_token_keys(
    place: Place, objects: ObjectServer, tmp_path: Path, other_key: str
) -> None:
    key = f"{other_key}:{secrets.token_hex(32)}"
    with place.node("a", objects.port) as one, place.node("b", objects.port, key) as other:
        upload = Upload(one)
        assert upload.append(one, 0, THIRD).status_code == 204
        with Client(one.url) as client:
            token = [table.token for table in client.runs.rows(upload.run, "melt")][-1]
            assert token is not None
        with Client(other.url) as client, pytest.raises(ProblemError) as caught:
            list(client.runs.rows(upload.run, "melt", after=token))
        assert caught.value.code == "token-forged"
        assert "THALWEG_TOKEN_KEYS" in str(caught.value.hint)
        # An upload has no token: it goes on at either.
        assert upload.append(other, THIRD, len(STREAM)).status_code == 204
        with Client(one.url) as client:
            assert sum(len(t.rows) for t in client.runs.rows(upload.run, "melt", after=token)) > 0
        upload.check(tmp_path / "melt.csv", one, other)
