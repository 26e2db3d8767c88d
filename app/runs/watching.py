"""Waiting for a run to change, whichever process changes it.

Who waits *follows* a run, and is woken by what any process of this machine announces
(:mod:`app.state.notices`): nothing is looked at meanwhile, but once in a while in case something
changes that nobody announces. Where no process can hear another, that is several times a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import threading
import time
import weakref
from collections import defaultdict
from collections.abc import Iterable, Iterator

from app.state.notices import Listener, Notices, file_of

INTERVAL = 0.2
"""Seconds after which to look again where nobody announces what others change."""
LOOK_SECONDS = 10.0
"""The same where everybody does."""


class Watch:
    """Tells who follows a run that it, or a stream of it, may have changed.

    Args:
        notices: among the processes that may change runs; None if this one is alone, or cannot
            hear them.
        interval: seconds to wait for an announcement where notices are not heard.

    Attributes:
        notices: as above.
    """

    def __init__(self, notices: Notices | None = None, interval: float = INTERVAL) -> None:
        self.notices = notices
        self._interval = interval
        self._followers: defaultdict[str, set[Follower]] = defaultdict(set)
        self._lock = threading.Lock()
        self._listener: Listener | None = None

    def announce(self, run: str) -> None:
        """Wake all who follow a run; from any thread."""
        if self.notices is not None:
            with contextlib.suppress(OSError):
                self.notices.give(run)
                if self._listener is not None:
                    # We hear it, too.
                    return
        self._wake(file_of(run))

    def follow(self, run: str) -> Follower:
        """Follow a run, in the running event loop; the caller closes the follower."""
        follower = Follower(self, file_of(run))
        with self._lock:
            if not self._followers:
                self._listen()
            self._followers[follower.file].add(follower)
        return follower

    def leave(self, follower: Follower) -> None:
        """Follow no more; may be called twice."""
        with self._lock:
            self._followers[follower.file].discard(follower)
            if not self._followers[follower.file]:
                del self._followers[follower.file]
            if not self._followers and self._listener is not None:
                follower.loop.remove_reader(self._listener.file)
                self._listener.close()
                self._listener = None

    @property
    def seconds(self) -> float:
        """Seconds after which to look without an announcement."""
        return self._interval if self._listener is None else LOOK_SECONDS

    def _listen(self) -> None:
        if self.notices is None:
            return
        with contextlib.suppress(OSError):
            listener = self.notices.listen()
            asyncio.get_running_loop().add_reader(listener.file, self._hear, listener)
            self._listener = listener

    def _hear(self, listener: Listener) -> None:
        for file in (heard := listener.hear()) or ():
            self._wake(file)
        if heard is None:
            for file in tuple(self._followers):
                self._wake(file)

    def _wake(self, file: str) -> None:
        with self._lock:
            followers = tuple(self._followers.get(file, ()))
        for follower in followers:
            follower.wake()


class Follower:
    """Who follows a run.

    Args:
        watch: wakes it.
        file: of the notices of the run.
    """

    def __init__(self, watch: Watch, file: str) -> None:
        self.file = file
        self.loop = asyncio.get_running_loop()
        self._watch = watch
        self._event = asyncio.Event()

    def wake(self) -> None:
        """Say that the run may have changed; from any thread."""
        # The loop of a process that ends is closed.
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self._event.set)

    async def changed(self) -> None:
        """Wait until the run may have changed since the last call, or since it is followed.

        The caller reads it afterwards, and compares: often it has not, or a while has passed.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._watch.seconds):
                await self._event.wait()
        self._event.clear()

    def close(self) -> None:
        """Follow no more; may be called twice."""
        self._watch.leave(self)


class News:
    """Wakes the thread that waits for it; anybody may call ``set`` and ``tell``.

    Args:
        name: of what changes.
        notices: among the processes that change it; None if this one is alone.
    """

    def __init__(self, name: str, notices: Notices | None = None) -> None:
        self._name = name
        self._notices = notices
        self._listener: Listener | None = None
        self._event = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        weakref.finalize(self, os.close, self._event)
        self._poll = select.poll()
        self._poll.register(self._event, select.POLLIN)

    def set(self) -> None:
        """Say that something has changed."""
        os.eventfd_write(self._event, 1)

    def tell(self) -> None:
        """Say in all processes that something has changed."""
        self.set()
        if self._notices is not None:
            with contextlib.suppress(OSError):
                self._notices.give(self._name)

    def listen(self) -> bool:
        """Hear what other processes tell, if the system has room for it; return whether it has."""
        if self._notices is not None:
            with contextlib.suppress(OSError):
                self._listener = self._notices.listen()
                weakref.finalize(self._listener, os.close, self._listener.file)
                self._poll.register(self._listener.file, select.POLLIN)
        return self._listener is not None

    @contextlib.contextmanager
    def watching(self, pids: Iterable[int]) -> Iterator[None]:
        """Count the end of any of these processes as news, too, until the end of the block."""
        ends = []
        try:
            for pid in pids:
                # One that is gone already, or of another namespace, is seen by looking.
                with contextlib.suppress(OSError):
                    ends.append(os.pidfd_open(pid))
                    self._poll.register(ends[-1], select.POLLIN)
            yield
        finally:
            for end in ends:
                self._poll.unregister(end)
                os.close(end)

    def wait(self, seconds: float) -> None:
        """Wait until there are news, or for some time."""
        until = time.monotonic() + seconds
        while ready := self._poll.poll(max(until - time.monotonic(), 0) * 1000):
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self._event)
            heard = set() if self._listener is None else self._listener.hear()
            others = self._listener is not None and [self._listener.file] == [f for f, _ in ready]
            if not others or heard is None or file_of(self._name) in heard:
                return
