"""Scripts of a run as processes: run to their ends, whatever happens, and one at a time."""

import contextlib
import fcntl
import glob
import logging
import os
import pathlib
import signal
import subprocess
import threading

try:
    from oasislmf.execution.resource_monitor import ResourceMonitor
except ImportError:  # before 2.5
    ResourceMonitor = None

DONE = "[OK] Thalweg"
"""Said at the end of a script: without it the run has failed, whatever its status."""

logger = logging.getLogger("oasislmf.thalweg")


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
