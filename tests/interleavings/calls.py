"""Calls of operations on what they share, and which of them commute."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Mode: TypeAlias = Literal["reads", "adds to", "writes"]
LockStep: TypeAlias = Literal["acquire", "release"]


@dataclass(frozen=True, slots=True)
class Access:
    """What a call does with one thing, or with all things whose keys begin so."""

    mode: Mode
    space: str
    key: str
    is_prefix: bool = False

    def conflicts(self, other: Access) -> bool:
        """Whether the order of the two may be seen; reads commute, and so do additions."""
        if self.space != other.space or (self.mode == other.mode != "writes"):
            return False
        if self.is_prefix and other.is_prefix:
            return self.key.startswith(other.key) or other.key.startswith(self.key)
        if self.is_prefix:
            return other.key.startswith(self.key)
        return self.key.startswith(other.key) if other.is_prefix else self.key == other.key


@dataclass(frozen=True, slots=True)
class Call:
    """What an operation is about to do, once it is let."""

    text: str
    """For people."""
    accesses: tuple[Access, ...] = ()
    lock: str | None = None
    """Lock that it acquires or releases."""
    step: LockStep | None = None

    def depends_on(self, other: Call) -> bool:
        """Whether the order of the two may be seen."""
        if self.lock is not None and self.lock == other.lock:
            return True
        return any(a.conflicts(b) for a in self.accesses for b in other.accesses)

    def may_wait_for(self, other: Call) -> bool:
        """Whether both can be next at the same time: nobody acquires what another releases."""
        return not (self.lock is not None and self.lock == other.lock and self.step != other.step)


def reads(text: str, space: str, key: str, *, is_prefix: bool = False) -> Call:
    """Return the call that reads one thing, or all whose keys begin so."""
    return Call(text, (Access("reads", space, key, is_prefix),))


def writes(text: str, space: str, key: str) -> Call:
    """Return the call that may change one thing."""
    return Call(text, (Access("writes", space, key),))


def adds(text: str, space: str, key: str) -> Call:
    """Return the call that adds to something, in whichever order with others that do."""
    return Call(text, (Access("adds to", space, key),))
