from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.client import AsyncClient, Client, ConnectionFailed, ProblemError, ProducerFailed
from app.client.command.console import exit_code
from app.client.losses.requests import Mode
from app.client.transport.retry import is_retryable

from .conftest import Connect
from .fakes.clock import FakeClock
from .fakes.exchange import Fault
from .fakes.losses import RECORD, make_stream, tables
from .fakes.pipelines import SPEC
from .fakes.service import FakeService

MODES: tuple[Mode, ...] = ("parts", "whole", "duplex")
STREAM = make_stream(30)
ROWS = tables(STREAM)["rows"].tobytes()


def test_inputs_tokens_and_health(connect: Connect, service: FakeService, tmp_path: Path) -> None:
    path = tmp_path / "rates.csv"
    path.write_bytes(b"1,0.5\n")
    with connect(service, "secret") as client:
        digest = client.inputs.put("event_rates", path)
        assert client.inputs.put("event_rates", str(path)) == digest
        assert client.inputs.put("event_rates", b"1,0.5\n") == digest
        client.inputs.delete("event_rates", digest)
        with pytest.raises(ProblemError):
            client.inputs.delete("event_rates", digest)
        assert service.seen[-1].target == f"/v1/inputs/event_rates/{digest}"
        assert client.tokens.inspect("1.2") == {"kind": "losses", "token": "1.2"}
        assert client.tokens.refresh("1.2") == "1.0"
        assert client.health()
        service.ready = False
        assert not client.health()
    assert {seen.headers["authorization"] for seen in service.seen} == {"Bearer secret"}


def test_deleting_a_pipeline(client: Client, service: FakeService) -> None:
    pipeline = client.pipeline({"stages": [{"op": "source", "dataset": "scan"}]})
    client.delete_pipeline(pipeline.id)
    assert (service.seen[-1].method, service.seen[-1].target) == ("DELETE", "/v1/pipelines/p1")
    with pytest.raises(ProblemError):
        client.delete_pipeline(pipeline.id)


def test_a_path_before_the_routes(service: FakeService, connect: Connect) -> None:
    with pytest.raises(ProblemError):
        connect(f"{service.url}/base/").tokens.refresh("a")
    assert [seen.target for seen in service.seen] == ["/base/v1/tokens/refresh"]


def test_nobody_there(connect: Connect, clock: FakeClock) -> None:
    with FakeService() as service:
        url = service.url
    with connect(url, retries=1) as client:
        with pytest.raises(ConnectionFailed):
            client.health()
        with pytest.raises(ConnectionFailed):
            client.inputs.put("quantiles", b"0.5\n")
    assert len(clock.pauses) == 1


def test_a_small_request_is_repeated(client: Client, service: FakeService) -> None:
    assert client.health()
    service.cut_all()
    assert client.health()
    assert client.tokens.refresh("1.2") == "1.0"


