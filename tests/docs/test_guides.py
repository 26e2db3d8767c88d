"""The guides of the documentation print what they say, run in one process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from deploy.docs.tutorials import PAGES, fences_of
from tests.scale import PURE_PYTHON

GUIDES = sorted(PAGES.with_name("guides").glob("*.md"))


@pytest.mark.skipif(PURE_PYTHON, reason="pages are the same however kernels run")
@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.stem)
def test_a_guide_prints_what_it_says(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for fence in fences_of(page.read_text()):
        exec(fence.code, names)  # noqa: S102 - the pages are ours
        assert capsys.readouterr().out == (fence.printed or "")
    assert names
