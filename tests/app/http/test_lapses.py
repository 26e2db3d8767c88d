"""What becomes of requests in progress when their key is revoked, or expires."""

from __future__ import annotations

import json
import select
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import numpy as np
import pytest

from app.http.keys import BELIEVED_SECONDS
from app.http.lapses import GRACE_SECONDS
from app.state.api_keys import ApiKeys
from app.state.sqlite import SqliteStateStore
from tests.app.harness import Answer, Post, Service, ask, head, is_problem
from tests.app.losses.posts import good

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
