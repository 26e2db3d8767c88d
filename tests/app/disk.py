"""What is on a disk at the moment a file is written out to it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


class Disk:
    """Notes the size of each file, and the names in a directory, at each fsync."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
        self._directory = directory
        self._fsync = os.fsync
        self.synced: dict[int, tuple[int, list[str]]] = {}
        """Size of each file when it was written out, and the names there were then."""
        monkeypatch.setattr(os, "fsync", self._note)

    def _note(self, descriptor: int) -> None:
        self._fsync(descriptor)
        found = os.fstat(descriptor)
        self.synced[found.st_ino] = found.st_size, [p.name for p in self._directory.iterdir()]
