"""Exchanges that begin once the framework around them has ended."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from starlette.types import Message, Receive, Scope, Send

from app.server.responses import Exchange, ExchangeResponse, run_then_exchange
from tests.serverless import serverless


class _Outer:
    """Runs an application as the service does, and has a layer that notes its end."""

    def __init__(self, app: Any, seen: list[str]) -> None:  # noqa: ANN401 - ASGI
        self._app = app
        self._seen = seen

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def layer(scope: Scope, receive: Receive, send: Send) -> None:
            await self._app(scope, receive, send)
            self._seen.append("layer ended")

        await run_then_exchange(layer, scope, receive, send)


def ask(error: Exception | None) -> tuple[list[str], list[Message]]:
    """Ask an application; return what happened, and what it sent."""
    seen: list[str] = []
    sent: list[Message] = []
    app = FastAPI()
    app.add_middleware(_Outer, seen=seen)

    @app.exception_handler(KeyError)
    async def answer(_request: Request, _error: Exception) -> JSONResponse:
        return JSONResponse({}, 418)

    @app.get("/", response_class=ExchangeResponse)
    async def route() -> ExchangeResponse:
        async def handle(exchange: Exchange) -> None:
            seen.append("exchange")
            if error is not None:
                raise error
            await exchange.start(200, content_length=0)

        return ExchangeResponse(handle)

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    scope: Scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "path": "/",
        "headers": [],
        "query_string": b"",
    }

    async def run() -> None:
        await serverless(app)(scope, receive, send)

    asyncio.run(run())
    return seen, sent


def test_an_exchange_begins_once_the_framework_has_ended() -> None:
    seen, sent = ask(None)
    assert seen == ["layer ended", "exchange"]
    assert [message.get("status") for message in sent] == [200, None]


def test_its_errors_are_handled_as_those_of_routes() -> None:
    seen, sent = ask(KeyError())
    assert seen == ["layer ended", "exchange"]
    assert sent[0]["status"] == 418
    with pytest.raises(ZeroDivisionError):
        ask(ZeroDivisionError())
