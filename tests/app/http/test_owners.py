"""Every route, by whose things it is asked about: a table, and a server held to it.

Alice registers a dataset and all that can be derived from it. Then one request is made by

    own       alice herself
    other     bob, who has the same scopes, and nothing
    shared    bob, who has registered the same before: equal ids and digests
    no scope  a key with the scope ``read:nothing`` alone
    admin     a key with the scope ``admin`` alone

The same table is in ``deploy/SECURITY.md``.
"""

from __future__ import annotations

import html
import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from app.console.routes import Console
from app.http.identity import is_open
from app.main import ROUTERS, create_app
from app.settings import Settings
from app.state.api_keys import ApiKeys, digest_key
from app.state.sqlite import SqliteStateStore
from tests.app.harness import Answer, Post, Service, ask, wait_until
from tests.app.losses.posts import good
from tests.scale import PURE_PYTHON
from tests.server_process import ROOT

COLUMNS = ("own", "other", "shared", "no scope", "admin")
STORED = {
    "none": {"read:nothing"},
    "root": {"admin"},
    "viewer": {"read:public*"},
    "writer": {"register:w/*"},
}
WHO = {"own": "alice", "other": "bob", "shared": "bob", "no scope": "none", "admin": "root"}

TABLE = """
POST   /v1/losses/melt                              | 200 | 200 | 200 | 403 | 403
PUT    /v1/losses/melt                              | 200 | 200 | 200 | 403 | 403
POST   /v1/losses?reports=melt                      | 200 | 200 | 200 | 403 | 403
PUT    /v1/losses?reports=melt                      | 200 | 200 | 200 | 403 | 403
POST   /v1/losses/qelt?quantiles={input}            | 200 | 410 | 200 | 403 | 403
PUT    /v1/inputs/quantiles                         | 200 | 201 | 200 | 403 | 403
DELETE /v1/inputs/quantiles/{input}                 | 204 | 404 | 204 | 403 | 204
POST   /v1/tokens/inspect                           | 200 | 200 | 200 | 200 | 200
POST   /v1/tokens/refresh                           | 200 | 200 | 200 | 200 | 200
GET    /v1/datasets                                 | has | not | has | not | has
POST   /v1/datasets                                 | 200 | 201 | 200 | 403 | 403
GET    /v1/datasets/{dataset}                       | 200 | 404 | 200 | 404 | 200
GET    /v1/datasets/{dataset}/files/0               | 200 | 404 | 200 | 404 | 200
DELETE /v1/datasets/{dataset}                       | 204 | 404 | 204 | 404 | 204
POST   /v1/datasets/{dataset}/tiles                 | 200 | 404 | 200 | 404 | 200
POST   /v1/datasets/{dataset}/tiles?after={tile}    | 200 | 404 | 200 | 404 | 200
POST   /v1/datasets/{dataset}/plan                  | 200 | 404 | 200 | 404 | 200
POST   /v1/datasets/{dataset}/views                 | 200 | 404 | 200 | 404 | 201
POST   /v1/datasets/{dataset}/reduce                | 200 | 404 | 200 | 404 | 200
GET    /v1/datasets/{dataset}/image.png             | 200 | 404 | 200 | 404 | 200
GET    /v1/datasets/{dataset}/views/{view}          | 200 | 404 | 200 | 404 | 200
DELETE /v1/datasets/{dataset}/views/{view}          | 204 | 404 | 204 | 404 | 204
GET    /v1/datasets/{dataset}/views/{view}/plan     | 200 | 404 | 200 | 404 | 200
GET    /v1/datasets/{dataset}/views/{view}/tiles    | 200 | 404 | 200 | 404 | 200
GET    /v1/datasets/{dataset}/views/{view}/tiles/0  | 200 | 404 | 200 | 404 | 200
GET    /v1/datasets/{dataset}/views/{view}/raw      | 200 | 404 | 200 | 404 | 200
GET    /zarr/{view}/zarr.json                       | 200 | 404 | 200 | 404 | 200
GET    /zarr/{view}/data/c/0/0/0/0                  | 200 | 412 | 200 | 412 | 200
GET    /v1/stages                                   | 200 | 200 | 200 | 200 | 200
GET    /v1/stages/map                               | 200 | 200 | 200 | 200 | 200
GET    /v1/pipelines                                | has | not | has | 403 | has
POST   /v1/pipelines                                | 200 | 404 | 200 | 403 | 403
GET    /v1/pipelines/{pipeline}                     | 200 | 404 | 200 | 403 | 200
DELETE /v1/pipelines/{pipeline}                     | 204 | 404 | 204 | 403 | 204
GET    /v1/pipelines/{pipeline}/batches             | 200 | 404 | 200 | 403 | 403
GET    /v1/pipelines/{pipeline}/batches?after={batch} | 200 | 404 | 200 | 403 | 403
GET    /v1/pipelines/{pipeline}/batch               | 200 | 404 | 200 | 403 | 403
GET    /v1/runs                                     | has | not | not | 403 | has
POST   /v1/runs                                     | 201 | 201 | 201 | 403 | 403
GET    /v1/runs/{run}                               | 200 | 404 | 404 | 403 | 200
PATCH  /v1/runs/{run}                               | 200 | 404 | 404 | 403 | 403
DELETE /v1/runs/{run}                               | 204 | 404 | 404 | 403 | 204
PUT    /v1/runs/{run}/inputs/quantiles              | 200 | 404 | 404 | 403 | 403
GET    /v1/runs/{run}/streams                       | 200 | 404 | 404 | 403 | 200
POST   /v1/runs/{run}/streams                       | 201 | 404 | 404 | 403 | 403
GET    /v1/runs/{run}/streams/{stream}              | 204 | 404 | 404 | 403 | 403
PATCH  /v1/runs/{run}/streams/{stream}              | 204 | 404 | 404 | 403 | 403
POST   /v1/runs/{run}/streams/{stream}              | 204 | 404 | 404 | 403 | 403
DELETE /v1/runs/{run}/streams/{stream}              | 204 | 404 | 404 | 403 | 204
POST   /v1/runs/{run}/seal                          | 409 | 404 | 404 | 403 | 403
GET    /v1/runs/{run}/progress?follow=false         | 200 | 404 | 404 | 403 | 200
GET    /v1/runs/{run}/rows/melt                     | 200 | 404 | 404 | 403 | 403
POST   /v1/runs/{run}/reports                       | 409 | 404 | 404 | 403 | 403
GET    /v1/runs/{run}/reports/melt                  | 409 | 404 | 404 | 403 | 403
GET    /v1/portfolios/loss-sets                     | has | not | has | 403 | has
POST   /v1/portfolios/loss-sets                     | 409 | 404 | 404 | 403 | 403
PUT    /v1/portfolios/loss-sets/{losses}?form=ylt&no_of_periods=9 | 200 | 201 | 200 | 403 | 403
GET    /v1/portfolios/loss-sets/{losses}            | 200 | 404 | 200 | 403 | 200
DELETE /v1/portfolios/loss-sets/{losses}            | 204 | 404 | 204 | 403 | 204
GET    /v1/portfolios/loss-sets/{losses}/losses     | 200 | 404 | 200 | 403 | 403
POST   /v1/portfolios/query                         | 200 | 404 | 200 | 403 | 403
GET    /console                                     | 307 | 307 | 307 | 307 | 307
GET    /console/                                    | 307 | 307 | 307 | 307 | 307
GET    /console/runs                                | has | not | not | 403 | has
GET    /console/runs/{run}                          | 200 | 404 | 404 | 403 | 200
GET    /console/datasets                            | has | not | has | not | has
GET    /console/datasets/{dataset}                  | 200 | 404 | 200 | 404 | 200
GET    /console/pipelines                           | has | not | has | 403 | has
GET    /console/pipelines/{pipeline}                | 200 | 404 | 200 | 403 | 200
GET    /console/samples/stream.bin                  | 200 | 200 | 200 | 200 | 200
POST   /console/samples/scan                        | 200 | 200 | 200 | 403 | 403
GET    /console/portfolio                           | has | not | has | 403 | has
GET    /console/files                               | 200 | 200 | 200 | 403 | 403
GET    /console/operations                          | 200 | 200 | 200 | 200 | 200
GET    /console/runs/new                            | 200 | 200 | 200 | 403 | 200
GET    /console/runs/{run}/about                    | 200 | 404 | 404 | 403 | 403
GET    /metrics                                     | 200 | 200 | 200 | 200 | 200
""".strip()
"""``has`` and ``not``: answered with 200, and the list has the thing of alice, or not."""


