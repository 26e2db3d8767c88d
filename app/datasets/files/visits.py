"""Bounds on searches of directories, of which one may hold millions of entries; their order."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TypeVar

from app.errors import TooLargeError
from core.budget import current

T = TypeVar("T")

_NUMBER = re.compile(r"([0-9]+)")
_STRETCH = 256
"""Entries of a directory between two checks."""


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of a directory."""

    name: str
    is_link: bool
    is_directory: bool
    """Whether it is a directory or a link to one."""
    is_plain: bool
    """Whether it is a regular file itself, not a link."""

    @classmethod
    def of(cls, entry: os.DirEntry[str]) -> Entry:
        """Return what a scan says of it."""
        directory = False
        with contextlib.suppress(OSError):
            directory = entry.is_dir()
        plain = entry.is_file(follow_symlinks=False)
        return cls(entry.name, entry.is_symlink(), directory, plain)


class Visits:
    """Counts the directories and entries that a search looks at.

    Args:
        limit: maximum number.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._left = limit

    def list(self, entries: Iterator[T]) -> list[T]:
        """Take the entries of a directory, itself counted too.

        Raises:
            TooLargeError: there are more than are left.
        """
        self._left -= 1
        result = list(itertools.islice(entries, max(self._left, 0) + 1))
        self._left -= len(result)
        if self._left < 0:
            raise TooLargeError(
                f"the search looked at more than {self.limit} directory entries",
                hint="Name the files, use a pattern that enters fewer directories, or ask the"
                " operator for a higher limit",
                limit="entries",
                setting="THALWEG_MAX_ENTRIES",
                allowed=self.limit,
            )
        return result


def watched(entries: Sequence[T]) -> Iterator[T]:
    """Yield the entries of a directory, of which there may be very many, under the budget."""
    budget = current()
    for at in range(0, len(entries), _STRETCH):
        budget.check("search")
        yield from entries[at : at + _STRETCH]


def matching(entries: Sequence[Entry], part: str) -> list[Entry]:
    """Return the entries that a part of a pattern names: of several, the one that it is itself."""
    literal = [entry for entry in entries if entry.name == part]
    return literal or [
        entry
        for entry in watched(entries)
        if fnmatchcase(entry.name, part) and (part[0] == "." or entry.name[0] != ".")
    ]


def numerically(path: Path | str) -> tuple[list[str | int], str]:
    """Return a key that sorts paths by the numbers in them, 2 before 10."""
    parts: list[str | int] = list(_NUMBER.split(str(path)))
    parts[1::2] = [int(digits) for digits in parts[1::2]]
    return parts, str(path)
