"""Keys identify requests, and those in progress end with their key."""

from __future__ import annotations

import asyncio
import hashlib
import json
import select
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import numpy as np
import pytest

from app.errors import UnauthorizedError
from app.http import keys as keys_module
from app.http.identity import SINGLE_USER, USER_SCOPES, Identity
from app.http.keys import BELIEVED_SECONDS, GRACE_SECONDS, Keys
from app.state.api_keys import ApiKeys, StoredKey, digest_key
from app.state.sqlite import SqliteStateStore
from tests.app.harness import Answer, Post, Service, ask, head, is_problem
from tests.app.losses.posts import good
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


SCOPES = {"runs", "losses", "read:*", "register:*"}
SOON = 2 * BELIEVED_SECONDS + GRACE_SECONDS + 5
"""Seconds until all has ended, on a busy machine too."""
LIFE = 5.0
"""Seconds that the key lives which expires."""


class Requests:
    """The requests of one key, each in progress.

    Args:
        service: the server.
        key: the key.
        stack: closes their connections.
    """

    def __init__(self, service: Service, key: str, stack: ExitStack) -> None:
        self.service = service
        self.key = key
        self._stack = stack
        spec = json.dumps({"perspective": "gul", "reports": ["melt"]}).encode()
        run = self.ask("POST", "/v1/runs", spec).json()["links"]["self"]
        self.stream = str(
            self.ask("POST", f"{run}/streams", Upload_Complete="?0").headers["Location"]
        )
        entry = json.dumps({"id": "scan", "files": ["scan.npy"]}).encode()
        assert self.ask("POST", "/v1/datasets", entry).status in {200, 201}
        view = self.ask("POST", "/v1/datasets/scan/views", b"{}").json()["id"]
        self.rows = self.begin("GET", f"{run}/rows/melt?follow=true&format=sse")
        self.progress = self.begin("GET", f"{run}/progress")
        self.file = self.begin("GET", f"/v1/datasets/scan/views/{view}/raw")
        body = good().encode()
        upload = {"Content_Type": "application/partial-upload", "Upload_Offset": 0}
        self.append = self.begin("PATCH", self.stream, body, **upload, Upload_Complete="?1")
        self.post = self.begin("POST", "/v1/losses/melt", body)

    def ask(self, method: str, path: str, body: bytes = b"", **headers: object) -> Answer:
        return ask(self.service, Post(path, [body], self._headers(headers), method=method))

    def begin(self, method: str, path: str, body: bytes = b"", **headers: object) -> socket.socket:
        """Begin a request whose body, if it has one, lacks its last byte."""
        client = self._stack.enter_context(self.service.connect(SOON))
        length = {"Content-Length": len(body)} if body else {}
        client.sendall(head(method, path, self._headers(length | headers)) + body[:-1])
        return client

    def _headers(self, more: dict[str, object]) -> list[tuple[str, str]]:
        pairs = [(name.replace("_", "-"), str(value)) for name, value in more.items()]
        return [("Authorization", f"Bearer {self.key}"), *pairs]


@pytest.fixture
def keys(tmp_path: Path) -> Iterator[ApiKeys]:
    with closing(SqliteStateStore(tmp_path / "data" / "state.sqlite")) as store:
        yield ApiKeys(store)


@pytest.fixture
def service(tmp_path: Path, keys: ApiKeys) -> Iterator[Service]:
    keys.add("root", {"admin"}, time.time())
    roots = tmp_path / "roots"
    roots.mkdir()
    # More than sockets hold.
    np.save(roots / "scan.npy", np.zeros((64, 1, 512, 512), "<u2"))
    server = Service(tmp_path, dataset_roots=roots)
    try:
        yield server
        assert server.stop() == 0
        assert not server.failures()
    finally:
        server.kill()


def test_requests_end_soon_after_their_key(service: Service, keys: ApiKeys) -> None:
    now = time.time()
    valid, _ = keys.add("alice", SCOPES, now)
    revoked, record = keys.add("alice", SCOPES, now)
    with ExitStack() as stack:
        goes_on = Requests(service, valid, stack)
        is_revoked = Requests(service, revoked, stack)
        expiring, _ = keys.add("alice", SCOPES, time.time(), LIFE)
        expires = Requests(service, expiring, stack)
        assert time.time() < now + LIFE, "the machine is too slow for this test"
        keys.revoke(record.ident, time.time())
        begin = time.monotonic()
        _check_ends(is_revoked, "unknown")
        _check_ends(expires, "expired at")
        assert time.monotonic() - begin < LIFE + SOON
        time.sleep(GRACE_SECONDS)
        for ended in (is_revoked, expires):
            # Nobody has read it: it was broken off.
            assert not Answer(ended.file, "GET").whole
            # What was sent of the upload is kept.
            ended.key = valid
            offset = int(ended.ask("HEAD", ended.stream).headers["Upload-Offset"])
            assert 0 < offset < len(good().encode())
        waiting = [goes_on.rows, goes_on.append, goes_on.post]
        # Heads of the rows and the like have come, but no end.
        for client in select.select(waiting, [], [], 0)[0]:
            assert b"unauthorized" not in client.recv(1 << 16)
        goes_on.append.sendall(good().encode()[-1:])
        assert Answer(goes_on.append, "PATCH").status in {200, 201, 204}
        goes_on.post.sendall(good().encode()[-1:])
        assert Answer(goes_on.post).status == 200


def _check_ends(requests: Requests, detail: str) -> None:
    """Check the answers to requests whose key is no longer valid."""
    for client, method in ((requests.append, "PATCH"), (requests.post, "POST")):
        problem = is_problem(Answer(client, method), "unauthorized", 401)
        assert detail in problem["detail"]
    for client in (requests.rows, requests.progress):
        answer = Answer(client, "GET")
        assert answer.whole
        last = answer.body.rstrip().rpartition(b"\n\n")[2].decode()
        assert "event: problem" in last
        assert '"code":"unauthorized"' in last
        assert detail in last