LISTS = {"/v1/datasets", "/v1/pipelines", "/v1/runs", "/console/runs"}
LISTS |= {"/v1/portfolios/loss-sets", "/console/datasets", "/console/pipelines"}
LISTS |= {"/console/portfolio"}
READING = re.compile(r"/v1/(losses|tokens|portfolios/query)|.*/(tiles(\?.*)?|plan|reduce)$")
"""Paths of posts that leave things as they are."""
RUN = {"perspective": "gul", "reports": ["melt"]}
SETS, YEARS = "/v1/portfolios/loss-sets", "form=ylt&no_of_periods=9"


class Row(NamedTuple):
    method: str
    path: str
    expected: tuple[str, ...]


def row_of(line: str) -> Row:
    request, *cells = line.split("|")
    method, path = request.split()
    return Row(method, path, tuple(cell.strip() for cell in cells))


ROWS = [row_of(line) for line in TABLE.splitlines()]


class Things(NamedTuple):
    """What one owner has registered."""

    dataset: str
    input: str
    view: str
    pipeline: str
    tile: str
    """Token of a tile."""
    batch: str
    """Token of a batch."""
    run: str
    stream: str
    losses: str
    """A loss set."""


class Shared:
    """A server with keys, and requests by the owners of these."""

    def __init__(self, directory: Path) -> None:
        self.roots = directory / "roots"
        for name in ("scan", "public", "secret", "w/own"):
            path = self.roots / f"{name}.npy"
            path.parent.mkdir(parents=True, exist_ok=True)
            np.save(path, np.arange(6 * 8, dtype="<u2").reshape(2, 3, 4, 2))
        (self.roots / "w" / "link.npy").symlink_to("../scan.npy")
        catalogue = directory / "catalogue.toml"
        catalogue.write_text(
            '[public-scan]\nfiles = ["public.npy"]\n[secret]\nfiles = ["secret.npy"]\n'
        )
        self.keys = {"alice": "key of alice", "bob": "key of bob"}
        with SqliteStateStoreOf(directory / "data") as keys:
            for name, scopes in STORED.items():
                self.keys[name] = keys.add(name, scopes, now=0)[0]
        fixed = ",".join(f"{name}:{digest_key(self.keys[name])}" for name in ("alice", "bob"))
        self.service = Service(
            directory, api_keys=fixed, dataset_roots=self.roots, catalogue=catalogue
        )
        self.numbers = itertools.count()
        self._lasting: dict[str, tuple[int, Things]] = {}
        # It is everybody's, for it is the operator's.
        assert self.ask("alice", "POST", "/console/samples/scan").status == 201

    def ask(self, who: str | None, method: str, path: str, body: object = None) -> Answer:
        data = (
            b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        )
        headers = [("Content-Type", "application/json")]
        if "/streams" in path:
            headers = [("Content-Type", "application/partial-upload"), ("Upload-Complete", "?0")]
            headers += [("Upload-Offset", "0"), ("X-HTTP-Method-Override", "PATCH")]
        headers += [("Authorization", f"Bearer {self.keys[who]}")] if who else []
        return ask(self.service, Post(path, [data], headers, method=method))

    def post(self, who: str, path: str, body: object, method: str = "POST") -> Any:  # noqa: ANN401
        answer = self.ask(who, method, path, body)
        assert answer.status in {200, 201}, answer.body
        return answer.json()

    def make(self, who: str, number: int) -> Things:
        """Register a dataset of this number, and one thing of every kind."""
        ident = f"scan-{number}"
        self.post(who, "/v1/datasets", entry(ident))
        stored = self.post(who, "/v1/inputs/quantiles", quantiles(number), "PUT")
        view = self.post(who, f"/v1/datasets/{ident}/views", {})
        pipeline = self.post(who, "/v1/pipelines", spec(ident))
        run = self.post(who, "/v1/runs", RUN)["id"]
        stream = self.post(who, f"/v1/runs/{run}/streams", None)["id"]
        losses = self.post(who, f"{SETS}/set-{number}?{YEARS}", years(number), "PUT")["id"]
        tokens = view["token"], pipeline["token"]
        made = view["id"], pipeline["id"], *tokens, run, stream, losses
        return Things(ident, stored["digest"], *made)

    def new(self, column: str) -> tuple[int, Things]:
        """Things of alice, and their number; bob has the same if the column says so."""
        number = next(self.numbers)
        things = self.make("alice", number)
        if column == "shared":
            self.make("bob", number)
        return number, things

    def lasting(self, column: str) -> tuple[int, Things]:
        """The same ones for all requests of a column that leave them as they are."""
        if column not in self._lasting:
            self._lasting[column] = self.new(column)
        return self._lasting[column]

    def cell(self, row: Row, column: str) -> str:
        """Make one request about things of alice, new if it may change them; what came of it."""
        refused = row.expected[COLUMNS.index(column)] in {"403", "404"}
        # Whoever is refused a deletion changes nothing either, but alice deletes it then.
        if row.method == "GET" or READING.match(row.path) or (refused and row.method != "DELETE"):
            number, things = self.lasting(column)
        else:
            number, things = self.new(column)
        path = row.path.format(**things._asdict())
        answer = self.ask(WHO[column], row.method, path, body_of(row, things, number))
        if row.method == "GET" and path in LISTS:
            if answer.status != 200:
                return str(answer.status)
            return "has" if set(things) & set(self._all(column, path)) else "not"
        if row.method == "DELETE" and answer.status == 204 and column == "shared":
            # What bob deleted is still alice's.
            assert self.ask("bob", "DELETE", path).status == 404
            assert self.ask("alice", "DELETE", path).status == 204
        if row.method == "DELETE" and column in {"other", "no scope"}:
            assert self.ask("alice", "DELETE", path).status == 204
            assert self.ask("alice", "DELETE", path).status == 404
        return str(answer.status)

    def _all(self, column: str, path: str) -> Iterator[str]:
        after = ""
        if path.startswith("/console"):
            next_page: str | None = path
            while next_page is not None:
                page = self.ask(WHO[column], "GET", next_page).body.decode()
                yield from re.findall(rf'href="(?:{path}|{SETS})/([^"]+)"', page)
                found = re.search(r'rel="next" href="([^"]+)"', page)
                next_page = found and path + html.unescape(found[1])
            return
        while after is not None:
            page = self.ask(WHO[column], "GET", f"{path}?limit=1000&after={after}").json()
            found = page[path.rpartition("/")[2].replace("-", "_")]
            yield from (each["id"] if isinstance(each, dict) else each for each in found)
            after = page["after"]


