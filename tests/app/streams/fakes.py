"""An exchange without a connection, and a stream of numbers, for whatever is streamed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, cast

from app.errors import Problem
from app.server.body import ClientDisconnected
from app.server.flow import Flag
from app.server.responses import Exchange
from app.streams.driver import Progress, Stream
from app.streams.frames import Buffers, FrameKind, FrameWriter
from tests.frames import Frame, read_frames

PATIENCE = 10.0


@dataclass
class FakeClock:
    """A clock that is set by hand."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


class FakeExchange:
    """Takes what is sent; ``on_frame`` is told of each frame as it comes."""

    def __init__(self, on_frame: Callable[[Frame], None] | None = None) -> None:
        self.scope: dict[str, object] = {}
        self.disconnected = Flag()
        self.started = False
        self.ended = False
        self.aborted = False
        self.status = 0
        self.headers: dict[str, str] = {}
        self.length: int | None = None
        self.writes: list[bytes] = []
        self.on_frame = on_frame
        self.on_start: Callable[[], None] = lambda: None

    async def start(
        self, status: int, headers: dict[str, str], *, content_length: int | None = None
    ) -> None:
        assert not self.started
        self.started = True
        self.status, self.headers, self.length = status, dict(headers), content_length
        self.on_start()

    async def write(self, data: bytes | memoryview) -> None:
        if self.disconnected.is_set():
            raise ClientDisconnected("it is gone")
        assert self.started
        assert not self.ended
        before = len(self.frames) if self.on_frame else 0
        self.writes.append(bytes(data))
        if self.on_frame is not None:
            for frame in self.frames[before:]:
                self.on_frame(frame)

    async def end(self, data: bytes) -> None:
        await self.write(data)
        self.ended = True

    def abort(self) -> None:
        self.aborted = True

    @property
    def data(self) -> bytes:
        return b"".join(self.writes)

    @property
    def frames(self) -> list[Frame]:
        return read_frames(self.data)


def send(stream: Stream[Any], exchange: FakeExchange) -> None:
    """Send a whole answer, in bounded time."""

    async def run() -> None:
        async with asyncio.timeout(PATIENCE):
            await stream.send(cast("Exchange", exchange))

    asyncio.run(run())


@dataclass(frozen=True)
class Number:
    """An item: a number, and how large it is."""

    value: int
    nbytes: int = 8


@dataclass
class Numbers:
    """Numbers from 0, each once it is let through.

    Attributes:
        count: in all.
        failure: raised instead of the number ``fails``.
        free: how many may be made by now; None for all.
    """

    count: int = 5
    nbytes: int = 8
    fails: int | None = None
    failure: Exception | None = None
    free: threading.Semaphore | None = None
    made: int = 0

    def __iter__(self) -> Iterator[Number]:
        for value in range(self.count):
            if self.free is not None:
                assert self.free.acquire(timeout=PATIENCE)
            if value == self.fails:
                assert self.failure is not None
                raise self.failure
            self.made += 1
            yield Number(value, self.nbytes)


@dataclass
class NumberFrames:
    """Numbers as frames whose token is the next number."""

    count: int | None = None
    heavy: bool = False
    threads: set[str] = field(default_factory=set)
    next: int = 0
    writer: FrameWriter = field(default_factory=FrameWriter)
    finished: bool = False

    def __post_init__(self) -> None:
        self.finished = self.count == 0

    def begin(self) -> Buffers:
        return []

    def item(self, item: Number) -> Buffers:
        self.threads.add(threading.current_thread().name)
        self.next = item.value + 1
        self.finished = self.next == self.count
        return self.writer.frame(FrameKind.DATA, {"token": self.next}, bytes(item.nbytes))

    def heartbeat(self) -> Buffers:
        return self.writer.frame(FrameKind.HEARTBEAT, {"token": self.next})

    def end(self, reason: str, progress: Progress) -> Buffers | None:
        header = {"reason": reason, "token": self.next, "count": progress.count}
        return self.writer.frame(FrameKind.END, header)

    def fail(self, problem: Problem) -> Buffers | None:
        header = {"problem": problem.to_json(), "token": self.next}
        return self.writer.frame(FrameKind.ERROR, header)


@dataclass
class NumberLines(NumberFrames):
    """Numbers as lines: a format that cannot say how it ended."""

    header: bytes = b"number\n"

    def begin(self) -> Buffers:
        return [self.header]

    def item(self, item: Number) -> Buffers:
        self.next = item.value + 1
        self.finished = self.next == self.count
        return [b"%d\n" % item.value]

    def heartbeat(self) -> Buffers:
        return []

    def end(self, reason: str, _progress: Progress) -> Buffers | None:
        return [] if reason == "exhausted" else None

    def fail(self, _problem: Problem) -> Buffers | None:
        return None
