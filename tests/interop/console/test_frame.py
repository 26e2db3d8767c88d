"""What pages share: tabs, long lists, a service that goes away, the path of a public URL."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from app.client import Client
from core.losses.samples import SampleSpec, generate_inputs, generate_stream
from tests.app.harness import Service, wait_until
from tests.interop.browser import find_browser
from tests.interop.console.chromium import Page
from tests.scale import PURE_PYTHON
from tests.server_process import HOST

BROWSER = find_browser()
pytestmark = [
    pytest.mark.skipif(BROWSER is None, reason="no browser (apt-get install chromium)"),
    pytest.mark.skipif(PURE_PYTHON, reason="the server is a process of its own"),
]
SPEC = SampleSpec(events=300, summaries=3, samples=10)
STREAM = b"".join(generate_stream(SampleSpec(events=50, summaries=2, samples=5)))
TABS = 10
MANY = 100_000
ROOT = "/people/coast"


def streams(server: Service) -> int:
    """Requests that are being answered, but for the question itself."""
    return int(server.metric("thalweg_requests_running")) - 1


def test_ten_windows_watch_ten_runs_by_one_event_stream(page: Page, server: Service) -> None:
    """A browser opens six connections to a host, and each window is seen."""
    with ExitStack() as opened, Client(server.url) as client:
        runs = [client.runs.create("gul", ["melt"]) for _ in range(TABS)]
        windows = [page, *(opened.enter_context(page.another()) for _ in range(TABS - 1))]
        for window, run in zip(windows, runs, strict=True):
            window.open(f"{server.url}/console/runs/{run.id}")
        assert not any(window.run("document.hidden") for window in windows)
        for run in runs:
            client.runs.upload(run, STREAM)
        for window in windows:
            window.wait("document.querySelector('#streams .state.complete') !== null")
            window.wait("document.getElementById('lacks').innerText === 'Nothing is missing.'")
            assert window.errors == []
        wait_until(lambda: streams(server) == 1)
    page.open("about:blank")
    wait_until(lambda: streams(server) == 0)


def test_pages_tell_that_the_service_is_away_and_go_on(page: Page, tmp_path: Path) -> None:
    service = Service(tmp_path)
    listed = "document.getElementById('problem')"
    pages = {
        "/": ("health.textContent === 'no answer'", "health.textContent === 'ready'"),
        "/console/runs": (
            f"{listed}.innerText.includes('does not answer')",
            f"{listed}.hidden && !!document.querySelector('#list tr')",
        ),
    }
    try:
        for path, (away, back) in pages.items():
            page.open(f"{service.url}{path}")
            service.kill()
            page.wait(away)
            service.start()
            with Client(service.url) as client:
                client.runs.create("gul", ["melt"])
            page.wait(back)
        # The browser notes every request without an answer.
        page.errors[:] = [error for error in page.errors if "ERR_" not in error]
    finally:
        service.kill()


def test_a_summary_that_is_typed_meanwhile_is_added_once_the_service_is_back(
    page: Page, tmp_path: Path
) -> None:
    service = Service(tmp_path)
    try:
        with Client(service.url) as client:
            inputs = {"occurrence": generate_inputs(SPEC)["occurrence.bin"]}
            run = client.runs.create("gul", ["ept"], inputs=inputs, return_periods=[100, 50])
            client.runs.upload(run, b"".join(generate_stream(SPEC)))
            client.runs.seal(run)
        page.open(f"{service.url}/console/runs/{run.id}")
        page.wait("document.querySelector('#curves .canvas')?.dataset.milliseconds")
        service.kill()
        page.run("document.querySelector('.picker input').focus()")
        page.send("Input.insertText", text="2")
        page.key("Enter")
        page.wait("document.querySelector('.picker').innerText.includes('does not answer')")
        service.start()
        page.wait("new URLSearchParams(location.search).get('summaries') === '1,2'")
        page.wait("document.querySelectorAll('#ep-table th[scope=col]').length === 5")
        page.errors[:] = [error for error in page.errors if "ERR_" not in error]
    finally:
        service.kill()


def test_a_hundred_thousand_datasets_are_paged_and_searched(page: Page, tmp_path: Path) -> None:
    roots, catalogue = tmp_path / "roots", tmp_path / "catalogue.toml"
    roots.mkdir()
    np.save(roots / "one.npy", np.arange(24, dtype="<u2").reshape(4, 3, 2))
    names = (f"scan{number:06}" for number in range(MANY))
    catalogue.write_text("".join(f'[{name}]\nfiles = ["one.npy"]\n' for name in names))
    service = Service(tmp_path / "service", dataset_roots=roots, catalogue=catalogue)
    listed = "[...document.querySelectorAll('#datasets tr[data-id]')].map((row) => row.dataset.id)"
    try:
        page.open(f"{service.url}/console/datasets")
        assert page.run(listed) == [f"scan{number:06}" for number in range(100)]
        click(page, "a[rel=next]")
        page.wait("location.search.includes('after=scan000099')")
        page.wait("document.querySelector('[data-id=scan000100] td')?.innerText === 'npy'")
        page.run("document.querySelector('[name=prefix]').value = 'scan09998'")
        click(page, "form[role=search] button")
        page.wait("location.search.includes('prefix=scan09998')")
        page.wait("document.readyState === 'complete'")
        assert page.run(listed) == [f"scan{number:06}" for number in range(99980, 99990)]
        # Its rows are not asked for any more.
        page.open("about:blank")
    finally:
        service.kill()


def test_a_hundred_thousand_summaries_are_searched(page: Page, server: Service) -> None:
    files = generate_inputs(SPEC)
    rows = "".join(f"{number},Place {number % 977} of {number}\n" for number in range(1, MANY + 1))
    info = f"summary_id,Name\n{rows}".encode()
    with Client(server.url) as client:
        inputs = {"occurrence": files["occurrence.bin"], "summary_info": info}
        run = client.runs.create("gul", ["ept"], inputs=inputs, return_periods=[100, 50])
        client.runs.upload(run, b"".join(generate_stream(SPEC)))
        client.runs.seal(run)
    page.open(f"{server.url}/console/runs/{run.id}")
    page.wait("document.querySelector('#curves .canvas')?.dataset.milliseconds")
    page.run("document.querySelector('.picker input').focus()")
    page.send("Input.insertText", text="of 99999")
    found = "[...document.querySelectorAll('.found button')].map((each) => each.innerText)"
    page.wait(f"{found}.join() === '99999 · Place {99999 % 977} of 99999'")
    page.run("document.querySelector('.picker input').value = ''")
    page.send("Input.insertText", text="Place 5")
    page.wait(f"{found}.length === 20")
    assert page.text(".picker [role=status]") == "The first 20: type more of a name to find others."


class Stripping(BaseHTTPRequestHandler):
    """Passes on what is below a path, without that path, as proxies do."""

    target = 0

    def do(self) -> None:
        assert self.path.startswith(f"{ROOT}/"), self.path
        length = int(self.headers.get("Content-Length", 0))
        client = HTTPConnection(HOST, self.target)
        body = self.rfile.read(length)
        client.request(self.command, self.path.removeprefix(ROOT), body, dict(self.headers))
        answer = client.getresponse()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in {"connection", "transfer-encoding", "date", "server"}:
                self.send_header(name, value)
        self.end_headers()
        with closing(client), suppress(ConnectionError):
            while piece := answer.read1(1 << 16):
                self.wfile.write(piece)

    do_GET = do_HEAD = do_PATCH = do_POST = do_PUT = do  # noqa: N815 - as the class calls them

    def log_message(self, *_args: object) -> None:
        """Say nothing."""


@pytest.fixture
def below(tmp_path: Path) -> Iterator[str]:
    """The public URL of a service that is below a path of its host."""
    proxy = ThreadingHTTPServer((HOST, 0), Stripping)
    url = f"http://{HOST}:{proxy.server_port}{ROOT}"
    (tmp_path / "roots").mkdir()
    service = Service(tmp_path / "service", dataset_roots=tmp_path / "roots", public_url=url)
    Stripping.target = service.port
    threading.Thread(target=proxy.serve_forever, daemon=True).start()
    try:
        yield url
        assert not service.failures()
    finally:
        proxy.shutdown()
        proxy.server_close()
        service.kill()


def test_everything_works_below_the_path_of_a_public_url(page: Page, below: str) -> None:
    page.open(f"{below}/")
    page.wait("document.getElementById('health').textContent === 'ready'")
    assert f"{below}/v1/losses/melt" in page.text("main")
    click(page, "#try-run")
    page.wait(f"location.pathname.startsWith('{ROOT}/console/runs/')")
    page.wait("document.querySelector('#curves .canvas')?.dataset.milliseconds", 60)
    csv = page.run("document.querySelector('.links a').href")
    assert page.run(f"fetch('{csv}').then((answer) => answer.status)") == 200
    page.open(f"{below}/")
    click(page, "#try-scan")
    page.wait(f"location.pathname === '{ROOT}/console/datasets/thalweg-sample'")
    page.wait("document.querySelector('#scan figcaption')?.textContent.startsWith('Exact')")
    click(page, "#write")
    page.wait("document.querySelectorAll('#lines pre').length === 5")
    assert f"'{below}/v1/datasets/thalweg-sample/" in page.text("#lines")
    click(page, "nav[aria-label=Products] a[href*=operations]")
    page.wait(f"location.pathname === '{ROOT}/console/operations'")
    below_it = f'[...document.querySelectorAll(\'[href^="/"]:not([href^="{ROOT}/"])\')].length'
    assert page.run(below_it) == 0


def click(page: Page, selector: str) -> None:
    page.wait(f"document.querySelector({selector!r})?.disabled !== true")
    page.run(f"document.querySelector({selector!r}).click()")
