"""Pages of the console in Chromium: from a choice to the curve, and how long a drawing takes.

``python -m tests.bench.pages`` starts a service and a browser; all times are the browser's own, in
milliseconds. Where a choice needs the service, it tells how long the page waited, too. With
``--large`` the scan has 4 GiB, and a detector is dragged over its frames.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import numpy as np

from app.client import Client
from core.losses.samples import SampleSpec, generate_inputs, generate_stream
from tests.interop.browser import find_browser
from tests.interop.console.chromium import Page, chromium
from tests.server_process import ServerProcess

CHOICES = 60
SPEC = SampleSpec(events=2000, summaries=12, samples=50)
SCAN = (256, 256, 8, 8)
LARGE = (256, 256, 256, 128)
LOADS = 20
PATIENCE = 600.0
TIMED = """(async () => {
    performance.clearResourceTimings();
    const canvas = document.querySelector('.canvas'), before = canvas.chart;
    const started = performance.now();
    %s
    const isDrawn = () => canvas.chart !== before && canvas.dataset.milliseconds;
    while (!isDrawn()) await new Promise(requestAnimationFrame);
    const total = performance.now() - started;
    const ends = performance.getEntriesByType('resource').map(({ responseEnd }) => responseEnd);
    return [total, Math.max(started, ...ends) - started, Number(canvas.dataset.milliseconds)];
})()"""
CALCULATION = """{ const select = document.getElementById('choose-calc');
    select.value = '%d'; select.dispatchEvent(new Event('change')); }"""
TYPES = "document.querySelectorAll('.controls [type=checkbox]')[%d].click();"


def shown(name: str, milliseconds: list[float]) -> None:
    p50, p95 = np.percentile(milliseconds, [50, 95])
    print(f"{name:40} p50 {p50:6.1f}  p95 {p95:6.1f}  n {len(milliseconds)}")


def curves(page: Page, url: str) -> None:
    """Choices that are of curves the page has, and summaries that it has to ask for."""
    page.open(f"{url}?types=1%2C3")
    page.wait("document.querySelector('.canvas')?.dataset.milliseconds")
    found = []
    for number in range(CHOICES):
        half = number // 2
        script = CALCULATION % (2 + half % 3) if number % 2 else TYPES % (1 + 2 * (half % 2))
        found.append(page.run(TIMED % script))
    total, _, drawn = np.array(found).T
    shown("choice among curves it has", list(total))
    points = page.run("document.querySelector('.canvas').chart.data[0].length")
    shown(f"  of which drawing, {points} points", list(drawn))
    page.run("document.querySelector('.picker input').focus()")
    found = []
    for number in range(2, 1 + SPEC.summaries):
        page.wait("document.querySelectorAll('.found button').length === 0")
        page.run(f"document.querySelector('.picker input').value = {json.dumps(str(number))}")
        page.run("document.querySelector('.picker input').dispatchEvent(new Event('input'))")
        page.wait(f"document.querySelector('.found button')?.innerText === 'Summary {number}'")
        found.append(page.run(TIMED % "document.querySelector('.found button').click();"))
    total, waited, drawn = np.array(found).T
    shown("another summary", list(total))
    shown("  of which until its bytes were there", list(waited))


def slider(page: Page, url: str) -> None:
    """A layer of a programme that is moved: from the slider to the net curve."""
    page.open(url)
    page.wait("document.querySelector('#chart').dataset.of === '[]'")
    page.run("document.getElementById('add').click()")
    page.wait("document.querySelector('#chart').dataset.of.includes('CXL')")
    found = page.run("""(async () => {
        const range = document.querySelector('#layers div:not([hidden]) [type=range]');
        const drawn = document.querySelector('#chart'), times = [];
        for (let k = 1; k <= 60; k += 1) {
            const [started, before] = [performance.now(), drawn.dataset.of];
            range.value = String(Number(range.step) * k);
            range.dispatchEvent(new Event('input'));
            const isDrawn = () => drawn.dataset.of !== before && drawn.dataset.milliseconds;
            while (!isDrawn()) await new Promise(requestAnimationFrame);
            times.push(performance.now() - started);
        }
        return times;
    })()""")
    shown("slider of a layer, to the net curve", found)


def paint(page: Page, urls: dict[str, str]) -> None:
    """From the beginning of a navigation to the first paint."""
    for name, url in urls.items():
        found = []
        for _ in range(LOADS):
            page.open("about:blank").open(url)
            found.append(page.wait("performance.getEntriesByType('paint')[0]?.startTime"))
        shown(f"first paint of {name}", found)


def dragged(page: Page, url: str) -> None:
    """From a move of the pointer to the preview that is drawn, and from release to the image."""
    exact = "document.querySelector('#scan figcaption')?.textContent.startsWith('Exact:')"
    page.open(f"{url}?detector=disk:128,64,30")
    page.wait("!!document.querySelector('#compute:not([hidden])')")
    page.run("document.getElementById('compute').click()")
    page.wait(exact, PATIENCE)
    copied = "document.querySelector('#copying').hidden"
    page.wait(f"!({copied})")
    page.wait(copied, PATIENCE)
    stage = "document.querySelector('#frame .stage')"
    page.run(f"{stage}.scrollIntoView({{block: 'center'}})")
    box = page.run(f"(({{x, y, width, height}}) => [x, y, width, height])"
                   f"({stage}.getBoundingClientRect())")  # fmt: skip
    x, y, width, height = box
    page.mouse("mousePressed", x + width / 2, y + height / 2)
    for move in range(CHOICES):
        page.mouse("mouseMoved", x + width * (0.4 + 0.2 * move / CHOICES), y + height / 2)
        page.wait(f"performance.getEntriesByName('preview').length > {move}")
    shown("detector that is dragged, to the preview", page.run(
        "performance.getEntriesByName('preview').map(({duration}) => duration)"))  # fmt: skip
    page.run("window.released = performance.now()")
    page.mouse("mouseReleased", x + width * 0.6, y + height / 2)
    shown(
        "  and the exact image", [page.wait(f"{exact} && performance.now() - released", PATIENCE)]
    )


def picture(page: Page, url: str) -> None:
    """How long the drawing of an image of 256 x 256 takes, by moving its limits."""
    page.open(url)
    page.wait("document.querySelector('#scan figcaption')?.textContent.startsWith('Exact')")
    drawn = page.run("""(async () => {
        const input = document.querySelector('#scan .look input[type=number]');
        performance.clearMeasures();
        for (let k = 0; k < 60; k += 1) {
            input.value = String(1 + k % 20);
            input.dispatchEvent(new Event('change'));
            await new Promise(requestAnimationFrame);
        }
        return performance.getEntriesByName('draw').map(({ duration }) => duration);
    })()""")
    shown("image of 256 x 256", drawn)


def main() -> int:
    """Print the table."""
    browser = find_browser()
    if browser is None:
        sys.exit("Chromium is missing: apt-get install chromium")
    with tempfile.TemporaryDirectory() as name:
        roots = Path(name, "roots")
        roots.mkdir()
        shape = LARGE if "--large" in sys.argv else SCAN
        scan = np.lib.format.open_memmap(roots / "scan.npy", "w+", "<u2", shape)
        for plane in scan:
            plane[:] = np.random.default_rng(1).integers(0, 999, shape[1:])
        del scan
        server = ServerProcess(Path(name, "service"), dataset_roots=roots)
        try:
            with Client(server.url) as client, chromium(browser) as page:
                page.resize(1280, 900)
                inputs = {"occurrence": generate_inputs(SPEC)["occurrence.bin"]}
                run = client.runs.create("gul", ["ept", "aal"], inputs=inputs)
                client.runs.upload(run, b"".join(generate_stream(SPEC)))
                client.runs.seal(run)
                losses = client.portfolios.create(run).id
                client.datasets.register(id="scan", files=["scan.npy"])
                names = {"home": "/", "a run": f"/console/runs/{run.id}"}
                names |= {"a scan": "/console/datasets/scan"}
                names |= {"loss sets": f"/console/portfolio?sets={losses}"}
                paint(page, {name: server.url + path for name, path in names.items()})
                curves(page, f"{server.url}/console/runs/{run.id}")
                slider(page, f"{server.url}/console/portfolio?sets={losses}")
                if "--large" in sys.argv:
                    dragged(page, f"{server.url}/console/datasets/scan")
                    return 0
                picture(page, f"{server.url}/console/datasets/scan")
        finally:
            server.kill()
    return 0


if __name__ == "__main__":
    sys.exit(main())
