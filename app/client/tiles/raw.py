"""A view as plain bytes: the resumable stream of ranges, and the file it is written to."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import ConnectionFailed, ProtocolError, StateError, data_changed
from ..files.outputs import FileOutput, Mark
from ..files.state import StateFile
from ..transport.answers import STATUS_OK, refuse
from ..transport.effects import BLOCK, Ask, Deliver, Finish, Receive, Steps
from ..transport.requests import Head
from ..transport.resumable import ResumableStream
from ..transport.retry import Backoff
from .requests import TileRequests

_STATUS_PARTIAL = 206


class RawStream(ResumableStream):
    """Delivers the bytes of a view in pieces, each valid until the next one.

    Args:
        requests: builds the requests.
        view: id of the view.
        size: of the view, in bytes.
        offset: bytes that are there already.
        etag: of the answer they came with.
        backoff: decides on further attempts.

    Attributes:
        offset: bytes delivered, those that were there included.
        etag: of the data; None before the first answer.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - what a stream consists of
        self,
        requests: TileRequests,
        view: str,
        size: int,
        offset: int,
        etag: str | None,
        backoff: Backoff,
    ) -> None:
        super().__init__(backoff)
        self._requests = requests
        self._view = view
        self._size = size
        self.offset = offset
        self.etag = etag

    @property
    def done(self) -> bool:
        """Whether all bytes were delivered."""
        return self.offset >= self._size

    @property
    def position(self) -> int:
        """The offset."""
        return self.offset

    def _attempt(self) -> Steps[None]:
        head: Head = yield Ask(self._requests.raw(self._view, self.offset, self.etag))
        if head.status not in {STATUS_OK, _STATUS_PARTIAL}:
            yield from refuse(head)
        self._check(head.status, head.headers)
        buffer = memoryview(bytearray(min(BLOCK, self._size)))
        while self.offset < self._size:
            count: int = yield Receive(buffer[: self._size - self.offset])
            if not count:
                raise ConnectionFailed("the answer was cut")
            self.offset += count
            yield Deliver(buffer[:count])
        yield Finish()

    def _check(self, status: int, headers: Mapping[str, str]) -> None:
        etag = headers.get("etag")
        if etag is None or etag.startswith("W/"):
            raise ProtocolError("the answer has no strong ETag")
        if self.etag not in {None, etag}:
            raise data_changed(f"the data had the tag {self.etag} and has {etag} now")
        self.etag = etag
        span = headers.get("content-range")
        expected = f"bytes {self.offset}-{self._size - 1}/{self._size}"
        if status == _STATUS_PARTIAL and span != expected:
            raise ProtocolError(f"{span} came instead of {expected}")
        length = headers.get("content-length")
        if status == STATUS_OK and (self.offset or length != str(self._size)):
            raise ProtocolError(f"{length} bytes from the start came instead of {expected}")


class RawSaving:
    """The bytes of a view, or of another resource, on their way into a file.

    Args:
        path: of the file.
        resource: id of the view, or of what else is downloaded.
        state: path of the file to resume from and to write; None for none.
        kind: what the resource is; member of the state file.

    Attributes:
        offset: bytes that are there; known after ``open``.
        etag: of the data they are from, if there are any.
    """

    def __init__(self, path: Path, resource: str, state: Path | None, kind: str = "view") -> None:
        self._path = path
        self._resource = resource
        self._kind = kind
        self._state = StateFile(state, "thalweg_raw_state")
        self._output: FileOutput | None = None
        self.offset = 0
        self.etag: str | None = None

    def open(self) -> None:
        """Read the state and open the file.

        Raises:
            StateError: the state file does not fit.
            OSError: the file cannot be written.
        """
        mark = self._state.load(self._parse)
        self._output = FileOutput(self._path, mark)
        self.offset = mark.size if mark is not None else 0

    def _parse(self, content: Mapping[str, Any]) -> Mark:
        if content[self._kind] != self._resource:
            raise StateError(
                f"{self._state.path} is of another {self._kind}: remove it to start over"
            )
        self.etag = str(content["etag"])
        return Mark(int(content["size"]), str(content["xxh3"]))

    def take(self, piece: memoryview, etag: str | None) -> None:
        """Write a piece of the data with a tag."""
        assert self._output is not None  # noqa: S101 - it is open
        self._output.write(piece)
        self._output.settle()
        self.etag = etag
        if self._state.is_due:
            self._save_state(self._output)

    def _save_state(self, output: FileOutput) -> None:
        mark = output.mark()
        if mark.size and self.etag is not None:
            content = {self._kind: self._resource, "etag": self.etag, "size": mark.size}
            self._state.save({**content, "xxh3": mark.digest}, output.sync)

    def finish(self) -> None:
        """Give the file its final name: every byte was written."""
        output, self._output = self._output, None
        assert output is not None  # noqa: S101 - it is open
        output.finish()
        self._state.remove()

    def stop(self) -> None:
        """Unless finished, keep what another process can complete, or remove the file."""
        output, self._output = self._output, None
        if output is not None:
            output.undo()
            self._save_state(output)
            output.close(keep=self._state.exists())
