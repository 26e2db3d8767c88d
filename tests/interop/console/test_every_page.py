"""Every page: looks, the keyboard, what assistive technology needs, and without scripts.

It is what ``make browser`` runs, and CI where there is a browser.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from app.client import Client, ProblemError
from core.losses.samples import SampleSpec, generate_inputs, generate_stream
from tests.app.harness import Post, Service, ask
from tests.interop.browser import find_browser
from tests.interop.console.chromium import SECONDS, Page
from tests.scale import PURE_PYTHON

BROWSER = find_browser()
pytestmark = [
    pytest.mark.skipif(BROWSER is None, reason="no browser (apt-get install chromium)"),
    pytest.mark.skipif(PURE_PYTHON, reason="the server is a process of its own"),
]
AXE = Path(os.environ.get("THALWEG_AXE", "none"))
"""The script of axe-core: ``npm pack axe-core``, or ``make interop``, which installs it."""
VIOLATIONS = """axe.run().then(({violations}) =>
    violations.map(({id, nodes}) => [id, nodes.map(({target}) => target.join(" "))]))"""
LISTEN = """window.reached = new WeakSet();
    document.addEventListener("focusin", ({target}) => window.reached.add(target))"""
LEFT = """[...document.querySelectorAll(
        "a[href], button, input, select, textarea, summary, [tabindex='0']")]
    .filter((each) => !each.disabled && each.checkVisibility({visibilityProperty: true})
        // Of buttons that exclude each other the one that is chosen is a stop.
        && !(each.type === "radio" && !each.checked) && !window.reached.has(each))
    .map((each) => each.outerHTML)"""
"""What can have the focus and did not have it since ``LISTEN``."""
LOOKS = [(1280, False), (1280, True), (400, False), (400, True)]
EXACT = "document.querySelector('#scan figcaption').textContent.startsWith('Exact')"
SPEC = SampleSpec(events=300, summaries=3, samples=10)
STREAM = b"".join(generate_stream(SampleSpec(events=50, summaries=2, samples=5)))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    roots = tmp_path_factory.mktemp("roots")
    server = Service(tmp_path_factory.mktemp("server"), dataset_roots=roots)
    try:
        yield server
        assert not server.failures()
    finally:
        server.kill()


@pytest.fixture(scope="module")
def filled(server: Service) -> dict[str, str]:
    """Pages of a service that has something of each kind, and when each is drawn."""
    files = generate_inputs(SPEC)
    with Client(server.url) as client:
        inputs = {"occurrence": files["occurrence.bin"]}
        run = client.runs.create("gul", ["ept", "aal", "alct", "mplt"], inputs=inputs)
        client.runs.upload(run, b"".join(generate_stream(SPEC)))
        client.runs.seal(run)
        other = client.runs.create("gul", ["melt"])
        with suppress(ProblemError):
            client.runs.upload(other, STREAM[:300])
    post = partial(made, server)
    files = post("/console/samples/scan", None)["files"]
    post("/v1/datasets", {"id": "scan", "files": files})
    stages = [{"op": "source", "dataset": "scan"}, {"op": "permute"}, {"op": "batch", "size": 4}]
    pipeline = post("/v1/pipelines", {"stages": stages})["id"]
    losses = post("/v1/portfolios/loss-sets", {"run": run.id})["id"]
    layer = {"ReinsNumber": 1, "ReinsType": "CXL", "OccAttachment": 1000, "OccLimit": 50000}
    programme = quote(json.dumps([layer]))
    drawn = "document.querySelectorAll('.canvas[data-milliseconds]').length === 2"
    return {
        "/": "document.getElementById('health').textContent === 'ready'",
        "/console/sign-in": "true",
        "/console/runs": "true",
        "/console/runs/new": "!document.querySelector('#new button').disabled",
        f"/console/runs/{run.id}?summaries=1,2&plt=1": drawn,
        f"/console/runs/{other.id}": "document.getElementById('lacks').innerText",
        "/console/datasets": "document.querySelector('#datasets td').innerText === 'npy'",
        "/console/datasets/scan?detector=annulus:24,24,9,18": EXACT,
        "/console/pipelines": "true",
        f"/console/pipelines/{pipeline}": "document.querySelectorAll('canvas.frame').length === 4",
        "/console/operations": "true",
        f"/console/portfolio?sets={losses}&group=SummaryId&layers={programme}": "!!document"
        ".querySelector('#parts td') && !!document.querySelector('#priced td')",
    }


def made(server: Service, path: str, values: object) -> Any:  # noqa: ANN401 - JSON
    answer = ask(server, Post(path, [json.dumps(values).encode()]))
    assert answer.status in {200, 201}, answer.body
    return answer.json()


def test_every_page_fits_and_is_reached_by_the_keyboard(
    page: Page, server: Service, filled: dict[str, str]
) -> None:
    """In light and dark, wide and narrow; no host but the service is asked for anything."""
    for path, drawn in filled.items():
        page.open(f"{server.url}{path}").wait(drawn)
        for width, dark in LOOKS:
            page.resize(width, 800, dark=dark)
            page.wait(f"document.documentElement.scrollWidth <= {width}")  # as charts follow
        page.run(LISTEN)
        # What is drawn again meanwhile, as colours changed, is reached in another round.
        end = time.monotonic() + SECONDS
        while left := page.run(LEFT):
            assert time.monotonic() < end, (path, left)
            for _ in left:
                page.key("Tab")
        loaded = "performance.getEntriesByType('resource').map(({name}) => new URL(name).origin)"
        assert set(page.run(loaded)) == {server.url}, path


@pytest.mark.skipif(not AXE.exists(), reason="THALWEG_AXE names no script of axe-core")
def test_axe_finds_nothing(page: Page, server: Service, filled: dict[str, str]) -> None:
    """On any page: in light and dark, wide and narrow."""
    script = AXE.read_text()
    for path, drawn in filled.items():
        page.open(f"{server.url}{path}").wait(drawn)
        page.run(f"{script};0")
        for width, dark in LOOKS:
            page.resize(width, 800, dark=dark)
            assert page.run(VIOLATIONS) == [], (path, width, dark)


def test_without_scripts_pages_list_and_link(
    page: Page, server: Service, filled: dict[str, str]
) -> None:
    page.send("Emulation.setScriptExecutionDisabled", value=True)
    links = set()
    for path in filled:
        page.open(f"{server.url}{path}")
        shown = "[...document.querySelectorAll('a[href]')].map((a) => a.getAttribute('href'))"
        links |= set(page.run(shown))
        assert page.run("document.querySelector('h1').innerText")
        # What would do nothing is disabled, or not there.
        idle = "document.querySelector('main button[type=button]:not([disabled])')"
        assert not page.run(f"{idle}?.checkVisibility()"), path
    assert {path.partition("?")[0] for path in filled} - {"/console/sign-in"} <= {
        "/console/runs/new" if link == "runs/new" else link for link in links
    }
