from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from app.command.main import main
from app.losses.pictures.drawing import draw
from app.losses.pictures.options import PictureOptions
from core.losses.reports import REPORTS
from core.losses.samples import SampleSpec, generate_inputs, generate_stream

SPEC = SampleSpec(events=60, summaries=3, samples=8)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("run")
    (directory / "summary.bin").write_bytes(b"".join(generate_stream(SPEC)))
    (directory / "occurrence.bin").write_bytes(generate_inputs(SPEC)["occurrence.bin"])
    return directory


def command(run: Path, out: Path, reports: str, *options: str) -> list[str]:
    inputs = ["--occurrence", str(run / "occurrence.bin"), "--return-periods", "500,100,10"]
    if "ept" not in reports:
        inputs = inputs[:2]
    files = ["aggregate", str(run / "summary.bin"), "--out", str(out), "--format", "bin"]
    return [*files, "--reports", reports, *inputs, *options]


def test_pictures_show_the_tables_that_were_written(run: Path, tmp_path: Path) -> None:
    out, pictures = tmp_path / "out", tmp_path / "pictures"
    options = ("--plot", str(pictures), "--theme", "dark", "--plot-tvar", "--confidence", "0.9")
    assert main(command(run, out, "ept,aal,alct", *options)) == 0
    tables = {
        name: np.fromfile(out / f"{name}.bin", REPORTS[name].dtype(4))
        for name in ("ept", "aal", "alct")
    }
    expected = PictureOptions(theme="dark", tail_means=True, confidence=0.9, summary_set=1)
    for name in ("ept", "aal"):
        assert (pictures / f"{name}.svg").read_bytes() == draw(name, tables, expected)
    assert sorted(path.name for path in pictures.iterdir()) == ["aal.svg", "ept.svg"]


def test_a_picture_of_averages_needs_no_other_report_to_be_asked_for(
    run: Path, tmp_path: Path
) -> None:
    picture = tmp_path / "averages.png"
    assert main(command(run, tmp_path / "out", "aal", "--plot", str(picture))) == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["aal.bin"]


def test_partial_files_alone_can_be_drawn(run: Path, tmp_path: Path) -> None:
    part, picture = tmp_path / "run.part", tmp_path / "p.svg"
    whole = command(run, tmp_path / "a", "aal", "--plot", str(tmp_path / "w.svg"))
    assert main([*whole, "--partial-out", str(part)]) == 0
    merged = command(run, tmp_path / "b", "aal", "--plot", str(picture), "--partials", str(part))
    assert main([merged[0], *merged[2:]]) == 0
    assert picture.read_bytes() == (tmp_path / "w.svg").read_bytes()


@pytest.mark.parametrize(
    ("reports", "options", "message"),
    [
        ("melt", ("--plot", "p.svg"), "none of the requested reports has a picture"),
        ("ept,aal", ("--plot", "p.svg"), "takes a single picture"),
        ("ept", ("--plot", "p.svg", "--currency", "euro"), "currency"),
    ],
)
def test_what_cannot_be_drawn_is_refused_before_the_pass(
    run: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    reports: str,
    options: tuple[str, ...],
    message: str,
) -> None:
    out = tmp_path / "out"
    assert main(command(run, out, reports, *options)) == 2
    assert message in capsys.readouterr().err
    assert not out.exists()


def test_without_the_library_nothing_is_read(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(command(run, tmp_path / "out", "ept", "--plot", "p.svg")) == 2
    assert "Install the extra plot" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_tables_are_written_even_where_their_picture_is_refused(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "p.svg"
    options = ("--plot", str(picture), "--plot-summaries", "7-9")
    assert main(command(run, tmp_path / "out", "ept", *options)) == 2
    assert "no row of EPT" in capsys.readouterr().err
    assert (tmp_path / "out" / "ept.bin").stat().st_size
    assert not picture.exists()


def test_a_list_of_summaries_that_is_none_is_refused(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(command(run, tmp_path, "ept", "--plot", "p.svg", "--plot-summaries", "all"))
    assert "is not a list such as 1,5,10-20" in capsys.readouterr().err
