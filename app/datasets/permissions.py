"""Which files a request may register: its ``register:`` scopes, against paths.

A pattern of a scope covers a path below the roots (``alice/*``) or an absolute one. A path
is checked twice, because neither check suffices. By its text, before anything is opened, so
that refusals do not tell what exists elsewhere; and by where the files it stands for really
lie, because patterns match and links lead to more than their text shows.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from app.http.identity import Identity

from .files.roots import PathRefusedError, Roots
from .spec import DatasetSpec

_EVERYTHING = "register:*"


def check_paths(who: Identity, roots: Roots, spec: DatasetSpec) -> None:
    """Check that an identity may register all files that an entry names.

    Raises:
        PathRefusedError: it may not, or a path leads out of the roots.
        FileMissingError, TooLargeError, InvalidOptionError, BusyError: see Roots.expand.
    """
    if _EVERYTHING in who.scopes:
        return
    for name in _names(spec):
        for path in _absolute(roots, name):
            _check(who, roots.roots, path, name)
        directory = roots.directory(name)
        files = roots.expand([name]) if directory is None else [directory]
        real_roots = tuple(map(os.path.realpath, roots.roots))
        for file in files:
            _check(who, real_roots, os.path.realpath(file), name)


def _names(spec: DatasetSpec) -> Iterator[str]:
    yield from spec.files
    corrections = spec.corrections
    for name in (spec.glob, corrections.dark, corrections.gain, corrections.excluded):
        if isinstance(name, str):
            yield name


def _absolute(roots: Roots, name: str) -> list[str]:
    if name.startswith("/"):
        # normpath leaves two leading slashes as they are.
        return [os.path.normpath("/" + name.lstrip("/"))]
    return [os.path.normpath(f"{top}/{name}") for top in roots.roots]


def _check(who: Identity, tops: tuple[str, ...], path: str, name: str) -> None:
    below = [path.removeprefix(f"{top}/") for top in tops if path.startswith(f"{top}/")]
    if not who.may_register(path, *below):
        raise PathRefusedError(
            f"the API key may not register {name[:200]!r}",
            hint="Use a path that a register: scope of the key covers",
            path=name,
        )
