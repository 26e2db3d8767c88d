"""The runner: written for one command, and loud whatever process of a run fails.

The script that it writes is run with processes of our own in place of the peer's; runs of the
peer are in ``tests/oasis``.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from app.command.main import main
from app.oasis.runner import RUNNER, server_path, write_runner
from core.errors import InputError
from tests.app.harness import wait_until

from .oasislmf_standin import HEADER, load_runner


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:  # noqa: ANN401 - a module
    monkeypatch.chdir(tmp_path)
    return load_runner(write_runner(tmp_path / "package"), monkeypatch)


def test_the_command_writes_a_runner_with_an_absolute_path(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["oasis", "runner", str(tmp_path / "package")]) == 0
    path = Path(capsys.readouterr().out.strip())
    assert path == tmp_path / "package" / RUNNER
    module = load_runner(path, monkeypatch)
    assert str(server_path()) == module.SERVER
    assert Path(module.SERVER).is_absolute()
    assert Path(module.CLIENT).is_absolute()
    assert all(hasattr(module, n) for n in ("run", "run_analysis", "run_outputs", "rerun"))


def test_it_imports_only_oasislmf_and_the_standard_library(tmp_path: Path) -> None:
    texts = [path.read_text() for path in write_runner(tmp_path).parent.glob("*.py")]
    words = [line.split() for text in texts for line in text.splitlines()]
    lines = [w[1] for w in words if w[:1] in (["import"], ["from"]) and not w[1].startswith(".")]
    foreign = {name.partition(".")[0] for name in lines} - set(sys.stdlib_module_names)
    assert foreign == {"oasislmf"}
    assert all(n.startswith("oasislmf.execution") for n in lines if n.startswith("oasislmf"))


def test_a_runner_of_the_model_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / RUNNER
    path.write_text("def run(settings): ...\n")
    with pytest.raises(InputError, match="is a runner of the model's own"):
        write_runner(tmp_path)
    write_runner(tmp_path, force=True)
    write_runner(tmp_path)
    assert "Thalweg" in path.read_text()


def test_type_errors_are_not_taken_for_old_arguments(runner: Any) -> None:  # noqa: ANN401
    def fail(*_args: object, **_kwargs: object) -> None:
        raise TypeError("deep inside")

    runner.run_params = fail
    with pytest.raises(RuntimeError, match="TypeError: deep inside"):
        runner.run({}, filename="run_kernel.sh", unknown=1)


def _script(runner: Any, readers: str, writers: str) -> str:  # noqa: ANN401 - a module
    script = runner.script
    return f"{HEADER}{script.WAITING}\n{readers}\n{writers}\necho '{script.DONE}'\necho finished\n"


READER = """
mkfifo word
( read -r word < word; [ "$word" == complete ] && touch committed ) &
thalweg_pids+=($!); thalweg_confirms+=(word)
"""


@pytest.mark.parametrize("sizes", [(2, 2), (1, 2), (0, 2)])
def test_events_come_in_any_order_from_load_balancers(
    runner: Any,  # noqa: ANN401 - a module
    sizes: tuple[int, int],
) -> None:
    lines: list[str] = []
    runner.bash.print_command = lambda _, line: lines.append(line)
    runner.bash.get_fifo_name = lambda folder, name, process, _: f"{folder}{name}_P{process}"
    params = {
        "gul_output": True,
        "il_output": True,
        "ri_output": False,
        "max_process_id": 2,
        "num_reinsurance_iterations": 0,
        "fifo_queue_dir": "fifo/",
        "num_gul_per_lb": sizes[0],
        "num_fm_per_lb": sizes[1],
    }
    streams = runner.script.Streams(params, {})
    runner.script.Readers(params, streams, runner.SERVER).start("run.sh")
    gul, il = (line for line in lines if " aggregate " in line)
    assert "--unsorted" not in gul
    assert ("--unsorted" in il) is (sizes[0] > 0)
    assert il.count("--stream") == 2


def test_full_correlation_is_refused_where_nothing_writes_it(runner: Any) -> None:  # noqa: ANN401
    runner.bash.get_getmodel_cmd = print
    params = {"filename": "run.sh", "analysis_settings": {}, "full_correlation": True}
    with pytest.raises(RuntimeError, match="full_correlation"):
        runner.write_analysis(params)


def test_readers_complete_after_all_writers(runner: Any) -> None:  # noqa: ANN401 - a module
    writers = "( sleep 0.1 ) & pid1=$!\n( true ) & pid2=$!\nexec_wait $pid1 $pid2"
    Path("run.sh").write_text(_script(runner, READER, writers))
    assert "finished" in runner.script.execute("run.sh", "log", 1.0)
    assert Path("committed").exists()


@pytest.mark.parametrize(
    ("writers", "message"),
    [
        ("( sleep 0.1; exit 3 ) & pid1=$!\n( true ) & pid2=$!", "sleep ended with status 3"),
        ("( true ) & pid1=$!\n( exit 4 ) & pid2=$!", "exit ended with status 4"),
        (
            "( kill -9 $BASHPID ) & pid1=$!\n( true ) & pid2=$!",
            "kill was killed by signal 9 (SIGKILL)",
        ),
        ("( false | true ) & pid1=$!\n( true ) & pid2=$!", "false ended with status 1"),
        # A load balancer, say, whose id the script forgets.
        ("( sleep 0.1; exit 5 ) &\n( true ) & pid1=$!\npid2=$pid1", "sleep ended with status 5"),
        ("( exit 6 ) & \nsleep 0.1\n( true ) & pid1=$!\npid2=$pid1", "exit ended with status 6"),
    ],
)
def test_any_writer_that_fails_ends_the_run(
    runner: Any,  # noqa: ANN401 - a module
    writers: str,
    message: str,
) -> None:
    Path("run.sh").write_text(_script(runner, READER, f"{writers}\nexec_wait $pid1 $pid2"))
    runner.script.keep_ids("run.sh")
    with pytest.raises(subprocess.CalledProcessError) as raised:
        runner.script.execute("run.sh", "log", 1.0)
    assert message in raised.value.output.decode()
    assert "finished" not in raised.value.output.decode()
    assert not Path("committed").exists()


DIES = "bash -c 'printf 12345678; kill -9 $$' producer -S10"
KILLED = "was killed by signal 9 (SIGKILL), so no stream after it is complete"


@pytest.mark.parametrize(
    ("pipeline", "message"),
    [
        # Between two blocks; what feeds or reads it ends well, or by an error of its own.
        (f"true | {DIES} | cat", f"bash {KILLED}: {DIES}"),
        (f"yes | {DIES} | cat", f"bash {KILLED}: {DIES}"),
        (f"true | {DIES} | {{ cat; exit 3; }}", f"bash {KILLED}: {DIES}"),
        ("yes | tee copy | false", "false ended with status 1"),
        # The shell around it.
        ("kill -9 $BASHPID; true | cat", KILLED),
    ],
)
def test_who_died_is_named_with_its_signal_and_its_command(
    runner: Any,  # noqa: ANN401 - a module
    pipeline: str,
    message: str,
) -> None:
    writers = f"( ( {pipeline} > all ) 2>> log/stderror.err ) & pid1=$!\nexec_wait $pid1"
    Path("log").mkdir()
    Path("run.sh").write_text(_script(runner, "", writers))
    runner.script.keep_ids("run.sh")
    with pytest.raises(subprocess.CalledProcessError) as raised:
        runner.script.execute("run.sh", "log", 1.0)
    said = raised.value.output.decode()
    assert message in said
    assert (said.count("no stream after it is complete") == 1) is (KILLED in message)
    assert "finished" not in said


def test_a_reader_that_fails_ends_the_run_while_writers_go_on(runner: Any) -> None:  # noqa: ANN401
    reader = "( exit 5 ) &\nthalweg_pids+=($!); thalweg_confirms+=(word)"
    Path("run.sh").write_text(_script(runner, reader, "sleep 2 & pid1=$!\nexec_wait $pid1"))
    runner.script.keep_ids("run.sh")
    with pytest.raises(subprocess.CalledProcessError) as raised:
        runner.script.execute("run.sh", "log", 1.0)
    assert b"exit ended with status 5" in raised.value.output


def test_nothing_of_a_failed_run_is_left(runner: Any) -> None:  # noqa: ANN401 - a module
    Path("output").mkdir()
    Path("output/.gul_S1_melt.csv.12.partial").touch()
    Path("run.sh").write_text("sleep 60 &\necho $! > pid\nexit 9\n")
    with pytest.raises(subprocess.CalledProcessError) as raised:
        runner.script.execute("run.sh", "log", 1.0)
    assert raised.value.returncode == 9
    assert isinstance(raised.value.output, bytes)
    assert not list(Path("output").iterdir())
    child = int(Path("pid").read_text())
    wait_until(lambda: has_ended(child))


def test_a_run_that_fails_leaves_no_output_of_any_perspective(
    runner: Any,  # noqa: ANN401 - a module
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Path("output").mkdir()

    def fail(*_args: object) -> None:
        for name in ("gul_S1_melt.csv", "gul_S1_summary-info.csv", "analysis_settings.json"):
            Path("output", name).touch()
        raise subprocess.CalledProcessError(1, "bash", output=b"")

    monkeypatch.setattr(runner, "run_params", lambda *_: {"bash_trace": False, "stderr_guard": 1})
    monkeypatch.setattr(runner, "write_analysis", lambda *_: None)
    monkeypatch.setattr(runner.script, "execute", fail)
    with pytest.raises(subprocess.CalledProcessError):
        runner.run({}, filename="run.sh")
    left = {path.name for path in Path("output").iterdir()}
    assert left == {"gul_S1_summary-info.csv", "analysis_settings.json"}


def has_ended(pid: int) -> bool:
    """Whether a process is gone, or waits for its parent only."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_a_script_that_is_killed_fails_the_run(runner: Any) -> None:  # noqa: ANN401 - a module
    Path("run.sh").write_text("kill -9 $$\n")
    with pytest.raises(subprocess.CalledProcessError) as raised:
        runner.script.execute("run.sh", "log", 1.0)
    assert raised.value.returncode == -9
    said = raised.value.output.decode()
    assert "the script of the run was killed by signal 9 (SIGKILL)" in said


