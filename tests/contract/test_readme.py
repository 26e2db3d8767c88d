"""The README is run: its Python examples, and the commands' options it names."""

from __future__ import annotations

import argparse
import io
import re
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app import __version__
from app.client.command.main import build_parser as build_client_parser
from app.parser import build_parser
from app.wire import FrameKind, FrameWriter, rows_header
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
    names: dict[str, Any] = {"Path": Path}
    exec(code, names)  # noqa: S102 - the README is ours
    assert capsys.readouterr().out or "read_frames" in names


def test_the_reader_of_frames_reads_what_the_service_writes() -> None:
    (code,) = (code for code in examples() if "def read_frames" in code)
    names: dict[str, Any] = {}
    exec(code, names)  # noqa: S102 - the README is ours
    rows = np.zeros(3, REPORTS["melt"].dtype(4))
    rows["EventId"] = [1, 2, 3]
    writer = FrameWriter()
    header = rows_header("melt", rows) | {"token": "t"}
    made = writer.frame(FrameKind.DATA, header, rows.view("u1").data, more=True)
    made += writer.frame(FrameKind.DATA, header, rows.view("u1").data)
    made += writer.frame(FrameKind.END, {"reason": "complete"})
    octets = b"".join(made)
    first, second = names["read_frames"](io.BytesIO(octets))
    assert (first[0], first[2], second[2]) == ("melt", None, "t")
    assert np.array_equal(second[1], rows)
    for damaged in (octets[:-1], octets[:100] + b"x" + octets[101:]):
        with pytest.raises((ValueError, struct.error)):
            list(names["read_frames"](io.BytesIO(damaged)))


def options(parser: argparse.ArgumentParser) -> set[str]:
    """Every option of a command and of the commands below it."""
    known = set(parser._option_string_actions)
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            known |= {option for each in action.choices.values() for option in options(each)}
    return known


def test_every_option_named_exists() -> None:
    known = options(build_parser()) | options(build_client_parser())
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