def test_a_command(connect: Connect, service: FakeService, tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(STREAM)
    with connect(service) as client:
        answer = client.losses.post("rows", exec=["cat", str(tmp_path / "in")], part_size=100)
        assert b"".join(rows.tobytes() for rows in answer) == ROWS
        assert answer.end is not None
        assert answer.end.completeness == "undeclared"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("size", [0, 5 * RECORD, len(STREAM) - 3, len(STREAM)])
def test_a_command_that_fails(
    connect: Connect, service: FakeService, tmp_path: Path, mode: Mode, size: int
) -> None:
    (tmp_path / "in").write_bytes(STREAM[:size])
    script = f"cat {tmp_path / 'in'}; exit 7"
    got: list[bytes] = []
    with connect(service) as client:
        answer = client.losses.post(
            "rows", exec=["sh", "-c", script], mode=mode, part_size=4 * RECORD
        )
        with pytest.raises(ProducerFailed) as caught:
            got.extend(rows.tobytes() for rows in answer)
    assert caught.value.returncode == 7
    assert b"".join(got) == ROWS[: 8 * _complete(size)]
    if mode == "parts":
        assert all(seen.partial for seen in service.losses)


def _complete(size: int) -> int:
    """Records of complete events among the whole ones of the first bytes."""
    ids = [
        int.from_bytes(STREAM[i : i + 4], "little")
        for i in range(0, size // RECORD * RECORD, RECORD)
    ]
    return sum(event != ids[-1] for event in ids)


def test_a_post_that_is_left(connect: Connect, service: FakeService, tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(STREAM)
    with connect(service) as client:
        with client.losses.post("rows", tmp_path / "in", part_size=100) as answer:
            next(answer)
        assert next(answer, None) is None
        unused = client.losses.post("rows", tmp_path / "in")
        unused.close()
    assert service.losses


def test_wrong_arguments(connect: Connect, service: FakeService) -> None:
    with connect(service) as client:
        for call in (
            lambda: client.losses.post("rows"),
            lambda: client.losses.post("rows", b"", exec=["x"]),
            lambda: client.losses.post("rows", b"", colour=1),  # type: ignore[call-overload]
        ):
            with pytest.raises(TypeError):
                call()
        with pytest.raises(ValueError, match="no mode"):
            client.losses.post("rows", b"", mode="sideways")  # type: ignore[call-overload]
    assert not service.seen


def test_an_error_of_the_source_is_the_callers(connect: Connect, service: FakeService) -> None:
    def pieces() -> Iterator[bytes]:
        yield STREAM[: 20 * RECORD]
        raise LookupError("mine")

    for mode in MODES:
        with connect(service) as client, pytest.raises(LookupError, match="mine"):
            list(client.losses.post("rows", pieces(), mode=mode))


def test_a_restart_of_the_service_in_between(connect: Connect) -> None:
    script: list[Fault | None] = [None, Fault(status=503, headers={"Retry-After": "0"})]
    with FakeService(script) as service, connect(service) as client:
        answer = client.losses.post("rows", STREAM, part_size=100)
        got = next(answer).tobytes()
        service.cut_all()
        got += b"".join(rows.tobytes() for rows in answer)
    assert got == ROWS


@pytest.mark.parametrize("make", [Client, AsyncClient])
def test_what_a_client_cannot_be_made_of(make: Any) -> None:  # noqa: ANN401
    url = "http://127.0.0.1:9"
    for key in ("", "\n", "secret word", "gehe\u00efm", "sec\nret"):
        with pytest.raises(ValueError, match="the key is not one word") as caught:
            make(url, key)
        assert not key.strip() or key[:3] not in str(caught.value)
    wrong: list[dict[str, Any]] = [{"timeout": at} for at in ("5", 0, -1, True, float("nan"))]
    wrong += [{"timeout": float("inf")}, {"retries": 1.5}, {"retries": True}, {"retries": -1}]
    for options in wrong:
        with pytest.raises(ValueError, match=f"{next(iter(options))} is"):
            make(url, **options)
    with pytest.raises(TypeError, match="a key is a text"):
        make(url, b"secret")
    with pytest.raises(ValueError, match=r":99999' is none: .* up to 65535"):
        make("http://127.0.0.1:99999")


def test_white_space_around_a_key_is_none_of_it(connect: Connect, service: FakeService) -> None:
    assert connect(service, " secret\n").health()
    assert service.seen[-1].headers["authorization"] == "Bearer secret"


def test_it_logs_once_that_the_service_is_away_and_once_that_it_is_back(
    client: Client, service: FakeService, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "thalweg")
    service.script[:] = [Fault(status=503), Fault(cut=0), None]
    assert len(list(client.pipeline(SPEC).batches())) == 12
    said = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert [level for level, _ in said] == ["WARNING", "INFO"]
    assert said[0][1].endswith("(trying again, up to 3 times in a row)")
    assert said[1][1] == "the service answers again"


@pytest.mark.parametrize("make", [Client, AsyncClient])
def test_a_service_without_tls_is_not_tried_again(make: Any) -> None:  # noqa: ANN401
    listener = socket.create_server(("127.0.0.1", 0))
    place = f"127.0.0.1:{listener.getsockname()[1]}"

    def speak() -> None:
        with listener, listener.accept()[0] as connection:
            connection.recv(1 << 16)
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async def ask() -> None:
        async with AsyncClient(f"https://{place}") as client:
            await client.pipelines()

    thread = threading.Thread(target=speak)
    thread.start()
    with pytest.raises(ConnectionFailed, match=f"not https: use http://{place}$") as caught:
        asyncio.run(ask()) if make is AsyncClient else Client(f"https://{place}").pipelines()
    thread.join()
    assert not is_retryable(caught.value)
    assert exit_code(caught.value) == 3
