"""Servers that are killed while owners register and delete: what was acknowledged holds.

Three owners register, share and delete the same few datasets, views, pipelines and inputs, and
a fourth process adds and revokes keys, until all processes are killed in the middle of it.
After a restart every thing is whole or not there, as the last acknowledged request left it; of
a request without an answer either is right.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import os
import random
import select
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from app.state.api_keys import digest_key
from tests.app.losses.posts import good
from tests.e2e.service import Service
from tests.scale import SOAK
from tests.server_process import HOST, ROOT

ROUNDS = 100 if SOAK else 1
OWNERS = ("alice", "bob", "carol")
BODY = good().encode()

_KEYS = """
import sys, time
from pathlib import Path
from app.state.api_keys import ApiKeys
from app.state.sqlite import SqliteStateStore

keys = ApiKeys(SqliteStateStore(Path(sys.argv[1])))
while True:
    secret, key = keys.add("temporary", ["admin"], time.time())
    print("added", secret, flush=True)
    keys.revoke(key.digest, time.time())
    print("revoked", secret, flush=True)
"""


@dataclass
class Thing:
    """Something that an owner registers and deletes again and again."""

    kind: str
    method: str
    target: str
    body: bytes
    address: str = ""
    document: Any = None
    """Answer to GET."""
    there: bool | None = False
    """Whether it is registered; None if a request got no answer."""


class Client:
    """Requests of one owner over one connection."""

    def __init__(self, service: Service, key: str) -> None:
        self._connection = http.client.HTTPConnection(HOST, service.port, timeout=30)
        self._headers = {"Authorization": f"Bearer {key}"}

    def ask(self, method: str, target: str, body: bytes | None = None) -> tuple[int, bytes]:
        self._connection.request(method, target, body, self._headers)
        answer = self._connection.getresponse()
        return answer.status, answer.read()

    def document(self, target: str) -> Any:  # noqa: ANN401 - JSON
        status, body = self.ask("GET", target)
        return json.loads(body) if status == 200 else status

    def close(self) -> None:
        self._connection.close()


@dataclass
class Owner:
    """What an owner did, and what came of it."""

    name: str
    things: list[Thing] = field(default_factory=list)
    acknowledged: threading.Event = field(default_factory=threading.Event)
    """Set by every answer."""

    def prepare(self, client: Client) -> None:
        """Register everything once, for the addresses, and delete it."""
        base = "/v1/datasets/base"
        assert client.ask("POST", "/v1/datasets", _entry("base"))[0] == 201
        for k in range(4):
            self.things.append(Thing("dataset", "POST", "/v1/datasets", _entry(f"d{k}")))
            view = json.dumps({"sig": [[0, 4], [0, k + 1]]}).encode()
            self.things.append(Thing("view", "POST", f"{base}/views", view))
            stages = [{"op": "source", "dataset": "base"}, {"op": "batch", "size": k + 1}]
            spec = json.dumps({"order": 1, "stages": stages}).encode()
            self.things.append(Thing("pipeline", "POST", "/v1/pipelines", spec))
            file = b"quantile\n0.%d5\n" % k
            self.things.append(Thing("input", "PUT", "/v1/inputs/quantiles", file))
        for thing in self.things:
            status, body = client.ask(thing.method, thing.target, thing.body)
            assert status == 201, body
            answer = json.loads(body)
            places = {
                "dataset": f"/v1/datasets/{answer.get('id')}",
                "view": f"{base}/views/{answer.get('id')}",
                "pipeline": f"/v1/pipelines/{answer.get('id')}",
                "input": f"/v1/inputs/quantiles/{answer.get('digest')}",
            }
            thing.address = places[thing.kind]
            thing.document = self.look(client, thing)
            assert thing.document is not None
            assert client.ask("DELETE", thing.address)[0] == 204

    @staticmethod
    def look(client: Client, thing: Thing) -> Any:  # noqa: ANN401 - JSON
        """Return the document of a thing, or what it makes; None if it is not there."""
        if thing.kind == "input":
            digest = thing.address.rpartition("/")[2]
            status, body = client.ask("POST", f"/v1/losses/qelt?quantiles={digest}", BODY)
            assert status in {200, 410}, body
            return body if status == 200 else None
        found = client.document(thing.address)
        if found == 404:
            return None
        assert isinstance(found, dict)
        # A token holds when it was made.
        return found | {"token": bool(found.get("token"))}

    def run(self, client: Client, seed: int) -> None:
        """Register and delete until the server is gone."""
        draw = random.Random(seed)  # noqa: S311 - not a secret
        with contextlib.suppress(OSError, http.client.HTTPException):
            while True:
                thing = draw.choice(self.things)
                deleting = draw.random() < 0.5
                there, thing.there = thing.there, None
                if deleting:
                    status, body = client.ask("DELETE", thing.address)
                    assert status in ({204} if there else {404} if there is False else {204, 404})
                else:
                    status, body = client.ask(thing.method, thing.target, thing.body)
                    assert status in ({200} if there else {201} if there is False else {200, 201})
                assert body or deleting
                thing.there = not deleting
                self.acknowledged.set()

    def check(self, client: Client) -> None:
        """Hold the server to what it acknowledged, and learn what it did not."""
        for thing in self.things:
            found = self.look(client, thing)
            assert found in (thing.document, None), (self.name, thing, found)
            if thing.there is not None:
                assert (found is not None) == thing.there, (self.name, thing)
            thing.there = found is not None
        for kind, target in (("dataset", "/v1/datasets"), ("pipeline", "/v1/pipelines")):
            entries = client.document(target)[f"{kind}s"]
            listed = {entry["id"] if isinstance(entry, dict) else entry for entry in entries}
            own = {t.address.rpartition("/")[2] for t in self.things if t.there and t.kind == kind}
            assert listed - {"base"} == own, self.name


def _entry(ident: str) -> bytes:
    return json.dumps({"id": ident, "files": ["scan.npy"]}).encode()


@contextlib.contextmanager
def changing_keys(data: Path) -> Iterator[list[str]]:
    """Have another process add and revoke keys until it is killed; what it said is in the list."""
    said: list[str] = []
    command = [sys.executable, "-c", _KEYS, str(data / "state.sqlite")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        try:
            assert process.stdout is not None
            said.append(process.stdout.readline())
            yield said
        finally:
            process.kill()
            assert process.stdout is not None
            said += process.stdout.read().splitlines(keepends=True)


def check_keys(service: Service, said: list[str]) -> None:
    lines = [line.split() for line in said if line.endswith("\n")]
    assert lines
    for what, secret in lines[-3:]:
        client = Client(service, secret)
        status, _ = client.ask("GET", "/v1/datasets")
        client.close()
        if [what, secret] == lines[-1] and what == "added":
            # It may have been revoked, without a word.
            assert status in {200, 401}
        else:
            assert status == (401 if ["revoked", secret] in lines else 200)


def check_stores(data: Path, unanswered: int) -> None:
    """The usage of every owner is that of its records, and inputs have content and owners."""
    with contextlib.closing(sqlite3.connect(data / "state.sqlite")) as state:
        assert state.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        counted = state.execute("SELECT * FROM usage ORDER BY kind, space").fetchall()
        query = """SELECT kind, substr(id, 1, instr(id, '.')) AS space, count(*), sum(size)
            FROM head GROUP BY kind, space ORDER BY kind, space"""
        assert counted == state.execute(query).fetchall()
        records = state.execute("SELECT DISTINCT substr(id, 18) FROM head WHERE kind = 'input'")
        owned = {name for (name,) in records}
    stored = {path.name for path in (data / "blobs" / "input").rglob("*.quantiles")}
    assert owned <= stored
    # A file between the two steps of a put or a delete has no owner until it is swept.
    assert len(stored - owned) <= unanswered


def kill(service: Service) -> None:
    """End all processes as a power cut would."""
    pids = service.worker_pids() if service.process.poll() is None else []
    workers = [os.pidfd_open(pid) for pid in pids]
    service.kill()
    for worker in workers:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(worker, signal.SIGKILL)
    for worker in workers:
        assert select.select([worker], [], [], 30)[0]
        os.close(worker)


def test_what_was_acknowledged_survives_a_kill(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    np.save(root / "scan.npy", np.arange(2 * 3 * 4 * 5, dtype="<u2").reshape(2, 3, 4, 5))
    keys = {name: hashlib.sha256(name.encode()).hexdigest() for name in OWNERS}
    entries = ",".join(f"{name}:{digest_key(key)}" for name, key in keys.items())
    service = Service(tmp_path / "service", dataset_roots=root, api_keys=entries, workers=1 + SOAK)
    owners = [Owner(name) for name in OWNERS]
    unanswered = 0
    try:
        for owner in owners:
            client = Client(service, keys[owner.name])
            owner.prepare(client)
            client.close()
        for number in range(ROUNDS):
            for owner in owners:
                owner.acknowledged.clear()
            clients = [Client(service, keys[owner.name]) for owner in owners]
            with changing_keys(service.data_dir) as said, ThreadPoolExecutor(len(owners)) as pool:
                runs = [
                    pool.submit(owner.run, client, len(owners) * number + k)
                    for k, (owner, client) in enumerate(zip(owners, clients, strict=True))
                ]
                for owner in owners:
                    assert owner.acknowledged.wait(30)
                threading.Event().wait(0.037 * (number % 11))
                kill(service)
                for run in runs:
                    run.result()
            for client in clients:
                client.close()
            lost = [t for owner in owners for t in owner.things if t.there is None]
            unanswered += sum(thing.kind == "input" for thing in lost)
            service.set(workers=1 + number % 2)
            service.start()
            for owner in owners:
                client = Client(service, keys[owner.name])
                owner.check(client)
                client.close()
            check_keys(service, said)
            check_stores(service.data_dir, unanswered)
        assert service.stop() == 0
        assert not service.failures()
    finally:
        kill(service)
