"""JSON bodies of routes that answer with a stream of their own."""

from __future__ import annotations

import mmap
from collections.abc import Mapping
from typing import Any

import orjson

from app.context import Services
from app.errors import BadRequestError, TooLargeError
from app.losses.pump import read
from app.server.responses import Exchange


async def read_json(exchange: Exchange, services: Services, most: int) -> Mapping[str, Any]:
    """The body of a request, which must be an object.

    Raises:
        TooLargeError: it has more bytes than ``most``.
        BadRequestError: it is no JSON object.
        StalledError, FramingError: it did not come as it should.
    """
    buffers = services.buffers.take(1)
    try:
        text = await _read(exchange, buffers[0], most)
    finally:
        services.buffers.give_back(buffers)
    if not text.strip():
        return {}
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as e:
        raise BadRequestError(f"the body is not JSON: {e}") from e
    if not isinstance(value, Mapping):
        raise BadRequestError("the body is JSON, but no object")
    return value


async def _read(exchange: Exchange, buffer: mmap.mmap, most: int) -> bytes:
    view = memoryview(buffer)
    text = bytearray()
    while count := await read(exchange.body, view):
        text += view[:count]
        if len(text) > most:
            raise TooLargeError(f"the body is longer than {most} bytes")
    return bytes(text)
