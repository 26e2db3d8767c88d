"""What a tool sees of the other processes of its run, where the script of the run sees nothing.

They are those that work in the same directory, the run's.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from app.oasis.outputs import LOG_DIR_VARIABLE, LOG_FINISHING, LOG_FOLDER
from core.errors import TruncatedError

from .environment import READER_SECONDS

_MONITOR: Final = "oasis_exec_monitor.sh"
"""Is given the process id of the script, and holds its output open."""
_LAST: Final = ("katpy", "aalpy", "lecpy", "join-summary-info")
"""Tools that write outputs: nothing else in a script looks at what they leave."""
_COMMAND: Final = re.compile(rf"^[ \t]*\(?[ \t]*({'|'.join(_LAST)})[ \t]", re.MULTILINE)
_OPENING: Final = ("wait_for_partner", "fifo_open")
"""Where in Linux a process waits for the other end of a fifo that it opens."""
_LOOK_SECONDS: Final = 10.0
_POLL_SECONDS: Final = 0.1


def _processes() -> Iterator[tuple[Path, list[str]]]:
    """Folders in ``/proc`` of all processes of the run, and their command lines."""
    try:
        own = Path("/proc/self/cwd").readlink()
        folders = list(Path("/proc").iterdir())
    except OSError:
        # Not on Linux.
        return
    for folder in folders:
        with suppress(OSError):
            if folder.name.isdigit() and (folder / "cwd").readlink() == own:
                yield folder, os.fsdecode((folder / "cmdline").read_bytes()).split("\0")[:-1]


def _state(pid: str) -> str:
    """The letter of its state; ``X`` where it has gone."""
    try:
        text = Path("/proc", pid, "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "X"
    return text.rpartition(") ")[2][:1]


def _scripts() -> list[tuple[str, str, str]]:
    """Process ids of monitors of scripts, those of the scripts, and the folders of their logs."""
    return [
        (folder.name, script, logs)
        for folder, words in _processes()
        for program, script, logs in zip(words, words[1:], words[2:], strict=False)
        if program.endswith(_MONITOR)
    ]


def end_monitor() -> str | None:
    """End the monitor of a script that was killed, for whose end ``oasislmf`` would wait for ever.

    Returns:
        Process id of the script; None if it lives.
    """
    killed = None
    for monitor, script, _ in _scripts():
        if _state(script) in "ZX":
            with suppress(OSError):
                os.kill(int(monitor), signal.SIGKILL)
            killed = script
    return killed


def _begun(tool: str) -> dict[str, bool]:
    """Processes of a tool that have a log, and whether each lives or has ended well."""
    folder = Path(os.environ.get(LOG_DIR_VARIABLE, LOG_FOLDER))
    return {
        (pid := path.name.split("_")[-2]): _state(pid) not in "ZX"
        or LOG_FINISHING in path.read_text(encoding="utf-8", errors="replace")
        for path in folder.glob(f"{tool}_[0-9]*.log")
    }


def _is_beginning(script: str, command: list[str]) -> bool:
    """Whether the script starts a process, or one that it has started may yet begin its log."""
    begun = {script}.union(*(_begun(tool) for tool in _LAST))
    return _state(script) != "S" or any(
        not words
        or any(Path(word).name in _LAST for word in words[:4])
        # A subshell that is about to be one; others sleep until their children end.
        or (words == command and _state(folder.name) != "S")
        for folder, words in _processes()
        if folder.name not in begun
    )


def _lost(commands: Mapping[str, int]) -> str:
    """How many processes of which tool have died, of so many of each."""
    for tool, count in commands.items():
        if (lost := count - sum(_begun(tool).values())) > 0:
            return f"{lost} of {count} processes of {tool}"
    return ""


def check_begun(tool: str, seconds: float = READER_SECONDS) -> None:
    """See that no process has died that the script has started by now to write outputs.

    The script takes the status of one of all that it waits for, and looks into the logs that there
    are: it does not see a process that dies before it begins its log. It waits for this one, too.

    Args:
        tool: that this process is.
        seconds: after which one that may yet begin is not waited for.

    Raises:
        TruncatedError: one has died.
    """
    until = time.monotonic() + seconds
    for _, script, logs in _scripts() if tool in _LAST else ():
        if logs != os.environ.get(LOG_DIR_VARIABLE):
            # Chunks in one directory have a script and a folder each.
            continue
        try:
            octets = Path("/proc", script, "cmdline").read_bytes()
            command = os.fsdecode(octets).split("\0")[:-1]
            steps = Path(command[-1]).read_text(encoding="utf-8").split("\nexec_wait ")
        except (OSError, IndexError):
            return
        last = next((i for i, step in enumerate(steps) if tool in _COMMAND.findall(step)), -1)
        commands = Counter(_COMMAND.findall("\n".join(steps[: last + 1])))
        seen = ""
        while time.monotonic() < until:
            # One that was just being started may not be in a list of processes.
            beginning = _is_beginning(script, command)
            lost = "" if beginning else _lost(commands)
            if lost and lost == seen:
                hint = "The outputs that they were to write are missing"
                raise TruncatedError(f"{lost} have died", hint=hint)
            if not (beginning or lost):
                return
            seen = lost
            time.sleep(_POLL_SECONDS)


def _waiting() -> dict[str, str]:
    """Commands within pipelines that wait to open a fifo for their output, by process."""
    found = {}
    for folder, words in _processes():
        with suppress(OSError):
            # What a script starts to read a fifo reads no pipe.
            if (folder / "wchan").read_text(encoding="utf-8") in _OPENING and str(
                (folder / "fd" / "0").readlink()
            ).startswith("pipe:"):
                found[folder.name] = " ".join(words)
    return found


def tell_of_lost_readers(seconds: float = READER_SECONDS, pause: float = _LOOK_SECONDS) -> None:
    """Wait until a fifo's writer has waited too long for its reader, and tell the monitor.

    Args:
        seconds: after which a reader that has not come has died.
        pause: seconds between looks.
    """
    since: dict[str, float] = {}
    while True:
        waiting, now = _waiting(), time.monotonic()
        since = {process: since.get(process, now) for process in waiting}
        lost = [waiting[process] for process, begun in since.items() if now - begun >= seconds]
        if lost:
            with suppress(OSError):
                sys.stderr.write(
                    f"summarypy: nobody reads what a process has to write: {lost[0]}\n"
                )
                sys.stderr.flush()
            return
        time.sleep(pause)


@contextmanager
def watching() -> Iterator[None]:
    """Look for lost readers, and do not end well while a writer still waits for one."""
    watch = threading.Thread(target=tell_of_lost_readers, daemon=True)
    watch.start()
    yield
    while watch.is_alive() and _waiting():
        time.sleep(_POLL_SECONDS)
