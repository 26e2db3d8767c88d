"""Waiting for a run to change, whichever process changes it.

Who waits *follows* a run, and is woken by what any process of this machine announces
(:mod:`app.state.notices`): nothing is looked at meanwhile, but once in a while in case something
changes that nobody announces. Where no process can hear another, that is several times a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import defaultdict

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
