"""Damaged files of every format, through a service of its own and by scan."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.fuzz_files import FORMS, campaign, scanned
from tests.scale import PURE_PYTHON, examples, half

SEED = 11

pytestmark = pytest.mark.skipif(PURE_PYTHON, reason="the service is a process of its own")


def test_every_answer_is_documented_and_nothing_is_left(tmp_path: Path) -> None:
    with campaign(tmp_path, SEED) as run:
        for form in FORMS:
            run.run(form, half(60))
            assert run.outcomes["read"] > 0, run.outcomes
            run.outcomes["read"] = 0


def test_a_scan_finds_what_is_sound(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    cases = examples(60)
    assert 0 < scanned(tmp_path / "root", SEED, cases) < cases
