"""What the operator declares as roots: directories, and addresses of buckets."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

_ADDRESS = re.compile(r"(s3|gs|az)://")
_CREDENTIALS = re.compile(r"(s3|gs|az)://([^/,]*@|[^,]*\?)")
_SEPARATOR = re.compile(r":(?!//)|,(?=\s*(?:s3|gs|az)://)")


def split_roots(text: str) -> tuple[list[Path], list[str]]:
    """Split a list of roots, separated as in ``PATH``, into directories and addresses of buckets.

    A comma separates too, before or after an address. A relative path begins at the directory in
    which the service was started, ``~`` at the home directory of its user. Empty parts are ignored.

    Raises:
        ValueError: a user has no home directory, or an address has credentials.
    """
    if _CREDENTIALS.search(text):
        raise ValueError(
            "the address of a bucket has credentials, which are not for it: set them in the"
            " environment, such as AWS_ACCESS_KEY_ID"
        )
    parts = [part for part in _parts(text) if part]
    try:
        paths = [Path(part).expanduser().absolute() for part in parts if not is_address(part)]
    except RuntimeError as e:
        raise ValueError(f"{text!r} is of a user without a home directory") from e
    return paths, [part.rstrip("/") for part in parts if is_address(part)]


def _parts(text: str) -> Iterator[str]:
    for part in _SEPARATOR.split(text):
        if is_address(part.strip()):
            yield from map(str.strip, part.split(",", 1))
        else:
            yield part


def is_address(name: str) -> bool:
    """Whether a name is an address, and no path."""
    return _ADDRESS.match(name) is not None
