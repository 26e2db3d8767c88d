"""Routes of auxiliary files."""

from __future__ import annotations

import mmap
from datetime import UTC, datetime
from typing import Annotated

import orjson
from fastapi import APIRouter, Query
from starlette.requests import Request

from app.context import Services
from app.errors import ServiceError
from app.http.decompression import decoder
from app.http.dependencies import OPTIONS_ONCE, ServicesDep
from app.http.negotiation import joined
from app.http.schemas import InputAnswer, InputName, InputQuery, problem_responses
from app.server.responses import Exchange, ExchangeResponse

from .pump import discard, read

router = APIRouter(prefix="/v1/inputs", tags=["inputs"], dependencies=[OPTIONS_ONCE])

_BODY = {
    "requestBody": {
        "required": True,
        "description": "Csv or the packed form; told apart by content",
        "content": {
            "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
            "text/csv": {"schema": {"type": "string"}},
        },
    }
}


async def _read_all(
    exchange: Exchange, services: Services, coding: str | None, buffer: mmap.mmap
) -> bytes:
    decode = decoder(coding, services.settings.max_input)
    view = memoryview(buffer)
    whole = bytearray()
    while count := await read(exchange.body, view):
        for piece in decode.decode(view[:count]):
            whole += piece
    decode.end()
    return bytes(whole)


@router.put(
    "/{name}",
    operation_id="put_input",
    status_code=201,
    response_class=ExchangeResponse,
    openapi_extra=_BODY,
    responses={
        200: {"description": "Known already", "model": InputAnswer},
        201: {"description": "Kept", "model": InputAnswer},
        **problem_responses(400, 401, 408, 413, 415, 422, 503),
    },
)
async def put_input(
    name: InputName, query: Annotated[InputQuery, Query()], request: Request, services: ServicesDep
) -> ExchangeResponse:
    """Keep an auxiliary file; its digest is what queries name it by."""
    coding = joined(request.headers, "content-encoding")

    async def handle(exchange: Exchange) -> None:
        buffers = services.buffers.take(1)
        try:
            try:
                data = await _read_all(exchange, services, coding, buffers[0])
            except ServiceError:
                await discard(exchange.body, buffers[0])
                raise
        finally:
            services.buffers.give_back(buffers)
        stored = await services.workers.start(services.inputs.put, name, data, query.no_of_periods)
        answer = InputAnswer(
            name=name,
            digest=stored.digest,
            bytes=len(data),
            expires=datetime.fromtimestamp(int(stored.kept.expires), UTC).isoformat(),
        )
        text = orjson.dumps(answer.model_dump())
        headers = {"Content-Type": "application/json", "Cache-Control": "no-store"}
        await exchange.start(201 if stored.kept.created else 200, headers, content_length=len(text))
        await exchange.end(text)

    return ExchangeResponse(handle)
