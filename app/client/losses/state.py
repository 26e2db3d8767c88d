"""State files: what another process needs to go on where this one stopped."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import StateError
from ..files.outputs import Mark
from .rows import Position

_VERSION = 1


@dataclass(frozen=True, slots=True)
class State:
    """How far a stream was posted, and its tables written.

    Attributes:
        reports: that are made.
        format: of their tables.
        position: what to go on with.
        source: identity of the source, None if it has none.
        passed: digest of its bytes before the position, if it cannot be read again.
        outputs: how far the table of each report was written.
    """

    reports: tuple[str, ...]
    format: str
    position: Position
    source: Mapping[str, Any] | None = None
    passed: str | None = None
    outputs: Mapping[str, Mark] = field(default_factory=dict)

    def check(
        self, reports: tuple[str, ...], table_format: str, source: Mapping[str, Any] | None
    ) -> None:
        """Refuse to go on with another source, or for other tables.

        Raises:
            StateError: with what differs.
        """
        if (self.reports, self.format) != (reports, table_format):
            made = f"{','.join(self.reports)} as {self.format}"
            raise StateError(f"the state file is of {made}: remove it to begin anew")
        if self.source != source:
            raise StateError("what is posted has changed since: remove the state file to begin")


class StateFile:
    """A state on disk; it is there whole or not at all.

    Args:
        path: of the file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def load(self) -> State | None:
        """The state, or None if there is no file.

        Raises:
            StateError: it is no state file, or of another version.
        """
        try:
            text = self.path.read_bytes()
        except FileNotFoundError:
            return None
        try:
            content = json.loads(text)
            if content["thalweg_state"] != _VERSION:
                raise StateError(f"{self.path} is of another version")
            return State(
                tuple(map(str, content["reports"])),
                str(content["format"]),
                Position(str(content["token"]), int(content["offset"])),
                content["source"],
                content["passed"],
                {k: Mark(int(v["size"]), str(v["xxh3"])) for k, v in content["outputs"].items()},
            )
        except (AttributeError, KeyError, TypeError, ValueError) as e:
            raise StateError(f"{self.path} is not a state file") from e

    def save(self, state: State) -> None:
        """Replace the file."""
        content = {
            "thalweg_state": _VERSION,
            "reports": state.reports,
            "format": state.format,
            "token": state.position.token,
            "offset": state.position.offset,
            "source": state.source,
            "passed": state.passed,
            "outputs": {k: {"size": v.size, "xxh3": v.digest} for k, v in state.outputs.items()},
        }
        write_json(self.path, content)

    def remove(self) -> None:
        """Everything is done."""
        self.path.unlink(missing_ok=True)


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Replace a file; it is there whole or not at all."""
    beside = path.with_name(f"{path.name}.{os.getpid()}.new")
    beside.write_text(json.dumps(content))
    beside.replace(path)