class SqliteStateStoreOf:
    """The keys in a data directory."""

    def __init__(self, directory: Path) -> None:
        self._store = SqliteStateStore(directory / "state.sqlite")

    def __enter__(self) -> ApiKeys:
        return ApiKeys(self._store)

    def __exit__(self, *_: object) -> None:
        self._store.close()


def entry(ident: str, file: str = "scan.npy") -> dict[str, Any]:
    return {"id": ident, "files": [file]}


def spec(dataset: str, **source: object) -> dict[str, Any]:
    stages = [{"op": "source", "dataset": dataset, **source}, {"op": "batch", "size": 2}]
    return {"order": 1, "stages": stages}


def quantiles(number: int) -> bytes:
    return f"quantile\n0.5\n{0.6 + number / 100_000:.6f}\n".encode()


def years(number: int) -> bytes:
    return f"Period,Loss\n1,5\n2,{number + 1}\n".encode()


def body_of(row: Row, things: Things, number: int) -> object:
    if row.path.startswith("/v1/losses"):
        return good().encode()
    if row.path.startswith("/v1/tokens"):
        return {"token": things.tile}
    return {
        ("PUT", "/v1/inputs/quantiles"): quantiles(number),
        ("POST", "/v1/datasets"): entry(things.dataset),
        ("POST", "/v1/datasets/{dataset}/reduce"): {"reduction": {"op": "sum"}},
        ("POST", "/v1/pipelines"): spec(things.dataset),
        ("PATCH", "/v1/runs/{run}"): {"label": "a"},
        ("POST", "/v1/runs"): RUN,
        ("POST", SETS): {"run": things.run},
        ("PUT", f"{SETS}/{{losses}}?{YEARS}"): years(number),
        ("POST", "/v1/portfolios/query"): {"loss_sets": [{"id": things.losses}]},
        ("PUT", "/v1/runs/{run}/inputs/quantiles"): quantiles(number),
        ("POST", "/v1/datasets/{dataset}/tiles?after={tile}"): {},
    }.get((row.method, row.path), {} if row.method == "POST" else None)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    if PURE_PYTHON:
        pytest.skip("the server is a process of its own, whatever kernels are here")
    made = Shared(tmp_path_factory.mktemp("shared"))
    try:
        yield made
        wait_until(lambda: made.ask("root", "GET", "/metrics").status == 200)
        assert made.service.stop() == 0
        assert not made.service.failures()
    finally:
        made.service.kill()


