"""Damages files that libraries decode, and has a running service register, describe and read them.

``python -m tests.fuzz.fuzz_files --cases 20000`` takes that many of each format. Whatever is in
a file, every answer is one that is documented, and the server goes on: the same process, with no
more descriptors, shared memory or workers than before. What breaks this is saved and named; the
exit code is 1 then.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import zarr
from zarr import codecs

from app.datasets.files.roots import Roots
from app.datasets.scanning import scan
from app.decoding.base import DecoderLimits
from app.decoding.pool import DecoderPool
from tests.app.harness import Contract, Service, check_problem, wait_until

Rng = np.random.Generator

PATIENCE = 60.0
"""Seconds an answer may take: a worker is killed long before."""
FRAMES = np.arange(4 * 4 * 16 * 16, dtype="<u2").reshape(4, 4, 16, 16)
DOCUMENTED = {"format", "format-ambiguous", "dataset-unreadable", "shape", "selection", "casting"}
DOCUMENTED |= {"option", "path-refused", "file-missing", "data-changed", "too-large", "limit"}
DOCUMENTED |= {"position", "pipeline", "budget-exceeded"}
"""Problems that a damaged file may be."""


def _hdf5(path: Path, rng: Rng) -> None:
    options: dict[str, Any] = {}
    if rng.random() < 0.8:
        options = {"chunks": (1, 2, 16, 16), "compression": "gzip", "shuffle": True}
        options["fletcher32"] = bool(rng.random() < 0.3)
    libver = str(rng.choice(["earliest", "latest"]))
    with h5py.File(path, "w", libver=libver) as file:
        file.create_dataset("entry/data", data=FRAMES, **options)
        file["entry/x"] = np.arange(4.0)
        file["entry/x"].attrs["units"] = "nm"
        file["entry/x"].make_scale("x")
        file["entry/data"].dims[1].attach_scale(file["entry/x"])
        file["link"] = h5py.SoftLink("/entry/data")
        if rng.random() < 0.3:
            layout = h5py.VirtualLayout(FRAMES.shape, FRAMES.dtype)
            layout[...] = h5py.VirtualSource(".", "entry/data", FRAMES.shape)
            file.create_virtual_dataset("virtual", layout)


def _zarr(path: Path, rng: Rng) -> None:
    some: list[Any] = [
        codecs.BloscCodec(cname="lz4"),
        codecs.BloscCodec(cname="zstd"),
        codecs.GzipCodec(),
        [codecs.ZstdCodec(), codecs.Crc32cCodec()],
        None,
    ]
    array = zarr.create_array(
        str(path),
        name="data",
        shape=FRAMES.shape,
        dtype=FRAMES.dtype,
        chunks=(1, 2, 16, 16),
        shards=(2, 4, 16, 16) if rng.random() < 0.4 else None,
        compressors=some[int(rng.integers(len(some)))],
    )
    array[...] = FRAMES


def _table(rng: Rng) -> pa.Table:
    rows = 60
    words = [
        bytes(rng.integers(97, 123, int(rng.integers(0, 9))).astype("u1")) for _ in range(rows)
    ]
    return pa.table(
        {
            "id": pa.array(np.arange(rows)),
            "x": pa.array(rng.normal(size=rows)),
            "flag": pa.array(rng.random(rows) < 0.5),
            "text": pa.array([word.decode() for word in words]),
            "list": pa.array([list(word) for word in words], pa.list_(pa.uint8())),
            "pair": pa.FixedSizeListArray.from_arrays(pa.array(np.arange(2.0 * rows)), 2),
        }
    )


def _parquet(path: Path, rng: Rng) -> None:
    compression: Any = str(rng.choice(["none", "snappy", "zstd", "gzip"]))
    pq.write_table(_table(rng), path, row_group_size=25, compression=compression)


def _arrow(path: Path, rng: Rng) -> None:
    table = _table(rng)
    compression: Any = [None, "lz4", "zstd"][int(rng.integers(3))]
    options = pa.ipc.IpcWriteOptions(compression=compression)
    new: Any = pa.ipc.new_file
    if rng.random() < 0.4:
        new = pa.ipc.new_stream
    else:
        kind = pa.array(["a", "b", "c"] * 20).dictionary_encode()
        table = table.append_column("kind", kind)
    with new(str(path), table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=25)


FORMS: dict[str, Callable[[Path, Rng], None]] = {
    "hdf5": _hdf5,
    "zarr": _zarr,
    "parquet": _parquet,
    "arrow": _arrow,
}


def mutate(octets: bytes, rng: Rng) -> bytes:
    """Change 1 to 16 bytes, at random or around one place; sometimes cut the end."""
    changed = bytearray(octets)
    count = int(rng.integers(1, 17))
    near = int(rng.integers(0, max(len(changed), 1)))
    spread = len(changed) if rng.random() < 0.5 else 64
    for _ in range(count):
        if not changed:
            break
        at = (near + int(rng.integers(0, spread))) % len(changed)
        changed[at] = int(rng.choice([0, 1, 127, 128, 255, int(rng.integers(0, 256))]))
    if rng.random() < 0.05:
        del changed[int(rng.integers(0, len(changed) + 1)) :]
    return bytes(changed)


def damage(path: Path, rng: Rng) -> None:
    """Damage a file, or one of the files of a store."""
    files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
    victim = files[int(rng.integers(len(files)))]
    octets = mutate(victim.read_bytes(), rng)
    new = path.parent / "new"
    new.write_bytes(octets)
    new.rename(victim)


@dataclass
class Campaign:
    """Cases of one service."""

    service: Service
    root: Path
    seed: int
    outcomes: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._contract = Contract.of(self.service)
        self._connection: http.client.HTTPConnection | None = None
        self._originals = self.root.parent / "originals"
        self._originals.mkdir(exist_ok=True)

    def _ask(self, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401 - JSON
        """Send a request; return the answer's document, None for a problem."""
        data = None if body is None else json.dumps(body).encode()
        if self._connection is None:
            host = "127.0.0.1"
            self._connection = http.client.HTTPConnection(host, self.service.port, timeout=PATIENCE)
        headers = {"Content-Type": "application/json"} if data else {}
        self._connection.request(method, path, data, headers)
        answer = self._connection.getresponse()
        content = answer.read()
        if answer.headers.get_content_type() == "application/problem+json":
            found = json.loads(content)
            check_problem(found)
            assert found["code"] in DOCUMENTED, found
            self.outcomes[found["code"]] += 1
            return None
        assert answer.status in {200, 201}, (answer.status, content[:300])
        is_json = answer.headers.get_content_type() == "application/json"
        return json.loads(content) if is_json else content

    def case(self, form: str, number: int) -> None:
        """Make, damage, register, describe and read one file."""
        rng = np.random.default_rng([self.seed, list(FORMS).index(form), number])
        path = self.root / f"case.{form}"
        self._fresh(form, path, rng)
        damage(path, rng)
        entry: dict[str, Any] = {"id": f"case-{form}", "files": [path.name]}
        if form in {"parquet", "arrow"}:
            entry["format"] = form
        elif rng.random() < 0.3:
            entry["array"] = str(rng.choice(["entry/data", "link", "virtual", "data"]))
            entry["id"] += f"-{entry['array'].replace('/', '-')}"
        if self._ask("POST", "/v1/datasets", entry) is None:
            return
        self._ask("GET", f"/v1/datasets/{entry['id']}")
        if "format" in entry:
            stages = [{"op": "source", "dataset": entry["id"]}, {"op": "batch", "size": 40}]
            spec = self._ask("POST", "/v1/pipelines", {"order": 1, "stages": stages})
            if spec is not None:
                after = f"after={spec['token']}"
                done = self._ask("GET", f"/v1/pipelines/{spec['id']}/batch?{after}")
                self.outcomes["read"] += done is not None
            return
        view = {"select": {"frames": [0, 1, 15]}}
        path_of = f"/v1/datasets/{entry['id']}/views"
        made = self._ask("POST", path_of, view)
        if made is not None:
            done = self._ask("GET", f"{path_of}/{made['id']}/tiles/0")
            self.outcomes["read"] += done is not None

    def _fresh(self, form: str, path: Path, rng: Rng) -> None:
        """Put a sound file in place, one of a few of its format."""
        variant = int(rng.integers(12))
        original = self._originals / f"{variant}.{form}"
        if not original.exists():
            FORMS[form](original, np.random.default_rng([self.seed, variant]))
        if original.is_dir():
            shutil.rmtree(path, ignore_errors=True)
            shutil.copytree(original, path)
        else:
            shutil.copy(original, self.root / "new")
            (self.root / "new").rename(path)

    def run(self, form: str, cases: int) -> None:
        """Run cases of one format.

        Raises:
            AssertionError: an answer is not documented, or the server has ended.
        """
        for number in range(cases):
            try:
                self.case(form, number)
                assert self.service.process.poll() is None, "the server has ended"
            except Exception as e:
                kept = Path(tempfile.gettempdir()) / f"fuzz-{self.seed}-{form}-{number}"
                shutil.rmtree(kept, ignore_errors=True)
                shutil.copytree(self.root, kept)
                raise AssertionError(f"seed {self.seed}, {form} {number}, see {kept}") from e

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def workers_of(pid: int) -> list[int]:
    """The decoders of a server."""
    children = Path(f"/proc/{pid}/task")
    pids = []
    for task in children.iterdir():
        pids += [int(text) for text in (task / "children").read_text().split()]
    found = []
    for child in pids:
        # One that is idle may end at any moment.
        with contextlib.suppress(OSError):
            if b"app.decoding.worker" in Path(f"/proc/{child}/cmdline").read_bytes():
                found.append(child)
    return found


