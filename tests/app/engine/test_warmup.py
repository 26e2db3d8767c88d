"""Another process compiles half of the kernels; where it cannot, nothing else changes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from app.engine import warmup
from core.warmup import Task
from tests.app.server.lanes.small import ending


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


STARTER = """
from app.engine import warmup
warmup._APART = "import os, time; print(os.getpid(), file=sys.stderr); time.sleep(60)"
warmup._start([])()
"""


def test_the_other_process_ends_with_its_starter() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", STARTER], stderr=subprocess.PIPE, cwd=Path(__file__).parents[3]
    ) as starter:
        assert starter.stderr is not None
        pid = int(starter.stderr.readline())
        with ending([pid]):
            starter.kill()


def test_kernels_are_compiled_for_the_process_that_was_forked_from(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    used: list[str] = []
    listed = [Task(name, 10, lambda name=name: used.append(name)) for name in "abcd"]  # type: ignore[misc]
    monkeypatch.setattr(warmup, "tasks", lambda: listed)
    monkeypatch.setattr(warmup, "_start", lambda names: lambda: f"build of {sorted(names)}")
    monkeypatch.setattr(warmup, "absorb", used.append)
    monkeypatch.setattr(warmup, "is_build_published", lambda: True)
    assert warmup.compiling() is None
    monkeypatch.setattr(warmup, "is_build_published", lambda: False)
    compiles = warmup.compiling()
    assert compiles is not None
    compiles()
    own = used[:-1]
    assert 0 < len(own) < 4
    assert used[-1] == f"build of {sorted(set('abcd') - set(own))}"


def test_requests_wait_until_the_kernels_are_ready() -> None:
    warm_up = warmup.WarmUp()
    problems = [warm_up.problem()]
    warm_up.on_loaded = lambda: problems.append(warm_up.problem())
    warm_up._run()
    assert problems == ["kernels are being compiled"] * 2
    assert warm_up.problem() is None
