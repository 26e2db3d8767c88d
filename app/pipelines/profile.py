"""Times of the stages of a shared pipeline, separately for each request."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from core.iterate.base import Indexed, Stage
from core.iterate.profile import Profile, timed


class RequestProfiles(Profile):
    """A profile that forwards times to the profile of the request the thread works for.

    A built pipeline is shared by requests that run at once, so its stages cannot hold
    the profile of any of them; they look it up in a thread-local variable instead.
    """

    def __init__(self) -> None:
        super().__init__(time.perf_counter)
        self._requested = threading.local()

    @contextmanager
    def into(self, profile: Profile) -> Iterator[None]:
        """Record the times of this thread in ``profile`` until the block ends."""
        self._requested.profile = profile
        try:
            yield
        finally:
            self._requested.profile = None

    def current(self) -> Profile | None:
        """Return the profile of the request; None if none is set."""
        profile: Profile | None = getattr(self._requested, "profile", None)
        return profile

    def wrap(self, stage: Stage, name: str) -> Stage:
        """Wrap a stage so that it is timed."""
        if isinstance(stage, Indexed):
            return timed(stage, self, name)
        return timed(stage, self, name)


def new_profile() -> Profile:
    """Create the profile of one request."""
    return Profile(time.perf_counter)
