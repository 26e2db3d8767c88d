"""The documentation is run: its examples, and the options, paths and targets it names."""

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
from app.command.parser import build_parser
from app.datasets.spec import ITEM_FORMATS
from app.losses.encoding import rows_header
from app.settings import Settings
from app.streams.frames import FrameKind, FrameWriter
from core.losses.reports import REPORTS
from core.losses.samples import SampleSpec, generate_stream
from core.pipelines.operations import ALIASES, OPERATIONS
from core.tiles.formats import FORMATS

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
CONTRACT = (ROOT / "app" / "README.md").read_text()
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()
DEPLOY = (ROOT / "deploy" / "README.md").read_text()
CHANGELOG = (ROOT / "CHANGELOG.md").read_text()
PAGES = {
    "README.md": README,
    "app/README.md": CONTRACT,
    "CONTRIBUTING.md": CONTRIBUTING,
    "deploy/README.md": DEPLOY,
    "deploy/SECURITY.md": (ROOT / "deploy" / "SECURITY.md").read_text(),
    "deploy/kubernetes/README.md": (ROOT / "deploy" / "kubernetes" / "README.md").read_text(),
    "CHANGELOG.md": CHANGELOG,
}


def examples() -> list[str]:
    return re.findall(r"```python\n(.*?)```", README + CONTRACT, re.DOTALL)


@pytest.mark.parametrize("code", examples())
def test_python_examples_run(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = SampleSpec(events=20, summaries=3, samples=10)
    (tmp_path / "summary.bin").write_bytes(b"".join(generate_stream(spec)))
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(code, names)  # noqa: S102 - the examples are ours
    assert capsys.readouterr().out or "read_frames" in names


def test_the_reader_of_frames_reads_what_the_service_writes() -> None:
    (code,) = (code for code in examples() if "def read_frames" in code)
    names: dict[str, Any] = {}
    exec(code, names)  # noqa: S102 - the examples are ours
    rows = np.zeros(3, REPORTS["melt"].dtype(4))
    rows["EventId"] = [1, 2, 3]
    writer = FrameWriter()
    header = rows_header("melt", rows) | {"token": "t"}
    frames = writer.frame(FrameKind.DATA, header, rows.view("u1").data, more=True)
    frames += writer.frame(FrameKind.DATA, header, rows.view("u1").data)
    frames += writer.frame(FrameKind.END, {"reason": "complete"})
    octets = b"".join(frames)
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
            known |= {option for command in action.choices.values() for option in options(command)}
    return known


def test_every_option_named_exists() -> None:
    known = options(build_parser()) | options(build_client_parser())
    for page in (README, CONTRACT):
        assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", page)) <= known


def test_every_report_is_documented() -> None:
    for name in REPORTS:
        assert f"`{name}`" in README
        assert f"`{name}`" in CONTRACT


def test_every_format_and_stage_is_documented() -> None:
    datasets = CONTRACT[CONTRACT.index("## Datasets") : CONTRACT.index("## Pipelines")]
    for name in [*FORMATS, *ITEM_FORMATS, "hdf5", "zarr"]:
        assert re.search(rf"\b{name}\b", datasets), name
    stages = CONTRACT[CONTRACT.index("## Pipelines") : CONTRACT.index("## Tokens")]
    for name in {*OPERATIONS, *ALIASES} - {"delay"}:  # local iteration only
        assert f"`{name}`" in stages, name


def test_every_make_target_named_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in PAGES.values():
        assert set(re.findall(r"`make ([a-z-]+)", page)) <= targets
        assert set(re.findall(r"^\$ make ([a-z-]+)", page, re.MULTILINE)) <= targets


@pytest.mark.parametrize("page", PAGES)
def test_every_path_and_link_leads_somewhere(page: str) -> None:
    text = PAGES[page]
    for path in re.findall(r"`((?:app|core|deploy|tests)/[\w./-]*)`", text):
        assert (ROOT / path).exists() or (ROOT / path).with_suffix(".py").exists(), path
    for link, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", text):
        target = (ROOT / page).parent / link if link else ROOT / page
        assert target.exists(), link
        if anchor:
            headings = re.findall(r"^#+ (.*)", target.read_text(), re.MULTILINE)
            assert anchor in {heading.lower().replace(" ", "-") for heading in headings}, anchor


def test_every_setting_is_documented() -> None:
    for name in Settings.model_fields:
        assert f"THALWEG_{name.upper()}`" in DEPLOY, name


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= 250


def test_the_changelog_is_about_this_version() -> None:
    newest = re.search(r"^## (\S+)", CHANGELOG, re.MULTILINE)
    assert newest is not None
    assert newest.group(1) == __version__
