"""Tiles against the peers: ``python -m tests.bench.tiles [--libertem PY] [--tiled PY]``.

In process against libertem, over loopback against tiled and nginx, all with the same
file and the same client, in turn in every round; medians. In process the default way of
reading is measured, also where it gets no leases because the file is open for writing, and
both are compared with kernels that run over a bare memory map. PY are interpreters that have
``libertem==0.16.0`` and ``tiled[server]``, else those that the environment names
(THALWEG_LIBERTEM_PYTHON, THALWEG_TILED_PYTHON); what is not there is left out.
"""

from __future__ import annotations

import argparse
import base64
import http.client
import json
import os
import shutil
import socket
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from app.datasets.catalogue import Catalogue
from app.datasets.files.buffers import BufferPool
from app.datasets.files.roots import Roots
from app.http.identity import SINGLE_USER
from core.arrays import Indices
from core.tiles.frames import FileFrames, FrameSource, UseOctets
from core.tiles.plan import make_plan
from core.tiles.reader import TileReader
from core.tiles.view import parse_view
from core.warmup import warm_up
from tests.app.state.memory import MemoryStateStore
from tests.bench.__main__ import ROOT, line, medians, timed
from tests.bench.service import Running, running
from tests.compat.libertem_differential import Peer

MIB = 1 << 20
SIG = (128, 128)
FRAME = 2 * SIG[0] * SIG[1]
DEPTH = 32
"""Frames of a tile in process: what the peer chooses itself."""
CHUNK = 64
"""Frames of a tile over HTTP: 2 MiB."""
SPARSE = 205
BURST = 100
"""Tiles asked for in a row: a viewer's requests, of which the first finds cold caches."""

TREE = """
import numpy as np
from tiled.adapters.array import ArrayAdapter
from tiled.adapters.mapping import MapAdapter

frames = np.memmap({path!r}, "<u2", "r").reshape({shape!r})
tree = MapAdapter({{"frames": ArrayAdapter.from_array(frames, chunks=({chunk}, -1, -1))}})
"""

NGINX = """
daemon off; worker_processes 1; pid {where}/pid; error_log {where}/error;
events {{ worker_connections 64; }}
http {{
  access_log off; sendfile on; tcp_nopush on; keepalive_requests 100000;
  client_body_temp_path {where}/b; proxy_temp_path {where}/p; fastcgi_temp_path {where}/f;
  uwsgi_temp_path {where}/u; scgi_temp_path {where}/s;
  server {{ listen 127.0.0.1:{port}; root {root}; }}
}}
"""


