"""JSON request bodies and JSON answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import orjson
from starlette.responses import Response

from app.errors import BadRequestError, TooLargeError
from app.server.responses import Exchange

from .bodies import Buffers, borrowed, read

MAX_DEPTH = 64
"""Deepest nesting of JSON that is accepted."""


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
    return parse_object(text, "the body")


def parse_object(text: bytes | bytearray | str, what: str) -> Mapping[str, Any]:
    """Parse a JSON object; ``what`` names the text in errors.

    Raises:
        BadRequestError: the text is not a JSON object, or nested too deeply.
    """
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as e:
        raise BadRequestError(f"{what} is not JSON: {e}") from e
    if not isinstance(value, Mapping):
        raise BadRequestError(f"{what} is JSON, but not an object")
    _check_depth(value, what)
    return value


def _check_depth(value: Any, what: str) -> None:  # noqa: ANN401 - JSON
    """Check the nesting level by level: code that takes the value apart may recurse."""
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [inner for outer in level for inner in _members(outer)]
        if not level:
            return
    raise BadRequestError(
        f"{what} is nested more than {MAX_DEPTH} levels deep", hint="Nothing needs that many"
    )


def _members(value: Any) -> Iterable[Any]:  # noqa: ANN401 - JSON
    members = value.values() if isinstance(value, dict) else value
    return [member for member in members if isinstance(member, (dict, list))]


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