def rendered(rows: list[Row]) -> str:
    head = f"| request | {' | '.join(COLUMNS)} |\n|---|{'---|' * len(COLUMNS)}\n"
    return head + "".join(
        f"| `{row.method} {row.path}` | {' | '.join(row.expected)} |\n" for row in rows
    )


def test_the_table_is_true(shared: Shared) -> None:
    found = [
        Row(row.method, row.path, tuple(shared.cell(row, column) for column in COLUMNS))
        for row in ROWS
    ]
    wrong = [row for row, true in zip(found, ROWS, strict=True) if row != true]
    assert not wrong, f"\n{rendered(found)}\nwrong:\n{rendered(wrong)}"


_MEANT = re.compile(r": did you mean '(.*?)'\?")


def test_what_is_anothers_is_answered_as_what_is_nowhere(shared: Shared) -> None:
    """Nobody can tell from an answer whether another owner has a thing."""
    number = next(shared.numbers)
    things = shared.make("alice", number)
    view, digits = things.view[::-1], things.input[::-1]
    nowhere = things._replace(
        dataset=f"nope-{number}", input=digits, view=view, pipeline=things.pipeline[::-1]
    )._replace(losses=f"no-set-{number}")
    rows = [row for row in ROWS if row.expected[1] in {"404", "410", "412"}]
    assert {row.method for row in rows} == {"GET", "POST", "PUT", "PATCH", "DELETE"}
    for row in rows:
        answers = []
        for about in (things, nowhere):
            path = row.path.format(**about._asdict())
            answer = shared.ask("bob", row.method, path, body_of(row, about, number))
            text = answer.body.decode().replace(answer.headers["X-Request-Id"], "")
            # A name that is like one of the caller's own is no news of another's.
            own = shared.ask("bob", "GET", "/v1/datasets").body.decode()
            assert all(f'"{meant}"' in own for meant in _MEANT.findall(text))
            text = _MEANT.sub("", text)
            for name, ident in about._asdict().items():
                text = text.replace(ident, name)
            varying = {"x-request-id", "date", "content-length"}
            headers = {k: v for k, v in answer.headers.items() if k.lower() not in varying}
            answers.append((answer.status, headers, text))
        assert answers[0] == answers[1], row
        assert str(answers[0][0]) == row.expected[1]


