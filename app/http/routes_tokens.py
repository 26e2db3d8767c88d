"""Routes that inspect and refresh tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fastapi import Request, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.types import Message, Receive

from app.errors import TokenMalformedError, TooLargeError
from app.server.body import BodyStalled, FramingError
from app.server.lanes.table import FRONT
from app.tokens import KIND_SESSION, KeyRing, Token

from .bodies import service_error
from .dependencies import Handler, Routes, StrictRoute
from .openapi import problem_responses

_LIMIT = 32 << 10
"""Largest body in bytes: enough for a token with every character escaped."""

Describe = Callable[[Token], Mapping[str, object]]
"""Describes the position in a verified token as JSON members, ``kind`` among them.

Raises:
    TokenMalformedError: the token holds no position of this kind.
"""


class TokenInspection:
    """Inspects and refreshes the tokens of every product.

    Args:
        keys: the keys that verify and sign.
        kinds: the describing function of each kind of token.
    """

    def __init__(self, keys: KeyRing, kinds: Mapping[int, Describe]) -> None:
        self._keys = keys
        self._kinds = kinds

    def describe(self, text: str) -> dict[str, object]:
        """Verify a token and describe it.

        Raises:
            TokenMalformedError, TokenForgedError: see KeyRing.verify.
        """
        verified = self._keys.verify(text, refresh=True)
        token, key = verified.token, verified.key
        describe = self._kinds.get(token.kind)
        if describe is None:
            raise TokenMalformedError(f"the token has the unknown kind {token.kind}")
        return {
            "key": key.ident,
            "use": key.use,
            "issued": verified.issued.isoformat(),
            "identity": token.identity.hex(),
            "fingerprint": token.fingerprint.hex(),
            **describe(token),
        }

    def refresh(self, text: str) -> str:
        """Sign a token again with the current signing key.

        Raises:
            TokenMalformedError, TokenForgedError: see KeyRing.verify.
        """
        token = self._keys.verify(text, refresh=True).token
        if token.kind == KIND_SESSION:
            raise TokenMalformedError("the token is a sign-in, not a position: sign in again")
        return self._keys.sign(token)


class TokenBody(BaseModel):
    """A token to inspect or refresh."""

    model_config = ConfigDict(extra="forbid")

    token: str = Field(max_length=4096)


class TokenAnswer(BaseModel):
    """A refreshed token."""

    token: str


class TokenDescription(BaseModel):
    """The contents of a token."""

    kind: str
    key: int = Field(description="Id of the key that signed it")
    use: str = Field(description="Permitted use of that key: sign, accept or refresh-only")
    issued: str
    identity: str = Field(description="Digest of the request that the token belongs to")
    fingerprint: str = Field(
        description="Tiles: that of the dataset; batches: that of the pipeline; loss streams: of"
        " the unfinished event's bytes"
    )
    stream: str | None = Field(None, description="Loss streams: kind and parameters of the stream")
    offset: int | None = Field(None, description="Loss streams: byte offset to resume at")
    last_event: int | None = None
    ascending: bool | None = None
    events: int | None = Field(
        None, description="Loss streams: number of complete events before the offset"
    )
    unfinished_bytes: int | None = Field(
        None, description="Loss streams: number of bytes already seen after the offset"
    )
    tile: int | None = Field(None, description="Tiles: index of the next tile")
    frames: int | None = Field(
        None, description="Tiles of a growing dataset: number of frames that they are of"
    )
    batch: int | None = Field(None, description="Batches: index of the next batch")
    state: list[int] | None = Field(None, description="Batches: state of the pipeline")


def _bounded(receive: Receive) -> Receive:
    left = _LIMIT

    async def bounded() -> Message:
        nonlocal left
        # HTTPException is the only error that FastAPI passes on while it reads a body.
        try:
            message = await receive()
        except (BodyStalled, FramingError) as e:
            cause = service_error(e)
            raise HTTPException(cause.status) from cause
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
    FRONT,
    operation_id="inspect_token",
    response_model=TokenDescription,
    response_model_exclude_unset=True,
)
async def inspect_token(tokens: TokenInspection, body: TokenBody) -> Any:  # noqa: ANN401 - validated
    """Verify a token and describe the position in it."""
    return tokens.describe(body.token)


@router.post("/refresh", FRONT, operation_id="refresh_token")
async def refresh_token(tokens: TokenInspection, body: TokenBody) -> TokenAnswer:
    """Sign a token again with the current signing key."""
    return TokenAnswer(token=tokens.refresh(body.token))
