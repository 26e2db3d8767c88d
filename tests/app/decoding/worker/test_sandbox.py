"""What a worker can still do once its sandbox is closed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.server_process import ROOT

SCRIPT = """
import ctypes, json, mmap, os, signal, socket, sys, threading
from app.decoding.worker import sandbox
from app.decoding.worker.serving import load_libraries
mode, path, parent = sys.argv[1], sys.argv[2], int(sys.argv[3])
sandbox.die_with(os.getppid())
kept = os.open(path, os.O_RDWR)
formats, missing = load_libraries()
limits = sandbox.Limits(128 << 20, 64, mode)
outcome = {"active": sandbox.close(limits, formats.values())}

def attempt(name, act):
    try:
        act()
        outcome[name] = None
    except BaseException as e:
        outcome[name] = type(e).__name__

def forked():
    if os.fork() == 0:
        os._exit(0)

def threaded():
    thread = threading.Thread(target=lambda: None)
    thread.start()
    thread.join()

def traced():
    if ctypes.CDLL(None, use_errno=True).ptrace(0, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "ptrace")

attempt("open", lambda: os.open("/etc/hostname", os.O_RDONLY))
attempt("reopen", lambda: os.open(f"/proc/self/fd/{kept}", os.O_RDONLY))
attempt("list", lambda: os.listdir("/"))
attempt("create", lambda: os.open(path + ".new", os.O_RDWR | os.O_CREAT))
attempt("unlink", lambda: os.unlink(path))
attempt("socket", lambda: socket.socket(socket.AF_INET))
attempt("unix", lambda: socket.socket(socket.AF_UNIX))
attempt("fork", forked)
if mode != "off":  # it would succeed, and end the script
    attempt("execute", lambda: os.execv("/bin/true", ["true"]))
attempt("signal", lambda: os.kill(parent, 0))
if mode != "off":  # a process that is traced stops at its next signal
    attempt("ptrace", traced)
attempt("code", lambda: mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_EXEC))
attempt("memory", lambda: bytearray(200 << 20))
attempt("grow", lambda: os.pwrite(kept, b"x", 1 << 20))
attempt("read", lambda: os.pread(kept, 4, 0))
attempt("some memory", lambda: bytearray(50 << 20))
attempt("thread", threaded)
print(json.dumps(outcome))
sys.stdout.flush()
os._exit(0)
"""
FOREVER_DENIED = {"memory": "MemoryError", "grow": "OSError"}
ALLOWED = ("read", "some memory", "thread")
BY_KERNEL = [
    "open",
    "reopen",
    "list",
    "create",
    "unlink",
    "socket",
    "unix",
    "fork",
    "execute",
    "signal",
    "ptrace",
    "code",
]


def attempts(mode: str, directory: Path) -> dict[str, Any]:
    path = directory / "file"
    path.write_bytes(b"data")
    command = [sys.executable, "-c", SCRIPT, mode, str(path), str(os.getpid())]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr.decode()
    outcome: dict[str, Any] = json.loads(done.stdout)
    return outcome


def test_nothing_is_left_but_reading_what_is_open(tmp_path: Path) -> None:
    outcome = attempts("auto", tmp_path)
    active = outcome.pop("active")
    if not (active["landlock"] and active["seccomp"]):
        pytest.skip(f"this kernel has not all of it: {active}")
    denied = (*FOREVER_DENIED, *BY_KERNEL)
    assert [name for name in denied if outcome[name] is None] == []
    assert [name for name in ALLOWED if outcome[name] is not None] == []


@pytest.mark.parametrize("lacking", ["landlock", "seccomp", None])
def test_what_is_required_and_lacking_is_an_error(lacking: str | None, tmp_path: Path) -> None:
    active = attempts("auto", tmp_path)["active"]
    if not (active["landlock"] and active["seccomp"]):
        pytest.skip(f"this kernel has not all of it: {active}")
    script = f"""
from app.decoding.worker import landlock, sandbox, seccomp
if {lacking!r}:
    {lacking or "sandbox"}.restrict = lambda: None
sandbox.close(sandbox.Limits(128 << 20, 64, "require"), [])
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env=environment, capture_output=True, check=False, timeout=60)
    assert (b"SandboxError" in done.stderr) == (lacking is not None), done.stderr


def test_limits_hold_without_help_of_the_kernel(tmp_path: Path) -> None:
    outcome = attempts("off", tmp_path)
    assert outcome["active"] == {"landlock": None, "seccomp": False, "memory": 128 << 20}
    assert {name: outcome[name] for name in FOREVER_DENIED} == FOREVER_DENIED
    assert [name for name in ALLOWED if outcome[name] is not None] == []
    # What is denied above is denied by the sandbox.
    assert outcome["open"] is None
    assert outcome["socket"] is None
