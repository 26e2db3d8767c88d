"""The browser of datasets in Chromium, against NumPy."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import app.client
from app.client import Client
from tests.interop.browser import find_browser
from tests.interop.console.chromium import Page, chromium
from tests.scale import PURE_PYTHON
from tests.server_process import ServerProcess

BROWSER = find_browser()
pytestmark = [
    pytest.mark.once,
    pytest.mark.skipif(BROWSER is None, reason="there is no Chromium"),
    pytest.mark.skipif(PURE_PYTHON, reason="the server is a process of its own"),
]

FRAMES = np.random.default_rng(5).integers(0, 1000, (12, 16, 24, 32)).astype("<u2")
FINE = np.random.default_rng(6).integers(0, 9, (5, 6, 131, 130)).astype(">i2")
LARGE = np.random.default_rng(7).integers(0, 9, (1, 2, 2101, 2003)).astype("u1")
EXACT = "document.querySelector('#scan figcaption')?.textContent.startsWith('Exact:')"
SETTLED = f"{EXACT} && !document.querySelector('figcaption + progress:not([hidden])')"
AXES = [
    {"name": "y", "unit": "nm", "scale": 0.5},
    {"name": "x", "unit": "nm", "scale": 0.5},
    {"name": "v", "unit": "1/nm", "scale": 0.1},
    {"name": "u", "unit": "1/nm", "scale": 0.1},
]


@pytest.fixture(scope="module")
def roots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("roots")


@pytest.fixture(scope="module")
def server(roots: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    np.save(roots / "scan.npy", FRAMES)
    np.save(roots / "line.npy", FRAMES[0] > 500)
    np.save(roots / "planes.npy", FRAMES[:4].reshape(2, 2, 16, 24, 32).astype("<f8") / 7)
    FRAMES[:8].tofile(roots / "short.raw")
    np.save(roots / "fine.npy", FINE)
    np.save(roots / "large.npy", LARGE)
    np.save(roots / "complex.npy", FRAMES[:2].astype("<c8"))
    server = ServerProcess(tmp_path_factory.mktemp("service"), dataset_roots=roots)
    try:
        with Client(server.url) as client:
            register = client.datasets.register
            shapes: dict[str, Any] = {"nav_shape": [12, 16], "sig_shape": [24, 32]}
            register(id="scan", files=["scan.npy"], axes=AXES, **shapes)
            register(id="line", files=["line.npy"], nav_shape=[16], sig_shape=[24, 32])
            register(id="planes", files=["planes.npy"], nav_shape=[2, 2, 16], sig_shape=[24, 32])
            partial = {"format": "raw", "dtype": "<u2", "file_header": 0, "partial": True}
            register(id="short", files=["short.raw"], **partial, **shapes)
            register(id="fine", files=["fine.npy"], nav_shape=[5, 6], sig_shape=[131, 130])
            register(id="large", files=["large.npy"], nav_shape=[1, 2], sig_shape=[2101, 2003])
            register(id="complex", files=["complex.npy"], nav_shape=[2, 16], sig_shape=[24, 32])
        yield server
    finally:
        server.kill()


@pytest.fixture(scope="module")
def browser() -> Iterator[Page]:
    assert BROWSER is not None
    with chromium(BROWSER) as page:
        page.resize(1280, 1000)
        yield page


@pytest.fixture
def page(browser: Page) -> Iterator[Page]:
    browser.errors.clear()
    yield browser
    assert browser.errors == []


def numbers(page: Page, figure: str) -> dict[str, float]:
    """What is written below a picture."""
    script = f"""[...document.querySelectorAll('#{figure} .numbers div')]
        .map((pair) => [pair.firstElementChild.textContent, pair.lastElementChild.textContent])"""
    found = dict(page.run(script))
    return {name: float(text.split(" of ")[0].replace(",", "")) for name, text in found.items()}


def holds(page: Page, figure: str, values: np.ndarray[Any, Any]) -> None:
    found = numbers(page, figure)
    expected = [np.nanmin(values), np.nanmax(values), np.nanmean(values), np.nansum(values)]
    shown = [found[name] for name in ("Lowest", "Highest", "Mean", "Sum")]
    assert np.allclose(shown, expected, rtol=1e-5), (shown, expected)


def middle(page: Page, figure: str, row: float, column: float) -> tuple[float, float]:
    """Where a pixel of a picture is on the screen."""
    script = f"""(() => {{
        const stage = document.querySelector('#{figure} .stage');
        const box = stage.getBoundingClientRect();
        const [, , columns, rows] = stage.querySelector('svg').getAttribute('viewBox').split(' ');
        return [box.x + box.width * {column + 0.5} / columns,
                box.y + box.height * {row + 0.5} / rows];
    }})()"""
    x, y = page.run(script)
    return x, y


def click(page: Page, figure: str, row: float, column: float) -> None:
    x, y = middle(page, figure, row, column)
    page.mouse("mousePressed", x, y)
    page.mouse("mouseReleased", x, y)


def covered(text: str) -> Any:  # noqa: ANN401 - an array
    """Pixels of a detector, by its text in the address of the page."""
    kind, _, rest = text.partition(":")
    given = [float(number) for number in rest.split(",")]
    y, x = np.mgrid[:24, :32]
    if kind == "rectangle":
        y0, y1, x0, x1 = given
        return (y >= y0) & (y < y1) & (x >= x0) & (x < x1)
    far = np.hypot(y - given[0], x - given[1])
    return far <= given[2] if kind == "disk" else (far >= given[2]) & (far <= given[3])


def detector(page: Page) -> str:
    return str(page.run("new URLSearchParams(location.search).get('detector')"))


def test_a_click_shows_the_frame_there_and_arrows_its_neighbours(
    page: Page, server: ServerProcess
) -> None:
    page.open(f"{server.url}/console/datasets/scan").wait(SETTLED)
    holds(page, "scan", FRAMES.sum((2, 3)))
    click(page, "scan", 3, 5)
    page.wait("document.querySelector('#frame figcaption').textContent === 'Frame at 3, 5'")
    holds(page, "frame", FRAMES[3, 5])
    page.key("ArrowDown")
    page.key("ArrowRight", 8)
    page.wait("document.querySelector('#frame figcaption').textContent === 'Frame at 4, 15'")
    holds(page, "frame", FRAMES[4, 15])
    assert "place=point%3A4%2C15" in page.run("location.search")
    assert page.text("#scan .scale span") == "2 nm"
    assert page.text("#frame .scale span") == "1 1/nm"


def test_a_press_on_a_picture_that_is_half_seen_chooses_what_is_under_it(
    page: Page, server: ServerProcess
) -> None:
    page.resize(1280, 680)
    page.open(f"{server.url}/console/datasets/scan?detector=disk:12,16,3").wait(SETTLED)
    assert page.run("document.querySelector('#frame .stage').getBoundingClientRect().bottom") > 680
    click(page, "scan", 3, 5)
    page.wait("document.querySelector('#frame figcaption').textContent === 'Frame at 3, 5'")
    click(page, "frame", 12, 16)
    assert detector(page) == "disk:12,16,3"
    assert page.run("scrollY") == 0
    page.resize(1280, 1000)


def test_the_sum_of_a_region_is_that_of_its_frames(page: Page, server: ServerProcess) -> None:
    page.open(f"{server.url}/console/datasets/scan?place=rectangle:2,6,3,11").wait(SETTLED)
    summed = FRAMES[2:6, 3:11].sum((0, 1))
    holds(page, "frame", summed)
    png, npy, csv = (
        page.saved(f"document.querySelector('#frame [aria-label=\"frame: {form}\"]')")
        for form in ("png", "npy", "csv")
    )
    sides = np.frombuffer(png, ">u4", 2, 16)
    assert max(sides) >= 512
    assert set(sides / summed.shape[::-1]) == {-(-512 // max(summed.shape))}
    np.testing.assert_array_equal(np.load(io.BytesIO(npy)), summed)
    np.testing.assert_array_equal(np.loadtxt(io.BytesIO(csv), delimiter=","), summed)
    page.run("document.querySelector('#scan .stage').focus()")
    page.key("+")
    page.wait("document.querySelector('#frame figcaption').textContent.includes('rows 2 to 6')")
    page.wait("!document.querySelector('#frame figcaption').textContent.includes('…')")
    holds(page, "frame", FRAMES[2:7, 3:12].sum((0, 1)))


def test_a_drag_beside_a_region_or_with_shift_draws_another(
    page: Page, server: ServerProcess
) -> None:
    page.open(f"{server.url}/console/datasets/scan?place=rectangle:2,6,3,11").wait(SETTLED)
    place = "new URLSearchParams(location.search).get('place')"
    for start, end, modifiers, wanted in (
        ((8, 12), (10, 14), 0, "8,11,12,15"),
        ((9, 13), (7, 12), 0, "6,9,11,14"),  # inside: it is moved
        ((7, 12), (4, 2), 8, "4,8,2,13"),
    ):
        page.send("Input.dispatchKeyEvent", type="rawKeyDown", key="Shift", modifiers=modifiers)
        drag(page, middle(page, "scan", *start), middle(page, "scan", *end), modifiers)
        page.wait(f"{place} === 'rectangle:{wanted}' && {SETTLED}")
    holds(page, "frame", FRAMES[4:8, 2:13].sum((0, 1)))


def drag(
    page: Page, start: tuple[float, float], end: tuple[float, float], modifiers: int = 0
) -> None:
    for kind, (x, y) in (("mousePressed", start), ("mouseMoved", end), ("mouseReleased", end)):
        page.mouse(kind, x, y, modifiers)


def test_back_undoes_the_choice_of_a_detector(page: Page, server: ServerProcess) -> None:
    page.open(f"{server.url}/console/datasets/scan?detector=disk:12,16,5&place=point:1,2")
    page.wait(SETTLED)
    page.run("""{
        const kind = document.querySelector('#frame .shape select');
        kind.value = 'rectangle';
        kind.dispatchEvent(new Event('change'));
    }""")
    page.wait(f"location.search.includes('rectangle') && {SETTLED}")
    page.run("history.back()")
    page.wait(f"document.querySelector('#frame .shape select').value === 'disk' && {SETTLED}")
    assert page.text("#scan figcaption") == "Exact: disk at 12, 16 of radius 5"


def test_a_number_that_is_refused_leaves_what_was_there(page: Page, server: ServerProcess) -> None:
    query = "detector=annulus:12,16,4,8&place=rectangle:2,6,3,11"
    page.open(f"{server.url}/console/datasets/scan?{query}").wait(SETTLED)
    for field, typed, reason in (
        ("#frame .fields [name=inner]", "50", "“50” is refused: The inner radius"),
        ("#scan .fields [name=y0]", "-3", "“-3” is refused: A rectangle is inside"),
    ):
        before = page.run(f"document.querySelector('{field}').value")
        page.run(f"document.querySelector('{field}').select()")
        for letter in typed:
            page.send("Input.insertText", text=letter)
        page.wait(f"document.querySelector('{field}').ariaInvalid === 'true' && {SETTLED}")
        holds(page, "scan", (FRAMES * covered("annulus:12,16,4,8")).sum((2, 3)))
        page.key("Enter")
        page.wait(f"document.querySelector('{field}').value === '{before}'")
        assert reason in page.text(f"{field} ~ small")
        page.wait(SETTLED)
    assert detector(page) == "annulus:12,16,4,8"
    holds(page, "frame", FRAMES[2:6, 3:11].sum((0, 1)))


@pytest.mark.parametrize("start", ["disk:12,16,5", "annulus:12,16,3,8", "rectangle:4,10,6,20"])
def test_a_detector_that_is_dragged_has_a_preview_and_then_the_exact_image(
    page: Page, server: ServerProcess, start: str
) -> None:
    page.open(f"{server.url}/console/datasets/scan?detector={start}").wait(SETTLED)
    holds(page, "scan", (FRAMES * covered(start)).sum((2, 3)))
    page.wait("document.querySelector('#copying').hidden")
    x, y = middle(page, "frame", 9 if start.startswith("rect") else 12, 16)
    page.mouse("mousePressed", x, y)
    for step in range(1, 6):
        page.mouse("mouseMoved", x + 6 * step, y + 3 * step)
    page.wait("document.querySelector('#scan figcaption').textContent.startsWith('Preview')")
    assert re.search("binned by 1 . 1 positions and 1 . 1 pixels", page.text("#scan figcaption"))
    page.mouse("mouseReleased", x + 30, y + 15)
    page.wait(SETTLED)
    moved = detector(page)
    assert moved != start
    holds(page, "scan", (FRAMES * covered(moved)).sum((2, 3)))


def test_a_preview_of_whole_blocks_is_exact(page: Page, server: ServerProcess) -> None:
    page.open(f"{server.url}/console/datasets/fine?detector=rectangle:3,9,30,90").wait(SETTLED)
    page.wait("document.querySelector('#copying').hidden")
    x, y = middle(page, "frame", 6, 60)
    page.mouse("mousePressed", x, y)
    page.wait("document.querySelector('#scan figcaption').textContent.startsWith('Preview')")
    assert re.search("binned by 1 . 1 positions and 3 . 3 pixels", page.text("#scan figcaption"))
    holds(page, "scan", FINE[:, :, 3:9, 30:90].sum((2, 3)))
    page.mouse("mouseReleased", x, y)
    page.wait(SETTLED)


def test_copies_for_previews_keep_their_bound(page: Page, server: ServerProcess) -> None:
    page.open(f"{server.url}/console/datasets/fine").wait(SETTLED)
    found = page.run("""(async () => {
        const script = document.querySelector('script[type=module]').src;
        const { blocks } = await import(script.replace('dataset.js', 'preview.js'));
        const lengths = [1, 7, 256, 2048, 100000], found = [];
        for (const a of lengths) for (const b of lengths) for (const most of [1, Math.min(a, b)]) {
            for (const frame of [[1, 1], [128, 128], [64, 4096], [8192, 8192]]) {
                found.push([a, b, most, frame, blocks([a, b], frame, most)]);
            }
        }
        return found;
    })()""")
    for a, b, most, frame, copy in found:
        if copy is None:
            # No blocks are large enough.
            assert (a // most) * (b // most) * (max(frame) // min(frame)) > 1 << 24
            continue
        assert np.prod(copy["size"]) <= 1 << 24
        assert copy["nav"] <= most
        assert copy["sig"] <= min(frame)


def test_a_frame_that_is_too_large_for_a_picture_is_binned_and_says_so(
    page: Page, server: ServerProcess
) -> None:
    page.open(f"{server.url}/console/datasets/large?place=point:0,1").wait(SETTLED)
    assert re.fullmatch(
        "Frame at 0, 1; each pixel is the sum of 2 . 2", page.text("#frame figcaption")
    )
    whole = LARGE[0, 1, :2100, :2002].astype(int).reshape(1050, 2, 1001, 2).sum((1, 3))
    holds(page, "frame", whole)


def test_what_cannot_be_shown_is_told(page: Page, server: ServerProcess) -> None:
    page.open(f"{server.url}/console/datasets/complex")
    page.wait("document.querySelector('#trouble').innerText.includes('complex')")
    # The browser notes every refused request.
    page.errors[:] = [error for error in page.errors if "422" not in error]


def test_a_detector_is_moved_by_keys_and_by_its_numbers(page: Page, server: ServerProcess) -> None:
    page.open(f"{server.url}/console/datasets/scan?detector=disk:12,16,5").wait(SETTLED)
    page.run("document.querySelector('#frame .stage').focus()")
    page.key("ArrowLeft")
    page.key("+")
    page.wait(f"location.search.includes('disk%3A12%2C15%2C6') && {SETTLED}")
    page.run("""{
        const input = document.querySelector('#frame .fields [name=radius]');
        input.value = 3;
        input.dispatchEvent(new Event('input'));
        input.dispatchEvent(new Event('change'));
    }""")
    page.wait(f"location.search.includes('disk%3A12%2C15%2C3') && {SETTLED}")
    holds(page, "scan", (FRAMES * covered("disk:12,15,3")).sum((2, 3)))


def test_a_line_of_bools_planes_and_missing_frames_are_shown_as_they_are(
    page: Page, server: ServerProcess
) -> None:
    page.open(f"{server.url}/console/datasets/line?place=point:0,7").wait(SETTLED)
    holds(page, "scan", (FRAMES[0] > 500).sum((1, 2)))
    holds(page, "frame", FRAMES[0, 7] > 500)
    page.open(f"{server.url}/console/datasets/planes?plane=1&place=point:1,4").wait(SETTLED)
    holds(page, "scan", (FRAMES[2:4] / 7).sum((2, 3)))
    holds(page, "frame", FRAMES[3, 4] / 7)
    page.open(f"{server.url}/console/datasets/short?place=point:11,4").wait(SETTLED)
    assert numbers(page, "scan")["Without a value"] == 4 * 16
    holds(page, "scan", FRAMES[:8].sum((2, 3)))
    assert page.text("#frame figcaption") == "There is no frame at 11, 4"


def test_an_address_that_says_nonsense_is_read_as_none(page: Page, server: ServerProcess) -> None:
    query = "place=point:99,-1&detector=disk:x,1e999&plane=7&nav=%3Cb%3E,9,1&frame=%00"
    page.open(f"{server.url}/console/datasets/scan?{query}").wait(SETTLED)
    assert page.text("#frame figcaption") == "Frame at 6, 8"
    assert page.text("#scan figcaption") == "Exact: disk at 12, 16 of radius 3"


def run_lines(page: Page, folder: Path, tool: str, number: int = 0) -> np.ndarray[Any, Any]:
    """Run the lines as they are copied; the array that they fetch."""
    selector = f"#lines [data-tool={tool}]"
    script = f"document.querySelectorAll({json.dumps(selector)})[{number}].textContent"
    lines = page.run(script)
    if tool == "curl":
        subprocess.run(["/bin/sh", "-c", lines], cwd=folder, check=True, timeout=30)
        found: np.ndarray[Any, Any] = np.load(folder / ("image.npy" if number else "frames.npy"))
        return found
    names: dict[str, Any] = {}
    exec(lines, names)  # noqa: S102 - as a person would
    if "client" in names:
        names["client"].close()
    array: np.ndarray[Any, Any] = names["image" if number else "frames"]
    return array


def test_copied_lines_fetch_just_what_is_shown(
    page: Page, server: ServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "thalweg", app.client)
    query = "place=rectangle:2,6,3,11&detector=rectangle:4,10,6,20"
    page.open(f"{server.url}/console/datasets/scan?{query}").wait(SETTLED)
    page.run("document.querySelector('#crop input').click()")
    page.run("document.querySelector('#write').click()")
    page.wait("document.querySelectorAll('#lines pre').length === 5")
    part, image = FRAMES[2:6, 3:11, 4:10, 6:20], FRAMES[:, :, 4:10, 6:20].sum((2, 3))
    for tool in ("curl", "Python"):
        found = run_lines(page, tmp_path, tool)
        assert (found.dtype, found.tolist()) == (part.dtype, part.tolist())
        assert np.array_equal(run_lines(page, tmp_path, tool, 1), image)
    pytest.importorskip("zarr")
    for module in ("fsspec", "aiohttp"):
        pytest.importorskip(module)
    assert np.array_equal(run_lines(page, tmp_path, "zarr"), part)


def test_what_is_of_several_tiles_is_fetched_as_one_array(
    page: Page, server: ServerProcess, tmp_path: Path
) -> None:
    page.open(f"{server.url}/console/datasets/large?place=sum").wait(SETTLED)
    page.run("document.querySelector('#write').click()")
    lines = page.wait("document.querySelector('#lines [data-tool=curl]')?.textContent")
    subprocess.run(["/bin/sh", "-c", lines], cwd=tmp_path, check=True, timeout=30)
    expression = lines.partition("# ")[2].replace("frames.raw", str(tmp_path / "frames.raw"))
    assert np.array_equal(eval(expression, {"numpy": np}), LARGE)  # noqa: S307 - as a person would


def test_a_dataset_that_changes_under_the_page_is_told_and_loaded_again(
    browser: Page, server: ServerProcess, roots: Path
) -> None:
    np.save(roots / "changing.npy", FRAMES[:2])
    with Client(server.url) as client:
        shapes = {"nav_shape": [2, 16], "sig_shape": [24, 32]}
        client.datasets.register(id="changing", files=["changing.npy"], **shapes)
    page = browser.open(f"{server.url}/console/datasets/changing?detector=disk:12,16,5")
    page.wait(SETTLED)
    # At once, lest a request in between finds half of it.
    np.save(roots / "other.npy", FRAMES[2:4])
    (roots / "other.npy").replace(roots / "changing.npy")
    click(page, "scan", 1, 3)
    page.wait("!document.querySelector('#trouble').hidden")
    assert "changed" in page.text("#trouble")
    assert page.run("document.querySelector('#trouble a').title") == "data-changed"
    page.run("window.old = true")
    page.run("document.querySelector('#trouble button').click()")
    page.wait(f"!window.old && {SETTLED}")
    holds(page, "scan", (FRAMES[2:4] * covered("disk:12,16,5")).sum((2, 3)))
    with Client(server.url) as client:
        client.datasets["changing"].delete()
    click(page, "scan", 1, 7)
    page.wait("!document.querySelector('#trouble').hidden")
    assert page.text("#trouble button") == "Load the page again"


def test_a_dataset_that_grows_is_shown_as_it_was_and_that_is_told(
    page: Page, server: ServerProcess, roots: Path
) -> None:
    FRAMES[0].tofile(roots / "growing.raw")
    spec = {"format": "raw", "dtype": "<u2", "file_header": 0, "growing": True}
    with Client(server.url) as client:
        client.datasets.register(id="growing", files=["growing.raw"], sig_shape=[24, 32], **spec)
    page.open(f"{server.url}/console/datasets/growing").wait(SETTLED)
    with (roots / "growing.raw").open("ab") as file:
        file.write(FRAMES[1].tobytes())
    click(page, "scan", 0, 3)
    page.wait("!document.querySelector('#grown').hidden")
    assert page.text("#grown span") == "There are 32 frames now; this page shows 16."
    assert page.run("document.querySelector('#trouble').hidden")
    holds(page, "frame", FRAMES[0, 3])


def test_a_service_that_goes_away_is_told_and_goes_on(browser: Page, server: ServerProcess) -> None:
    page = browser.open(f"{server.url}/console/datasets/scan").wait(SETTLED) and browser
    server.kill()
    click(page, "scan", 2, 2)
    page.wait("!document.querySelector('#gone').hidden")
    assert "does not answer" in page.text("#gone")
    said = "Computing: Frame at 2, 2 … what is seen is of before"
    assert page.text("#frame figcaption") == said
    server.start()
    page.wait("document.querySelector('#gone').hidden")
    page.wait("document.querySelector('#frame figcaption').textContent === 'Frame at 2, 2'")
    holds(page, "frame", FRAMES[2, 2])


def test_files_are_registered_and_a_problem_is_at_its_field(
    browser: Page, server: ServerProcess
) -> None:
    page = browser.open(f"{server.url}/console/datasets")
    page.wait("document.querySelector('#datasets [data-id=scan] td')?.textContent === 'npy'")
    assert re.search(r"scan\s+npy\s+12 . 16\s+24 . 32\s+<u2\s+[\d,]+", page.text("#datasets"))
    fill(page, files="short.raw", format="raw", dtype="u99", sig_shape="24 x 32")
    page.wait("!document.querySelector('#refused').hidden")
    assert page.run("document.activeElement.name") == "dtype"
    assert page.text("#refused").startswith("“Type of values” is 'u99'")
    fill(page, dtype="<u2", nav_shape="8, 16", id="eight", **{"corrections.dark": "none.npy"})
    page.wait("document.querySelector('#refused').innerText.includes('matches no file')")
    assert page.run("document.activeElement.name") == "corrections.dark"
    assert page.run("document.querySelector('#refused').parentElement.className") == "field"
    assert page.run("document.querySelector('#refused a').target") == "_blank"
    fill(page, **{"corrections.dark": ""})
    page.wait("location.pathname === '/console/datasets/eight'")
    page.wait(SETTLED)
    holds(page, "scan", FRAMES[:8].sum((2, 3)))


def fill(page: Page, **values: str) -> None:
    for name, value in values.items():
        selector = f"#register [name='{name}']"
        page.run(f"document.querySelector({json.dumps(selector)}).value = {json.dumps(value)}")
    page.run("document.querySelector('#register form > button').click()")


def test_files_are_chosen_from_the_roots_and_have_units_a_dark_image_and_a_name(
    browser: Page, server: ServerProcess, roots: Path
) -> None:
    (roots / "parts").mkdir()
    np.save(roots / "parts" / "my scan.npy", FRAMES)
    np.save(roots / "parts" / "dark.npy", np.full((24, 32), 3.0))
    page = browser.open(f"{server.url}/console/datasets")

    def choose(name: str) -> None:
        buttons = "[...document.querySelectorAll('#browse button')]"
        found = f"{buttons}.find((each) => each.innerText === {json.dumps(name)})"
        page.wait(f"!!{found}")
        page.run(f"{found}.click()")

    choose("parts/")
    choose("my scan.npy")
    assert page.run("document.querySelector('#register [name=id]').value") == "my-scan"
    page.run("document.getElementById('target').value = 'corrections.dark'")
    choose("dark.npy")
    fill(page, nav_shape="12, 16", sig_shape="24, 32", scan_step="half", frame_step="0.1 1/nm")
    page.wait("document.querySelector('#refused').innerText.startsWith('half is no step')")
    assert page.run("document.activeElement.name") == "scan_step"
    fill(page, scan_step="0.5 0.25nm")
    page.wait("location.pathname === '/console/datasets/my-scan'")
    page.wait(SETTLED)
    holds(page, "scan", (FRAMES - 3.0).sum((2, 3)))
    axes = page.run("fetch('/v1/datasets/my-scan').then((a) => a.json()).then((d) => d.axes)")
    found = [(axis["name"], axis["scale"], axis["unit"]) for axis in axes]
    assert found == [("y", 0.5, "nm"), ("x", 0.25, "nm"), ("v", 0.1, "1/nm"), ("u", 0.1, "1/nm")]


@pytest.mark.parametrize(("width", "dark"), [(360, False), (360, True), (1280, True)])
def test_pages_fit_and_every_input_has_a_label(
    page: Page, server: ServerProcess, width: int, dark: bool
) -> None:
    page.resize(width, 900, dark=dark)
    try:
        for path in ("", "/scan?place=rectangle:2,6,3,11&detector=annulus:12,16,3,8"):
            page.open(f"{server.url}/console/datasets{path}")
            page.wait(SETTLED if path else "true")
            assert page.run("document.documentElement.scrollWidth") <= width
            unlabelled = "[...document.querySelectorAll('input, select, textarea')]"
            assert page.run(f"{unlabelled}.filter((input) => !input.labels.length).length") == 0
    finally:
        page.resize(1280, 1000)
