"""Runs an Oasis model whose losses Thalweg aggregates.

Oasis calls the functions of this file instead of its own. Losses are computed as ever, by the
commands that oasislmf builds. What differs is the second half: the streams of items go straight
to one process for each perspective, which writes the outputs::

    evepy | gulmc | tee gul_P1 | fmpy | tee il_P1 | fmpy > ri_P1       for each process
                        |                   |            |
           aggregate gul (_P1 _P2 ...)  aggregate il  aggregate ri     instead of summarypy, tee,
                        v                   v            v             eltpy, pltpy, katpy, aalpy,
                    output/gul_*        output/il_*   output/ri_*      lecpy and work files

The scripts are oasislmf's, made with settings that have no summaries, so that they end where the
streams begin. They differ in waiting: every process is waited for, not the last alone, and the
outputs are completed only after all have ended well. What fails is named in the log.

Written by ``thalweg-server oasis runner``, which sets SERVER and replaces changes made here.
"""

import contextlib
import fcntl
import functools
import glob
import inspect
import logging
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import threading

from oasislmf.execution import bash
from oasislmf.execution import runner as standard

try:
    from oasislmf.execution.resource_monitor import ResourceMonitor
except ImportError:  # before 2.5
    ResourceMonitor = None

SERVER = "thalweg-server"
"""Absolute path of the command."""
OPTIONS = "THALWEG_AGGREGATE_OPTIONS"
"""Variable with further options of ``aggregate``, such as ``--memory-budget 4GB``."""
IDLE_SECONDS = 24 * 3600
"""Without a byte for so long, a stream counts as dead. Processes that end are noticed at once."""
PERSPECTIVES = ("gul", "il", "ri", "rl")
DONE = "[OK] Thalweg"
"""Said at the end of a script: without it the run has failed, whatever its status."""

logger = logging.getLogger("oasislmf.thalweg")


# -- what Oasis calls ------------------------------------------------------------------


def wrap_type_errors(function):
    """Raise a TypeError as another error: Oasis would call ``run`` again with old arguments."""

    @functools.wraps(function)
    def call(*args, **kwargs):
        try:
            return function(*args, **kwargs)
        except TypeError as e:
            raise RuntimeError(f"the Thalweg runner failed: TypeError: {e}") from e

    return call


@wrap_type_errors
def run(analysis_settings, **kwargs):
    """Compute losses and outputs (``model run``, ``generate-losses``)."""
    kwargs = dict(kwargs)
    filename = kwargs["filename"] = kwargs.get("filename") or "run_kernel.sh"
    params = run_params(analysis_settings, kwargs)
    with locked("run"):
        pathlib.Path(filename).unlink(missing_ok=True)
        with bash.bash_wrapper(
            filename,
            params["bash_trace"],
            params["stderr_guard"],
            custom_gulcalc_log_start=params.get("custom_gulcalc_log_start"),
            custom_gulcalc_log_finish=params.get("custom_gulcalc_log_finish"),
        ):
            write_analysis(params)
        execute(filename, "log", kwargs.get("resource_monitor_interval", 1.0))


@wrap_type_errors
def run_analysis(**params):
    """Compute the losses of a chunk (``generate-losses-chunk``); leave mergeable files."""
    interval = params.pop("resource_monitor_interval", 1.0)
    filename, number = params["filename"], params.get("process_number")
    folder = os.path.join("log", str(number)) if number else "log"
    with locked(f"chunk-{number}"):
        with bash.bash_wrapper(
            filename,
            params["bash_trace"],
            params["stderr_guard"],
            log_sub_dir=number,
            process_number=number,
            **only(bash.bash_wrapper, run_check_complete=False),
        ):
            write_analysis(params)
        text = execute(filename, folder, interval)
    return params["fifo_queue_dir"], text


