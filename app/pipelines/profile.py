"""Times of the stages of a shared pipeline, separately for each request."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from core.iterate.base import Block, Indexed, Stage
from core.iterate.profile import Profile, timed


class RequestProfiles(Profile):
    """A profile that forwards times to the profile of the request the thread works for.

    A built pipeline is shared by requests that run at once, so its stages cannot hold
    the profile of any of them; they look it up in a thread-local variable instead.
    """

    def __init__(self) -> None:
        super().__init__(time.perf_counter)
        self._current = threading.local()

    @contextmanager
    def into(self, profile: Profile) -> Iterator[None]:
        """Record the times of this thread in ``profile`` until the block ends."""
        self._current.profile = profile
        try:
            yield
        finally:
            self._current.profile = None

    @contextmanager
    def measure(self, name: str) -> Iterator[list[Block]]:
        """Time the block, if a profile is set."""
        profile: Profile | None = getattr(self._current, "profile", None)
        if profile is None:
            yield []
            return
        with profile.measure(name) as blocks:
            yield blocks

    def wrap(self, stage: Stage, name: str) -> Stage:
        """Wrap a stage so that it is timed."""
        if isinstance(stage, Indexed):
            return timed(stage, self, name)
        return timed(stage, self, name)


def new_profile() -> Profile:
    """Create the profile of one request."""
    return Profile(time.perf_counter)
