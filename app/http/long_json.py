"""Parse JSON of many megabytes without stopping the other threads of the process.

A JSON parser holds the interpreter's lock from the first byte to the last: 40 MB of numbers
stop the event loop, and with it every other request, for more than a second. But a body is
long for one of two reasons only. It lists millions of whole numbers (frames of a view), or
it has a long string (the mask of one). So these are taken out first, and what is left is
short:

    {"select": {"frames": [4, 8, 15, ... 42]}, "dtype": "<f4"}
                          |---- a run ----|
    {"select": {"frames": "8c1f...:0"       }, "dtype": "<f4"}      the rest, with a mark

A run is parsed in pieces of a millisecond, after each of which the thread sleeps for a moment.
A small read passes the lock from thread to thread some twenty times, and each time it would wait
until this thread is told to let go: five milliseconds. The run becomes an array of 8 bytes a
number, where a list would take 40. Then the rest is parsed, and runs and strings are put back in
place of their marks. A mark begins with random digits, so no client can write one.

The rest may have as many bytes as a body that is parsed in one go. No request needs more,
and 64 MiB of nested brackets would become 1.5 GiB of objects.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import orjson

from app.errors import BadRequestError, TooLargeError
from core.arrays import Integers
from core.budget import current

MAX_REST = 1 << 20
"""Bytes of JSON that are parsed in one go."""
_LONG = 1 << 16
"""Bytes from which a run is taken out."""
_LONG_STRING = 1 << 12
"""Bytes from which a string is: 64 of them that are shorter, as many as detectors, may stay."""
_PIECE = 1 << 16
"""Bytes of a run that are parsed in one go."""
_WINDOW = 1 << 16
"""Bytes that are searched in one go."""
_MOMENT = 2e-5
"""Seconds of sleep. Only to release the lock would not do: it would be taken again before another
thread has woken."""
_BYTES_PER_NUMBER = 8
_COPIES = 3
"""How often the numbers are in memory: as parsed, packed by the view, and in its plan."""

_STARTS = re.compile(rb'["\[]')
_NOT_OF_RUN = re.compile(rb"[^0-9 \t\r\n,.eE+-]")
_NOT_PLAIN = re.compile(rb"[^\x20-\x7e]|\\")
_QUOTE = 0x22

Grow = Callable[[int], None]
"""Holds more memory; raises if there is none."""
Load = Callable[[bytearray], Any]
"""Parses short JSON, and checks its depth."""


def parse_long(text: bytearray, subject: str, grow: Grow, load: Load) -> Any:  # noqa: ANN401 - JSON
    """Parse JSON of any length in bounded steps.

    Args:
        text: the JSON.
        subject: names the text in errors.
        grow: called with a number of bytes before they are allocated.
        load: parses what is left.

    Returns:
        The value; long lists of whole numbers are ``Integers``. A long list that has other
        numbers too is shortened to the part with the first of them: nothing takes such a
        list, and whoever refuses it names that number.

    Raises:
        BadRequestError: the text is not JSON.
        TooLargeError: it is long for another reason than a list of numbers or a string.
    """
    return _Parser(text, subject, grow).parse(load)


class _Parser:
    """One text; see the module."""

    def __init__(self, text: bytearray, subject: str, grow: Grow) -> None:
        self._text = text
        self._subject = subject
        self._grow = grow
        self._mark = secrets.token_hex(16)
        self._rest = bytearray()
        self._long: list[Any] = []

    def parse(self, load: Load) -> Any:  # noqa: ANN401 - JSON
        self._take_out()
        return self._put_back(load(self._rest))

    def _malformed(self, reason: str) -> BadRequestError:
        return BadRequestError(f"{self._subject} is not JSON: {reason}")

    # -- out --------------------------------------------------------------------------

    def _take_out(self) -> None:
        """Split the text into its long parts and the rest."""
        text, at = self._text, 0
        while at < len(text):
            found = _STARTS.search(text, at, at + MAX_REST + 1)
            if found is None:
                self._keep(at, len(text))
                return
            start = found.start()
            self._keep(at, start)
            is_string = text[start] == _QUOTE
            at = self._string(start) if is_string else self._array(start)

    def _keep(self, start: int, stop: int) -> None:
        if len(self._rest) + stop - start > MAX_REST:
            raise TooLargeError(
                f"{self._subject} has more than {MAX_REST} bytes besides long lists of whole"
                " numbers and long strings",
                hint="Send lists of other numbers as base64, where it is taken",
                limit="json",
                allowed=MAX_REST,
                setting=None,
            )
        self._rest += self._text[start:stop]

    def _replace(self, value: Any) -> None:  # noqa: ANN401 - JSON
        self._rest += f'"{self._mark}:{len(self._long)}"'.encode()
        self._long.append(value)

    def _string(self, start: int) -> int:
        """Take the string that begins here; return where it has ended."""
        text = self._text
        end = start
        while True:
            end = text.find(b'"', end + 1)
            if end < 0:
                raise self._malformed(f"a string from byte {start} on has no end")
            back = end - 1
            while text[back] == 0x5C:  # noqa: PLR2004 - a backslash
                back -= 1
            if (end - back) % 2:
                break
            if end - start > MAX_REST:
                self._keep(start, end)
        if end - start > _LONG_STRING and self._find(_NOT_PLAIN, start + 1, end) >= end:
            self._grow(_COPIES * (end - start))
            self._replace(text[start + 1 : end].decode())
        else:
            self._keep(start, end + 1)
        return end + 1

    def _find(self, pattern: re.Pattern[bytes], start: int, stop: int) -> int:
        """Return where a pattern of one byte is found first, or ``stop``."""
        for at in range(start, stop, _WINDOW):
            if found := pattern.search(self._text, at, min(at + _WINDOW, stop)):
                return found.start()
            _give_way()
        return stop

    def _array(self, start: int) -> int:
        """Take an array of numbers that begins here, else its bracket; return what is next."""
        text = self._text
        if _NOT_OF_RUN.search(text, start + 1, start + _LONG) is None:
            end = self._find(_NOT_OF_RUN, start + 1, len(text))
            closed = end < len(text) and text[end] == 0x5D  # noqa: PLR2004 - a bracket
            numbers = self._numbers(start + 1, end) if closed and end - start > _LONG else None
            if numbers is not None:
                self._replace(numbers)
                return end + 1
        self._keep(start, start + 1)
        return start + 1

    def _numbers(self, start: int, stop: int) -> Any:  # noqa: ANN401 - JSON
        """Parse numbers between commas, piece by piece; None if some are too far apart."""
        count = 1 + sum(
            self._text.count(b",", at, min(at + _WINDOW, stop))
            for at in range(start, stop, _WINDOW)
        )
        self._grow(_COPIES * _BYTES_PER_NUMBER * count)
        values = np.empty(count, np.int64)
        place = 0
        while start <= stop:
            cut = stop if stop - start <= _PIECE else self._text.rfind(b",", start, start + _PIECE)
            if cut < 0:
                return None
            _give_way()
            piece = self._piece(start, cut)
            numbers = np.array(piece)
            if numbers.dtype != np.int64:
                return piece
            values[place : place + len(numbers)] = numbers
            place += len(numbers)
            start = cut + 1
        return Integers(values)

    def _piece(self, start: int, stop: int) -> list[Any]:
        try:
            piece: list[Any] = orjson.loads(b"[" + self._text[start:stop] + b"]")
        except orjson.JSONDecodeError as e:
            raise self._malformed(f"{e.msg}, after byte {start}") from e
        if not piece:
            raise self._malformed(f"a number is missing at byte {start}")
        return piece

    # -- and in again -----------------------------------------------------------------

    def _put_back(self, value: Any) -> Any:  # noqa: ANN401 - JSON
        """Return a value with the long parts in place of their marks."""
        if isinstance(value, str) and value.startswith(self._mark):
            return self._long[int(value.partition(":")[2])]
        if isinstance(value, list):
            return [self._put_back(inner) for inner in value]
        if isinstance(value, dict):
            return {self._key(key): self._put_back(inner) for key, inner in value.items()}
        return value

    def _key(self, key: str) -> str:
        text = self._put_back(key)
        if not isinstance(text, str):
            raise self._malformed("a list is in the place of a name")
        return text


def _give_way() -> None:
    """Let other threads go on, unless nobody waits for the request any more."""
    current().check("json")
    time.sleep(_MOMENT)
