"""The documentation in a browser: its search, its looks, and the page that sends requests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from app.http.routes_operations import BUILT
from tests.app.harness import Service
from tests.interop.browser import find_browser
from tests.interop.console.chromium import Page, chromium
from tests.server_process import HOST

BROWSER = find_browser()
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no browser (apt-get install chromium)")
needs_site = pytest.mark.skipif(not BUILT.exists(), reason="the site is not built (make docs)")
WIDER = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with chromium(str(BROWSER)) as opened:
        yield opened
        assert opened.errors == []


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    service = Service(tmp_path_factory.mktemp("documented") / "service")
    try:
        yield f"http://{HOST}:{service.port}"
        assert not service.failures()
    finally:
        service.kill()


@needs_site
def test_the_search_finds_pages_by_the_keyboard(page: Page, address: str) -> None:
    page.open(f"{address}/docs/explanation/tokens.html")
    page.run("document.querySelector('.sidebar-search').focus()")
    page.send("Input.insertText", text="annulus")
    page.key("Enter")
    page.wait("document.querySelectorAll('ul.search li').length >= 2")
    page.wait("document.querySelector('ul.search').innerText.includes('virtual detectors')")
    page.wait("document.querySelector('ul.search').innerText.includes('annulus:31.5')")


@needs_site
@pytest.mark.parametrize(
    "path", ["", "tutorials/losses.html", "tutorials/scan.html", "reference/contract.html"]
)
def test_pages_fit_in_light_and_dark_wide_and_narrow(page: Page, address: str, path: str) -> None:
    colours = set()
    for width in (1280, 360):
        for dark in (False, True):
            page.resize(width, 900, dark=dark)
            page.open(f"{address}/docs/{path}")
            assert page.run(WIDER) <= 0, width
            colours.add(page.run("getComputedStyle(document.body).backgroundColor"))
            loaded = "[...document.images].every((i) => i.complete && i.naturalWidth)"
            page.wait(loaded)
    assert len(colours) == 2
    page.resize(1280, 900)


def section(name: str) -> str:
    return f"document.querySelector('[data-operation=\"{name}\"]')"


def test_a_request_is_sent_from_the_page_of_routes(page: Page, address: str) -> None:
    page.open(f"{address}/docs")
    for width in (360, 1280):
        page.resize(width, 900)
        assert page.run(WIDER) <= 0, width
    page.run(f"{section('GET /v1/stages/{name}')}.querySelector('button').focus()")
    page.key("Enter")
    page.wait(
        f"document.activeElement.form && {section('GET /v1/stages/{name}')}"
        ".contains(document.activeElement)"
    )
    page.send("Input.insertText", text="map")
    page.key("Enter")
    page.wait(f"{section('GET /v1/stages/{name}')}.innerText.includes('200')")
    text = str(page.run(f"{section('GET /v1/stages/{name}')}.innerText"))
    assert f"curl {address}/v1/stages/map" in text
    assert '"stage": "map"' in text
    assert "content-type: application/json" in text


def test_words_are_whole_on_a_phone(page: Page, address: str) -> None:
    page.resize(400, 900)
    for path in ("/docs", "/problems/quota-exceeded"):
        page.open(f"{address}{path}")
        assert page.run(WIDER) <= 0
        names = "[...document.querySelectorAll('td code, h2 b, td a, nav a')]"
        broken = f"{names}.filter((each) => each.getClientRects().length > 1)"
        assert page.run(f"{broken}.map((each) => each.innerText)") == []
        assert page.run("document.querySelector('nav a').innerText") == "Thalweg"
    page.resize(1280, 900)


def test_bodies_and_refusals_are_shown(page: Page, address: str) -> None:
    page.open(f"{address}/docs")
    inspect = section("POST /v1/tokens/inspect")
    page.run(f"{inspect}.querySelector('button').click()")
    page.wait(f"!!{inspect}.querySelector('textarea')")
    page.run(f"{inspect}.querySelector('textarea').value = JSON.stringify({{token: \"it's <b>\"}})")
    page.run(f"{inspect}.querySelector('form button').click()")
    page.wait(f"{inspect}.innerText.includes('token-malformed')")
    assert "400 Bad Request" in page.run(f"{inspect}.innerText")
    assert r"""-d '{"token":"it'\''s <b>"}'""" in page.run(f"{inspect}.innerText")
    # The browser notes every answer of 400 in its console.
    assert all("400 (Bad Request)" in error for error in page.errors)
    page.errors.clear()


def test_a_file_is_posted_and_its_table_shown(page: Page, address: str) -> None:
    page.open(f"{address}/docs")
    losses = section("POST /v1/losses/{report}")
    page.run(f"{losses}.querySelector('button').click()")
    page.wait(f"!!{losses}.querySelector('input[type=file]')")
    page.run(
        "fetch('/console/samples/stream.bin').then((a) => a.blob()).then((blob) => {"
        "const list = new DataTransfer(); list.items.add(new File([blob], 'sample.bin'));"
        f"{losses}.querySelector('input[type=file]').files = list.files; }})"
    )
    page.run(f"{losses}.querySelector('[name=\"path:report\"]').value = 'melt'")
    page.run(f"{losses}.querySelector('form button').click()")
    page.wait(f"{losses}.innerText.includes('EventId,SummaryId')")
    text = page.run(f"{losses}.innerText")
    assert "--data-binary" in text
    assert "thalweg-completeness: " in text


def test_routes_are_found_by_words(page: Page, address: str) -> None:
    page.open(f"{address}/docs")
    page.run("document.querySelector('#words').focus()")
    page.send("Input.insertText", text="seal run")
    shown = "[...document.querySelectorAll('[data-operation]')].filter((s) => !s.hidden)"
    names = page.run(f"{shown}.map((s) => s.dataset.operation)")
    assert "POST /v1/runs/{run}/seal" in names
    assert "GET /v1/stages" not in names
