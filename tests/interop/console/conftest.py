"""Pages in a browser are tried by ``make interop``: they would take minutes of the suite."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.app.harness import Service
from tests.interop.browser import find_browser
from tests.interop.console.chromium import Page, chromium

HERE = "tests/interop/console/"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not os.environ.get("THALWEG_BROWSER"):
        skip = pytest.mark.skip(reason="THALWEG_BROWSER is not set, as make interop sets it")
        for item in items:
            if item.nodeid.startswith(HERE):
                item.add_marker(skip)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service of the file's own, without datasets."""
    server = Service(tmp_path_factory.mktemp("server"))
    try:
        yield server
        assert not server.failures()
    finally:
        server.kill()


@pytest.fixture
def page() -> Iterator[Page]:
    """A browser of the test's own, which has met no error in the end."""
    with chromium(str(find_browser())) as opened:
        yield opened
        opened.run("0")
        assert opened.errors == []
