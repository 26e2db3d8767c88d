"""JSON request bodies and JSON answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
from starlette.responses import Response

from app.errors import BadRequestError, TooLargeError
from app.server.responses import Exchange

from .bodies import Buffers, borrowed, read


async def read_json(exchange: Exchange, buffers: Buffers, limit: int) -> Mapping[str, Any]:
    """Read the JSON object in a request's body; an empty body is an empty object.

    Raises:
        TooLargeError: the body has more than ``limit`` bytes.
        BadRequestError: the body is not a JSON object.
        StalledError, FramingError: the body did not arrive whole.
        BusyError: no buffer is free.
    """
    text = bytearray()
    with borrowed(buffers) as buffer:
        view = memoryview(buffer)
        while count := await read(exchange.body, view):
            text += view[:count]
            if len(text) > limit:
                raise TooLargeError(f"the body is longer than {limit} bytes")
    if not text.strip():
        return {}
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as e:
        raise BadRequestError(f"the body is not JSON: {e}") from e
    if not isinstance(value, Mapping):
        raise BadRequestError("the body is JSON, but not an object")
    return value


def json_response(
    value: object, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Return a JSON response, which caches do not store unless ``headers`` allow it."""
    all_headers = {"Cache-Control": "no-store", **(headers or {})}
    return Response(orjson.dumps(value), status, all_headers, "application/json")


async def send_json(
    exchange: Exchange,
    value: object,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
) -> None:
    """Send JSON through an exchange; see :func:`json_response`."""
    data = orjson.dumps(value)
    all_headers = {
        "Content-Type": "application/json",
        "Cache-Control": "no-store",
        **(headers or {}),
    }
    await exchange.start(status, all_headers, content_length=len(data))
    await exchange.end(data)
