"""NDJSON answers: the lines of rows without the control lines."""

from __future__ import annotations

import json

from ..errors import ProblemError, ProtocolError

_CONTROL = (b'{"checkpoint"', b'{"end"', b'{"error"', b'{"heartbeat"')


class RowLines:
    """Filters the lines of rows out of one answer.

    The control lines between them hold tokens, which differ from answer to answer; without
    them, the joined rows of all parts equal those of a whole answer.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._ended = False

    def feed(self, data: memoryview | bytes) -> bytes:
        """The complete lines of rows, as far as these bytes complete them.

        Raises:
            ProblemError: the answer ends with an error.
            ProtocolError: a control line is malformed.
        """
        text = self._rest + data
        cut = text.rfind(b"\n") + 1
        text, self._rest = text[:cut], text[cut:]
        if not any(start in text for start in _CONTROL):
            return text
        lines = text.splitlines(keepends=True)
        return b"".join(line for line in lines if not self._is_control(line))

    def close(self) -> None:
        """End the answer.

        Raises:
            ProtocolError: it was cut.
        """
        if not self._ended or self._rest:
            raise ProtocolError("the answer was cut: it has no end")

    def _is_control(self, line: bytes) -> bool:
        if not line.startswith(_CONTROL):
            return False
        try:
            content = json.loads(line)
        except ValueError as e:
            raise ProtocolError("a line of the answer is not JSON") from e
        if "error" in content:
            problem = content["error"]
            raise ProblemError(int(problem.get("status", 500)), problem)
        self._ended = self._ended or "end" in content
        return True
