"""Each change of state leaves one line that says who did what; nothing else leaves any."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from starlette.types import Receive, Scope, Send

from app.audit import AuditLog
from app.console.routes import Console
from app.console.samples import SCAN
from app.http.cookies import Cookies
from app.http.guard import Guard
from app.http.keys import Keys
from app.http.origins import Origins
from app.http.throttle import Throttle
from app.http.trail import CHANGES
from app.main import ROUTERS, create_app
from app.server.body import ClientDisconnected
from app.server.drain import DRAIN_EXTENSION, Drain
from app.server.flow import Flag
from app.server.responses import DISCONNECTED_EXTENSION
from app.settings import Settings
from app.state.api_keys import ApiKeys, digest_key
from app.telemetry import Metrics
from app.tokens import KeyRing, new_key
from tests.app.harness import Answer, Post, Service, Unbounded, ask
from tests.app.losses.posts import good
from tests.app.state.memory import MemoryStateStore
from tests.scale import PURE_PYTHON

KEY = "the key of alice"
ORDER = [
    ("POST", "/v1/datasets"),
    ("POST", "/console/samples/scan"),
    ("POST", "/v1/datasets/{ident}/views"),
    ("POST", "/v1/pipelines"),
    ("PUT", "/v1/inputs/{name}"),
    ("POST", "/v1/runs"),
    ("PATCH", "/v1/runs/{run}"),
    ("PUT", "/v1/runs/{run}/inputs/{name}"),
    ("POST", "/v1/runs/{run}/streams"),
    ("PATCH", "/v1/runs/{run}/streams/{stream}"),
    ("POST", "/v1/runs/{run}/streams/{stream}"),
    ("POST", "/v1/runs/{run}/seal"),
    ("POST", "/v1/runs/{run}/reports"),
    ("POST", "/v1/portfolios/loss-sets"),
    ("PUT", "/v1/portfolios/loss-sets/{ident}"),
    ("DELETE", "/v1/portfolios/loss-sets/{ident}"),
    ("DELETE", "/v1/runs/{run}/streams/{stream}"),
    ("DELETE", "/v1/runs/{run}"),
    ("DELETE", "/v1/inputs/{name}/{digest}"),
    ("DELETE", "/v1/pipelines/{ident}"),
    ("DELETE", "/v1/datasets/{ident}/views/{name}"),
    ("DELETE", "/v1/datasets/{ident}"),
]
"""Requests in an order in which each finds what it needs."""
_TABLE = ("PUT", "/v1/portfolios/loss-sets/{ident}")
RESULTS = {
    ("PATCH", "/v1/runs/{run}"): ("labelled", "labelled"),
    ("PUT", "/v1/runs/{run}/inputs/{name}"): ("existed", "existed"),
    ("POST", "/v1/runs/{run}/streams"): ("created", "created"),
    ("PATCH", "/v1/runs/{run}/streams/{stream}"): ("appended", "refused"),
    ("POST", "/v1/runs/{run}/streams/{stream}"): ("refused", "refused"),
    ("POST", "/v1/runs/{run}/seal"): ("refused", "refused"),
    ("POST", "/v1/runs/{run}/reports"): ("refused", "refused"),
    ("POST", "/v1/portfolios/loss-sets"): ("refused", "refused"),
}
"""Results of a request and of its repetition, where they are not ``created``, ``existed``."""

UNCHANGING = {
    ("POST", "/v1/losses"),
    ("PUT", "/v1/losses"),
    ("PUT", "/v1/losses/{report}"),
    ("POST", "/v1/losses/{report}"),
    ("POST", "/v1/datasets/{ident}/tiles"),
    ("POST", "/v1/datasets/{ident}/plan"),
    ("POST", "/v1/datasets/{ident}/reduce"),
    ("POST", "/v1/portfolios/query"),
    ("POST", "/console/sign-in"),
    ("POST", "/console/sign-out"),
    ("POST", "/v1/tokens/inspect"),
    ("POST", "/v1/tokens/refresh"),
}
"""Requests with other methods than GET and HEAD that change none."""


class Audited:
    """A server whose audit log is a file."""

    def __init__(self, directory: Path) -> None:
        self.log = directory / "audit"
        roots = directory / "roots"
        roots.mkdir()
        np.save(roots / "a.npy", np.arange(48, dtype="<u2").reshape(2, 3, 4, 2))
        self.service = Service(
            directory,
            api_keys=f"alice:{digest_key(KEY)}",
            dataset_roots=roots,
            audit_log=self.log,
            log_level="error",
        )
        self.view = self.pipeline = self.digest = self.token = self.run = self.stream = ""

    def ask(self, method: str, path: str, body: object = None, key: str = KEY) -> Answer:
        data = body if isinstance(body, bytes) else json.dumps(body or {}).encode()
        headers = [("Content-Type", "application/json"), ("Authorization", f"Bearer {key}")]
        if "/streams" in path:
            headers = [("Content-Type", "application/partial-upload"), *headers[1:]]
            headers += [("Upload-Complete", "?0"), ("Upload-Offset", "0")]
            headers += [("X-HTTP-Method-Override", "PATCH")]
        headers.append(("Idempotency-Key", "a"))
        headers.append(("X-Request-Id", f"{method}-{path.partition('?')[0]}"))
        return ask(self.service, Post(path, [data], headers, method=method))

    def lines(self) -> list[dict[str, Any]]:
        text = self.log.read_text() if self.log.exists() else ""
        assert KEY not in text
        assert not self.token or self.token not in text
        return [json.loads(line) for line in text.splitlines()]

    def request(self, method: str, route: str) -> Answer:
        """Make the request of a route that changes state."""
        names = {
            "/v1/datasets/{ident}/views": "/v1/datasets/a/views",
            "/v1/datasets/{ident}/views/{name}": f"/v1/datasets/a/views/{self.view}",
            "/v1/datasets/{ident}": "/v1/datasets/a",
            "/v1/pipelines/{ident}": f"/v1/pipelines/{self.pipeline}",
            "/v1/inputs/{name}": "/v1/inputs/quantiles",
            "/v1/runs/{run}": f"/v1/runs/{self.run}",
            "/v1/runs/{run}/inputs/{name}": f"/v1/runs/{self.run}/inputs/quantiles",
            "/v1/runs/{run}/seal": f"/v1/runs/{self.run}/seal",
            "/v1/runs/{run}/reports": f"/v1/runs/{self.run}/reports",
            "/v1/runs/{run}/streams": f"/v1/runs/{self.run}/streams",
            "/v1/runs/{run}/streams/{stream}": f"/v1/runs/{self.run}/streams/{self.stream}",
            "/v1/inputs/{name}/{digest}": f"/v1/inputs/quantiles/{self.digest}",
            "/v1/portfolios/loss-sets/{ident}": "/v1/portfolios/loss-sets/book",
        }
        of_table = "?form=ylt&no_of_periods=9" if (method, route) == _TABLE else ""
        stages = [{"op": "source", "dataset": "a"}, {"op": "batch", "size": 2}]
        bodies: dict[str, object] = {
            "/v1/datasets": {"id": "a", "files": ["a.npy"]},
            "/v1/pipelines": {"order": 1, "stages": stages},
            "/v1/inputs/{name}": b"quantile\n0.5\n",
            "/v1/runs/{run}/inputs/{name}": b"quantile\n0.5\n",
            "/v1/runs/{run}/streams": b"",
            "/v1/runs": {"perspective": "gul", "reports": ["melt"]},
            "/v1/runs/{run}": {"label": "flood"},
            "/v1/runs/{run}/reports": {"reports": ["melt"]},
            "/v1/portfolios/loss-sets": {"run": self.run},
            "/v1/portfolios/loss-sets/{ident}": b"Period,Loss\n1,5\n",
        }
        answer = self.ask(method, names.get(route, route) + of_table, bodies.get(route))
        nameless = {"/v1/datasets", "/console/samples/scan"}
        if method == "POST" and answer.status == 201 and route not in nameless:
            made = answer.json()
            if route == "/v1/runs":
                self.run = made["id"]
                return answer
            if "/v1/runs" in route:
                self.stream = made["id"]
                return answer
            self.token = made["token"]
            if route == "/v1/pipelines":
                self.pipeline = made["id"]
            else:
                self.view = made["id"]
        if method == "PUT" and "/inputs/" in route:
            self.digest = answer.json()["digest"]
        return answer


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Audited]:
    if PURE_PYTHON:
        pytest.skip("the server is a process of its own, whatever kernels are here")
    here = Audited(tmp_path_factory.mktemp("audited"))
    try:
        yield here
        assert here.service.stop() == 0
    finally:
        here.service.kill()


def test_every_route_that_may_change_state_is_in_a_table(tmp_path: Path) -> None:
    document = create_app(Settings(data_dir=tmp_path)).openapi()
    routes = {
        (method.upper(), path)
        for path, operations in document["paths"].items()
        for method in operations
        if method not in {"get", "head"}
    }
    pages = [route for router in ROUTERS if router.service is Console for route in router.routes]
    routes |= {(m, r.path) for r in pages for m in (r.methods or set()) - {"GET", "HEAD"}}
    assert routes == set(CHANGES) | UNCHANGING
    assert not set(CHANGES) & UNCHANGING
    assert set(ORDER) == set(CHANGES)


def test_every_change_writes_one_line_and_a_repetition_too(audited: Audited) -> None:
    for method, route in ORDER:
        change = CHANGES[method, route]
        for again in (False, True):
            before = len(audited.lines())
            answer = audited.request(method, route)
            fresh = audited.lines()[before:]
            (line,) = fresh
            assert (line["event"], line["action"]) == ("audit", change.action)
            assert (line["resource"], line["owner"]) == (change.resource, "alice")
            assert line["request_id"] == answer.getheader("X-Request-Id")
            assert line["key_id"] == digest_key(KEY)[:12]
            assert (
                line.get("id")
                == {
                    "dataset": "a",
                    "view": audited.view,
                    "pipeline": audited.pipeline,
                    "input": audited.digest,
                    "run": audited.run,
                    "stream": audited.stream,
                    "sample": SCAN,
                    "loss_set": None if method == "POST" else "book",
                }[change.resource]
            )
            if method == "DELETE":
                assert line["result"] == ("refused" if again else "deleted")
                assert line.get("code") == ("not-found" if again else None)
            else:
                expected = RESULTS.get((method, route), ("created", "existed"))
                assert line["result"] == expected[again]
    views = [line for line in audited.lines() if line["resource"] == "view"]
    assert {line["dataset"] for line in views} == {"a"}
    inputs = [line for line in audited.lines() if line["resource"] == "input"]
    assert {line["name"] for line in inputs} == {"quantiles"}


def test_refused_registrations_are_lines(audited: Audited) -> None:
    before = len(audited.lines())
    assert audited.ask("POST", "/v1/datasets", {"files": ["../x"]}).status == 403
    assert audited.ask("POST", "/v1/pipelines", b"{").status == 400
    refused = [(line["result"], line["status"]) for line in audited.lines()[before:]]
    assert refused == [("refused", 403), ("refused", 400)]


@pytest.mark.parametrize(
    ("error", "result", "status"),
    [(ValueError(), "refused", 500), (ClientDisconnected(), "unknown", None)],
)
def test_a_request_that_is_not_answered_is_a_line_too(
    tmp_path: Path, error: Exception, result: str, status: int | None
) -> None:
    async def inner(scope: Scope, receive: Receive, send: Send) -> None:
        del receive, send
        scope["route"] = SimpleNamespace(path="/v1/pipelines/{ident}")
        scope["path_params"] = {"ident": "p"}
        raise error

    async def silent(*_: object) -> Any:  # noqa: ANN401 - a message
        raise AssertionError

    audit = AuditLog(str(tmp_path / "audit"))
    keys = Keys((), ApiKeys(MemoryStateStore()), digest_key)
    scope: Scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "DELETE",
        "path": "/v1/pipelines/p",
        "headers": [(b"host", b"a")],
        "extensions": {DRAIN_EXTENSION: Drain(), DISCONNECTED_EXTENSION: Flag()},
    }
    cookies = Cookies(KeyRing([new_key()]), Origins())
    guard = Guard(inner, keys, Metrics(), audit, Throttle(9, 9), cookies, budgets=Unbounded())
    with contextlib.suppress(ValueError):
        asyncio.run(guard(scope, silent, silent))
    audit.close()
    keys.close()
    (text,) = (tmp_path / "audit").read_text().splitlines()
    line = json.loads(text)
    told = line["action"], line["resource"], line["id"], line["owner"], line["result"]
    assert told == ("delete", "pipeline", "p", "admin", result)
    assert line.get("status") == status


def test_what_changes_nothing_leaves_no_line(audited: Audited) -> None:
    before = len(audited.lines())
    assert audited.ask("POST", "/v1/losses/melt", good().encode()).status == 200
    assert audited.ask("GET", "/v1/datasets").status == 200
    assert audited.ask("POST", "/v1/tokens/inspect", {"token": "x"}).status >= 400
    assert audited.ask("DELETE", "/nowhere").status == 404
    assert audited.lines()[before:] == []


def test_refused_identities_are_lines_up_to_a_limit(audited: Audited) -> None:
    before = len(audited.lines())
    for _ in range(30):
        assert audited.ask("GET", "/v1/datasets?after=secret", key="another").status == 401
    fresh = audited.lines()[before:]
    assert 0 < len(fresh) < 30
    line = fresh[0]
    assert (line["action"], line["result"], line["status"]) == ("identify", "refused", 401)
    assert (line["path"], line["address"]) == ("/v1/datasets", "127.0.0.1")
    assert "another" not in audited.log.read_text()
