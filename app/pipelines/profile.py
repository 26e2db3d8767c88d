"""How long the stages of a shared pipeline take, for each request by itself."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from core.iterate.base import Block, Indexed, Stage
from core.iterate.profile import Profile, timed


class RequestProfiles(Profile):
    """Gives the times of stages to the profile that the thread works for, if any."""

    def __init__(self) -> None:
        super().__init__(time.perf_counter)
        self._current = threading.local()

    @contextmanager
    def into(self, profile: Profile) -> Iterator[None]:
        """Times of what this thread does inside go to this profile."""
        self._current.profile = profile
        try:
            yield
        finally:
            self._current.profile = None

    @contextmanager
    def measure(self, name: str) -> Iterator[list[Block]]:
        """Time what is done inside, if anybody wants to know."""
        profile: Profile | None = getattr(self._current, "profile", None)
        if profile is None:
            yield []
            return
        with profile.measure(name) as given:
            yield given

    def wrap(self, stage: Stage, name: str) -> Stage:
        """The stage, timed."""
        if isinstance(stage, Indexed):
            return timed(stage, self, name)
        return timed(stage, self, name)


def new_profile() -> Profile:
    """A profile of one request."""
    return Profile(time.perf_counter)
