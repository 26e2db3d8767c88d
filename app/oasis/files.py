"""Faults of files: errors of the system, and texts that are not JSON, name the file."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from core.errors import InputError


@contextlib.contextmanager
def failing_as(fault: str, source: Path | str) -> Iterator[None]:
    """Raise an error of the system as one of a file.

    Args:
        fault: such as ``cannot be written``.
        source: the file.

    Raises:
        InputError: instead of an OSError.
    """
    try:
        yield
    except OSError as e:
        raise InputError(f"{fault}: {e.strerror}", source=str(source)) from e


def write_whole(path: Path, text: str) -> None:
    """Write a file that others see whole, or not at all.

    Raises:
        InputError: it cannot be written.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    with failing_as("cannot be written", path):
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)


def json_object(octets: bytes, path: Path) -> dict[str, Any]:
    """Parse the content of a file.

    Raises:
        InputError: it is not a JSON object.
    """
    try:
        document = json.loads(octets)
    except ValueError as e:
        raise InputError(f"is not JSON: {e}", source=str(path)) from e
    if not isinstance(document, dict):
        raise InputError("is not a JSON object", source=str(path))
    return document
