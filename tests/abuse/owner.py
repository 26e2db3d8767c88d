"""The well-behaved owner: everything it is answered must be right, and small reads quick.

Small reads are timed in a process that does nothing else: beside threads that take large
answers apart, or look at processes and metrics, they would wait for those.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np

from core.losses.analysis import aggregate
from tests.abuse.files import FRAMES, SIG, owner_frames
from tests.abuse.requests import Answer, Caller
from tests.e2e.samples import large_stream
from tests.frames import FrameReader

_PAUSE = 0.02
"""Seconds between two requests of one kind: an interactive user's pace."""
_PATIENCE = 20
"""Attempts at a request that is refused for a moment."""


class Flag(Protocol):
    """An event of threads or of processes."""

    def wait(self, timeout: float) -> bool:
        """Return whether it is set by then."""


class Owner:
    """Reads tiles and batches and posts losses, one thread for each.

    Attributes:
        seconds: latencies of small reads.
        wrong: answers that were not right.
        refused: answers that told it to come back later, by path and status.
        done: right answers, by kind.
    """

    def __init__(self, caller: Caller) -> None:
        self.seconds: list[float] = []
        self.wrong: list[str] = []
        self.refused: Counter[str] = Counter()
        self.done: Counter[str] = Counter()
        self._caller = caller
        self._frames = owner_frames()
        self._stream = large_stream(2)
        self._melt = aggregate(self._stream, ["melt"])["melt"].tobytes()
        self._random = np.random.default_rng(3)
        self._view, self._batches = self._register()

    def _register(self) -> tuple[str, str]:
        entry: dict[str, object] = {"id": "good", "files": ["good.raw"], "format": "raw"}
        entry |= {"dtype": "<f4", "sig_shape": [*SIG], "nav_shape": [FRAMES]}
        self._expect("POST", "/v1/datasets", entry)
        view = self._expect("POST", "/v1/datasets/good/views", {"tile_shape": [1, *SIG]}).json()
        stages = [
            {"op": "source", "dataset": "good"},
            {"op": "permute", "seed": 1},
            {"op": "batch", "size": 4},
        ]
        spec = self._expect("POST", "/v1/pipelines", {"order": 1, "stages": stages}).json()
        path = f"/v1/pipelines/{spec['id']}/batch?after={spec['token']}"
        # Later answers are compared with the first, as the order of items is not known here.
        self._batch = self._expect("GET", path).body
        return f"/v1/datasets/good/views/{view['id']}", path

    def _expect(self, method: str, path: str, body: object = None) -> Answer:
        answer = self._caller.ask(method, path, body)
        assert answer.status in {200, 201}, answer
        return answer

    def run(self, stop: threading.Event) -> None:
        """Ask until ``stop`` is set, for small things in one process and for others in another."""
        context = multiprocessing.get_context("spawn")
        ended, results = context.Event(), context.SimpleQueue()
        processes = [
            context.Process(target=_ask_elsewhere, args=(self._caller, kinds, ended, results))
            for kinds in (("small",), ("big", "post"))
        ]
        for process in processes:
            process.start()
        stop.wait()
        ended.set()
        for _ in processes:
            while results.empty():
                assert not any(p.exitcode for p in processes), "a process of the owner failed"
                time.sleep(0.1)
            self._add(results.get())
        for process in processes:
            process.join()

    def _add(self, seen: _Seen) -> None:
        self.seconds += seen.seconds
        self.done.update(seen.done)
        self.wrong += seen.wrong
        self.refused.update(seen.refused)

    def ask(self, stop: Flag, kinds: tuple[str, ...]) -> None:
        """Ask for some kinds of things, a thread for each, until ``stop`` is set."""
        threads = [
            threading.Thread(target=self._repeat, args=(getattr(self, f"_{kind}"), stop))
            for kind in kinds
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _repeat(self, once: Callable[[], None], stop: Flag) -> None:
        while not stop.wait(_PAUSE):
            try:
                once()
            except Exception as error:  # noqa: BLE001 - any is a finding
                self.wrong.append(f"{once.__name__}: {error!r}"[:300])
                stop.wait(0.2)

    def _asked(self, method: str, path: str, body: object = None) -> Answer:
        """Ask, and come back later when told to."""
        for _ in range(_PATIENCE):
            answer = self._caller.ask(method, path, body)
            if answer.status not in {429, 503}:
                assert answer.status == 200, (path, answer.status, answer.body[:300])
                return answer
            self.refused[f"{path.partition('?')[0][:20]} {answer.status}"] += 1
            time.sleep(float(answer.headers["retry-after"]))
        raise AssertionError(f"{path} was refused {_PATIENCE} times")

    def _small(self) -> None:
        """Read one tile, one batch and one document."""
        number = int(self._random.integers(FRAMES))
        begin = time.perf_counter()
        tile = self._asked("GET", f"{self._view}/tiles/{number}")
        self.seconds.append(time.perf_counter() - begin)
        assert tile.body == self._frames[number].tobytes(), "a tile is wrong"
        for path in (self._batches, "/v1/datasets/good"):
            begin = time.perf_counter()
            answer = self._asked("GET", path)
            self.seconds.append(time.perf_counter() - begin)
            assert path != self._batches or answer.body == self._batch, "a batch is wrong"
        self.done["small"] += 3

    def _big(self) -> None:
        """Stream all tiles."""
        reader = FrameReader()
        frames = reader.feed(self._asked("GET", f"{self._view}/tiles").body)
        payloads = [bytes(frame.payload) for frame in frames if frame.kind == "DATA"]
        reader.close()
        assert b"".join(payloads) == self._frames.tobytes(), "a stream of tiles is wrong"
        self.done["big"] += 1

    def _post(self) -> None:
        """Post a loss stream."""
        answer = self._asked("POST", "/v1/losses/melt?format=bin", self._stream)
        assert answer.body == self._melt, "a table is wrong"
        self.done["post"] += 1

    def quantile(self, share: float) -> float:
        """Latency that this share of small reads keeps, in seconds."""
        return float(np.quantile(self.seconds, share)) if self.seconds else float("nan")


class _Seen(NamedTuple):
    """What an owner in another process has seen; see the attributes of ``Owner``."""

    seconds: list[float]
    wrong: list[str]
    refused: Counter[str]
    done: Counter[str]


def _ask_elsewhere(
    caller: Caller,
    kinds: tuple[str, ...],
    ended: Flag,
    results: Any,  # noqa: ANN401 - a queue
) -> None:
    owner = Owner(caller)
    owner.ask(ended, kinds)
    results.put(_Seen(owner.seconds, owner.wrong, owner.refused, owner.done))


def idle_quantile(owner: Owner, seconds: float, share: float) -> float:
    """Measure small reads on an idle service, and forget them."""
    stop = threading.Event()
    with contextlib.closing(_Timer(seconds, stop)):
        owner.ask(stop, ("small",))
    result = owner.quantile(share)
    owner.seconds.clear()
    owner.done.clear()
    return result


class _Timer:
    """Sets an event after some seconds."""

    def __init__(self, seconds: float, stop: threading.Event) -> None:
        self._timer = threading.Timer(seconds, stop.set)
        self._timer.start()

    def close(self) -> None:
        self._timer.cancel()
