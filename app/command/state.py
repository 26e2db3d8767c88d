"""The command ``state``: moves what a service keeps from its data directory to shared stores."""

from __future__ import annotations

import argparse
import sys
from contextlib import closing
from pathlib import Path

from app.settings import Settings
from app.state import token_keys
from app.state.copying import Copied, copy_blobs, copy_records
from app.state.presence import pids_beside
from app.state.sqlite import SqliteStateStore
from app.state.storage import CLAIMS, FILES, SQLITE, STATE, open_storage

from .serving import as_option_errors


@as_option_errors()
def state(args: argparse.Namespace) -> int:
    """Copy the state of a data directory to a database and an object store."""
    settings = Settings(data_dir=args.data_dir or Settings().data_dir, state=args.to)
    _check(settings)
    copied = _copy(settings.data_dir, settings.state, Settings(blobs=args.blobs).blobs)
    print(  # noqa: T201 - the command's output
        f"{copied.records:,} records and {copied.blobs:,} blobs ({copied.nbytes:,} bytes) copied"
        f" and compared; {copied.present:,} were there"
    )
    return 0


def _check(settings: Settings) -> None:
    directory = settings.data_dir
    if settings.state == SQLITE:
        raise ValueError("--to must be the address of a database")
    if not (directory / STATE).exists():
        raise ValueError(f"{directory} is not a data directory: name one with --data-dir")
    if pids := pids_beside(directory / CLAIMS):
        processes = ", ".join(map(str, pids))
        raise ValueError(f"a service uses {directory} (processes {processes}): stop it first")


def _copy(directory: Path, state: str, blobs: str) -> Copied:
    copied = Copied()
    with (
        closing(open_storage(directory, 0)) as source,
        closing(open_storage(directory, 0, state, blobs)) as target,
    ):
        assert isinstance(source.records, SqliteStateStore)  # noqa: S101 - as by default
        assert target.database is not None  # noqa: S101 - as checked
        copy_records(source.records, target.database, source.records.kinds(), copied)
        token_keys.share(directory, target.records)
        if blobs != FILES:
            copy_blobs(source.blobs, target.blobs, source.blobs.kinds(), copied, _tell)
    return copied


def _tell(copied: Copied) -> None:
    if sys.stderr.isatty():
        print(f"\r{copied.blobs:,} blobs", end="", file=sys.stderr)  # noqa: T201 - progress
