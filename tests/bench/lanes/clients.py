"""Clients in processes of their own, so that none waits for the interpreter of another."""

from __future__ import annotations

import hashlib
import http.client
import itertools
import json
import multiprocessing
import resource
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Any

from .place import SCAN, Place

_PIECE = 1 << 20
_FORK = multiprocessing.get_context("fork")


@dataclass(frozen=True, slots=True)
class Kind:
    """Work that a client repeats.

    Attributes:
        owner: whose key it uses.
        request: what to ask the n-th time: method, path and body.
        pause: seconds between two requests.
        follows: what else to ask, given the client and an answer.
        is_refused: whether its requests may be refused, for being too many.
        is_same: whether all answers must be equal.
        pipelined: requests to send at once; 0 to await the answer of each.
    """

    owner: str
    request: Callable[[Place, Mapping[str, str], int], tuple[str, str, bytes | None]]
    pause: float = 0.0
    follows: Callable[[Client, bytes], None] | None = None
    is_refused: bool = False
    is_same: bool = False
    pipelined: int = 0


def _small(place: Place, paths: Mapping[str, str], number: int) -> tuple[str, str, None]:
    del place
    listed = ("/v1/datasets/scan", "/v1/datasets", paths["batches"].rsplit("/", 1)[0])
    return "GET", listed[number % len(listed)], None


def _reduce(place: Place, paths: Mapping[str, str], number: int) -> tuple[str, str, bytes]:
    del place, paths
    # Another one each time: results are kept.
    disk = {"centre": [64, 64], "radius": 30 + (time.monotonic_ns() % 10**9 + number) / 1e12}
    reduction = {"op": "virtual", "detectors": [{"disk": disk}]}
    return "POST", "/v1/datasets/scan/reduce", json.dumps({"reduction": reduction}).encode()


def _statistics(place: Place, paths: Mapping[str, str], number: int) -> tuple[str, str, bytes]:
    del place, paths
    # Another part each time, as above.
    select = {"nav": [[0, SCAN[0]], [number, SCAN[1]]]}
    body = {"view": {"select": select}, "reduction": {"op": "std"}}
    return "POST", "/v1/datasets/scan/reduce", json.dumps(body).encode()


def _post(report: str, options: str = "") -> Callable[..., tuple[str, str, bytes | None]]:
    def request(place: Place, paths: Mapping[str, str], number: int) -> tuple[str, str, bytes]:
        del paths, number
        return "POST", f"/v1/losses/{report}?format=bin{options}", place.data.stream

    return request


def _post_small(place: Place, paths: Mapping[str, str], number: int) -> tuple[str, str, bytes]:
    del paths, number
    return "POST", "/v1/losses/melt?format=bin", place.data.small_stream


def _post_long(place: Place, paths: Mapping[str, str], number: int) -> tuple[str, str, bytes]:
    del number
    return "POST", paths["psept"], place.data.small_stream


def _get(name: str) -> Callable[..., tuple[str, str, None]]:
    def request(place: Place, paths: Mapping[str, str], number: int) -> tuple[str, str, None]:
        del place, number
        return "GET", paths[name], None

    return request


def _tiles(dataset: str) -> Callable[..., tuple[str, str, bytes]]:
    def request(place: Place, paths: Mapping[str, str], number: int) -> tuple[str, str, bytes]:
        del place, paths, number
        return "POST", f"/v1/datasets/{dataset}/tiles", b"{}"

    return request


def _run(place: Place, paths: Mapping[str, str], number: int) -> tuple[str, str, bytes]:
    del place, paths, number
    return "POST", "/v1/runs", json.dumps({"perspective": "gul", "reports": ["selt"]}).encode()


def _seal(client: Client, answer: bytes) -> None:
    """Upload a run, have its report computed, and delete it."""
    path = f"/v1/runs/{json.loads(answer)['id']}"
    client.ask("POST", f"{path}/streams", client.place.data.stream)
    client.ask("POST", f"{path}/seal", None)
    client.ask("GET", f"{path}/progress?follow=true", None)
    client.ask("DELETE", path, None)


