from __future__ import annotations

import asyncio
import pickle

import httpx
import pytest

from app.client import errors as _errors
from app.client.async_client import AsyncClient
from app.client.client import Client
from app.client.errors import (
    ConnectionFailed,
    ProblemError,
    ProducerFailed,
    ThalwegError,
    problem_error,
)
from tests.dask_cluster import free_port


def test_the_tree() -> None:
    names = [n for n in vars(_errors) if isinstance(getattr(_errors, n), type)]
    errors = [getattr(_errors, n) for n in names if issubclass(getattr(_errors, n), Exception)]
    assert all(issubclass(error, ThalwegError) for error in errors)
    assert _errors.__doc__ is not None
    assert all(error.__name__ in _errors.__doc__ for error in errors)


def test_a_problem_says_where_and_what_to_do() -> None:
    error = ProblemError(400, {"code": "a", "detail": "b", "offset": 0, "event": 2, "hint": "c"})
    assert str(error) == "[a] b (at byte 0, event 2). c"
    problem = {"code": "pipeline", "detail": "map: args is refused", "stage": 2, "field": "args"}
    assert str(ProblemError(422, problem)) == "[pipeline] map: args is refused (at stage 2)"
    described = {**problem, "detail": "filter (stage 2, {}) leaves no item"}
    assert str(ProblemError(422, described)) == "[pipeline] filter (stage 2, {}) leaves no item"
    problem |= {"detail": "there is no stage", "field": "inputs[0][1].op", "stage": 0}
    assert str(ProblemError(422, problem)).endswith("no stage (at stage 0, inputs[0][1].op)")
    assert str(ProblemError(500, {})) == "[http-500] HTTP status 500"


def test_a_problem_of_a_proxy() -> None:
    headers = {"content-type": "text/html", "retry-after": "7"}
    error = problem_error(502, b"<html>Bad</html>", headers)
    assert (error.status, error.code, error.detail) == (502, "http-502", "HTTP status 502")
    assert error.retry_after == 7
    error = problem_error(500, b"boom", {"retry-after": "Fri, 31 Dec 1999 23:59:59 GMT"})
    assert (error.detail, error.retry_after) == ("boom", None)
    assert problem_error(500, b"{", {"content-type": "application/json"}).code == "http-500"
    assert problem_error(500, b"[]", {"content-type": "application/json"}).code == "http-500"


def test_errors_cross_processes() -> None:
    problem = ProblemError(400, {"code": "a", "offset": 3}, 2.0)
    again = pickle.loads(pickle.dumps(problem))  # noqa: S301 - our own
    assert (again.code, again.offset, again.retry_after, str(again)) == ("a", 3, 2.0, str(problem))
    failed = pickle.loads(pickle.dumps(ProducerFailed("model", -9)))  # noqa: S301 - our own
    assert (failed.returncode, str(failed)) == (
        -9,
        "model ended with signal 9: its output may be incomplete",
    )


def test_both_clients_ask_whether_the_service_runs() -> None:
    url = f"http://127.0.0.1:{free_port()}"

    async def ask() -> None:
        async with AsyncClient(url, retries=0) as client:
            await client.datasets.list()

    told = f"connection to {url[7:]}: refused: is the service running"
    with pytest.raises(ConnectionFailed, match=told):
        asyncio.run(ask())
    with Client(url, retries=0) as client, pytest.raises(ConnectionFailed, match=told):
        client.datasets.list()
    lost = ConnectionFailed.to("there", None, httpx.ReadError(""))
    assert str(lost) == "connection to there: ReadError"
