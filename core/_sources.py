"""Which source files the machine code of a kernel comes from.

A kernel takes in the functions it calls and the constants it names, and those come through the
imports of its module, of the modules it imports, and so on: nine files of ten in the engine are
none of them. A module that hands values over in any other way must not define kernels.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

_PACKAGE = Path(__file__).parent
_IMPORT = re.compile(
    rb"^[ \t]*from[ \t]+(\.*[\w.]*)[ \t]+import[ \t]*(\([^)]*\)|[^\n]*)", re.MULTILINE
)
_NAME = re.compile(rb"\w+")


@cache
def digest_all() -> str:
    """Digest of all source files of the engine."""
    return _digest(_PACKAGE.rglob("*.py"))


@cache
def digest_of(module: str) -> str:
    """Digest of :func:`files_of` a module."""
    return _digest(files_of(module))


def files_of(module: str) -> set[Path]:
    """The files that a module's kernels can come from, its own among them."""
    pending, found = [_find(*module.split(".")[1:])], set[Path]()
    while pending:
        path = pending.pop()
        if path is not None and path not in found:
            found.add(path)
            pending += _imports(path)
    return found


def _digest(paths: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for path in sorted(paths):
        source = path.read_bytes()
        digest.update(f"\0{path.relative_to(_PACKAGE)}\0{len(source)}\0".encode() + source)
    return digest.hexdigest()


@cache
def _imports(path: Path) -> list[Path | None]:
    """Files of the engine that a file may import; None for what is no module."""
    here = list(path.relative_to(_PACKAGE).parent.parts)
    found = list[Path | None]()
    for origin, names in _IMPORT.findall(path.read_bytes()):
        dotted = origin.decode()
        dots = len(dotted) - len(dotted.lstrip("."))
        parts = [part for part in dotted.split(".") if part]
        if dots:
            parts = here[: len(here) - dots + 1] + parts
        elif parts.pop(0) != _PACKAGE.name:
            continue
        found.append(_find(*parts))
        if found[-1] is None or found[-1].name == "__init__.py":
            found += [_find(*parts, name.decode()) for name in _NAME.findall(names)]
    return found


@cache
def _find(*parts: str) -> Path | None:
    """The file of a module, by its name below the engine's."""
    place = _PACKAGE.joinpath(*parts)
    candidates = (place.with_suffix(".py"), place / "__init__.py")
    return next(filter(Path.is_file, candidates), None)
