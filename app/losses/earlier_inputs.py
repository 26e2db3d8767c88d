"""Auxiliary files of earlier versions, which kept them in a directory of their own.

Each start moves what is still there: ``inputs/<digest>.<kind>`` of the data directory becomes a
blob of ``admin``. A file is a migration of its own, whose steps leave a kill nothing to lose:

    content into the store ── owner ── time of its last use ── file removed

A file that cannot be moved, because the disk is full or fails, stays for the next start. One whose
content lacks its digest, or whose name is none of ours, is put aside in ``inputs.damaged``: a
person may still know what it was.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import stat
from collections.abc import Collection
from pathlib import Path

import structlog

from app.errors import ServiceError
from app.state.durable import make_directories, sync_directory
from app.state.ownership import ADMIN
from app.state.shares import Shares

from .input_store import InputFile, InputStore, digest_of

INPUTS = "inputs"
"""The directory in which earlier versions kept the files."""
DAMAGED = "inputs.damaged"
"""The directory of those that are damaged."""


class EarlierInputs:
    """The files of a data directory that are still to be moved.

    Several workers may move them at once.

    Args:
        data_dir: the data directory.
        files: where the files go.
        owners: the owners of files in the store.
        kinds: names of the files that can be stored.
    """

    def __init__(
        self, data_dir: Path, files: InputStore, owners: Shares, kinds: Collection[str]
    ) -> None:
        self._directory = data_dir / INPUTS
        self._damaged = data_dir / DAMAGED
        self._files = files
        self._owners = owners
        self._kinds = frozenset(kinds)

    def move(self) -> None:
        """Move what can be moved; log what cannot, and what is damaged."""
        log = structlog.get_logger()
        try:
            paths = sorted(self._directory.iterdir()) if self._directory.is_dir() else []
            for path in paths:
                self._try_to_move(path)
            self._remove_directory()
            damaged = sorted(self._damaged.iterdir()) if self._damaged.is_dir() else []
        except OSError as e:
            log.warning("inputs of an earlier version cannot be read", reason=str(e))
            return
        if damaged:
            log.warning(
                "damaged inputs of an earlier version are kept aside",
                directory=str(self._damaged),
                count=len(damaged),
                first=damaged[0].name,
            )

    def _try_to_move(self, path: Path) -> None:
        # Another worker may move it first.
        with contextlib.suppress(FileNotFoundError):
            try:
                self._move(path)
            except FileNotFoundError:
                raise
            except (OSError, ServiceError) as e:
                structlog.get_logger().warning(
                    "an input of an earlier version stays for the next start",
                    name=path.name,
                    reason=str(e),
                )

    def _move(self, path: Path) -> None:
        if path.name.startswith("."):
            # Half an upload, which was never acknowledged.
            path.unlink()
            return
        digest, _, kind = path.name.partition(".")
        status = path.stat()
        if kind not in self._kinds or not stat.S_ISREG(status.st_mode):
            self._put_aside(path)
            return
        data = path.read_bytes()
        if digest_of(data) != digest:
            self._put_aside(path)
            return
        content = InputFile(self._files, kind, digest, data)
        self._owners.put(ADMIN, path.name, len(data), content)
        self._files.touch_at(kind, digest, status.st_mtime)
        path.unlink()

    def _put_aside(self, path: Path) -> None:
        """Move a file out of the way, and never onto another."""
        make_directories(self._damaged, 0o700)
        for number in itertools.count():
            target = self._damaged / (f"{path.name}.{number}" if number else path.name)
            if not os.path.lexists(target):
                break
        path.rename(target)
        sync_directory(self._damaged)

    def _remove_directory(self) -> None:
        """Remove the directory once it is empty."""
        if self._directory.is_dir():
            with contextlib.suppress(OSError):
                self._directory.rmdir()
            sync_directory(self._directory.parent)
