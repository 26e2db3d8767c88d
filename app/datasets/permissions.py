"""Which files a request may register: its ``register:`` scopes, against paths.

A pattern of a scope covers a path below the roots (``alice/*``), or an absolute one or an address.
A path is checked twice, because neither check suffices. By its text, before anything is opened, so
that refusals do not tell what exists elsewhere; and by where the files it stands for really
lie, because patterns match and links lead to more than their text shows.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from app.http.identity import Identity

from .files.addresses import is_address
from .files.places import buckets_of, real_paths
from .files.roots import PathRefusedError, Roots
from .files.visits import numerically
from .spec import DatasetSpec

_EVERYTHING = "register:*"


def check_paths(caller: Identity, roots: Roots, spec: DatasetSpec) -> None:
    """Check that an identity may register all files that an entry names.

    Raises:
        PathRefusedError: it may not, or a path leads out of the roots.
        FileMissingError, TooLargeError, InvalidOptionError, BusyError: see Roots.expand.
    """
    if _EVERYTHING in caller.scopes:
        return
    tops = (*roots.roots, *(bucket.address for bucket in roots.buckets))
    for name in _names(spec):
        for path in _absolute(roots, name):
            _check(caller, tops, path, name)
        real_roots = (*map(os.path.realpath, roots.roots), *tops)
        for path in real_paths(roots, name):
            _check(caller, real_roots, path, name)


def list_files(caller: Identity, roots: Roots, path: str) -> dict[str, bool]:
    """List a directory for who may register all that is in it: names, and which are directories.

    Names are sorted by the numbers in them. There are none of a bucket, nor outside of the roots.

    Raises:
        PathRefusedError: the caller may not, or a link leads out of the roots.
        TooLargeError: there are too many entries to look at.
        BusyError: too many files are open.
    """
    if _EVERYTHING not in caller.scopes:
        raise PathRefusedError(
            "the API key may register some files only, and so not list them",
            hint="Type their paths, or ask for register:*",
        )
    found = roots.listing(path)
    return {name: found[name] for name in sorted(found, key=numerically)}


def _names(spec: DatasetSpec) -> Iterator[str]:
    yield from spec.files
    corrections = spec.corrections
    for name in (spec.glob, corrections.dark, corrections.gain, corrections.excluded):
        if isinstance(name, str):
            yield name


def _absolute(roots: Roots, name: str) -> list[str]:
    if is_address(name):
        scheme, _, path = name.partition("://")
        return [f"{scheme}:/{os.path.normpath('/' + path.lstrip('/'))}"]
    if name.startswith("/"):
        # normpath leaves two leading slashes as they are.
        return [os.path.normpath("/" + name.lstrip("/"))]
    below = [f"{bucket.address}/{bucket.key(name)}" for bucket in buckets_of(roots, [name])]
    return below + [os.path.normpath(f"{top}/{name}") for top in roots.roots]


def _check(caller: Identity, tops: tuple[str, ...], path: str, name: str) -> None:
    below = [path.removeprefix(f"{top}/") for top in tops if path.startswith(f"{top}/")]
    if not caller.may_register(path, *below):
        raise PathRefusedError(
            f"the API key may not register {name[:200]!r}",
            hint="Use a path that a register: scope of the key covers",
            path=name,
        )
