"""Pages in a browser are tried by ``make interop``: they would take minutes of the suite."""

from __future__ import annotations

import os

import pytest

HERE = "tests/interop/console/"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not os.environ.get("THALWEG_BROWSER"):
        skip = pytest.mark.skip(reason="THALWEG_BROWSER is not set, as make interop sets it")
        for item in items:
            if item.nodeid.startswith(HERE):
                item.add_marker(skip)