def test_the_table_is_documented() -> None:
    assert rendered(ROWS) in (ROOT / "deploy" / "SECURITY.md").read_text()


def test_the_table_has_every_route(tmp_path: Path) -> None:
    """Every operation of the document and page is there, but for those that need no identity."""
    document = create_app(Settings(data_dir=tmp_path)).openapi()
    routes = {
        (method.upper(), path)
        for path, operations in document["paths"].items()
        for method in operations
    }
    routes |= {
        (method, route.path)
        for router in ROUTERS
        if router.service is Console
        for route in router.routes
        for method in (route.methods or set()) - {"HEAD"}
        if not is_open(route.path)
    }
    open_routes = {("GET", p) for p in ("/healthz", "/readyz", "/problems/{code}")}
    assert {(row.method, pattern(row.path, routes)) for row in ROWS} == routes - open_routes


def pattern(path: str, routes: set[tuple[str, str]]) -> str:
    """The route that a path of the table is an example of."""
    parts = path.partition("?")[0].split("/")
    for _, route in sorted(routes, key=lambda route: route[1].count("{")):
        names = route.split("/")
        if route.endswith("{key}"):
            names += [names[-1]] * (len(parts) - len(names))
        if len(names) == len(parts) and all(
            name == part or name.startswith("{") for name, part in zip(names, parts, strict=True)
        ):
            return route
    raise AssertionError(path)


