"""A small service with lanes, in processes: its application tells what its process is."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.server_process import children_of

ROOT = Path(__file__).parents[4]
LANES = ("front", "quick", "long", "long")
_SECONDS = 60.0

SCRIPT = """
import asyncio, json, os, random, signal, subprocess, sys, time
import structlog
import app.server.serve as serving
from app.server import supervisor
from app.server.board import Board
from app.server.limits import ServerLimits
from app.server.lanes import template
from app.server.lanes.channel import HELLO
from app.server.lanes.table import Rule, Table
from app.command.serving import _THREADS

options = json.loads(sys.argv[1])
structlog.configure(
    processors=[structlog.processors.JSONRenderer()],
    logger_factory=structlog.WriteLoggerFactory(sys.stdout),
)
supervisor._TICK = options.get("tick", supervisor._TICK)
serving.SLACK_BYTES = options.get("slack", serving.SLACK_BYTES)

def tell(**event):
    # One write: lines of processes that write at once, unbuffered too, stay lines.
    os.write(1, json.dumps(event).encode() + b"\\n")

def dies_at(point):
    # The test may want whoever comes here first to be killed.
    try:
        os.unlink(options["fault"] + point)
    except (KeyError, FileNotFoundError):
        return
    os.kill(os.getpid(), signal.SIGKILL)

fork_for, send = template.fork_for, template.send

def fork_or_die(parent, function):
    dies_at("ordered")
    fork_for(parent, function)
    dies_at("forked")

def send_or_die(channel, message):
    if message.kind == HELLO:
        dies_at("hello")
        tell(event="hello")
    send(channel, message)

template.fork_for, template.send = fork_or_die, send_or_die

def import_all():
    os.environ.update(_THREADS)
    import numpy.random
    import app.server.protocol, app.server.worker, uvloop
    while os.path.exists(options.get("importing", "/nowhere")):
        time.sleep(0.01)

def compiling():
    def compile():
        tell(event="compiling", pid=os.getpid())
        while os.path.exists(path):
            time.sleep(0.01)
    path = options.get("compiling", "/nowhere")
    return compile if os.path.exists(path) else None

def fails_to_start():
    # As the test wants of whoever comes here first.
    try:
        how = open(options["creating"]).read()
        os.unlink(options["creating"])
    except (KeyError, FileNotFoundError):
        return
    os.kill(os.getpid(), signal.SIGKILL) if how == "killed" else time.sleep(60)

def create(slot):
    import numpy as np
    fails_to_start()
    held = []

    async def answer(scope, receive, send):
        path, query = scope["path"], scope["query_string"].decode()
        if path.endswith("/take"):
            held.append(b"x" * int(query))
        elif path.endswith("/hang"):
            time.sleep(60)
        elif path.endswith("/sleep"):
            await asyncio.sleep(float(query))
        elif path.endswith("/start"):
            # As a decoder is: it ends with the thread that started it.
            program = "import sys, time; from app.decoding.worker.sandbox import die_with;"
            program += "die_with(int(sys.argv[1])); print(flush=True); time.sleep(60)"
            command = [sys.executable, "-c", program, str(os.getpid())]
            held.append(subprocess.Popen(command, stdout=subprocess.PIPE))
            held[-1].stdout.readline()
        told = {
            "pid": os.getpid(), "lane": slot.lane, "index": slot.index,
            "random": [random.getrandbits(64), int(np.random.randint(1 << 62))],
            "oom": int(open("/proc/self/oom_score_adj").read()),
            "started": [each.pid for each in held if hasattr(each, "pid")],
        }
        body = json.dumps(told).encode()
        length = (b"content-length", b"%d" % len(body))
        await send({"type": "http.response.start", "status": 200, "headers": [length]})
        await send({"type": "http.response.body", "body": body})

    async def app(scope, receive, send):
        if scope["type"] == "http":
            await answer(scope, receive, send)
            return
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        tell(event="closed")
        await send({"type": "lifespan.shutdown.complete"})

    return app

rules = [Rule(f"^/{lane}", {"GET": lane}) for lane in ("quick", "long")]
lanes = serving.Lanes(import_all, compiling, lambda: None, lambda: Table(rules), options["memory"])
board = Board(options["lanes"])
sys.exit(serving.serve(create, port=0, board=board, lanes=lanes, limits=ServerLimits(),
               drain_seconds=options.get("drain", 5.0), drain_delay=options.get("delay", 0.0)))
"""


class Small:
    """The service; every line that its processes print is a line of ``log``."""

    def __init__(self, directory: Path, *before: str, **options: Any) -> None:  # noqa: ANN401 - JSON
        options = {"lanes": LANES, "memory": 1 << 40, **options}
        self._log = directory / "log"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [*before, sys.executable, "-c", SCRIPT, json.dumps(options)],
                cwd=ROOT,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.supervisor = self.process.pid
        self.port = 0

    def lines(self) -> list[str]:
        return self._log.read_text().splitlines()

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines() if line.startswith("{")]

    def deaths(self) -> list[dict[str, Any]]:
        return [event for event in self.events() if event["event"] == "worker died"]

    def listen(self) -> None:
        """Wait until the front listens."""
        until(lambda: any(line.startswith("listening") for line in self.lines()))
        (line, *_) = (line for line in self.lines() if line.startswith("listening"))
        self.port = int(line.rpartition(":")[2])

    def get(self, path: str, seconds: float = _SECONDS) -> dict[str, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=seconds)
        with contextlib.closing(connection):
            connection.request("GET", path)
            told: dict[str, Any] = json.loads(connection.getresponse().read())
            return told

    def wait(self) -> None:
        """Wait until all lanes answer."""
        self.listen()
        for lane in ("front", "quick", "long"):
            self.get(f"/{lane}")
        until(lambda: len(self.lanes()) == len(LANES) and len(self.children()) == len(LANES) + 3)

    def others(self) -> tuple[int, int, int]:
        """Pids of the acceptor, the template and its spare, as they were started."""
        acceptor, template, spare = sorted(set(self.children()) - set(self.lanes()))
        return acceptor, template, spare

    def children(self) -> list[int]:
        return children_of(self.supervisor)

    def lanes(self) -> list[int]:
        """Pids of the processes of lanes, which the kernel is to end first."""
        found = []
        for pid in self.children():
            with contextlib.suppress(OSError):
                if Path(f"/proc/{pid}/oom_score_adj").read_text().strip() != "0":
                    found.append(pid)
        return found

    def end(self, *numbers: signal.Signals) -> int:
        for number in numbers:
            os.kill(self.supervisor, number)
        return self.process.wait(_SECONDS)


@contextlib.contextmanager
def small(directory: Path, *before: str, **options: Any) -> Iterator[Small]:  # noqa: ANN401 - JSON
    """A service that is ended if the test has not."""
    service = Small(directory, *before, **options)
    try:
        yield service
    except BaseException:
        print(*service.lines(), sep="\n")
        raise
    finally:
        service.process.kill()
        service.process.wait()


def until(done: Callable[[], object], seconds: float = _SECONDS) -> None:
    """Wait for something that must come."""
    latest = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < latest
        time.sleep(0.005)


@contextlib.contextmanager
def ending(pids: Sequence[int]) -> Iterator[None]:
    """All of these processes must end in the block, or a moment after it."""
    ends = [os.pidfd_open(pid) for pid in pids]
    try:
        yield
        for end in ends:
            assert select.select([end], [], [], 10)[0]
    finally:
        for end in ends:
            os.close(end)
