"""Buckets as roots: addresses that the operator declares, and names of objects below them.

A root is a bucket or a part of one, such as ``s3://scans/2026``. A request names an object as it
names a file: by a path relative to a root, or by an address below one (``s3://scans/2026/a.raw``).
The name of a directory is what objects below it have in common up to a slash. Patterns match as in
directories (:mod:`.roots`); they are compared with the names of all objects below the part that
has no pattern, of which there is a maximum.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING

from app.errors import InvalidOptionError

from .addresses import is_address
from .fetching import Fetching
from .roots import (
    ANY_DEPTH,
    MAGIC,
    MAX_ENTRIES,
    FileMissingError,
    check_text,
    outside,
    too_many_files,
)
from .visits import Visits, numerically

if TYPE_CHECKING:
    from obstore.store import ObjectStore

    from .objects import Found, Objects


class Bucket:
    """The objects below a root; several threads may use it at once.

    Args:
        address: of the root.
        fetching: threads that wait for it.
        max_entries: maximum number of objects that are listed for one dataset.
        store: what is at the address; None to open it.

    Raises:
        ValueError: the address is malformed, or the library is not installed.
    """

    def __init__(
        self,
        address: str,
        fetching: Fetching,
        max_entries: int = MAX_ENTRIES,
        store: ObjectStore | None = None,
    ) -> None:
        try:
            from .objects import Objects  # noqa: PLC0415 - an extra
        except ImportError as e:
            raise ValueError(
                f"the dataset root {address} needs the package obstore: pip install obstore"
            ) from e
        self.address = address
        self.fetching = fetching
        self.objects: Objects = Objects(address, store)
        self._max_entries = max_entries

    def key(self, name: str) -> str | None:
        """Return the name of an object below the root that a name can mean; None if it is none.

        Raises:
            PathRefusedError: it has control characters, or is too deep.
        """
        check_text(name)
        if is_address(name):
            if not name.startswith(f"{self.address}/"):
                return None
            name = name.removeprefix(self.address)
        elif name.startswith("/"):
            return None
        key = os.path.normpath(name.lstrip("/"))
        return None if key.split("/", 1)[0] in {"", ".", ".."} else key

    def find(self, names: Sequence[str], limit: int) -> list[Found]:
        """Find what paths and patterns name; see ``Roots.expand``.

        Raises:
            PathRefusedError, FileMissingError, TooLargeError, InvalidOptionError: as there.
            ReadFailedError: the store does not answer.
        """
        visits = Visits(self._max_entries)
        keys = [self.key(name) for name in names]
        plain = [key for key in keys if key is not None and not MAGIC.search(key)]
        looked = dict(zip(plain, self._look(plain), strict=True))
        found: dict[str, Found] = {}
        for name, key in zip(names, keys, strict=True):
            if key is None:
                raise outside(name)
            matches = [looked[key]] if key in looked else self._matches(key, visits)
            if not matches:
                raise FileMissingError(f"{name!r} matches no file", path=name)
            if not found.keys().isdisjoint(each.key for each in matches):
                raise InvalidOptionError(
                    f"{name!r} names a file that is named before", hint="Name each file once"
                )
            found |= {each.key: each for each in matches}
            if len(found) > limit:
                raise too_many_files(name, limit)
        return list(found.values())

    def _look(self, keys: Sequence[str]) -> Iterator[Found]:
        return self.fetching.each(partial(self.objects.look, key) for key in keys)

    def _matches(self, pattern: str, visits: Visits) -> list[Found]:
        parts = pattern.split("/")
        fixed = next(k for k, part in enumerate(parts) if MAGIC.search(part))
        found = list(self._listed("/".join(parts[:fixed]), visits))
        literal = [each for each in found if each.key == pattern]
        if parts[-1] == ANY_DEPTH:
            parts.append("*")
        matches = [each for each in found if _fits(parts[fixed:], each.key.split("/")[fixed:])]
        for each in matches:
            check_text(each.key)
        return literal or sorted(matches, key=lambda each: numerically(each.key))

    def _listed(self, prefix: str, visits: Visits) -> Iterator[Found]:
        for page in self.objects.list(prefix):
            # A name that ends in a slash stands for a directory.
            yield from (each for each in visits.list(iter(page)) if not each.key.endswith("/"))

    def below(self, directory: str) -> dict[str, Found]:
        """List all objects below a directory, by name; those with a dot at the beginning left out.

        Raises:
            TooLargeError: there are too many.
            ReadFailedError: the store does not answer.
        """
        found = self._listed(directory, Visits(self._max_entries))
        depth = directory.count("/") + bool(directory)
        return {each.key: each for each in found if not _is_hidden(each.key.split("/")[depth:])}

    def is_directory(self, key: str) -> bool:
        """Whether there is an object below a directory of this name."""
        return any(self.objects.list(key))


def _fits(parts: Sequence[str], names: Sequence[str]) -> bool:
    """Whether the names of a path match the parts of a pattern, the last of which is no ``**``."""
    places = {0}
    for name in names:
        places = _after_any(parts, places)
        places = {k + (parts[k] != ANY_DEPTH) for k in places if _takes(parts[k], name)}
    return len(parts) in places


def _after_any(parts: Sequence[str], places: Collection[int]) -> set[int]:
    """Add the places that are reached where ``**`` matches nothing; drop the end."""
    reached: set[int] = set()
    pending = list(places)
    while pending:
        place = pending.pop()
        if place < len(parts) and place not in reached:
            reached.add(place)
            if parts[place] == ANY_DEPTH:
                pending.append(place + 1)
    return reached


def _takes(part: str, name: str) -> bool:
    if part == ANY_DEPTH:
        return not name.startswith(".")
    return fnmatchcase(name, part) and (part[0] == "." or name[0] != ".")


def _is_hidden(names: Sequence[str]) -> bool:
    return any(name.startswith(".") for name in names)
