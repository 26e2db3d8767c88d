"""Pages about the service itself."""

from __future__ import annotations

import hashlib
import html
import re
from pathlib import Path

from tests.app.console.browsing import HTML, page, post
from tests.app.harness import Post, Service, ask, is_problem, wait_until
from tests.app.runs.requests import Uploader, stream
from tests.auxiliary import packed_occurrence

HOSTILE = "<img src=x onerror=alert(1)>"
KEY = "key of alice"


def test_samples_are_fetched_and_kept(place: Service) -> None:
    answer = place.get("/console/samples/stream.bin")
    assert (answer.status, answer.media_type) == (200, "application/octet-stream")
    assert answer.getheader("Cache-Control") == "private, max-age=86400"
    bare = place.get("/console/samples/stream.bin", method="HEAD")
    assert bare.getheader("Content-Length") == str(len(answer.body))
    assert ask(place, Post("/v1/losses/melt", [answer.body])).status == 200
    is_problem(place.get("/console/samples/other"), "not-found", 404)


def test_commands_of_the_first_page_work_as_they_are(place: Service) -> None:
    text = page(place, "/")
    commands = re.findall(r"curl [^\n<]+", text)
    assert len(commands) == 4
    paths = [re.search(r"http://127.0.0.1(/\S+)", command) for command in commands]
    for path in filter(None, paths):
        method = "PUT" if path[1].endswith("melt") else "GET"
        sample = place.get("/console/samples/stream.bin").body if method == "PUT" else b""
        assert ask(place, Post(path[1], [sample], method=method)).status == 200
    hostile = [("Host", "x$(touch y)"), HTML]
    with place.connect() as client:
        lines = ["GET / HTTP/1.1", *(f"{n}: {v}" for n, v in hostile), "Connection: close", "", ""]
        client.sendall("\r\n".join(lines).encode())
        assert b"touch" not in b"".join(iter(lambda: client.recv(65536), b""))


def test_a_scan_a_pipeline_and_its_page(place: Service) -> None:
    assert "There are no pipelines" in page(place, "/console/pipelines")
    assert ask(place, Post("/console/samples/scan", [b""])).status == 201
    found = ask(place, Post("/console/samples/scan", [b""]))
    assert found.status == 200
    assert post(place, "/v1/datasets", found.json())["nav_shape"] == [32, 32]
    post(place, "/v1/datasets", {"id": "scan", "files": ["thalweg-sample.npy"]})
    source = {"op": "source", "dataset": "scan"}
    cast = {**source, "unit": "frame", "view": {"dtype": "<f4"}}
    mixed = {"op": "mix", "weights": [3, 1], "inputs": [[cast], [cast, {"op": "permute"}]]}
    ident = post(place, "/v1/pipelines", {"stages": [mixed, {"op": "batch", "size": 4}]})["id"]
    assert f'href="/console/pipelines/{ident}"' in page(place, "/console/pipelines")
    text = page(place, f"/console/pipelines/{ident}")
    stages = ["mix", "source", "source", "permute", "batch"]
    assert re.findall(r"<strong>(\w+)</strong>", text) == stages
    assert 'href="/console/datasets/scan"' in text
    assert r"\u003c" not in text
    assert '{"dtype": "&lt;f4"}' in text
    is_problem(place.get("/console/pipelines/none"), "not-found", 404)


def test_a_pipeline_that_filters_is_not_called_endless(place: Service) -> None:
    ask(place, Post("/console/samples/scan", [b""]))
    post(place, "/v1/datasets", {"id": "scan", "files": ["thalweg-sample.npy"]})
    source = {"op": "source", "dataset": "scan", "unit": "frame", "fields": ["index"]}
    few = {"op": "filter", "pred": "less", "args": {"field": "index", "value": 9}}
    stages = [source, few, {"op": "batch", "size": 4}]
    ident = post(place, "/v1/pipelines", {"stages": stages})["id"]
    assert "no end, or not known beforehand" in page(place, f"/console/pipelines/{ident}")


def test_operations_are_shown(place: Service) -> None:
    place.get("/v1/runs/none")
    text = page(place, "/console/operations")
    assert 'href="/problems/not-found"' in text
    for part in ("This service has no keys", "ready", "THALWEG_QUOTA_RUNS", "kernels", "SQLite"):
        assert part in text
    assert "<h2>Keys</h2>" not in text


def test_keys_are_for_administrators(tmp_path: Path) -> None:
    from tests.app.http.test_owners import SqliteStateStoreOf

    with SqliteStateStoreOf(tmp_path / "data") as keys:
        admin = keys.add("root", {"admin"}, now=0)[0]
    digest = hashlib.sha256(KEY.encode()).hexdigest()
    service = Service(tmp_path, api_keys=f"alice:{digest}")
    try:
        for key, shown in ((KEY, False), (admin, True)):
            answer = service.get("/console/operations", [HTML, ("Authorization", f"Bearer {key}")])
            text = answer.body.decode()
            assert ("<h2>Keys</h2>" in text) == shown
            assert digest not in text
            assert admin not in text
        assert "Authorization: Bearer $THALWEG_KEY" in page(service, "/")
        assert 'name="key"' in page(service, "/")
        signed = service.get("/", [HTML, ("Authorization", f"Bearer {KEY}")]).body.decode()
        assert 'id="try-run"' in signed
        assert 'name="key"' not in signed
    finally:
        service.kill()


def done(place: Service) -> str:
    """Return a run that is done, whose summaries have a dimension that would be markup."""
    uploader = Uploader(place, reports=["aal"])
    occurrence = packed_occurrence((1, 1, 1), (2, 2, 1), periods=12)
    info = f'summary_id,"{HOSTILE}"\n1,a\n'.encode()
    for name, content in (("occurrence", occurrence), ("summary_info", info)):
        assert uploader.ask("PUT", f"{uploader.path}/inputs/{name}", content).status in {200, 201}
    assert uploader.ask("POST", f"{uploader.path}/streams", stream()).status == 201
    uploader.ask("POST", f"{uploader.path}/seal")
    wait_until(lambda: uploader.describe()["state"] == "done")
    return uploader.path.rpartition("/")[2]


def test_loss_sets_are_listed_with_the_runs_that_others_can_be_made_of(place: Service) -> None:
    text = page(place, "/console/portfolio")
    assert "There are no loss sets yet" in text
    assert 'href="/console/runs"' in text
    run = done(place)
    assert f'<option value="{run}">' in page(place, "/console/portfolio")
    names = [f"set{number:03}" for number in range(101)]
    info = place.get(f"/v1/runs/{run}").json()["inputs"]["summary_info"]
    given = {"run": run, "currency": "EUR", "summary_info": info}
    made = [post(place, "/v1/portfolios/loss-sets", {**given, "name": name}) for name in names]
    first = page(place, "/console/portfolio")
    assert HOSTILE not in first
    assert html.escape(HOSTILE) in first
    assert f'<td>EUR</td><td class="number">{made[0]["events"]:,}</td>' in first
    (following,) = re.findall(r'rel="next" href="([^"]+)"', first)
    second = page(place, f"/console/portfolio{html.unescape(following)}")
    boxes = r'type="checkbox" name="sets" value="([^"]+)"'
    assert sorted(re.findall(boxes, first)) + re.findall(boxes, second) == names
