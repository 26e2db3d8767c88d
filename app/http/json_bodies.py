"""JSON request bodies and JSON answers."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Any, cast

import orjson
from starlette.responses import Response
from starlette.types import Scope

from app.errors import BadRequestError, InvalidOptionError, ServiceError
from app.server.responses import Exchange

from .addresses import Addresses
from .bodies import Ledger, MinimumRate, Threads, read_whole
from .decompression import decoder
from .identity import Identity
from .long_json import MAX_REST, parse_long
from .trail import name_resource

MAX_DEPTH = 64
"""Deepest nesting of JSON that is accepted."""
PURPOSE = "json"
_BODY = "the body"
_QUOTES = 'Names and texts are in double quotes, in a shell all in single ones: \'{"op": "sum"}\''
_FINITE = "JSON has no NaN and no Infinity: give a number, or leave the member out"
_EMPTY = "Send a JSON object, {} if there is nothing to choose"
_COMPRESSED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd")
"""How gzip and zstd begin."""
_CHECKED = 1 << 16
"""Bytes of JSON up to which members that are given twice are looked for."""
_SMALL = 1 << 12
"""Bytes of JSON whose objects are not worth an entry in the ledger."""
_VALUE_BYTES = 72
"""Memory of a JSON value: an object header, and a place in a list or an object."""
_BEFORE_VALUES = b",[{:"
"""One of these comes before each value but the first."""


class JsonBodies:
    """Reads the JSON bodies of requests.

    Args:
        ledger: of the memory that requests hold.
        threads: parse what is long.
        rate: how fast bodies have to arrive.
    """

    def __init__(self, ledger: Ledger, threads: Threads, rate: MinimumRate) -> None:
        self._rate = rate
        self._ledger = ledger
        self._threads = threads

    @contextlib.asynccontextmanager
    async def read(
        self, exchange: Exchange, caller: Identity, limit: int, *, optional: bool = False
    ) -> AsyncIterator[Mapping[str, Any]]:
        """Read the JSON object in a request's body.

        Its memory is held until the end of the block. Long lists of whole numbers are
        ``Integers``. No body at all is an empty object where it is ``optional``.

        Raises:
            TooLargeError: the body has more than ``limit`` bytes, or needs too much memory.
            BadRequestError: the body is not a JSON object.
            StalledError, FramingError: the body did not arrive whole.
            BusyError, ShareExceededError: there is no memory for it.
        """
        with self._ledger.hold(caller.payer, 0, PURPOSE) as hold:
            text = await read_whole(
                exchange.body, hold, decoder(None, limit), self._rate, self._threads
            )
            if text.startswith(_COMPRESSED):
                raise BadRequestError(
                    f"{_BODY} is not JSON: it is compressed",
                    hint="Send JSON as it is, without Content-Encoding",
                )
            if text.startswith(b"--"):
                raise BadRequestError(
                    f"{_BODY} is not JSON: it is a form",
                    hint="Send the JSON alone, as curl --data-binary @FILE does, not -F",
                )
            of_text = hold.nbytes
            if len(text) > MAX_REST:
                value = await self._threads.start(_parse, text, hold.grow)
            else:
                hold.grow(_expanded(text))
                if not (optional or text.strip()):
                    raise BadRequestError(f"{_BODY} is empty", hint=_EMPTY)
                value = parse_object(text, _BODY) if text.strip() else {}
            del text
            hold.shrink(of_text)
            yield value


def _expanded(text: bytearray) -> int:
    """Return at most how much memory the objects take that JSON becomes."""
    if len(text) <= _SMALL:
        return 0
    values = len(text) - len(text.translate(None, _BEFORE_VALUES))
    return values * _VALUE_BYTES + 4 * len(text)


def _parse(text: bytearray, grow: Callable[[int], None]) -> Mapping[str, Any]:
    value = parse_long(text, _BODY, grow, lambda rest: parse_object(rest, _BODY))
    return cast("Mapping[str, Any]", value)


def parse_object(text: bytes | bytearray | str, subject: str) -> Mapping[str, Any]:
    """Parse a JSON object; ``what`` names the text in errors.

    Raises:
        BadRequestError: the text is not a JSON object, or nested too deeply.
        InvalidOptionError: an object has a member twice.
    """
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as e:
        raise _not_json(subject, text, e) from e
    if not isinstance(value, Mapping):
        raise BadRequestError(f"{subject} is JSON, but not an object")
    _check_depth(value, subject)
    if len(text) <= _CHECKED:
        json.loads(text, object_pairs_hook=_check_members, parse_int=str, parse_float=str)
    return value


def _not_json(
    subject: str, text: bytes | bytearray | str, e: orjson.JSONDecodeError
) -> ServiceError:
    found = e.doc[e.pos : e.pos + 20]
    place = f"from character {e.pos + 1} on, {found!r}"
    if not found:
        place = "it ends too early" if e.doc or not text else "its bytes are not UTF-8"
    if "limit exceeded" in e.msg:
        return _too_deep(subject)
    if "infinity" in e.msg:
        return BadRequestError(f"{subject} has a number that is too large: {place}")
    hint = _QUOTES if found[:1] == "'" or found[:1].isalpha() else None
    if found.lower().startswith(("nan", "infinity")):
        hint = _FINITE
    return BadRequestError(f"{subject} is not JSON: {place}", hint=hint)


def _check_members(pairs: Sequence[tuple[str, object]]) -> None:
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        repeat = next(name for name in names if names.count(name) > 1)
        raise InvalidOptionError(
            f"{repeat[:80]!r} is given twice", hint="Give it once", option=repeat[:80]
        )


def _check_depth(value: Any, subject: str) -> None:  # noqa: ANN401 - JSON
    """Check the nesting level by level: code that takes the value apart may recurse."""
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [inner for outer in level for inner in _members(outer)]
        if not level:
            return
    raise _too_deep(subject)


def _too_deep(subject: str) -> ServiceError:
    fault = f"{subject} is nested more than {MAX_DEPTH} levels deep"
    return BadRequestError(fault, hint="Nothing needs that many")


def _members(value: Any) -> Iterable[Any]:  # noqa: ANN401 - JSON
    members = value.values() if isinstance(value, dict) else value
    return [member for member in members if isinstance(member, (dict, list))]


def json_response(value: object | bytes, status: int = 200) -> Response:
    """Return a JSON response, which caches do not store.

    What may be long is encoded in the thread that makes it, and passed as bytes.
    """
    data = value if isinstance(value, bytes) else orjson.dumps(value)
    return Response(data, status, {"Cache-Control": "no-store"}, "application/json")


async def send_json(
    exchange: Exchange,
    value: object | bytes,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
) -> None:
    """Send JSON through an exchange, which caches do not store unless ``headers`` allow it."""
    data = value if isinstance(value, bytes) else orjson.dumps(value)
    defaults = {"Content-Type": "application/json", "Cache-Control": "no-store"}
    all_headers = defaults | dict(headers or {})
    await exchange.start(status, all_headers, content_length=len(data))
    await exchange.end(data)


async def send_resource(  # noqa: PLR0913, PLR0917 - what the answer says
    exchange: Exchange,
    scope: Scope,
    addresses: Addresses,
    path: str,
    resource: object,
    created: bool,
) -> None:
    """Send a resource that was created, or was there, with its address; the path ends in its id."""
    name_resource(scope, path.rpartition("/")[2])
    headers = {"Location": addresses.of(scope, path)}
    await send_json(exchange, resource, 201 if created else 200, headers)