# -- what the operator offers ----------------------------------------------------------


@pytest.mark.parametrize(
    ("who", "dataset", "status"),
    [
        ("alice", "public-scan", 200),
        ("alice", "secret", 200),
        ("viewer", "public-scan", 200),
        ("viewer", "secret", 404),
        ("none", "public-scan", 404),
        ("root", "secret", 200),
    ],
)
def test_the_catalogue_takes_a_scope(shared: Shared, who: str, dataset: str, status: int) -> None:
    for method, path in (
        ("GET", ""),
        ("GET", "/files/0"),
        ("POST", "/plan"),
        ("POST", "/views"),
        ("GET", "/image.png"),
    ):
        body = b"{}" if method == "POST" else None
        answer = shared.ask(who, method, f"/v1/datasets/{dataset}{path}", body)
        expected = {200, 201} if status == 200 else {status}
        assert answer.status in expected, (method, path, answer.body)
    listed = shared.ask(who, "GET", "/v1/datasets?limit=1000").json()["datasets"]
    assert (dataset in listed) == (status == 200)
    assert shared.ask(who, "DELETE", f"/v1/datasets/{dataset}").status == 404


def test_ids_of_the_catalogue_are_reserved(shared: Shared) -> None:
    for who in ("alice", "writer"):
        answer = shared.ask(who, "POST", "/v1/datasets", entry("secret", "w/own.npy"))
        assert (answer.status, answer.json()["code"]) == (409, "head-exists")
    assert shared.ask("alice", "POST", "/v1/datasets", entry("secret", "secret.npy")).status == 200


