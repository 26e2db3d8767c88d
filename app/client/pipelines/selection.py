"""Which batches a reader selects, and where it resumes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, SupportsIndex

from ..errors import StateError

_TOKEN = re.compile(r"[!-~]{1,512}")
"""The contract allows 100 characters."""


def is_token(value: Any) -> bool:  # noqa: ANN401 - anything
    """Whether a value has the form of a token."""
    return isinstance(value, str) and _TOKEN.fullmatch(value) is not None


@dataclass(frozen=True, slots=True)
class Position:
    """Where batches resume.

    Attributes:
        token: after which; None at the beginning of the pipeline.
        skip: batches to pass over from there.
    """

    token: str | None = None
    skip: int = 0

    def json(self) -> dict[str, Any]:
        """The position as a state: JSON values."""
        return {"token": self.token, **({"skip": self.skip} if self.skip else {})}

    @classmethod
    def parse(cls, state: Mapping[str, Any] | None) -> Position:
        """The position that a state describes; None is the beginning.

        Raises:
            StateError: it describes none.
        """
        if state is None:
            return cls()
        known: Any = state
        if not isinstance(known, Mapping) or not {"token"} <= set(known) <= {"token", "skip"}:
            raise StateError('a state of batches is {"token": ...}')
        token, skip = state["token"], state.get("skip", 0)
        if isinstance(token, Mapping):
            raise StateError('a token is batch.token, or state["token"] of a state: give that')
        if not isinstance(token, str | None):
            raise StateError(f"a token is a string, such as batch.token, not {token!r}")
        token = token and token.strip()  # of the line end of a file
        if token is not None and not is_token(token):
            found = "malformed" if token else "empty: leave it out to begin with the first batch"
            raise StateError(f"the token of the state is {found}")
        if not isinstance(skip, int) or isinstance(skip, bool) or skip < 0:
            raise StateError("the number of batches to pass over cannot be negative")
        return cls(token, skip)


MOST = {"parallel": 64, "prefetch": 65536}
"""A connection and a thread each, which take time to make; batches that wait in memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSelection:
    """Which batches to read, and how to fetch them.

    Attributes:
        rank: which rows of each global batch: those of this reader, from 0 ...
        world: ... of so many readers.
        max_batches: number of batches; None for all.
        every: only one of so many.
        epoch: pause where an epoch ends.
        prefetch: batches to read ahead while the caller is busy.
        parallel: streams to read in turn; None for one.

    Raises:
        TypeError: a number is none.
        ValueError: it is out of range.
    """

    rank: int
    world: int
    max_batches: int | None = None
    every: int = 1
    epoch: bool = False
    prefetch: int = 0
    parallel: int | None = None

    def __post_init__(self) -> None:
        for name in ("rank", "world", "every", "max_batches", "prefetch", "parallel"):
            number = getattr(self, name)
            if number is None and name in {"max_batches", "parallel"}:
                continue
            if not isinstance(number, SupportsIndex) or isinstance(number, bool):
                raise TypeError(f"{name} cannot be {number!r}: give an integer")
            least = int(name in {"every", "world", "parallel"})
            if int(number) < least:
                raise ValueError(f"{name} is {number}, but must be {least} or more")
            if int(number) > MOST.get(name, int(number)):
                raise ValueError(f"{name} is {number}, but must be {MOST[name]} or less")
        if not isinstance(self.epoch, bool):
            raise TypeError(f"epoch cannot be {self.epoch!r}: give True or False")
        if self.rank >= self.world == 1:
            raise ValueError(f"rank {self.rank} needs world: how many readers there are")
        if self.rank >= self.world:
            raise ValueError(f"rank is {self.rank}, but must be below world, {self.world}")
