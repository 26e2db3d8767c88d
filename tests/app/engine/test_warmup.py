"""Another process compiles half of the kernels; where it cannot, nothing else changes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from app.engine import warmup


def test_the_other_process_is_given_names_and_tells_its_build(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    said = tmp_path / "said"
    code = f"import sys; open({str(said)!r}, 'w').write(repr(sys.argv[1:])); print('/a/build')"
    monkeypatch.setattr(warmup, "_APART", code)
    wait = warmup._start(["one task", "another"])
    assert wait() == "/a/build"
    assert said.read_text() == "['one task', 'another']"


@pytest.mark.parametrize("code", ["raise SystemExit(3)", "print(None)", "print('/x'); exit(1)", ""])
def test_a_process_without_a_build_is_as_none(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    monkeypatch.setattr(warmup, "_APART", code)
    assert warmup._start([])() is None


def test_a_process_that_cannot_be_started_is_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert warmup._start([])() is None


def test_requests_wait_until_the_kernels_are_ready() -> None:
    warm_up = warmup.WarmUp()
    problems = [warm_up.problem()]
    warm_up.on_loaded = lambda: problems.append(warm_up.problem())
    warm_up._run()
    assert problems == ["kernels are being compiled"] * 2
    assert warm_up.problem() is None
