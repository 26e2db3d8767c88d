"""The commands ``key`` and ``keys``: API keys, and who owns what."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime

from app.audit import AuditLog
from app.http.identity import check_scopes
from app.settings import Settings
from app.state.api_keys import ApiKeys, digest_key, new_secret
from app.state.ownership import adopt
from app.state.storage import SQLITE, STATE, Storage, open_storage
from app.times import LAST_SECOND

from .serving import as_option_errors


def key(args: argparse.Namespace) -> int:
    """Generate an API key; print it with the digest that the server stores."""
    secret = new_secret()
    print(f"key for the client:   {secret}")  # noqa: T201 - the command's output
    print(f"for THALWEG_API_KEYS: {args.name}:{digest_key(secret)}")  # noqa: T201 - as above
    return 0


@as_option_errors()
def keys(args: argparse.Namespace) -> int:
    """Run ``keys add``, ``list``, ``revoke`` or ``adopt`` on the data directory."""
    with contextlib.closing(_storage(args)) as storage:
        return _ACTIONS[args.action](args, storage)


def _storage(args: argparse.Namespace) -> Storage:
    settings = Settings(**({} if args.data_dir is None else {"data_dir": args.data_dir}))
    directory = settings.data_dir
    if args.action != "add" and settings.state == SQLITE and not (directory / STATE).exists():
        raise ValueError(f"{directory} is not a data directory: name one with --data-dir")
    return open_storage(directory, 0, settings.state, settings.blobs)


def _add(args: argparse.Namespace, storage: Storage) -> int:
    scopes = check_scopes(args.scope)
    secret, record = ApiKeys(storage.records).add(args.name, scopes, time.time(), args.expires)
    _note("create", record.ident, record.owner, scopes=sorted(scopes))
    # The key alone on standard output, for scripts; it is not stored, and not shown again.
    _say(
        f"key {record.ident} of {record.owner}: {' '.join(sorted(scopes))}{_until(record.expires)}"
    )
    print(secret)  # noqa: T201 - the command's output
    return 0


def _list(_args: argparse.Namespace, storage: Storage) -> int:
    now = time.time()
    for record in sorted(
        ApiKeys(storage.records).records(), key=lambda each: (each.owner, each.created)
    ):
        scopes = " ".join(sorted(record.scopes))
        state = record.state(now)
        print(  # noqa: T201 - the command's output
            f"{record.ident}  {state:<7}  {record.owner}  {scopes}{_until(record.expires)}"
        )
    return 0


def _revoke(args: argparse.Namespace, storage: Storage) -> int:
    for record in ApiKeys(storage.records).revoke(args.name, time.time()):
        _note("revoke", record.ident, record.owner)
        print(f"revoked {record.ident} of {record.owner}")  # noqa: T201 - as above
    return 0


def _adopt(args: argparse.Namespace, storage: Storage) -> int:
    moved, left = adopt(storage.records, args.old, args.name, storage.turn)
    _note("adopt", None, args.name, old_owner=args.old, count=moved)
    print(f"{moved} things of {args.old} now belong to {args.name}")  # noqa: T201 - as above
    for sentence in left:
        _say(sentence)
    return 1 if left else 0


_ACTIONS: dict[str, Callable[[argparse.Namespace, Storage], int]] = {
    "add": _add,
    "list": _list,
    "revoke": _revoke,
    "adopt": _adopt,
}


def _note(action: str, ident: str | None, owner: str, **more: object) -> None:
    """Write the audit line of what has been done."""
    audit = AuditLog(Settings().audit_log)
    audit.write(
        action=action, resource="key", id=ident, owner=owner, result="done", uid=os.getuid(), **more
    )
    audit.close()


def _until(expires: int | None) -> str:
    if expires is None:
        return ""
    return f", until {datetime.fromtimestamp(min(expires, LAST_SECOND), UTC).isoformat()}"


def _say(text: str) -> None:
    sys.stderr.write(f"thalweg-server: {text}\n")