@pytest.mark.parametrize(
    "entry_",
    [
        {"files": ["scan.npy"]},
        {"files": ["w/../scan.npy"]},
        {"files": ["w/own.npy", "scan.npy"]},
        {"files": ["w/link.npy"]},
        {"glob": "*/own.npy"},
        {"glob": "w/*.npy"},
        {"files": ["nothing.npy"]},
        {"files": ["w/own.npy"], "corrections": {"dark": "scan.npy"}},
        {"files": ["w/own.npy"], "corrections": {"excluded": "scan.npy"}},
    ],
)
def test_registering_takes_a_scope_for_every_file(shared: Shared, entry_: dict[str, Any]) -> None:
    answer = shared.ask("writer", "POST", "/v1/datasets", entry_)
    assert (answer.status, answer.json()["code"]) == (403, "path-refused")


def test_registering_what_the_scope_covers(shared: Shared) -> None:
    for name in ("w/own.npy", "w/./own.npy", str(shared.roots / "w" / "own.npy")):
        answer = shared.ask("writer", "POST", "/v1/datasets", {"files": [name]})
        assert answer.status in {200, 201}, answer.body
    answer = shared.ask("writer", "POST", "/v1/datasets", {"files": ["w/nothing.npy"]})
    assert answer.json()["code"] == "file-missing"


# -- what two owners share -------------------------------------------------------------


def test_equal_ids_are_not_equal_data(shared: Shared) -> None:
    np.save(shared.roots / "other.npy", np.zeros((2, 3, 4, 2), "<u2"))
    shared.post("alice", "/v1/datasets", entry("same"))
    shared.post("bob", "/v1/datasets", entry("same", "other.npy"))
    views = {who: shared.post(who, "/v1/datasets/same/views", {}) for who in ("alice", "bob")}
    assert views["alice"]["id"] == views["bob"]["id"]
    pipelines = {who: shared.post(who, "/v1/pipelines", spec("same")) for who in ("alice", "bob")}
    assert pipelines["alice"]["id"] == pipelines["bob"]["id"]
    for _ in range(2):
        for who, first in (("alice", 47), ("bob", 0)):
            raw = shared.ask(who, "GET", f"/v1/datasets/same/views/{views[who]['id']}/raw").body
            assert np.frombuffer(raw, "<u2").max() == first
            batch = shared.ask(who, "GET", f"/v1/pipelines/{pipelines[who]['id']}/batch?format=npy")
            assert batch.status == 200
            assert (max(batch.body[-32:]) == 0) == (first == 0)
    # A token of another's is of other data.
    stream = f"/v1/datasets/same/tiles?after={views['alice']['token']}"
    assert shared.ask("bob", "POST", stream, {}).json()["code"] == "data-changed"
    batches = f"/v1/pipelines/{pipelines['bob']['id']}/batches?after={pipelines['alice']['token']}"
    assert shared.ask("bob", "GET", batches).json()["code"] == "data-changed"
    answer = shared.ask("root", "GET", "/v1/datasets/same")
    assert (answer.status, answer.json()["code"]) == (409, "head-conflict")
    assert shared.ask("root", "DELETE", "/v1/datasets/same?owner=bob").status == 204
    assert shared.ask("bob", "GET", "/v1/datasets/same").status == 404
    assert shared.ask("root", "GET", "/v1/datasets/same").status == 200


def test_the_same_files_declared_otherwise_are_other_arrays(shared: Shared) -> None:
    """Plans and stored results of one owner are not those of the other."""
    (shared.roots / "plain.raw").write_bytes(bytes(range(96)))
    base = {"id": "plain", "files": ["plain.raw"], "format": "raw", "nav_shape": [6]}
    shared.post("alice", "/v1/datasets", base | {"dtype": "<u2", "sig_shape": [4, 2]})
    shared.post("bob", "/v1/datasets", base | {"dtype": ">u2", "sig_shape": [2, 4]})
    sums = {}
    for who in ("alice", "bob"):
        plan = shared.post(who, "/v1/datasets/plain/plan", {})
        assert plan["sig_shape"] == ([4, 2] if who == "alice" else [2, 4])
        reduce = {"reduction": {"op": "sum", "over": "pixels"}}
        sums[who] = shared.ask(who, "POST", "/v1/datasets/plain/reduce", reduce).body
    assert sums["alice"] != sums["bob"]
    # An owner who declares them anew gets new answers, too.
    assert shared.ask("alice", "DELETE", "/v1/datasets/plain").status == 204
    shared.post("alice", "/v1/datasets", base | {"dtype": ">u2", "sig_shape": [2, 4]})
    assert shared.post("alice", "/v1/datasets/plain/plan", {})["sig_shape"] == [2, 4]


