"""The executables as a run starts them: processes of their own, told and ended by signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from app.command.main import main
from app.oasis.shims.installing import write_shims
from app.oasis.shims.options import PARSERS
from core.errors import InputError, OptionError
from core.losses.reports import REPORTS
from core.losses.samples import SampleSpec, generate_stream
from tests.app.oasis.shims.tools import clean_environment, is_lost, logs
from tests.streams import Block, Stream

XREF = "".join(f"{item},{item},1\n" for item in range(1, 9))
MAP = "loc_id,item_id,building_id\n" + "".join(f"{i},{i},1\n" for i in range(1, 9))


@pytest.fixture(scope="module")
def shims(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("shims")
    write_shims(directory)
    return directory


@pytest.fixture(autouse=True)
def _run_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clean_environment(monkeypatch, tmp_path)


def stream(count: int = 2) -> bytes:
    blocks = tuple(Block(event, 1, ((-1, 2.0), (1, 3.0))) for event in range(1, count + 1))
    return Stream("summary", 1, 4, blocks).encode()


def start(shims: Path, tool: str, *words: str) -> subprocess.Popen[bytes]:
    pipe = subprocess.PIPE
    return subprocess.Popen([shims / tool, *words], stdin=pipe, stdout=pipe, stderr=pipe)


def test_the_command_writes_an_executable_for_every_tool(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    directory = tmp_path / "new" / "bin"
    assert main(["oasis", "shims", str(directory)]) == 0
    assert sorted(path.name for path in directory.iterdir()) == [".kernels", *sorted(PARSERS)]
    assert f'export PATH="{directory}:$PATH"' in capfd.readouterr().out
    assert main(["oasis", "shims", str(directory)]) == 0


def test_tools_of_others_are_never_overwritten(tmp_path: Path) -> None:
    peers = tmp_path / "katpy"
    peers.write_text("#!/usr/bin/python\nfrom oasislmf import main\n")
    with pytest.raises(OptionError, match="katpy exists"):
        write_shims(tmp_path)
    assert "oasislmf" in peers.read_text()
    assert list(tmp_path.iterdir()) == [peers]


def test_a_directory_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        write_shims(tmp_path / "file" / "bin")


def test_an_executable_reads_standard_input_and_is_silent(shims: Path) -> None:
    process = start(shims, "eltpy", "-s", "s.csv")
    assert process.communicate(stream()) == (b"", b"")
    assert process.returncode == 0
    assert Path("s.csv").read_text().startswith(REPORTS["selt"].header + "\n1,1,-1,2.00,")
    assert not is_lost(logs("eltpy")[0])


def test_kernels_are_found_by_a_user_without_a_cache(
    shims: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("THALWEG_KERNEL_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "nobody"))
    process = start(shims, "eltpy", "-s", "s.csv")
    assert process.communicate(stream()) == (b"", b"")
    assert "compiled in this process" not in logs("eltpy")[0]
    (build,) = (shims / ".kernels").iterdir()
    assert build.stat().st_mode & 0o777 == 0o755
    assert {file.stat().st_mode & 0o777 for file in build.iterdir()} == {0o644}


def test_modules_of_the_run_directory_are_not_imported(
    shims: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("numpy.py", "argparse.py", "app.py"):
        Path(name).write_text("raise SystemExit('a module of the model')")
    monkeypatch.setenv("PYTHONPATH", os.curdir)
    process = start(shims, "eltpy", "-s", "s.csv")
    assert process.communicate(stream()) == (b"", b"")
    assert process.returncode == 0


def test_an_interpreter_with_a_long_or_spaced_path_is_run(tmp_path: Path) -> None:
    folder = tmp_path / "with space" / ("long" * 40)
    folder.mkdir(parents=True)
    interpreter = folder / "python"
    interpreter.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    interpreter.chmod(0o755)
    write_shims(tmp_path / "bin", str(interpreter))
    process = start(tmp_path / "bin", "eltpy", "-s", "a b.csv")
    assert process.communicate(stream()) == (b"", b"")
    assert Path("a b.csv").exists()


HEAVY = {"fastapi", "starlette", "uvicorn", "httpx", "pydantic", "structlog", "oasislmf"}


@pytest.mark.parametrize(
    ("words", "arrow"),
    [
        (["eltpy", "-i", "in", "-m", "m.csv"], False),
        (["eltpy", "-i", "in", "-E", "parquet", "-m", "m.parquet"], True),
        (["summarypy", "-t", "gul", "-i", "gul", "-1", "S1"], False),
        (["katpy", "-s", "-f", "bin", "-i", "kat", "-o", "out.csv"], False),
    ],
)
def test_no_tool_imports_the_web_and_arrow_is_for_parquet_only(
    words: Sequence[str], arrow: bool
) -> None:
    Path("input").mkdir()
    Path("input/gulsummaryxref.csv").write_text("item_id,summary_id,summaryset_id\n" + XREF)
    Path("input/gul_summary_map.csv").write_text(MAP)
    Path("in").write_bytes(stream())
    Path("gul").write_bytes(Stream("loss", 1, 4, (Block(1, 1, ((-3, 2.0), (-1, 1.0))),)).encode())
    Path("kat").write_bytes(bytes(2 * REPORTS["selt"].dtype(4).itemsize))
    program = (
        "import sys; from app.oasis.shims.starting import main;"
        f"assert main({words[0]!r}, {list(words[1:])!r}) == 0; print(*sys.modules)"
    )
    root = Path(__file__).parents[4]
    environment = os.environ | {"PYTHONPATH": str(root)}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment
    )
    imported = set(done.stdout.split())
    assert not imported & HEAVY
    assert ("pyarrow" in imported) is arrow


def test_sigterm_ends_a_process_which_is_then_lost(shims: Path) -> None:
    os.mkfifo("table")
    process = start(shims, "eltpy", "-s", "table")
    with Path("table").open("rb"):  # opens when the process has
        process.send_signal(signal.SIGTERM)
        process.communicate()
    assert process.returncode == -signal.SIGTERM
    assert is_lost(logs("eltpy")[0])


def test_a_reader_that_goes_away_is_a_fault(shims: Path) -> None:
    Path("input").mkdir()
    Path("input/gulsummaryxref.csv").write_text("item_id,summary_id,summaryset_id\n" + XREF)
    Path("input/gul_summary_map.csv").write_text(MAP)
    os.mkfifo("S1")
    process = start(shims, "summarypy", "-t", "gul", "-1", "S1")
    Path("S1").open("rb").close()
    spec = SampleSpec(events=20, summaries=8, samples=100)
    items = b"".join(generate_stream(spec))
    _, error = process.communicate(items[:3] + b"\x02" + items[4:])
    assert process.returncode == 1
    assert error.count(b"\n") == 1
    assert is_lost(logs("summarypy")[0])


def test_a_full_disk_is_a_fault(shims: Path) -> None:
    process = start(shims, "eltpy", "-s", "/dev/full")
    _, error = process.communicate(stream(20_000))
    assert process.returncode == 1
    assert b"No space left" in error
    assert error.count(b"\n") == 1
    assert is_lost(logs("eltpy")[0])
