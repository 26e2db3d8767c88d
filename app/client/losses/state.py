"""How far a stream was posted and its tables written, for another process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..errors import StateError
from ..files.outputs import Mark
from .rows import Position

MEMBER = "thalweg_state"
"""Member of the state file that holds its version."""


@dataclass(frozen=True, slots=True)
class State:
    """How far a stream was posted and its tables written.

    Attributes:
        reports: names of the reports.
        format: of their tables.
        position: where to resume.
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

    @classmethod
    def parse(cls, content: Mapping[str, Any]) -> State:
        """The state that a file holds.

        Raises:
            AttributeError, KeyError, TypeError, ValueError: it holds none.
        """
        return cls(
            tuple(map(str, content["reports"])),
            str(content["format"]),
            Position(str(content["token"]), int(content["offset"])),
            content["source"],
            content["passed"],
            {k: Mark(int(v["size"]), str(v["xxh3"])) for k, v in content["outputs"].items()},
        )

    def json(self) -> dict[str, Any]:
        """The state as JSON values."""
        return {
            "reports": self.reports,
            "format": self.format,
            "token": self.position.token,
            "offset": self.position.offset,
            "source": self.source,
            "passed": self.passed,
            "outputs": {k: {"size": v.size, "xxh3": v.digest} for k, v in self.outputs.items()},
        }

    def check(
        self, reports: tuple[str, ...], table_format: str, source: Mapping[str, Any] | None
    ) -> None:
        """Refuse to resume with another source or for other tables.

        Raises:
            StateError: with what differs.
        """
        if (self.reports, self.format) != (reports, table_format):
            tables = f"{','.join(self.reports)} as {self.format}"
            raise StateError(f"the state file is for {tables}: remove it to start over")
        if self.source != source:
            raise StateError("the stream has changed since: remove the state file to start over")