@wrap_type_errors
def run_outputs(**params):
    """Merge the files of all chunks into outputs (``generate-losses-output``)."""
    interval = params.pop("resource_monitor_interval", 1.0)
    filename, work = params["filename"], params["work_dir"]
    command = [*aggregate_command(), "--merge-chunks", str(params["max_process_id"])]
    command += ["--work-dir", work, *flags(params)]
    with locked("run"):
        with bash.bash_wrapper(
            filename,
            params["bash_trace"],
            params["stderr_guard"],
            log_sub_dir="out",
            **only(bash.bash_wrapper, run_check_complete=False),
        ):
            bash.print_command(filename, f"{shlex.join(command)} 2>> $LOG_DIR/stderror.err")
            bash.print_command(filename, f"echo {shlex.quote(DONE)}")
            if params.get("remove_working_files", True):
                bash.print_command(filename, f"rm -R -f {shlex.quote(work)}/*")
        return execute(filename, os.path.join("log", "out"), interval)


def rerun():
    """Compute the event again at which a process of Oasis failed, for a better message."""
    try:
        standard.rerun()
    except Exception as e:  # it is about an error already
        logger.warning("the failed event could not be computed again: %s", e)


# -- arguments -------------------------------------------------------------------------


def run_params(analysis_settings, kwargs):
    """Arguments of the scripts, from those of ``run``."""
    renamed = {
        "max_process_id": kwargs.get("number_of_processes", -1),
        "gul_alloc_rule": kwargs.get("set_alloc_rule_gul"),
        "il_alloc_rule": kwargs.get("set_alloc_rule_il"),
        "ri_alloc_rule": kwargs.get("set_alloc_rule_ri"),
        "bash_trace": kwargs.get("run_debug", False),
        "model_df_engine": kwargs.get("model_df_engine") or kwargs.get("df_engine"),
        "_get_getmodel_cmd": getmodel_command(analysis_settings, kwargs),
    }
    given = {**kwargs, **renamed}
    given = {name: value for name, value in given.items() if value is not None}
    given.pop("custom_gulcalc_cmd", None)  # in _get_getmodel_cmd
    params = bash.bash_params(analysis_settings, **only(bash.bash_params, **given))
    for name in ("analysis_pk", "socket_server_size", "socket_server_port"):
        params[name] = kwargs.get(name)
    return params


def getmodel_command(analysis_settings, kwargs):
    """What builds the command of a model with a program of its own; None for others."""
    if kwargs.get("custom_get_getmodel_cmd"):
        return kwargs["custom_get_getmodel_cmd"]
    custom = kwargs.get("custom_gulcalc_cmd")
    if custom and not shutil.which(custom):
        raise RuntimeError(f"the program {custom} of the model is not on the PATH")
    supplier, model = (analysis_settings.get(f"model_{n}_id") for n in ("supplier", "name"))
    custom = custom or shutil.which(f"{supplier}_{model}_gulcalc")
    return bash.get_complex_model_cmd(custom, analysis_settings) if custom else None


def only(function, **arguments):
    """Arguments that this version of a function of oasislmf takes."""
    names = inspect.signature(function).parameters
    return {name: value for name, value in arguments.items() if name in names}


def aggregate_command():
    """The command of all processes of ours."""
    command = [SERVER, "aggregate", "--run-dir", ".", "--log-file", "-", "--no-progress"]
    return command + shlex.split(os.environ.get(OPTIONS, ""))


def flags(params):
    """Options of ``aggregate`` for arguments of a run."""
    return ["--join-summary-info"] if params.get("join_summary_info") else []


# -- scripts ---------------------------------------------------------------------------


def write_analysis(params):
    """Write the part of a script that computes losses, with our processes as readers.

    The hook for the model's command is called after fifos have been made and before anything is
    started, which is where readers belong.
    """
    params = dict(params)
    settings = params["analysis_settings"]
    params["analysis_settings"] = {
        name: value for name, value in settings.items() if not name.endswith("_summaries")
    }
    filename = params["filename"]
    build = params.get("_get_getmodel_cmd") or bash.get_getmodel_cmd
    if params.get("full_correlation") and build is bash.get_getmodel_cmd:
        raise RuntimeError("full_correlation: gulpy does not write the streams that it waits for")
    readers = Readers(params, settings)
    started: list[bool] = []

    def build_after_readers(**arguments):
        if not started:
            started.append(True)
            readers.start(filename)
        return build(**arguments)

    params["_get_getmodel_cmd"] = build_after_readers
    bash.print_command(filename, WAITING)
    bash.create_bash_analysis(**params)
    keep_ids(filename)
    bash.print_command(filename, f"echo {shlex.quote(DONE)}")
    if params.get("remove_working_files", True) and params.get("fifo_tmp_dir", True):
        bash.print_command(filename, f"rm -R -f {shlex.quote(params['fifo_queue_dir'])}")


