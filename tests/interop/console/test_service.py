"""The first page, pipelines, operations and sign-in, in a browser."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from core.losses.samples import SampleSpec, generate_inputs, generate_stream
from tests.app.harness import Service, wait_until
from tests.interop.browser import find_browser
from tests.interop.console.chromium import Page, chromium
from tests.server_process import HOST

BROWSER = find_browser()
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no browser (apt-get install chromium)")
KEY = "an honest key"
SLOW = {"offline": False, "latency": 0, "downloadThroughput": -1}
SPEC = SampleSpec(events=300, summaries=3, samples=10)
READY = "!document.querySelector('main button:not(#next-batch)')?.disabled"


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with chromium(str(BROWSER)) as opened:
        yield opened
        assert opened.errors == []


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    directory = tmp_path_factory.mktemp("browsed")
    roots = directory / "roots"
    roots.mkdir()
    np.save(roots / "here.npy", np.zeros((2, 3, 4, 5), "<u2"))
    served = Service(directory / "service", dataset_roots=roots)
    try:
        yield served
        assert not served.failures()
    finally:
        served.kill()


def address(service: Service, path: str) -> str:
    return f"http://{HOST}:{service.port}{path}"


def click(page: Page, selector: str) -> None:
    page.run(f"document.querySelector('{selector}').click()")


def fits(page: Page) -> None:
    """In light and dark, wide and narrow, nothing lies beyond the edge of the window."""
    for width in (1280, 360):
        for dark in (False, True):
            page.resize(width, 900, dark=dark)
            over = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
            assert page.run(over) <= 0, width
    page.resize(1280, 900)


def test_a_sample_run_in_one_click(page: Page, service: Service) -> None:
    page.open(address(service, "/"))
    page.wait("document.getElementById('health').textContent === 'ready'")
    page.wait("/^[0-9]/.test(document.getElementById('requests').textContent)")
    fits(page)
    click(page, "#try-run")
    page.wait("location.pathname.startsWith('/console/runs/')")
    ident = page.run("location.pathname.split('/').pop()")
    # Not in the page, which loads itself again once the run is done.
    wait_until(lambda: service.get(f"/v1/runs/{ident}").json()["state"] == "done", 60)
    assert service.get(f"/v1/runs/{ident}/reports/ept").status == 200


def drop(page: Page, **files: bytes) -> None:
    """Drop files on the first page, whose names have a dot for the underscore."""
    content = [[name.replace("_", "."), list(data)] for name, data in files.items()]
    page.wait("!document.getElementById('drop-files').hidden")
    page.run(
        "(() => { const dropped = new DataTransfer();"
        f"for (const [name, bytes] of {json.dumps(content)})"
        " dropped.items.add(new File([Uint8Array.from(bytes)], name));"
        "document.getElementById('drop-files').dispatchEvent("
        "new DragEvent('drop', {dataTransfer: dropped})) })()"
    )


def test_what_is_dropped_is_recognised_or_it_is_told_why_not(page: Page, service: Service) -> None:
    occurrence = generate_inputs(SPEC)["occurrence.bin"]
    page.open(address(service, "/"))
    drop(page, here_npy=b"\x93NUMPY", away_mib=b"HDR,", occurrence_bin=occurrence, tiny_bin=b"a")
    page.wait("document.querySelectorAll('#unknown li').length === 4")
    said = page.text("#unknown")
    for part in ("below the dataset roots", "put it below", "together with the loss streams"):
        assert part in said
    click(page, "#unknown a")
    page.wait("document.querySelector('#register [name=id]').value === 'here'")
    assert page.run("document.querySelector('#register [name=files]').value") == "here.npy"
    page.open(address(service, "/"))
    drop(page, occurrence_bin=occurrence, P1_bin=b"".join(generate_stream(SPEC)))
    page.wait("document.getElementById('lacks').innerText === 'Nothing is missing.'")
    (run,) = [run for run in service.get("/v1/runs").json()["runs"] if run["state"] != "done"]
    assert page.run("location.pathname").endswith(run["id"])
    assert run["perspective"] == "gul"


def test_the_files_of_a_folder_are_taken_by_their_names(page: Page, service: Service) -> None:
    """One of each kind; what csv does not tell is asked for before anything is sent."""
    stream = b"".join(generate_stream(SPEC))
    inputs = {name.replace(".", "_"): data for name, data in generate_inputs(SPEC).items()}
    page.open(address(service, "/"))
    drop(page, **inputs, P2_bin=stream[: len(stream) // 2], P1_bin=stream)
    page.wait("document.querySelectorAll('#transfers li.failed').length === 1")
    assert "P2.bin" in page.text("#transfers li.failed")
    page.run("[...document.querySelectorAll('.failed button')].at(-1).click()")
    page.wait("document.getElementById('lacks')?.innerText === 'Nothing is missing.'")
    asked = "document.getElementById('return-periods')"
    page.wait(f"{asked}.placeholder === 'those of the uploaded file'")
    ident = page.run("location.pathname.split('/').pop()")
    run = service.get(f"/v1/runs/{ident}").json()
    assert "return_periods" not in run["options"]
    assert {"occurrence", "return_periods"} <= run["inputs"].keys()
    streams = service.get(f"/v1/runs/{ident}/streams").json()["streams"]
    assert {each["partition"]: each["state"] for each in streams} == {1: "complete"}
    page.open(address(service, f"/console/runs/{ident}"))
    page.wait("document.getElementById('lacks')?.innerText === 'Nothing is missing.'")
    page.drop("#drop-streams", {"P2.bin": stream})
    page.wait("document.querySelectorAll('#streams .state.complete').length === 2")
    names = "[...document.querySelectorAll('#streams tbody th')].map((head) => head.innerText)"
    page.wait(f"{names}.join(' ').replace(/\\s+/g, ' ') === '1 P1.bin 2 P2.bin'")
    page.open(address(service, "/"))
    drop(page, occurrence_csv=inputs["occurrence_csv"], P1_bin=stream)
    page.wait("document.getElementById('unknown').innerText.includes('number of periods')")
    page.run(
        "(() => { const input = document.getElementById('periods'); input.value = 3000;"
        " input.dispatchEvent(new Event('change')) })()"
    )
    page.wait("document.getElementById('lacks')?.innerText === 'Nothing is missing.'")
    # The browser notes that the faulty stream was refused.
    page.errors[:] = [each for each in page.errors if "400" not in each]


def test_an_upload_that_a_reload_cuts_off_is_led_to(page: Page, service: Service) -> None:
    page.open(address(service, "/"))
    page.send("Network.emulateNetworkConditions", **SLOW, uploadThroughput=20_000)
    drop(page, P1_bin=b"".join(generate_stream(SPEC)))
    page.wait("!document.getElementById('made').hidden")
    link = page.run("document.querySelector('#made a').href")
    page.open(address(service, "/"))
    page.wait("!document.getElementById('left').hidden")
    assert page.run("document.querySelector('#left a').href") == link
    page.send("Network.emulateNetworkConditions", **SLOW, uploadThroughput=-1)
    # Nor does it ask where nobody has touched the page.
    page.errors[:] = [each for each in page.errors if "beforeunload" not in each]


def test_a_path_that_is_typed_leads_to_its_registration(page: Page, service: Service) -> None:
    page.open(address(service, "/"))
    page.wait("!document.getElementById('drop-files').hidden")
    page.run("document.querySelector('#drop-files [name=path]').value = 'a dir/b*.mib'")
    click(page, "#drop-files form button")
    page.wait("document.querySelector('#register [name=id]').value === 'b'")


def test_a_sample_scan_and_its_batches(page: Page, service: Service) -> None:
    page.open(address(service, "/"))
    click(page, "#try-scan")
    page.wait("location.pathname === '/console/datasets/thalweg-sample'")
    page.open(address(service, "/"))
    page.wait("document.getElementById('tiles-line').textContent.includes('thalweg-sample')")
    command = page.text("#batches-line")
    assert f"http://{HOST}:{service.port}/v1/pipelines -d '{{" in command
    spec = command.partition(" -d '")[2].rstrip("'")
    made = page.run(
        f"fetch('/v1/pipelines', {{method: 'POST', body: {spec!r}}}).then((r) => r.json())"
    )
    page.open(address(service, f"/console/pipelines/{made['id']}"))
    page.wait("document.querySelectorAll('canvas.frame').length === 4")
    assert "0.1%" in page.text(".order") or "0.0%" in page.text(".order")
    painted = "getContext('2d').getImageData(0, 0, 480, 240).data.filter((value) => value).length"
    assert page.run(f"document.getElementById('order').{painted}") > 1000
    click(page, "#prove")
    page.wait("document.querySelectorAll('#resumed tbody tr').length === 3")
    assert page.text("#resumed").count("the same") == 3
    line = re.search(r"'http://[^/]+(/v1/[^']+)'", page.text("#lines [data-tool=curl]"))
    assert line is not None
    assert service.get(line[1]).status == 200
    script = page.run("document.querySelector('#lines [data-tool=Python]').textContent")
    read = [sys.executable, "-c", script.replace("import thalweg", "import app.client as thalweg")]
    told = subprocess.run(read, check=True, capture_output=True, text=True)
    assert len(told.stdout.split()) == 256
    first = page.text("#batch-shown p")
    click(page, "#next-batch")
    page.wait("document.querySelector('#batch-shown p').innerText.startsWith('Batch 1 ')")
    assert page.run("location.search") == "?batch=1"
    token = first.rpartition(" ")[2]
    page.run(f"document.getElementById('token').value = {token!r}")
    click(page, "#token-form button")
    page.wait("!document.getElementById('token-table').hidden")
    assert "batches" in page.text("#token-table")
    page.run("document.getElementById('token').value = 'nonsense'")
    click(page, "#token-form button")
    page.wait("!document.getElementById('token-problem').hidden")
    assert "too short" in page.text("#token-problem")
    # The browser notes what the service refused.
    page.errors[:] = [each for each in page.errors if "/v1/tokens/inspect" not in each]
    fits(page)
    page.open(address(service, f"/console/pipelines/{made['id']}?batch=1"))
    page.wait("document.querySelector('#batch-shown p')?.innerText.startsWith('Batch 1 ')")
    for path in (f"/console/pipelines/{made['id']}", "/console/datasets/thalweg-sample"):
        page.open(address(service, path))
        page.wait("!document.querySelector('[data-path]').hidden")
        click(page, "[data-path]")
        assert "Really" in page.text("[data-path]")
        click(page, "[data-path]")
        page.wait(f"location.pathname === '{path.rpartition('/')[0]}'")
        assert service.get(path.replace("console", "v1")).status == 404
    # A picture that was asked for before finds no dataset.
    page.errors[:] = [each for each in page.errors if "/v1/datasets/thalweg-sample" not in each]


def test_the_keyboard_leads_everywhere(page: Page, service: Service) -> None:
    page.open(address(service, "/console/operations"))
    assert "token-malformed" in page.text("main")
    fits(page)
    page.key("Tab")
    assert page.run("document.activeElement.className") == "skip"
    page.key("Enter")
    page.wait("document.activeElement.id === 'content'")
    seen = set()
    for _ in range(60):
        page.key("Tab")
        seen.add(page.run("document.activeElement.getAttribute('href')"))
    assert {"/metrics", "/problems/token-malformed"} <= seen


def test_signing_in_and_out(page: Page, tmp_path: Path) -> None:
    digest = hashlib.sha256(KEY.encode()).hexdigest()
    served = Service(tmp_path, api_keys=f"alice:{digest}")
    try:
        page.open(address(served, "/console/runs"))
        assert "requires an API key" in page.text("main")
        for key, place in (("wrong", "/console/sign-in"), (KEY, "/console/runs")):
            page.run(f"document.querySelector('input[name=key]').value = {key!r}")
            click(page, "form.key button")
            page.wait(f"location.pathname === {place!r} && document.readyState === 'complete'")
        assert "There are no runs" in page.text("main")
        assert page.run("document.cookie") == ""
        page.open(address(served, "/"))
        page.wait("document.getElementById('health')?.textContent === 'ready'")
        click(page, "footer form button")
        page.wait("location.pathname === '/' && document.readyState === 'complete'")
        assert page.run("document.querySelector('form.key') && !document.querySelector('#try-run')")
        # The browser notes the pages that asked for a key.
        page.errors[:] = [each for each in page.errors if "401" not in each]
    finally:
        served.kill()