@contextlib.contextmanager
def campaign(directory: Path, seed: int, **settings: object) -> Iterator[Campaign]:
    """A campaign against a server of its own, which must end as it was."""
    root = directory / "root"
    root.mkdir(parents=True)
    service = Service(
        directory / "service",
        dataset_roots=root,
        decoder_idle_seconds=2,
        decoder_seconds=3,
        **settings,
    )
    try:
        before = len(service.open_files())
        made = Campaign(service, root, seed)
        yield made
        made.close()
        pid = service.pid
        assert len(workers_of(pid)) <= 2
        wait_until(lambda: not workers_of(pid), 30)
        # Datasets stay open for later requests.
        kept = [name for name in service.open_files() if str(root) not in name]
        # The traceback of an error holds what it was about until it is collected.
        assert sum("thalweg-decoded" in name for name in kept) <= 3, kept
        assert len(kept) <= before + 10, kept
        assert service.stop() == 0
        assert not service.failures()
        assert not [p for p in Path("/proc").iterdir() if _is_worker_of(p, pid)]
    finally:
        service.kill()


def _is_worker_of(process: Path, pid: int) -> bool:
    try:
        line = (process / "cmdline").read_bytes()
    except OSError:
        return False
    return b"app.decoding.worker" in line and f'"parent":{pid},'.encode() in line


