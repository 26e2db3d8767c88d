"""What the service is like, in rows of pages: limits, quotas, keys, problems."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator
from typing import NamedTuple

from app.errors import KINDS
from app.http.identity import Identity
from app.parts import Parts
from app.settings import Settings
from app.state.api_keys import ApiKeys
from app.state.base import StoreError
from app.state.ownership import namespace
from core.units import in_units


class Row(NamedTuple):
    """A limit, and how much of it is used."""

    name: str
    allowed: str
    setting: str
    used: str = ""
    ratio: float = 0.0


def shown(nbytes: int | None) -> str:
    """Return a number of bytes for people."""
    return "no limit" if nbytes is None else in_units(nbytes)


def limits(settings: Settings) -> list[Row]:
    """Return the limits that clients meet first."""
    share = f"{settings.owner_share:.0%} of memory, buffers, requests and connections"
    rate = "no limit" if settings.owner_rate is None else f"{settings.owner_rate:g} per second"
    named = (
        ("A posted stream", shown(settings.max_body), "MAX_BODY"),
        ("An uploaded stream of a run", shown(settings.max_upload), "MAX_UPLOAD"),
        ("An auxiliary file", shown(settings.max_input), "MAX_INPUT"),
        ("Memory of all requests", shown(settings.memory_limit), "MEMORY_LIMIT"),
        ("Share of one owner", share, "OWNER_SHARE"),
        ("Requests of one owner", rate, "OWNER_RATE"),
        ("Requests in progress", f"{settings.max_requests:,}", "MAX_REQUESTS"),
    )
    return [Row(name, allowed, f"THALWEG_{setting}") for name, allowed, setting in named]


def quotas(parts: Parts, caller: Identity) -> list[Row]:
    """Return what an owner may store, and has stored; less where the store fails."""
    found = []
    # The page is for when something fails.
    with contextlib.suppress(StoreError):
        for kind, limit in parts.quotas.limits.items():
            used = parts.storage.records.largest_usage(kind, f"{namespace(caller.owner)}.")
            setting = f"THALWEG_QUOTA_{limit.name.upper()}"
            ratio = max(used.count / max(limit.count, 1), used.nbytes / max(limit.nbytes, 1))
            allowed = f"{limit.count:,}, {shown(limit.nbytes)}"
            usage = f"{used.count:,}, {shown(used.nbytes)}"
            found.append(Row(limit.name, allowed, setting, usage, ratio))
    return found


class KeyRow(NamedTuple):
    """A key, as administrators see it."""

    ident: str
    owner: str
    scopes: tuple[str, ...]
    state: str


_MOST_KEYS = 500


def keys(parts: Parts) -> Iterator[KeyRow]:
    """Yield the keys of the settings, and those that are stored, up to some hundreds."""
    for caller in parts.api_keys.fixed:
        yield KeyRow(
            str(caller.key_id), caller.owner, tuple(sorted(caller.scopes)), "in the settings"
        )
    for _, key in zip(range(_MOST_KEYS), ApiKeys(parts.storage.records).records(), strict=False):
        yield KeyRow(key.ident, key.owner, tuple(sorted(key.scopes)), key.state(time.time()))


_PROBLEMS = re.compile(r'^thalweg_problems_total\{.*code="([^"]+)".* (\S+)$', re.MULTILINE)


def problems(metrics: str) -> list[tuple[str, int, str]]:
    """Return code, number and title of the problems answered so far, the most frequent first.

    Args:
        metrics: those of all workers, as ``/metrics`` has them.
    """
    counted = ((code, int(float(number))) for code, number in _PROBLEMS.findall(metrics))
    found = [(code, count, KINDS[code].title) for code, count in counted if count and code in KINDS]
    return sorted(found, key=lambda row: (-row[1], row[0]))
