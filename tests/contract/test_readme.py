"""The README is run: its Python examples, and the commands' options it names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from app import __version__
from app.cli import build_parser
from core.losses.reports import REPORTS
from core.losses.samples import SampleSpec, generate_stream

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def examples() -> list[str]:
    return re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.mark.parametrize("code", examples())
def test_python_examples_run(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = SampleSpec(events=20, summaries=3, samples=10)
    (tmp_path / "summary.bin").write_bytes(b"".join(generate_stream(spec)))
    monkeypatch.chdir(tmp_path)
    code = code.replace('open("summary.bin", "rb").read()', 'Path("summary.bin").read_bytes()')
    exec(code, {"Path": Path})  # noqa: S102 - the README is ours
    assert capsys.readouterr().out


def test_every_option_named_exists() -> None:
    parser = build_parser()
    commands: Any = parser._subparsers._group_actions[0].choices  # type: ignore[union-attr]
    parsers = [parser, *commands.values()]
    known = {option for each in parsers for option in each._option_string_actions}
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", README))
    assert named <= known


def test_every_report_and_make_target_is_documented() -> None:
    for name in REPORTS:
        assert f"`{name}`" in README
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"make ([a-z]+)", README):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE) or target in makefile


def test_the_changelog_is_about_this_version() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text()
    newest = re.search(r"^## (\S+)", changelog, re.MULTILINE)
    assert newest is not None
    assert newest.group(1) == __version__