def keep_ids(filename):
    """Have a script keep the ids that it forgets: of load balancers, and of what feeds them."""
    path = pathlib.Path(filename)
    lines = path.read_text().split("\n")
    for i, line in enumerate(lines[:-1]):
        if line.rstrip().endswith("&") and not lines[i + 1].startswith("thalweg_pids"):
            lines[i] += " thalweg_others+=($!)"
    path.write_text("\n".join(lines))


class Readers:
    """Processes that read the streams of a run, one for each perspective.

    Args:
        params: arguments of the script.
        settings: of the analysis.
    """

    def __init__(self, params, settings):
        self._params = params
        self._settings = settings
        self._layers = params["num_reinsurance_iterations"]
        self._number = params.get("process_number")
        self._gul, self._fm, self._balanced = self._partitions()

    def _partitions(self):
        """Numbers of streams of gul, and of those after it; whether events change streams there."""
        params = self._params
        processes = params["max_process_id"]
        gul_size, fm_size = params.get("num_gul_per_lb") or 0, params.get("num_fm_per_lb") or 0
        later = params["il_output"] or params["ri_output"]
        if not (gul_size and fm_size and later) or self._number is not None:
            return processes, processes, False
        block = gul_size + fm_size * (2 if params["ri_output"] else 1)
        balancers = (processes - 1) // block + 1
        return balancers * gul_size, balancers * fm_size, True

    def start(self, filename):
        """Write the lines that start them."""
        folders = [(self._params["fifo_queue_dir"], "output")]
        if self._params.get("full_correlation"):
            full = (self._params["fifo_full_correlation_dir"], "output/full_correlation")
            folders.append(full)
        for fifos, out in folders:
            for perspective in PERSPECTIVES:
                if self._params.get(f"{perspective}_output"):
                    self._start_one(filename, perspective, fifos, out)

    def _start_one(self, filename, perspective, fifos, out):
        confirm = f"{fifos}thalweg_{perspective}_P{self._number or 0}"
        command = [*aggregate_command(), "--confirm", confirm, *flags(self._params)]
        command += ["--idle-timeout", str(IDLE_SECONDS), "--run-out", out]
        if self._number is not None:
            command += ["--chunk", f"{self._number}/{self._params['max_process_id']}"]
            command += ["--work-dir", self._params["work_dir"]]
        shuffled = self._balanced and perspective != "gul"
        if shuffled or not self._params.get("kat_sort_by_event", True):
            command += ["--unsorted"]
        for name, consumer in self._streams(perspective):
            for process in self._processes(perspective):
                fifo = bash.get_fifo_name(fifos, perspective, process, consumer)
                command += ["--stream", f"{name}={fifo}"]
        label = shlex.quote(f"{perspective}:{confirm}")
        for line in (
            f"mkfifo {shlex.quote(confirm)}",
            f"( {shlex.join(command)} ) 2>> $LOG_DIR/stderror.err &",
            f"thalweg_pids+=($!); thalweg_readers+=({label})",
        ):
            bash.print_command(filename, line)

    def _processes(self, perspective):
        if self._number is not None:
            return [self._number]
        return range(1, (self._gul if perspective == "gul" else self._fm) + 1)

    def _streams(self, perspective):
        """Names of the streams of a perspective, and what their fifos have for them."""
        if perspective == "ri":
            found = bash.get_ri_inuring_priorities(self._settings, self._layers)
        elif perspective == "rl":
            found = bash.get_rl_inuring_priorities(self._layers)
        else:
            return [(perspective, "")]
        texts = [entry["text"].rstrip("_") for entry in found]
        return [(f"{perspective}_{text}" if text else perspective, text) for text in texts]


