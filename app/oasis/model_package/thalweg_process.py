"""Scripts of a run as processes: run to their ends, whatever happens, and one at a time."""

import contextlib
import fcntl
import glob
import logging
import os
import pathlib
import re
import signal
import subprocess
import threading

try:
    from oasislmf.execution.resource_monitor import ResourceMonitor
except ImportError:  # before 2.5
    ResourceMonitor = None

from .thalweg_script import NOTES

SIGNALLED = 128
"""What the shell adds to the number of a signal that ended a process."""
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
        for line in who_ended(filename, os.path.join(log_folder, NOTES), process.returncode):
            logger.error("%s", line)
            said += f"[ERROR] {line}\n".encode()
        raise subprocess.CalledProcessError(process.returncode or 1, command, output=bytes(said))
    return said.decode(errors="replace")


def who_ended(filename, notes, returncode):
    """What made a script fail: processes, how they ended, and their commands.

    When one is killed, those that feed or read it fail too, by signal 13 or with a status of their
    own; then it alone counts.

    Args:
        filename: of the script.
        notes: file that it has left: line numbers, and statuses of the commands there.
        returncode: of the script.
    """
    found: dict[int, list[int]] = {}
    with contextlib.suppress(OSError):
        for line in pathlib.Path(notes).read_text().splitlines():
            number, *statuses = map(int, line.split())
            # The shell around a pipeline notes one status, the pipeline that of each command.
            found[number] = max(found.get(number, []), statuses, key=len)
    lines = ["", *pathlib.Path(filename).read_text().splitlines()]
    ended = []
    for number, statuses in found.items():
        commands = commands_of(lines[number])
        if len(commands) != len(statuses):
            commands = [lines[number].strip()] * len(statuses)
        ended += [(s, c) for s, c in zip(statuses, commands, strict=True) if s != 0]
    # Oasis' handler of errors kills the script at last, too.
    if returncode < 0 and not ended:
        return [told(returncode, f"bash {filename}", "the script of the run")]
    killed = [(s, c) for s, c in ended if s > SIGNALLED and s != SIGNALLED + signal.SIGPIPE]
    return [told(SIGNALLED - s if s > SIGNALLED else s, c) for s, c in killed or ended]


def commands_of(line):
    """The commands of a pipeline, without the shells around it."""
    commands = line.split(" | ")
    commands[0] = commands[0].lstrip("({ ")
    commands[-1] = re.split(r"\s*[;)}\s]*\)\s*(?:2>|&)|\s&(?:\s|$)", commands[-1])[0]
    return [command.strip() for command in commands]


def told(status, command, name=None):
    """A sentence about the end of a process; a status below 0 is the number of a signal."""
    name = name or os.path.basename((command.lstrip("({ ").split() or ["a process"])[0])
    how = f"ended with status {status}"
    if status < 0:
        how = f"was killed by signal {-status} ({signal.Signals(-status).name})"
    return f"{name} {how}, so no stream after it is complete: {command}"


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