KINDS: dict[str, Kind] = {
    "small reads": Kind("reader", _small, 0.005),
    "small reads without pause": Kind("flooder", _small),
    "200 small reads a second": Kind("flooder", _small, 0.004),
    "one tile": Kind("reader", _get("tile"), 0.01),
    "one batch": Kind("reader", _get("one of small batches"), 0.01),
    "reductions": Kind("reducer", _reduce),
    "mean and deviation": Kind("reducer", _statistics),
    "posts": Kind("poster", _post("melt")),
    "quantiles": Kind("poster", _post("qelt", "&quantiles=0.1,0.5,0.9")),
    "selt": Kind("poster", _post("selt")),
    "batches": Kind("trainer", _get("batches")),
    "small batches": Kind("trainer", _get("small batches")),
    "tiles": Kind("trainer", _tiles("scan")),
    "hdf5 readers": Kind("trainer", _tiles("hdf5")),
    "the same tile": Kind("reader", _get("tile"), 0.01, is_same=True),
    "the same batch": Kind("reader", _get("one of small batches"), 0.01, is_same=True),
    "the same post": Kind("reader", _post("melt"), 0.5, is_same=True),
    "reductions of one": Kind("reader", _reduce, 0.5),
    "his small posts": Kind("reader", _post_small, 0.05),
    "his psept": Kind("reader", _post_long),
    "his posts": Kind("reader", _post("melt")),
    "his reductions": Kind("reader", _reduce),
    "pipelined small reads": Kind("flooder", _small, 0.01, pipelined=50),
    "seals": Kind("poster", _run, follows=_seal),
}


KINDS |= {
    f"hostile {name}": replace(kind, owner="flooder", is_refused=True)
    for name, kind in KINDS.items()
}


class Client:
    """One connection, which sends and receives as fast as it can."""

    def __init__(self, place: Place, kind: Kind) -> None:
        self.place, self._kind = place, kind
        self._first: tuple[bytes, bytes] | None = None
        self._paths = place.paths[kind.owner]
        self._headers = {"Authorization": f"Bearer {place.keys[kind.owner]}"}
        self._connection = http.client.HTTPConnection(*place.address, timeout=120, blocksize=_PIECE)
        self._room = bytearray(_PIECE)

    def once(self, number: int = 0) -> float:
        """Ask once; return the seconds.

        Raises:
            RuntimeError: the answer is an error, or another one than before.
        """
        method, path, body = self._kind.request(self.place, self._paths, number)
        begin = time.perf_counter()
        if self._kind.pipelined:
            self._pipeline(path)
            return time.perf_counter() - begin
        start, end = self.ask(method, path, body)
        if start and self._kind.follows is not None:
            self._kind.follows(self, start)
        if self._kind.is_same:
            self._first = self._first or (start, end)
            if (start, end) != self._first:
                raise RuntimeError(f"{path}: another answer than before")
        return time.perf_counter() - begin

    def _pipeline(self, path: str) -> None:
        """Ask many times before the first answer is read."""
        head = f"GET {path} HTTP/1.1\r\nHost: bench\r\n"
        head += "".join(f"{name}: {value}\r\n" for name, value in self._headers.items())
        with socket.create_connection(self.place.address) as client:
            client.sendall(f"{head}\r\n".encode() * (self._kind.pipelined - 1))
            client.sendall(f"{head}Connection: close\r\n\r\n".encode())
            while client.recv_into(self._room):
                pass

    def ask(self, method: str, path: str, body: bytes | None) -> tuple[bytes, bytes]:
        """Ask; return the beginning of the answer, and a digest of all if it must not change.

        Raises:
            RuntimeError: the answer is an error.
        """
        digest = hashlib.blake2b(digest_size=16)
        self._connection.request(method, path, body, self._headers)
        answer = self._connection.getresponse()
        if self._kind.is_refused and answer.status in {429, 503}:
            answer.read()
            time.sleep(0.1)
            return b"", b""
        if answer.status >= 300:
            raise RuntimeError(f"{path}: {answer.status} {answer.read(500)!r}")
        start = b""
        while count := answer.readinto(self._room):
            start = start or bytes(self._room[: min(count, 1000)])
            if self._kind.is_same:
                digest.update(self._room[:count])
        return start, digest.digest()


@dataclass(slots=True)
class Found:
    """What clients of one kind saw within the time of a measurement.

    Attributes:
        seconds: of each request that ended.
        rate: of these per second, those of all clients together.
        cpu: CPU seconds of the clients.
    """

    seconds: list[float]
    rate: float
    cpu: float


