"""Whole files of bytes: resumed by ranges after a cut, and by another process after a kill."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import ConnectionFailed, ProtocolError, StateError, data_changed
from ..transport.async_channel import AsyncChannel
from ..transport.async_streams import AsyncResumable
from ..transport.frames import Rows, parse_dtype
from ..transport.requests import BLOCK, STATUS_OK, Head, Request
from .outputs import FileOutput, Mark
from .state import PathLike, StateFile

_STATUS_ACCEPTED = 202
_STATUS_PARTIAL = 206
_LONGEST_PAUSE = 15.0
_LEAST = 1024
"""Bytes moved at once where connections break before more arrive."""
_SAID = {"view": "data"}
"""What resources are called in messages, where that is not their name."""
_SPAN = re.compile(r"bytes (\d+)-(\d+)/(\d+)")


class AsyncDownload(AsyncResumable[memoryview]):
    """The bytes of a resource on their way into a file.

    Args:
        channel: of the operation.
        request: for the bytes; with a range and a tag it is for the rest of them.
        name: of what kind the resource is; member of the state file.
        resource: what is downloaded, for the state file.
        path: of the file; it appears once it is complete.
        state: path of the file to resume from and to write; None for none.
        size: bytes of the whole, if known.

    Attributes:
        offset: bytes that are there.
        etag: of the data they are from; None before the first answer.
        headers: of the last answer.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - what a download consists of
        self,
        channel: AsyncChannel,
        request: Request,
        name: str,
        resource: str,
        path: PathLike,
        state: PathLike | None,
        size: int | None = None,
    ) -> None:
        super().__init__(channel)
        self._request = request
        self._name = name
        self._resource = resource
        self._path = Path(path)
        self._state = StateFile(state, "thalweg_raw_state")
        self._size = size
        self._output: FileOutput | None = None
        self._block = BLOCK
        self.offset = 0
        self.etag: str | None = None
        self.headers: Mapping[str, str] = {}

    async def save(self, observe: Callable[[int], None] | None = None) -> int:
        """Write the file, or complete what another process began; the number of its bytes.

        Args:
            observe: called now and then with the bytes that are there.

        Raises:
            StateError: the state file does not fit.
            OSError: the file cannot be written.
        """
        try:
            await self._channel.work(self._open)
            async for piece in self.run():
                await self._channel.work(partial(self._write, piece))
                if observe is not None:
                    observe(self.offset)
            await self._channel.work(self._finish)
        finally:
            self._stop()
        return self.offset

    def records(self) -> Rows:
        """Read the records that were downloaded, shape (n,).

        Raises:
            ProtocolError: the service did not tell their dtype.
            OSError: the file cannot be read.
        """
        try:
            dtype = parse_dtype(json.loads(self.headers.get("thalweg-dtype", "")))
        except (TypeError, ValueError) as e:
            raise ProtocolError("the answer has no dtype of its records") from e
        return np.fromfile(self._path, dtype)

    # -- the file ------------------------------------------------------------------------

    def _open(self) -> None:
        mark = self._state.load(self._parse)
        self._output = FileOutput(self._path, mark)
        self.offset = mark.size if mark is not None else 0
        self.done = self.offset == self._size

    def _parse(self, content: Mapping[str, Any]) -> Mark:
        if content[self._name] != self._resource:
            raise StateError(
                f"{self._state.path} is of another {self._name}: remove it to start over"
            )
        self.etag = str(content["etag"])
        return Mark(int(content["size"]), str(content["xxh3"]))

    def _write(self, piece: memoryview) -> None:
        assert self._output is not None  # noqa: S101 - it is open
        self._output.write(piece)
        self._output.settle()
        if self._state.is_due:
            self._save_state(self._output)

    def _save_state(self, output: FileOutput) -> None:
        mark = output.mark()
        if mark.size and self.etag is not None:
            content = {self._name: self._resource, "etag": self.etag, **asdict(mark)}
            self._state.save(content, output.sync)

    def _finish(self) -> None:
        output, self._output = self._output, None
        assert output is not None  # noqa: S101 - it is open
        output.finish()
        self._state.remove()

    def _stop(self) -> None:
        """Unless finished, keep what another process can complete, or remove the file."""
        output, self._output = self._output, None
        if output is not None:
            output.undo()
            self._save_state(output)
            output.close(keep=self._state.exists())

    # -- its bytes -----------------------------------------------------------------------

    @property
    def position(self) -> int:
        """The offset."""
        return self.offset

    async def _attempt(self) -> AsyncGenerator[memoryview, None]:
        head = await self._ask()
        at, size = self._check(head)
        buffer = memoryview(bytearray(self._block if size is None else min(self._block, size)))
        while size is None or at < size:
            try:
                count = await self._channel.receive(buffer if size is None else buffer[: size - at])
            except ConnectionFailed:
                # The bytes of a block that is cut are lost: with smaller ones fewer are.
                self._block = max(self._block // 16, _LEAST)
                raise
            if not count:
                break
            # An answer without ranges begins anew: the same bytes, by its tag.
            new = max(0, at + count - self.offset)
            at += count
            if new:
                self.offset = at
                yield buffer[count - new : count]
        if size not in {None, at}:
            raise ConnectionFailed("the answer was cut")
        await self._channel.finish()
        self.done = True

    async def _ask(self) -> Head:
        """Ask for the rest, and wait while the service computes it."""
        request = self._request
        if self.offset and self.etag is not None:
            rest = {"Range": f"bytes={self.offset}-", "If-Range": self.etag}
            request = replace(request, headers={**request.headers, **rest})
        head = await self._channel.send(request)
        while head.status == _STATUS_ACCEPTED:
            await self._channel.read(BLOCK)
            text = head.headers.get("retry-after", "1")
            pause = float(text) if text.isdecimal() else 1.0
            await self._channel.sleep(min(pause, _LONGEST_PAUSE))
            head = await self._channel.send(request)
        if head.status not in {STATUS_OK, _STATUS_PARTIAL}:
            await self._channel.refuse(head)
        return head

    def _check(self, head: Head) -> tuple[int, int | None]:
        """Check an answer; where it begins, and the whole size if it is known."""
        etag = head.headers.get("etag")
        if etag is None or etag.startswith("W/"):
            raise ProtocolError("the answer has no strong ETag")
        if self.etag not in {None, etag}:
            name = _SAID.get(self._name, self._name)
            detail = f"the {name} had the tag {self.etag} and has {etag} now"
            raise data_changed(detail, "Open it anew, and start over")
        self.etag = etag
        self.headers = head.headers
        if head.status == _STATUS_PARTIAL:
            return self.offset, self._check_span(head.headers.get("content-range", ""))
        length = head.headers.get("content-length", "")
        if self._size is not None and (self.offset or length != str(self._size)):
            raise ProtocolError(f"{length} bytes from the start came instead of {self._rest()}")
        return 0, int(length) if length.isdecimal() else None

    def _check_span(self, text: str) -> int:
        span = _SPAN.fullmatch(text)
        first, last, size = (int(n) for n in span.groups()) if span else (0, 0, 0)
        whole = last + 1 == size and self._size in {None, size}
        if not (whole and first == self.offset):
            raise ProtocolError(f"{text} came instead of {self._rest()}")
        return size

    def _rest(self) -> str:
        size = self._size
        return "the rest" if size is None else f"bytes {self.offset}-{size - 1}/{size}"
