"""Where a service without API keys may listen."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
from pathlib import Path

import structlog

from app.settings import Settings
from app.state.api_keys import ApiKeys
from app.state.base import StoreError
from app.state.sqlite import SqliteStateStore
from app.state.storage import STATE


def check_exposure(settings: Settings) -> None:
    """Check that a service without API keys listens where only its user can reach it.

    Raises:
        ValueError: it would listen elsewhere, or nobody knows whether it has keys.
    """
    if settings.api_keys or _has_stored_keys(settings.data_dir):
        return
    if not is_loopback(settings.host) and not settings.allow_anonymous:
        raise ValueError(
            f"without API keys everybody who reaches {settings.host} could use and delete"
            " everything: set THALWEG_API_KEYS, run thalweg-server keys add, listen on"
            " 127.0.0.1, or set THALWEG_ALLOW_ANONYMOUS=true"
        )
    structlog.get_logger().info(
        "there are no API keys: everybody who reaches the service is its one user",
        host=settings.host,
    )


def _has_stored_keys(data_dir: Path) -> bool:
    if not (path := data_dir / STATE).exists():
        return False
    try:
        with contextlib.closing(SqliteStateStore(path)) as store:
            return ApiKeys(store).exist()
    except StoreError as e:
        # Without an answer the service must not take everybody for its user.
        raise ValueError(f"the API keys in {data_dir} cannot be read: {e}") from e


def is_loopback(host: str) -> bool:
    """Whether an address, or every address of a name, is one of loopback."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return False
    # The zone of a link-local address is no part of it.
    addresses = [str(entry[4][0]).partition("%")[0] for entry in found]
    return bool(addresses) and all(ipaddress.ip_address(a).is_loopback for a in addresses)