class Data:
    """Frames in a file, and corrections of them."""

    def __init__(self, directory: Path, size: int) -> None:
        rng = np.random.default_rng(1)
        self.directory = directory
        self.root = directory / "root"
        self.root.mkdir()
        self.path = self.root / "frames.raw"
        self.frames = size // FRAME
        block = rng.poisson(20, (256, *SIG)).astype("<u2")
        # One is open for writing, so that nobody gets a lease on it. Both are written in the same
        # way: how the page cache holds a file depends on it, and so does its speed.
        self.held = self.root / "held.raw"
        for path in (self.path, self.held):
            with path.open("wb") as file:
                for at in range(0, self.frames, len(block)):
                    file.write(np.roll(block, at, axis=0)[: self.frames - at].tobytes())
        self.writer = self.held.open("r+b")
        for name in ("dark", "gain"):
            np.save(self.root / f"{name}.npy", rng.uniform(0.5, 2, SIG).astype("f4"))
        self.roi = np.zeros(self.frames, bool)
        self.roi[rng.choice(self.frames, self.frames // 20, replace=False)] = True
        np.save(directory / "roi.npy", self.roi)

    def entry(self, ident: str, **more: object) -> dict[str, Any]:
        return {
            "id": ident,
            "files": [self.path.name],
            "format": "raw",
            "dtype": "<u2",
            "nav_shape": [self.frames],
            "sig_shape": SIG,
            **more,
        }

    def peer_job(self, **more: object) -> dict[str, Any]:
        return {
            **dict.fromkeys(("roi", "dark", "gain")),
            "path": str(self.path),
            "format": "raw",
            "dtype": "<u2",
            "nav_shape": [self.frames],
            "sig_shape": SIG,
            "sync_offset": 0,
            "tile_shape": [DEPTH, *SIG],
            "read_dtype": "<f4",
            "excluded": [],
            "only_time": True,
            **more,
        }


# -- in process ------------------------------------------------------------------------


class Mapped:
    """Ranges of one file in a bare memory map, which a truncation turns into a trap."""

    def __init__(self, path: Path) -> None:
        self._octets = np.memmap(path, np.uint8, "r").view(np.ndarray)

    def copy(self, _files: Indices, starts: Indices, size: int, out: npt.NDArray[np.uint8]) -> None:
        """Copy range by range."""
        for k, start in enumerate(starts.tolist()):
            out[k * size : (k + 1) * size] = self._octets[start : start + size]

    def visit(self, _files: Indices, starts: Indices, _size: int, use: UseOctets) -> None:
        """Visit everything at once, in place."""
        use(0, self._octets, starts)

    def hint(self, files: Indices, starts: Indices, size: int) -> None:
        """Do nothing."""


class InPlace(FileFrames):
    """Frames of a bare memory map, visited even where bytes are only copied."""

    def copy(self, frames: Indices, rows: tuple[int, int], out: npt.NDArray[np.uint8]) -> bool:
        """Do nothing."""
        del frames, rows, out
        return False


def scan(
    catalogue: Catalogue, ident: str, spec: dict[str, Any], mapped: Mapped | None = None
) -> Callable[[], None]:
    """Go through all tiles of a view, each in the place of the one before."""

    def run() -> None:
        dataset = catalogue.open(SINGLE_USER, ident)
        view = parse_view({"tile_shape": [DEPTH, *SIG], **spec})
        plan = make_plan(dataset.recording, view, nav_shape=dataset.nav_shape)
        frames: FrameSource = dataset.frames()
        if mapped is not None:
            frames = InPlace(dataset.recording, mapped)
        reader = TileReader(plan, dataset.recording, frames, dataset.corrections)
        room = np.empty(plan.tile_shape, plan.dtype)
        for k in range(plan.tiles):
            tile = plan.tile(k)
            reader.read(tile, room[: tile.shape[0]])
        dataset.close()

    return run


def in_process(data: Data, python: str | None, rounds: int) -> None:
    warm_up()
    catalogue = Catalogue(MemoryStateStore(), Roots([data.root]), {}, BufferPool())
    corrections = {"dark": "dark.npy", "gain": "gain.npy"}
    for ident, more in (("plain", {}), ("corrected", {"corrections": corrections})):
        catalogue.register(SINGLE_USER, data.entry(ident, **more))[0].close()
        held = {**data.entry(f"{ident}-held", **more), "files": [data.held.name]}
        catalogue.register(SINGLE_USER, held)[0].close()
    mask = {"mask": base64.b64encode(np.packbits(data.roi).tobytes()).decode()}
    files = {name: str(data.root / f"{name}.npy") for name in ("dark", "gain")}
    roi = str(data.directory / "roi.npy")
    cases: dict[str, tuple[str, dict[str, Any], dict[str, Any], float]] = {
        "u2 to f4": ("plain", {"dtype": "<f4"}, {}, 3.0),
        "dark and gain": ("corrected", {"dtype": "<f4"}, files, 2.2),
        "5 % of frames, u2": ("plain", {"select": mask}, {"roi": roi, "read_dtype": "<u2"}, 3.0),
        "5 % of frames, f4": ("plain", {"select": mask, "dtype": "<f4"}, {"roi": roi}, 3.0),
    }
    mapped = Mapped(data.path)
    contests: dict[str, Callable[[], float]] = {}
    for name, (ident, spec, _, _) in cases.items():
        contests[name] = timed(scan(catalogue, ident, spec))
        contests[f"{name}, held"] = timed(scan(catalogue, f"{ident}-held", spec))
        contests[f"{name}, mapped"] = timed(scan(catalogue, ident, spec, mapped))
    if python is None:
        for run in contests.values():
            run()
        report(data, cases, medians(contests, rounds))
        return
    with Peer(python, data.directory / "numba") as peer:

        def theirs(job: dict[str, Any]) -> Callable[[], float]:
            return lambda: float(peer.ask(job)["seconds"])

        for name, (_, _, job, _) in cases.items():
            contests[f"{name}, peer"] = theirs(data.peer_job(**job))
        for run in contests.values():
            run()
        report(data, cases, medians(contests, rounds))


def report(data: Data, cases: Mapping[str, Any], seconds: Mapping[str, float]) -> None:
    for name, (_, _, _, target) in cases.items():
        share = 0.05 if "%" in name else 1.0
        speed = data.frames * FRAME * share / seconds[name] / 1e9
        text = f"in process, {name}, {speed:.1f} GB/s"
        theirs = seconds.get(f"{name}, peer")
        if theirs is None:
            print(text)
        else:
            line(f"{text} against libertem", theirs / seconds[name], target)
            line("  the same, without leases", theirs / seconds[f"{name}, held"])
        mapped = seconds[f"{name}, mapped"]
        line("  against a bare memory map", mapped / seconds[name], 0.8)
        line("  the same, without leases", mapped / seconds[f"{name}, held"], 0.6)


# -- over HTTP -------------------------------------------------------------------------


class Client:
    """The standard library's client, reading into one buffer; reconnects if it must."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self._connection = http.client.HTTPConnection(*address, timeout=120)
        self._buffer = memoryview(bytearray(MIB))

    def get(self, path: str, body: object = None) -> int:
        """Bytes of an answer."""
        method, data = ("GET", None) if body is None else ("POST", json.dumps(body))
        try:
            self._connection.request(method, path, data)
            answer = self._connection.getresponse()
        except (http.client.RemoteDisconnected, ConnectionError):
            self._connection.close()
            self._connection.request(method, path, data)
            answer = self._connection.getresponse()
        size = 0
        while count := answer.readinto(self._buffer):
            size += count
        assert answer.status == 200, (path, answer.status)
        return size

    def json(self, path: str, body: object) -> Any:  # noqa: ANN401
        """Post JSON for JSON."""
        self._connection.request("POST", path, json.dumps(body))
        answer = self._connection.getresponse()
        text = answer.read()
        assert answer.status in {200, 201}, text
        return json.loads(text)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
    return port


@contextmanager
def process(command: list[str], port: int, **variables: str) -> Iterator[tuple[str, int]]:
    """A server that is up when something listens."""
    quiet = subprocess.DEVNULL
    environment = {**os.environ, **variables}
    with subprocess.Popen(command, stdout=quiet, stderr=quiet, env=environment) as server:
        try:
            for _ in range(600):
                try:
                    socket.create_connection(("127.0.0.1", port), timeout=1).close()
                    break
                except OSError:
                    time.sleep(0.1)
            yield "127.0.0.1", port
        finally:
            server.terminate()
            server.wait(30)


@contextmanager
def tiled(data: Data, python: str) -> Iterator[Client]:
    """The peer, with the same file as an array in memory, in chunks of 2 MiB."""
    shape = (data.frames, *SIG)
    tree = TREE.format(path=str(data.path), shape=shape, chunk=CHUNK)
    (data.directory / "bench_tree.py").write_text(tree)
    port = free_port()
    command = [python, "-m", "tiled", "serve", "pyobject", "--public", "bench_tree:tree"]
    command += ["--port", str(port)]
    with process(command, port, PYTHONPATH=str(data.directory)) as address:
        yield Client(address)


@contextmanager
def nginx(data: Data) -> Iterator[tuple[Client, int]]:
    """Give a client, and the process id of the server."""
    port, where = free_port(), data.directory / "nginx"
    where.mkdir()
    config = where / "conf"
    config.write_text(NGINX.format(where=where, root=data.root, port=port))
    data.root.chmod(0o755)
    data.directory.chmod(0o755)
    with process(["nginx", "-c", str(config), "-p", str(where)], port) as address:
        yield Client(address), int((where / "pid").read_text())


@contextmanager
def ours(data: Data) -> Iterator[tuple[Running, Client]]:
    with running(THALWEG_DATASET_ROOTS=str(data.root)) as server:
        yield server, Client(server.address)


def tiles_over_http(data: Data, python: str | None, rounds: int) -> None:
    """One tile and a sparse selection, against tiled."""
    chosen = np.sort(np.random.default_rng(2).choice(data.frames, SPARSE, replace=False)).tolist()
    with ours(data) as (_, client):
        client.json("/v1/datasets", data.entry("plain"))
        body = {"tile_shape": [CHUNK, *SIG]}
        view = client.json("/v1/datasets/plain/views", body)["id"]
        base = f"/v1/datasets/plain/views/{view}"
        tiles = data.frames // CHUNK
        select = {"select": {"frames": chosen}}
        contests = {
            "tile": timed(lambda: [client.get(f"{base}/tiles/{k % tiles}") for k in range(BURST)]),
            "sparse": timed(lambda: client.get("/v1/datasets/plain/tiles", select)),
        }
        if python is None:
            run_and_print(contests, rounds)
            return
        with tiled(data, python) as peer:
            block = "/api/v1/array/block/frames?format=application/octet-stream&block="
            full = "/api/v1/array/full/frames?format=application/octet-stream&slice="
            contests["tile, tiled"] = timed(
                lambda: [peer.get(f"{block}{k % tiles},0,0") for k in range(BURST)]
            )
            contests["sparse, tiled"] = timed(lambda: [peer.get(f"{full}{k}") for k in chosen])
            assert peer.get(f"{block}0,0,0") == CHUNK * FRAME == client.get(f"{base}/tiles/0")
            assert peer.get(f"{full}0") == FRAME
            result = run_and_print(contests, rounds)
        ratio = result["tile, tiled"] / result["tile"]
        line(f"a tile of 2 MiB, {1e3 * result['tile'] / BURST:.2f} ms, against tiled", ratio, 8)
        ratio = result["sparse, tiled"] / result["sparse"]
        line(f"{SPARSE} frames, {1e3 * result['sparse']:.1f} ms, against tiled", ratio, 100)


def run_and_print(contests: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    for run in contests.values():
        run()
    result = medians(contests, rounds)
    for name, seconds in result.items():
        print(f"  {name}: {1e3 * seconds:.1f} ms")
    return result


def cpu_of(pids: Sequence[int]) -> float:
    """CPU seconds of processes, to the nanosecond."""
    return sum(time.clock_gettime((~pid << 3) | 2) for pid in pids)


def family(pid: int) -> list[int]:
    """A process and all it has started."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(found for child in children for found in family(int(child)))]


def cheapest(
    contests: Mapping[str, Callable[[], float]], servers: Mapping[str, int], rounds: int
) -> dict[str, float]:
    """Least CPU seconds of the server in rounds of all; they depend little on other load."""
    pids = {name: family(pid) for name, pid in servers.items()}
    least = dict.fromkeys(contests, float("inf"))
    for _ in range(rounds):
        for name, run in contests.items():
            server = pids.get(name, pids[""])
            before = cpu_of(server)
            run()
            least[name] = min(least[name], cpu_of(server) - before)
    return least


def contiguous(data: Data, rounds: int) -> None:
    """Everything in one answer, against a web server that sends the file.

    Seconds tell little on a busy machine; the CPU seconds of the servers are told, too.
    """
    if shutil.which("nginx") is None:
        print("nginx is not installed: nothing to compare streams with")
        return
    with ours(data) as (server, client), nginx(data) as (peer, process_of_peer):
        client.json("/v1/datasets", data.entry("plain"))
        client.json("/v1/datasets", {**data.entry("held"), "files": [data.held.name]})
        size = data.frames * FRAME
        contests = {"nginx": timed(lambda: peer.get(f"/{data.path.name}"))}
        for ident in ("plain", "held"):
            view = client.json(f"/v1/datasets/{ident}/views", {})["id"]
            base = f"/v1/datasets/{ident}/views/{view}"
            for part in ("raw", "tiles"):
                contests[f"{part} {ident}"] = timed(
                    lambda base=base, part=part: client.get(f"{base}/{part}")  # type: ignore[misc]
                )
            contests[f"file {ident}"] = timed(
                lambda ident=ident: client.get(f"/v1/datasets/{ident}/files/0")  # type: ignore[misc]
            )
        result = run_and_print(contests, rounds)
        servers = {"nginx": process_of_peer, "": server.process.pid}
        least = cheapest(contests, servers, rounds)
    print(f"nginx {size / result['nginx'] / 1e6:.0f} MB/s of {size / 1e6:.0f} MB")
    goals = dict.fromkeys(("raw plain", "raw held", "file plain"), 0.8)
    for name in list(contests)[1:]:
        text = f"stream, {name}, {size / result[name] / 1e6:.0f} MB/s, against nginx"
        line(text, result["nginx"] / result[name], goals.get(name))
    for name, seconds in least.items():
        print(f"  {name}: {seconds * 2**30 / size:.3f} CPU s/GiB of the server")


def first_tile(data: Data, rounds: int) -> None:
    """Of a server that has just become ready."""
    specs: dict[str, dict[str, Any]] = {"plain": {}, "f4": {"dtype": "<f4"}}
    for name, spec in specs.items():
        first, second = [], []
        for _ in range(rounds):
            with ours(data) as (_, client):
                client.json("/v1/datasets", data.entry("plain"))
                view = client.json("/v1/datasets/plain/views", spec)["id"]
                path = f"/v1/datasets/plain/views/{view}/tiles/0"
                begin = time.perf_counter()
                client.get(path)
                first.append(time.perf_counter() - begin)
                begin = time.perf_counter()
                client.get(path)
                second.append(time.perf_counter() - begin)
        text = f"first tile after ready, {name}: {1e3 * statistics.median(first):.1f} ms"
        print(f"{text} (target 100), then {1e3 * statistics.median(second):.1f} ms")


def detector_map(data: Data, rounds: int) -> None:
    """A virtual detector over all frames, against numpy on a memory map."""
    frames = np.memmap(data.path, "<u2", "r").reshape(data.frames, -1)
    y, x = np.indices(SIG)
    mask: npt.NDArray[np.float32] = ((y - 64) ** 2 + (x - 64) ** 2 <= 900).reshape(-1).astype("f4")

    def numpy_map() -> None:
        blocks = range(0, data.frames, DEPTH)
        np.concatenate([frames[k : k + DEPTH].astype("f4") @ mask for k in blocks])

    radius = iter(range(1, 10_000))

    with ours(data) as (_, client):
        client.json("/v1/datasets", data.entry("plain"))

        def our_map() -> None:
            # Another one each time: results are kept.
            shape = {"disk": {"centre": [64, 64], "radius": 30 + next(radius) / 1e5}}
            reduction = {"op": "virtual", "detectors": [shape]}
            client.get("/v1/datasets/plain/reduce", {"reduction": reduction})

        contests = {"numpy": timed(numpy_map), "map": timed(our_map)}
        result = run_and_print(contests, rounds)
    line("virtual detector over HTTP against numpy on a map", result["numpy"] / result["map"])


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    for peer in ("libertem", "tiled"):
        known = os.environ.get(f"THALWEG_{peer.upper()}_PYTHON")
        parser.add_argument(f"--{peer}", metavar="PY", default=known)
    parser.add_argument("--mib", type=int, default=256, help="size of the file")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=("core", "http", "stream", "first", "map"))
    args = parser.parse_args()
    directory = Path(tempfile.mkdtemp())
    os.chdir(ROOT)
    try:
        data = Data(directory, args.mib * MIB)
        parts: dict[str, Callable[[], None]] = {
            "core": lambda: in_process(data, args.libertem, args.rounds),
            "http": lambda: tiles_over_http(data, args.tiled, args.rounds),
            "stream": lambda: contiguous(data, args.rounds),
            "first": lambda: first_tile(data, min(args.rounds, 5)),
            "map": lambda: detector_map(data, args.rounds),
        }
        for name, run in parts.items():
            if args.only in {None, name}:
                run()
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
