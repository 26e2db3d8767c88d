"""A stream sent through the page, whatever happens: its reports are those of the command."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path

import pytest

from app.client import Client
from core.losses.samples import SampleSpec, generate_inputs, generate_stream
from tests.app.harness import wait_until
from tests.fault_proxy import Cut, FaultProxy, Faults
from tests.interop.browser import find_browser
from tests.interop.console.chromium import Page, chromium
from tests.scale import PURE_PYTHON
from tests.server_process import HOST, PROGRAM, ServerProcess

BROWSER = find_browser()
pytestmark = [
    pytest.mark.skipif(BROWSER is None, reason="no browser (apt-get install chromium)"),
    pytest.mark.skipif(PURE_PYTHON, reason="the server is a process of its own"),
]
EVENTS = int(os.environ.get("THALWEG_UPLOAD_EVENTS", "16000"))
"""Some 16 MB; a million are more than 1 GB."""
SECONDS = 60 + EVENTS / 1000
MEMORY = "4GiB"
"""As a million events take: more than one owner has by default."""
CUTS = 3
REPORTS = ["aal", "melt", "mplt"]
LAST = "document.getElementById('transfers').lastChild"


@pytest.fixture
def page() -> Iterator[Page]:
    with chromium(str(BROWSER)) as opened:
        for domain in ("DOM", "Network"):
            opened.send(f"{domain}.enable")
        yield opened


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a stream and the occurrences of its events."""
    folder = tmp_path_factory.mktemp("streams")
    spec = SampleSpec(events=EVENTS, summaries=8, samples=50)
    with (folder / "stream.bin").open("wb") as file:
        file.writelines(generate_stream(spec))
    (folder / "occurrence.bin").write_bytes(generate_inputs(spec)["occurrence.bin"])
    return folder


def choose(page: Page, selector: str, file: Path) -> None:
    root = page.send("DOM.getDocument")["root"]["nodeId"]
    node = page.send("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
    page.send("DOM.setFileInputFiles", files=[str(file)], nodeId=node)


def expected(folder: Path) -> dict[str, bytes]:
    """The reports as the command computes them."""
    options = ["--reports", ",".join(REPORTS), "--occurrence", "occurrence.bin", "--no-progress"]
    options += ["--memory-budget", MEMORY]
    command = [*PROGRAM, "aggregate", *options, "-o", "reports", "stream.bin"]
    subprocess.run(command, cwd=folder, check=True, timeout=SECONDS)
    return {name: (folder / "reports" / f"{name}.csv").read_bytes() for name in REPORTS}


def report(server: ServerProcess, run: str, name: str) -> bytes:
    connection = HTTPConnection(HOST, server.port, timeout=SECONDS)
    with closing(connection):
        connection.request("GET", f"/v1/runs/{run}/reports/{name}?format=csv")
        answer = connection.getresponse()
        assert answer.status == 200
        return answer.read()


def test_cuts_a_reload_and_a_killed_server_change_no_byte_of_a_report(
    page: Page, folder: Path, tmp_path: Path
) -> None:
    file = folder / "stream.bin"
    size = file.stat().st_size
    server = ServerProcess(tmp_path / "service", memory_limit=MEMORY)
    client = Client(server.url)

    def plan(_number: int) -> Faults:
        # Slow enough that the rest happens on the way.
        cut = Cut("up", size // 6) if proxy.cuts < CUTS else None
        return Faults(cut=cut, bytes_per_second=size / 8)

    def offset() -> int:
        return sum(stream.offset for stream in client.runs.streams(run))

    with FaultProxy([server.port], plan) as proxy:
        try:
            run = client.runs.create("gul", REPORTS)
            page.open(f"{proxy.url}/console/runs/{run.id}")
            page.wait("!document.getElementById('uploads').hidden")
            choose(page, "#choose-inputs", folder / "occurrence.bin")
            page.wait(f"{LAST}?.innerText.includes('bound as occurrence')", SECONDS)
            choose(page, "#choose-streams", file)
            wait_until(lambda: proxy.cuts >= CUTS, SECONDS)
            before = offset()
            wait_until(lambda: offset() > before, SECONDS)
            server.kill()
            page.wait(f"{LAST}.innerText.includes('does not answer')", SECONDS)
            server.start()
            wait_until(lambda: offset() > before + size // 20, SECONDS)
            page.run("window.old = true")
            page.send("Page.reload")
            page.wait("!window.old && document.querySelector('[data-again]') !== null", SECONDS)
            assert before < offset() < size
            choose(page, "#choose-streams", file)
            page.wait(
                "document.getElementById('lacks').innerText === 'Nothing is missing.'", SECONDS
            )
            page.run("document.getElementById('seal').click()")
            page.wait(
                "['done', 'failed'].includes(document.getElementById('state').innerText)", SECONDS
            )
            assert page.text("#state") == "done", page.text("main")
            assert {name: report(server, run.id, name) for name in REPORTS} == expected(folder)
        finally:
            client.close()
            server.kill()
