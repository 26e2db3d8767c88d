"""Exit codes, logs, environment and command lines, which all tools have in common."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.oasis.shims import starting
from app.oasis.shims.options import PARSERS
from app.oasis.shims.starting import ProcessLog
from tests.app.oasis.shims.tools import clean_environment, is_lost, logs, run
from tests.streams import Block, Stream

STREAM = Stream("summary", 1, 4, (Block(1, 1, ((-1, 2.0), (1, 3.0))),)).encode()


@pytest.fixture(autouse=True)
def _run_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clean_environment(monkeypatch, tmp_path)
    Path("in").write_bytes(STREAM)


def test_success_is_silent_and_logged_from_start_to_end(capfd: pytest.CaptureFixture[str]) -> None:
    assert run("eltpy", "-i", "in", "-s", "s.csv", "-v", "10") == 0
    assert capfd.readouterr() == ("", "")
    (log,) = logs("eltpy")
    first, second, *_, last = log.splitlines()
    assert "'selt': 's.csv'" in first
    assert "logging_level" not in first
    assert second.endswith(" - oasislmf - INFO - starting process")
    assert last.endswith(" - oasislmf - INFO - finishing process")


def test_every_process_has_a_log_of_its_own_where_the_run_wants_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OASIS_PYTOOLS_LOG_DIR", "logs/3")
    for _ in range(2):
        assert run("eltpy", "-i", "in") == 0
    assert len(logs("eltpy", Path("logs/3"))) == 2
    assert not Path("log").exists()


def test_a_fault_is_one_line_exit_code_1_and_a_lost_process(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert run("eltpy", "-i", "absent", "-s", "s.csv") == 1
    out, error = capfd.readouterr()
    assert out == ""
    assert error.startswith("eltpy: absent: ")
    assert error.count("\n") == 1
    (log,) = logs("eltpy")
    assert is_lost(log)
    assert error[len("eltpy: ") :] in log


def test_names_and_reasons_with_the_word_do_not_hide_a_lost_process() -> None:
    assert run("eltpy", "-i", "finish", "-s", "finished.csv") == 1
    (log,) = logs("eltpy")
    assert is_lost(log)
    assert r"'\x66inished.csv'" in log


def test_a_defect_is_told_in_a_line_and_logged_whole(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def broken(_args: object, _log: object) -> None:
        raise ZeroDivisionError("two\nlines")

    monkeypatch.setattr(starting, "_load", lambda _tool: broken)
    assert run("katpy", "-o", "out.csv") == 1
    assert capfd.readouterr().err == "katpy: ZeroDivisionError: two lines\n"
    (log,) = logs("katpy")
    assert is_lost(log)
    assert "Traceback" in log


def test_an_interrupted_process_is_a_lost_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_args: object, _log: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(starting, "_load", lambda _tool: interrupted)
    assert run("katpy", "-o", "out.csv") == 130
    assert is_lost(logs("katpy")[0])


def test_a_log_that_cannot_be_written_is_a_fault(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OASIS_PYTOOLS_LOG_DIR", "in/log")
    assert run("eltpy", "-i", "in", "-s", "s.csv") == 1
    assert capfd.readouterr().err.startswith("eltpy: its log cannot be written")


def test_losses_of_another_width_name_the_variable(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    blocks = (Block(1, 1, ((-1, 2.5), (1, 3.5))),)
    Path("wide").write_bytes(Stream("summary", 1, 8, blocks).encode())
    assert run("eltpy", "-i", "wide", "-s", "s.csv") == 1
    assert "OASIS_FLOAT=f8 has to be set for the whole run" in capfd.readouterr().err
    monkeypatch.setenv("OASIS_FLOAT", "f8")
    assert run("eltpy", "-i", "wide", "-s", "s.csv") == 0


@pytest.mark.parametrize(
    "words",
    ["eltpy -i in -q q.csv", "pltpy -i in -m m.csv", "aalpy -a a.csv", "lecpy -K gul_S1 -O a.csv"],
)
def test_another_folder_than_that_of_the_run_is_told(
    words: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(*words.split()) == 1
    hint = "Work in the folder of the run, or name it with --run_dir"
    assert hint in capfd.readouterr().err


def test_a_name_of_another_format_is_told_with_the_one_it_needs(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert run("eltpy", "-i", "in", "-E", "parquet", "-m", "m.csv") == 1
    assert "Name it m.parquet, or give its format with -E" in capfd.readouterr().err
    assert not Path("m.csv").exists()


@pytest.mark.parametrize(
    ("name", "value"),
    [("OASIS_FLOAT", "f2"), ("OASIS_INT", "i8"), ("OASIS_AAL_MEMORY", "much")],
)
def test_a_variable_of_another_value_is_refused_by_name(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(name, value)
    assert run("eltpy", "-i", "in", "-s", "s.csv") == 1
    assert f"{name}={value}" in capfd.readouterr().err
    assert is_lost(logs("eltpy")[0])


@pytest.mark.parametrize("tool", list(PARSERS))
def test_wrong_usage_ends_with_2_before_a_log(tool: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run(tool, "--no-such-option")
    assert ended.value.code == 2
    assert tool in capfd.readouterr().err
    assert not Path("log").exists()


@pytest.mark.parametrize("tool", list(PARSERS))
def test_help_tells_the_options(tool: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run(tool, "-h")
    assert ended.value.code == 0
    assert "-v" in capfd.readouterr().out


def test_warnings_are_logged_unless_the_run_wants_less(monkeypatch: pytest.MonkeyPatch) -> None:
    for level, shown in (("20", True), ("WARNING", True), ("40", False), ("ERROR", False)):
        monkeypatch.setenv("OASIS_PYTOOLS_LOG_LEVEL", level)
        monkeypatch.setenv("OASIS_PYTOOLS_LOG_DIR", level)
        log = ProcessLog("katpy", {})
        log.note_warning("odd")
        log.close()
        assert ("odd" in logs("katpy", Path(level))[0]) is shown


def test_compilation_is_logged_where_no_cache_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("eltpy", "-i", "in") == 0
    monkeypatch.setattr("core._jit.is_build_begun", lambda: False)
    monkeypatch.setenv("OASIS_PYTOOLS_LOG_DIR", "unpublished")
    assert run("eltpy", "-i", "in") == 0
    assert "compiled in this process" in logs("eltpy", Path("unpublished"))[0]


@pytest.mark.parametrize(("name", "expected"), [("stderror.err", [6.0]), ("other.err", [])])
def test_a_fault_is_told_to_the_monitor_of_a_script_before_the_process_ends(
    monkeypatch: pytest.MonkeyPatch, name: str, expected: list[float]
) -> None:
    waits: list[float] = []
    Path("link").symlink_to(name)
    monkeypatch.setattr(starting, "_STDERR", Path("link"))
    monkeypatch.setattr("time.sleep", waits.append)
    assert run("katpy", "-s", "-i", "absent.bin", "-o", "s.bin") == 1
    assert waits == expected