def _repeat(place: Place, kind: Kind, pipe: Connection) -> None:
    """Ask again and again between the two messages of a pipe; tell what was seen."""
    client = Client(place, kind)
    client.once()
    pipe.send(None)
    pipe.recv()
    found: list[tuple[float, float]] = []
    for number in itertools.count(1):
        if pipe.poll():
            break
        found.append((client.once(number), time.perf_counter()))
        if kind.pause:
            time.sleep(kind.pause)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    pipe.recv()
    pipe.send((found, usage.ru_utime + usage.ru_stime))


def measure(place: Place, load: Mapping[str, int], seconds: float) -> dict[str, Found]:
    """Have clients of several kinds work side by side.

    Args:
        place: the service.
        load: number of clients of each kind.
        seconds: for how long.
    """
    ends: dict[str, list[Any]] = {name: [] for name in load}
    with ExitStack() as stack:
        for name, count in load.items():
            for _ in range(count):
                ours, theirs = _FORK.Pipe()
                process = _FORK.Process(
                    target=_repeat, args=(place, KINDS[name], theirs), daemon=True
                )
                process.start()
                stack.callback(process.join)
                ends[name].append(ours)
        everyone = [end for ends_of in ends.values() for end in ends_of]
        _say(everyone, await_first=True)
        begin = time.perf_counter()
        time.sleep(seconds)
        _say(everyone, await_first=False)
        return {name: _collect(ends_of, begin, seconds) for name, ends_of in ends.items()}


def _say(ends: Sequence[Any], *, await_first: bool) -> None:
    if await_first:
        for end in ends:
            end.recv()
    for end in ends:
        end.send(None)


def _collect(ends: Sequence[Any], begin: float, seconds: float) -> Found:
    took: list[float] = []
    rate = cpu = 0.0
    for end in ends:
        found, used = end.recv()
        took += [duration for duration, _ in found]
        cpu += used
        # The last one ended after the time was up: it counts by the part that lay within.
        within = [1.0 for _, at in found if at <= begin + seconds]
        late = [(begin + seconds - (at - d)) / d for d, at in found if at > begin + seconds]
        rate += (sum(within) + sum(part for part in late if part > 0)) / seconds
    return Found(took, rate, cpu)


def slow_uploads(
    place: Place, count: int, stack: ExitStack, owner: str = "poster"
) -> list[socket.socket]:
    """Begin posts whose bodies stop after 64 KiB."""
    head = (
        f"POST /v1/losses/melt HTTP/1.1\r\nHost: bench\r\nContent-Length:"
        f" {len(place.data.stream)}\r\nAuthorization: Bearer {place.keys[owner]}\r\n\r\n"
    ).encode()
    return _ask_for_long(place, head + place.data.stream[: 1 << 16], count, stack)


def endless_batches(place: Place, count: int, stack: ExitStack) -> list[socket.socket]:
    """Ask for batches of which none ever comes."""
    events = [{"op": "source", "dataset": "events"}, {"op": "repeat", "times": 10**9}]
    stages = [
        {"op": "mix", "inputs": [events]},
        {"op": "filter", "pred": "greater", "args": {"field": "event", "value": 2e9}},
        {"op": "batch", "size": 8},
    ]
    (place.data.root / "events.bin").write_bytes(place.data.stream)
    dataset = {"id": "events", "files": ["events.bin"], "format": "loss"}
    place.ask("flooder", "POST", "/v1/datasets", dataset)
    answer = place.ask("flooder", "POST", "/v1/pipelines", {"order": 1, "stages": stages})[1]
    head = (
        f"GET /v1/pipelines/{json.loads(answer)['id']}/batches HTTP/1.1\r\nHost: bench\r\n"
        f"Authorization: Bearer {place.keys['flooder']}\r\n\r\n"
    ).encode()
    return _ask_for_long(place, head, count, stack)


def _ask_for_long(place: Place, octets: bytes, count: int, stack: ExitStack) -> list[socket.socket]:
    clients = []
    for _ in range(count):
        client = stack.enter_context(socket.create_connection(place.address))
        client.sendall(octets)
        clients.append(client)
    return clients