def test_a_script_that_ends_itself_names_the_command_that_failed(
    runner: Any,  # noqa: ANN401 - a module
) -> None:
    for status, end in ((3, "ended with status 3"), (137, "was killed by signal 9 (SIGKILL)")):
        Path("run.sh").write_text(f"echo 'Kernel execution error - exitcode={status}'; kill -9 $$")
        with pytest.raises(subprocess.CalledProcessError) as raised:
            runner.script.execute("run.sh", "log", 1.0)
        said = raised.value.output.decode()
        assert f"a command of the script of the run {end}" in said
        assert "log/stderror.err" in said


def test_two_runs_in_one_directory(runner: Any) -> None:  # noqa: ANN401 - a module
    with (
        runner.script.locked("run"),
        pytest.raises(RuntimeError, match="another run uses"),
        runner.script.locked("run"),
    ):
        pass
    assert Path(".thalweg-run.lock").exists()


@pytest.mark.parametrize("signal", ["TERM", "INT"])
def test_a_run_that_is_told_to_stop_has_failed(runner: Any, signal: str) -> None:  # noqa: ANN401
    # Oasis' monitor sends TERM when a process has written an error; its handler trusts $?.
    stop = f"( sleep 0.3; kill -{signal} $$ ) & pid1=$!\nsleep 2 & pid2=$!\nexec_wait $pid1 $pid2"
    handler = "trap 'code=$?; trap - EXIT; exit $code' QUIT HUP INT KILL TERM ERR EXIT\n"
    Path("run.sh").write_text(handler + _script(runner, READER, stop))
    with pytest.raises(subprocess.CalledProcessError) as raised:
        runner.script.execute("run.sh", "log", 1.0)
    assert raised.value.returncode == 143
    assert not Path("committed").exists()


def test_a_script_that_ends_early_without_a_status_has_failed(runner: Any) -> None:  # noqa: ANN401
    Path("run.sh").write_text("exit 0\n")
    with pytest.raises(subprocess.CalledProcessError) as raised:
        runner.script.execute("run.sh", "log", 1.0)
    assert raised.value.returncode == 1
