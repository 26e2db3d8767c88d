"""From an Authorization header to an identity."""

from __future__ import annotations

import asyncio
import hashlib

import pytest

from app.errors import UnauthorizedError
from app.http import keys as keys_module
from app.http.identity import SINGLE_USER, USER_SCOPES, Identity
from app.http.keys import Keys
from app.state.api_keys import ApiKeys, StoredKey, digest_key
from tests.app.state.memory import MemoryStateStore


class Clock:
    """The time, as the test has it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Counted(ApiKeys):
    looks = 0

    def get(self, digest: str) -> StoredKey | None:
        self.looks += 1
        return super().get(digest)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def stored() -> Counted:
    return Counted(MemoryStateStore())


def identify(keys: Keys, key: str | None) -> Identity:
    return asyncio.run(keys.identify(None if key is None else f"Bearer {key}"))


def test_without_keys_there_is_one_user(stored: Counted, clock: Clock) -> None:
    keys = Keys((), stored, digest_key, clock)
    assert not keys.required
    assert identify(keys, None) is SINGLE_USER
    assert identify(keys, "anything") is SINGLE_USER
    secret, _ = stored.add("alice", {"losses"}, clock.now)
    clock.now += keys_module.BELIEVED_SECONDS
    with pytest.raises(UnauthorizedError):
        identify(keys, None)
    assert identify(keys, secret).owner == "alice"
    # Nobody is let in again because the last key was revoked.
    stored.revoke("alice", clock.now)
    clock.now += keys_module.BELIEVED_SECONDS
    for key in (None, secret):
        with pytest.raises(UnauthorizedError):
            identify(keys, key)


def test_keys_of_settings_have_all_scopes_but_admin(stored: Counted, clock: Clock) -> None:
    entries = [f"alice:{digest_key('a')}", digest_key("b").upper(), f" c d : {digest_key('c')}"]
    keys = Keys(entries, stored, digest_key, clock)
    assert keys.required
    assert identify(keys, "a") == Identity("alice", USER_SCOPES, digest_key("a")[:12])
    # Its place in the list would change whose everything is when another key is removed.
    assert identify(keys, "b").owner == hashlib.sha256(b"b").hexdigest()[:12]
    assert identify(keys, "c").owner == "c d"
    with pytest.raises(UnauthorizedError, match="unknown"):
        identify(keys, "d")
    assert stored.looks == 1


def test_stored_keys_are_noticed_and_forgotten_in_time(stored: Counted, clock: Clock) -> None:
    keys = Keys([digest_key("a")], stored, digest_key, clock)
    secret, record = stored.add("bob", {"read:*"}, clock.now)
    assert identify(keys, secret) == Identity("bob", record.scopes, record.ident)
    for _ in range(10):
        identify(keys, secret)
    assert stored.looks == 1
    clock.now += keys_module.BELIEVED_SECONDS / 2
    identify(keys, secret)
    assert stored.looks == 1
    clock.now -= keys_module.BELIEVED_SECONDS / 2
    stored.revoke(record.ident, clock.now)
    assert identify(keys, secret).owner == "bob"
    clock.now += keys_module.BELIEVED_SECONDS
    with pytest.raises(UnauthorizedError, match="unknown"):
        identify(keys, secret)


def test_an_expired_key_says_so(stored: Counted, clock: Clock) -> None:
    keys = Keys([digest_key("a")], stored, digest_key, clock)
    secret, _ = stored.add("bob", {"losses"}, clock.now, 60)
    assert identify(keys, secret).owner == "bob"
    clock.now += 60
    with pytest.raises(UnauthorizedError, match="expired at 1970-01-01T00:17:40"):
        identify(keys, secret)


def test_keys_tried_at_random_are_not_all_remembered(
    stored: Counted, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys_module, "_REMEMBERED", 5)
    keys = Keys([digest_key("a")], stored, digest_key, clock)
    for number in range(20):
        with pytest.raises(UnauthorizedError):
            identify(keys, f"guess {number}")
    assert len(keys._known) == 5
    for number, looks in ((19, 20), (15, 20), (14, 21)):
        with pytest.raises(UnauthorizedError):
            identify(keys, f"guess {number}")
        assert stored.looks == looks
