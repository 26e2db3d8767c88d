"""Routes that inspect and refresh tokens."""

from __future__ import annotations

from typing import Any

from fastapi import Request, Response
from starlette.exceptions import HTTPException
from starlette.types import Message, Receive

from app.errors import TooLargeError
from app.server.body import BodyStalled
from app.server.lanes.table import FRONT, in_lane

from .dependencies import Handler, Routes, StrictRoute
from .openapi import problem_responses
from .schemas import TokenAnswer, TokenBody, TokenDescription
from .token_inspection import TokenInspection

_LIMIT = 32 << 10
"""Largest body in bytes: enough for a token with every character escaped."""


def _bounded(receive: Receive) -> Receive:
    left = _LIMIT

    async def bounded() -> Message:
        nonlocal left
        # HTTPException is the only error that FastAPI passes on while it reads a body.
        try:
            message = await receive()
        except BodyStalled as e:
            raise HTTPException(408, f"the body stalled: {e}") from e
        left -= len(message.get("body", b""))
        if left < 0:
            detail = f"the body is larger than {_LIMIT} bytes"
            larger = TooLargeError(detail, limit="body", allowed=_LIMIT, setting=None)
            raise HTTPException(413) from larger
        return message

    return bounded


class _SmallBodyRoute(StrictRoute):
    """A route whose body is bounded: FastAPI reads it whole into memory."""

    def get_route_handler(self) -> Handler:
        """Wrap the handler of the base class."""
        handle = super().get_route_handler()

        async def handle_small(request: Request) -> Response:
            # Like the other routes with JSON bodies, whatever their declared type.
            headers = [pair for pair in request.scope["headers"] if pair[0] != b"content-type"]
            scope = {**request.scope, "headers": [*headers, (b"content-type", b"application/json")]}
            return await handle(Request(scope, _bounded(request.receive)))

        return handle_small


router = Routes(
    TokenInspection,
    "/v1/tokens",
    _SmallBodyRoute,
    tags=["tokens"],
    responses=problem_responses(400, 401, 403, 408, 413, 422, 503),
)


@router.post(
    "/inspect",
    operation_id="inspect_token",
    response_model=TokenDescription,
    response_model_exclude_unset=True,
)
@in_lane(FRONT)
async def inspect_token(tokens: TokenInspection, body: TokenBody) -> Any:  # noqa: ANN401 - validated
    """Verify a token and describe the position in it."""
    return tokens.describe(body.token)


@router.post("/refresh", operation_id="refresh_token")
@in_lane(FRONT)
async def refresh_token(tokens: TokenInspection, body: TokenBody) -> TokenAnswer:
    """Sign a token again with the current signing key."""
    return TokenAnswer(token=tokens.refresh(body.token))