WAITING = r"""
# --- Wait for every process, and complete the outputs only when all have ended well ---
thalweg_readers=() thalweg_pids=() thalweg_writers=() thalweg_others=() thalweg_running=()
# Whatever the last command said, a run that is told to stop has failed.
trap 'echo "[ERROR] the run was told to stop: stderror.err in its log says why"; exit 143' \
    TERM HUP INT QUIT
# A subshell that fails is waited for; it does not kill all others before they can say why.
set +E

thalweg_fail(){
    echo "[ERROR] $1 ended with status $2"
    # A reader that has failed says why; give it the time.
    for ((i = 0; i < 20; i++)); do
        for pid in "${thalweg_pids[@]}"; do
            kill -0 "$pid" 2>/dev/null || break 2
        done
        sleep 0.1
    done
    exit 1
}

thalweg_label(){
    local at=0 pid
    for pid in "${thalweg_pids[@]}"; do
        if [ "$pid" == "$1" ]; then echo "aggregation of ${thalweg_readers[$at]%%:*}"; return; fi
        at=$((at + 1))
    done
    at=1
    for pid in "${thalweg_writers[@]}"; do
        if [ "$pid" == "$1" ]; then echo "the pipeline of losses $at"; return; fi
        at=$((at + 1))
    done
    echo "process $1"
}

thalweg_wait(){
    # Until these have ended; a status that is not 0, of any process, ends the run. "wait -n"
    # would forget those that a signal has killed before it is called.
    local left=1 pid status running
    while [ "$left" -gt 0 ]; do
        left=0
        running=()
        for pid in "${thalweg_running[@]}"; do
            if kill -0 "$pid" 2>/dev/null; then
                running+=("$pid")
                case " $* " in *" $pid "*) left=$((left + 1));; esac
            else
                status=0
                wait "$pid" || status=$?
                if [ "$status" -ne 0 ]; then thalweg_fail "$(thalweg_label "$pid")" "$status"; fi
            fi
        done
        thalweg_running=("${running[@]}")
        if [ "$left" -gt 0 ]; then sleep 0.1; fi
    done
}

exec_wait(){
    local reader
    thalweg_writers=("$@" "${thalweg_others[@]}")
    thalweg_running=("${thalweg_writers[@]}" "${thalweg_pids[@]}")
    thalweg_wait "${thalweg_writers[@]}"
    if [ -n "${pid0:-}" ] && ! kill -0 "$pid0" 2>/dev/null; then
        thalweg_fail "oasis_exec_monitor.sh, which watches for errors," "unknown"
    fi
    for reader in "${thalweg_readers[@]}"; do
        # Opened for both, a fifo whose reader has died does not block.
        echo complete 1<> "${reader#*:}"
    done
    thalweg_wait "${thalweg_pids[@]}"
}
"""


# -- execution -------------------------------------------------------------------------


def execute(filename, log_folder, interval):
    """Run a script to its end, logging what it says; return that.

    Raises:
        CalledProcessError: it failed; ``output`` is bytes, as Oasis needs it.
    """
    monitor = None
    if ResourceMonitor is not None:
        monitor = ResourceMonitor(output_dir=log_folder, poll_interval=interval)
    command = ["bash", filename]
    said = bytearray()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
    try:
        if monitor is not None:
            monitor.start(process.pid)
        relay = threading.Thread(target=log_lines, args=(process.stdout, said), daemon=True)
        relay.start()
        process.wait()
    finally:
        # Whatever is left of a run that failed: nothing reads or feeds it any more.
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        relay.join(10)
        if not relay.is_alive():
            process.stdout.close()
        if monitor is not None:
            monitor.stop()
    if process.returncode != 0 or DONE.encode() not in said:
        for pattern in ("output", "*.work", "output/full_correlation"):
            for path in glob.glob(f"{pattern}/**/.*.partial", recursive=True):
                pathlib.Path(path).unlink(missing_ok=True)
        raise subprocess.CalledProcessError(process.returncode or 1, command, output=bytes(said))
    return said.decode(errors="replace")


def log_lines(file, said):
    """Log lines as they come, and collect them."""
    for line in file:
        said += line
        logger.info(line.decode(errors="replace").rstrip())


@contextlib.contextmanager
def locked(name):
    """Hold a lock of the run directory, which is the working directory.

    Raises:
        RuntimeError: another run has it.
    """
    fd = os.open(f".thalweg-{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as e:
            raise RuntimeError(f"another run uses this directory: {os.getcwd()}") from e
        yield
    finally:
        os.close(fd)
