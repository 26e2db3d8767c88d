"""Routes that accept and delete auxiliary files."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import Response
from starlette.requests import Request

from app.errors import ServiceError
from app.http.bodies import discard, read_whole
from app.http.decompression import MAX_INPUT, decoder
from app.http.dependencies import IdentityDep, StrictRoute, from_state
from app.http.identity import Identity
from app.http.json_bodies import send_json
from app.http.negotiation import joined
from app.http.openapi import NO_CONTENT, problem_responses
from app.http.trail import name_resource
from app.server.lanes.table import FRONT, LONG, in_lane
from app.server.responses import Exchange, ExchangeResponse
from core.errors import InputError

from .inputs import Stored
from .parquet import MAGIC, MEDIA_TYPE
from .schemas import InputAnswer, InputName, InputQuery
from .service import LossService

router = APIRouter(prefix="/v1/inputs", tags=["inputs"], route_class=StrictRoute)

_BODY = {
    "requestBody": {
        "required": True,
        "description": "The file, csv, packed or parquet; the form is detected by content",
        "content": {
            "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
            "text/csv": {"schema": {"type": "string"}},
            MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}},
        },
    }
}


LossesDep = Annotated[LossService, from_state("losses")]


@router.put(
    "/{name}",
    operation_id="put_input",
    status_code=201,
    response_class=ExchangeResponse,
    openapi_extra=_BODY,
    responses={
        200: {"description": "The file was already stored", "model": InputAnswer},
        201: {"description": "The file is stored", "model": InputAnswer},
        **problem_responses(400, 401, 403, 404, 408, 413, 415, 422, 429, 503),
    },
)
@in_lane(LONG)
async def put_input(
    name: InputName,
    query: Annotated[InputQuery, Query()],
    request: Request,
    losses: LossesDep,
    who: IdentityDep,
) -> ExchangeResponse:
    """Store an auxiliary file; queries refer to it by its digest."""

    async def handle(exchange: Exchange) -> None:
        answer, created = await receive_input(exchange, request, losses, who, name, query)
        await send_json(exchange, answer.model_dump(), 201 if created else 200)

    return ExchangeResponse(handle)


async def receive_input(
    exchange: Exchange,
    request: Request,
    losses: LossService,
    who: Identity,
    name: str,
    query: InputQuery,
) -> tuple[InputAnswer, bool]:
    """Store the auxiliary file in a request's body; return its description, and whether it is new.

    Raises:
        CoreError, ServiceError: it is invalid, did not arrive whole, or cannot be stored.
    """
    coding = joined(request.headers, "content-encoding")
    declared = (joined(request.headers, "content-type") or "").partition(";")[0].strip().lower()
    with losses.ledger.hold(who.payer, 0, "inputs") as hold:
        try:
            decode = decoder(coding, losses.max_input, hold.grow, MAX_INPUT)
            data = await read_whole(exchange.body, hold, decode, losses.rate, losses.threads)
        except ServiceError:
            await discard(exchange.body)
            raise
        if declared == MEDIA_TYPE and not data.startswith(MAGIC):
            raise InputError(
                "its Content-Type is parquet, but it does not begin with PAR1",
                hint="Send another Content-Type with csv or packed records",
            )

        def store() -> Stored:
            # A copy of a hundred megabytes would keep the event loop for tens of milliseconds.
            return losses.inputs.put(who, name, bytes(data), query.no_of_periods)

        stored = await losses.threads.start(store)
        name_resource(request.scope, stored.digest)
    answer = InputAnswer(
        name=name,
        digest=stored.digest,
        bytes=len(data),
        expires=datetime.fromtimestamp(int(stored.receipt.expires), UTC).isoformat(),
    )
    return answer, stored.receipt.created


@router.delete(
    "/{name}/{digest}",
    operation_id="delete_input",
    status_code=204,
    response_class=Response,
    responses=NO_CONTENT | problem_responses(400, 401, 403, 404, 422, 503),
)
@in_lane(FRONT)
async def delete_input(
    name: InputName, digest: str, losses: LossesDep, who: IdentityDep
) -> Response:
    """Delete an auxiliary file; it stays stored for others who have put it too."""
    await losses.threads.start(losses.inputs.delete, who, name, digest)
    return Response(status_code=204)