def test_what_a_pipeline_is_made_of_is_checked_at_every_use(shared: Shared) -> None:
    shared.post("alice", "/v1/datasets", entry("base"))
    view = shared.post("alice", "/v1/datasets/base/views", {"dtype": "<f4"})["id"]
    made = [
        shared.post("alice", "/v1/pipelines", spec("base", **more))["id"]
        for more in ({}, {"view": {"id": view}})
    ]
    for ident in made:
        assert shared.ask("alice", "GET", f"/v1/pipelines/{ident}/batch").status == 200
    assert shared.ask("alice", "DELETE", f"/v1/datasets/base/views/{view}").status == 204
    statuses = [shared.ask("alice", "GET", f"/v1/pipelines/{i}/batch").status for i in made]
    assert statuses == [200, 404]
    assert shared.ask("alice", "DELETE", "/v1/datasets/base").status == 204
    statuses = [shared.ask("alice", "GET", f"/v1/pipelines/{i}/batches").status for i in made]
    assert statuses == [404, 404]


def test_a_pipeline_takes_no_more_than_its_owner_may_read(shared: Shared) -> None:
    for who, status in (("alice", 201), ("viewer", 403)):
        assert shared.ask(who, "POST", "/v1/pipelines", spec("secret")).status == status
    things = shared.make("alice", 9000)
    sources: list[dict[str, Any]] = [{"view": {"id": things.view}}, {"view": {}}, {}]
    for source in sources:
        answer = shared.ask("bob", "POST", "/v1/pipelines", spec(things.dataset, **source))
        assert (answer.status, answer.json()["code"]) == (404, "not-found")


def test_a_stream_that_runs_over_what_is_deleted_finishes(shared: Shared) -> None:
    path = shared.roots / "long.npy"
    np.save(path, np.zeros((64, 1024, 1024), "<u2"))
    shared.post("alice", "/v1/datasets", entry("long", "long.npy"))
    view = shared.post("alice", "/v1/datasets/long/views", {})["id"]
    with shared.service.connect() as client:
        key = shared.keys["alice"]
        head = f"GET /v1/datasets/long/views/{view}/raw HTTP/1.1\r\nHost: a\r\n"
        client.sendall(f"{head}Authorization: Bearer {key}\r\n\r\n".encode())
        answer = Answer(client, "GET", read=False)
        assert answer.status == 200
        for target in (f"/v1/datasets/long/views/{view}", "/v1/datasets/long"):
            assert shared.ask("alice", "DELETE", target).status == 204
        assert shared.ask("alice", "GET", f"/v1/datasets/long/views/{view}/raw").status == 404
        answer.read_body()
    assert (answer.whole, len(answer.body)) == (True, 64 << 21)


def test_answers_to_keys_stay_out_of_shared_caches(shared: Shared) -> None:
    things = shared.make("alice", 9100)
    batch = f"/v1/pipelines/{things.pipeline}/batch?after={things.batch}"
    for path, directives in (
        (batch, {"private", "max-age=31536000", "immutable"}),
        (f"/zarr/{things.view}/data/c/0/0/0/0", {"private", "no-cache"}),
        ("/v1/datasets", {"private", "no-store"}),
        ("/v1/datasets/nothing", {"private", "no-store"}),
        ("/metrics", {"private"}),
    ):
        answer = shared.ask("alice", "GET", path)
        assert set(str(answer.getheader("Cache-Control")).split(", ")) == directives
        assert answer.getheader("X-Content-Type-Options") == "nosniff"
