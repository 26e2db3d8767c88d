"""What pages have in common: tabs, the path of a public URL, what assistive technology needs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from app.client import Client
from core.losses.samples import SampleSpec, generate_stream
from tests.app.harness import Service, wait_until
from tests.interop.browser import find_browser
from tests.interop.console.chromium import Page, chromium
from tests.scale import PURE_PYTHON
from tests.server_process import HOST

BROWSER = find_browser()
pytestmark = [
    pytest.mark.skipif(BROWSER is None, reason="no browser (apt-get install chromium)"),
    pytest.mark.skipif(PURE_PYTHON, reason="the server is a process of its own"),
]
STREAM = b"".join(generate_stream(SampleSpec(events=50, summaries=2, samples=5)))
TABS = 10
ROOT = "/people/coast"


@pytest.fixture
def page() -> Iterator[Page]:
    with chromium(str(BROWSER)) as opened:
        yield opened
        opened.run("0")
        assert opened.errors == []


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    roots = tmp_path_factory.mktemp("roots")
    server = Service(tmp_path_factory.mktemp("server"), dataset_roots=roots)
    try:
        yield server
        assert not server.failures()
    finally:
        server.kill()


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

    do_GET = do_POST = do_PUT = do  # noqa: N815 - as the class calls them

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