def scanned(directory: Path, seed: int, cases: int) -> int:
    """Scan directories of damaged files; return how many of them are found to be datasets."""
    found = 0
    pool = DecoderPool(DecoderLimits(seconds=3))
    try:
        for number in range(cases):
            rng = np.random.default_rng([seed, 9, number])
            form = ("hdf5", "zarr")[number % 2]
            path = directory / f"{number:03}.{form}"
            FORMS[form](path, rng)
            damage(path, rng)
            if number % 200 == 199 or number == cases - 1:
                found += len(scan(Roots([directory]), pool, float("inf")).specs)
                shutil.rmtree(directory)
                directory.mkdir()
    finally:
        pool.close()
    return found


def main() -> int:
    """Fuzz; exit code 1 if something undocumented happened."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=20_000, help="of each format")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 2**32)
    parser.add_argument("--form", choices=FORMS, action="append")
    args = parser.parse_args()
    failed = False
    for form in args.form or FORMS:
        start = time.perf_counter()
        with tempfile.TemporaryDirectory() as directory:
            try:
                with campaign(Path(directory) / form, args.seed) as run:
                    run.run(form, args.cases)
            except Exception:  # noqa: BLE001 - any is a finding
                traceback.print_exc()
                failed = True
        seconds = time.perf_counter() - start
        print(f"{form}: seed {args.seed}, {args.cases} cases in {seconds:.0f} s", flush=True)
        for outcome, count in run.outcomes.most_common():
            print(f"{count:>9}  {outcome}", flush=True)
    with tempfile.TemporaryDirectory() as directory:
        count = scanned(Path(directory), args.seed, args.cases)
    print(f"scan: {count} of {args.cases} damaged files are datasets")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
