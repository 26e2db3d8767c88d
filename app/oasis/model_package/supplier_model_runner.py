"""Runs an Oasis model whose losses Thalweg aggregates.

Oasis calls the functions of this file instead of its own. Losses are computed as ever, by the
commands that oasislmf builds. What differs is the second half: the streams of items go straight
to one process for each perspective, which writes the outputs::

    evepy | gulmc | tee gul_P1 | fmpy | tee il_P1 | fmpy > ri_P1       for each process
                        |                   |            |
           aggregate gul (_P1 _P2 ...)  aggregate il  aggregate ri     instead of summarypy, tee,
                        v                   v            v             eltpy, pltpy, katpy, aalpy,
                    output/gul_*        output/il_*   output/ri_*      lecpy and work files

or, with THALWEG_OASIS_URL set, to runs of a service (``thalweg_service``).

The scripts are oasislmf's, made with settings that have no summaries, so that they end where the
streams begin. They differ in waiting: every process is waited for, not the last alone, and the
outputs are completed only after all have ended well. What fails is named in the log.

Written by ``thalweg-server oasis runner``, which sets SERVER and CLIENT and replaces changes made
here.
"""

import contextlib
import functools
import glob
import inspect
import logging
import os
import pathlib
import shlex
import shutil
import subprocess

from oasislmf.execution import bash
from oasislmf.execution import runner as standard

from . import thalweg_script as script
from .thalweg_service import URL, Commands, ServiceRuns

SERVER = "thalweg-server"
"""Absolute path of the command."""
CLIENT = None
"""Absolute path of the command ``thalweg``, which talks to a service; None without one."""

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
    with script.locked("run"), service_runs(params) as runs:
        pathlib.Path(filename).unlink(missing_ok=True)
        with bash.bash_wrapper(
            filename,
            params["bash_trace"],
            params["stderr_guard"],
            custom_gulcalc_log_start=params.get("custom_gulcalc_log_start"),
            custom_gulcalc_log_finish=params.get("custom_gulcalc_log_finish"),
        ):
            write_analysis(params, runs)
        try:
            script.execute(filename, "log", kwargs.get("resource_monitor_interval", 1.0))
        except subprocess.CalledProcessError:
            # Readers of other perspectives may have completed theirs. The script removes the same.
            for path in pathlib.Path("output").rglob("*"):
                if path.is_file() and "summary-info" not in path.name and path.suffix != ".json":
                    path.unlink()
            raise
        if runs is not None:
            runs.finish("work")


@wrap_type_errors
def run_analysis(**params):
    """Compute the losses of a chunk (``generate-losses-chunk``); leave mergeable files."""
    interval = params.pop("resource_monitor_interval", 1.0)
    filename, number = params["filename"], params.get("process_number")
    folder = os.path.join("log", str(number)) if number else "log"
    with script.locked(f"chunk-{number}"), service_runs(params) as runs:
        with bash.bash_wrapper(
            filename,
            params["bash_trace"],
            params["stderr_guard"],
            log_sub_dir=number,
            process_number=number,
            **only(bash.bash_wrapper, run_check_complete=False),
        ):
            write_analysis(params, runs)
        text = script.execute(filename, folder, interval)
        if runs is not None:
            runs.describe_chunk()
    return params["fifo_queue_dir"], text


@wrap_type_errors
def run_outputs(**params):
    """Merge the files of all chunks into outputs (``generate-losses-output``)."""
    interval = params.pop("resource_monitor_interval", 1.0)
    filename, work = params["filename"], params["work_dir"]
    command = [*script.aggregate_command(SERVER), "--merge-chunks", str(params["max_process_id"])]
    command += ["--work-dir", work, *script.flags(params)]
    commands = service()
    with script.locked("run"):
        if commands is not None:
            runs = ServiceRuns(commands, params)
            runs.find(work)
            runs.finish(work)
            if params.get("remove_working_files", True):
                for path in glob.glob(os.path.join(work, "*")):
                    shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)
            return script.DONE
        with bash.bash_wrapper(
            filename,
            params["bash_trace"],
            params["stderr_guard"],
            log_sub_dir="out",
            **only(bash.bash_wrapper, run_check_complete=False),
        ):
            bash.print_command(filename, f"{shlex.join(command)} 2>> $LOG_DIR/stderror.err")
            bash.print_command(filename, f"echo {shlex.quote(script.DONE)}")
            if params.get("remove_working_files", True):
                bash.print_command(filename, f"rm -R -f {shlex.quote(work)}/*")
        return script.execute(filename, os.path.join("log", "out"), interval)


def rerun():
    """Compute the event again at which a process of Oasis failed, for a better message."""
    try:
        standard.rerun()
    except Exception as e:  # it is about an error already
        logger.warning("the failed event could not be computed again: %s", e)


# -- the service -----------------------------------------------------------------------


def service():
    """The commands that talk to the service that the environment names; None without one."""
    url = os.environ.get(URL)
    return Commands(CLIENT, SERVER, url) if url else None


@contextlib.contextmanager
def service_runs(params):
    """The runs to upload to; None without a service.

    What a run has uploaded whose losses fail is deleted. That of a chunk is replaced when the chunk
    is computed again.
    """
    commands = service()
    if commands is None:
        yield None
        return
    runs = ServiceRuns(commands, params)
    try:
        runs.create(script.Streams(params, params["analysis_settings"]))
        yield runs
    except BaseException:
        if params.get("process_number") is None:
            runs.abandon()
        raise


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
    options = {**kwargs, **renamed}
    options = {name: value for name, value in options.items() if value is not None}
    options.pop("custom_gulcalc_cmd", None)  # in _get_getmodel_cmd
    params = bash.bash_params(analysis_settings, **only(bash.bash_params, **options))
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


# -- scripts ---------------------------------------------------------------------------


def write_analysis(params, runs=None):
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
    readers = runs or script.Readers(params, script.Streams(params, settings), SERVER)
    started: list[bool] = []

    def build_after_readers(**arguments):
        if not started:
            started.append(True)
            readers.start(filename)
        return build(**arguments)

    params["_get_getmodel_cmd"] = build_after_readers
    bash.print_command(filename, script.WAITING)
    bash.create_bash_analysis(**params)
    script.keep_ids(filename)
    bash.print_command(filename, f"echo {shlex.quote(script.DONE)}")
    if params.get("remove_working_files", True) and params.get("fifo_tmp_dir", True):
        bash.print_command(filename, f"rm -R -f {shlex.quote(params['fifo_queue_dir'])}")
