"""Datasets of the real service: uncut, cut, killed, and changed under its hands."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.client import Client, Dataset, ProblemError
from tests.scale import PURE_PYTHON, examples
from tests.server_process import ServerProcess

from ..conftest import Connect
from ..running import ROOT, cutting

pytestmark = pytest.mark.skipif(PURE_PYTHON, reason="needs the service at its speed")

VALUES = np.random.default_rng(5).integers(0, 4000, (12, 10, 16, 12), "u2")
LARGE = np.arange(3 << 20, dtype="<u4").reshape(96, 128, 256)


@pytest.fixture(scope="module")
def roots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("files")
    VALUES.tofile(directory / "small.raw")
    np.save(directory / "small.npy", VALUES)
    LARGE.tofile(directory / "large.raw")
    return directory


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, roots: Path) -> Iterator[ServerProcess]:
    process = ServerProcess(tmp_path_factory.mktemp("service"), dataset_roots=roots)
    yield process
    process.stop()
    assert not process.failures()


@pytest.fixture
def url(server: ServerProcess) -> str:
    return server.url


def raw(name: str, values: Any, nav: int, ident: str) -> dict[str, Any]:  # noqa: ANN401
    return {
        "id": ident,
        "files": [name],
        "format": "raw",
        "dtype": values.dtype,
        "nav_shape": values.shape[:nav],
        "sig_shape": values.shape[nav:],
    }


@pytest.fixture
def small(url: str) -> Iterator[Dataset]:
    with Client(url) as client:
        yield client.datasets.register(raw("small.raw", VALUES, 2, "small"))


def test_the_catalogue(url: str, small: Dataset) -> None:
    with Client(url) as client:
        npy = client.datasets.register(
            id="npy", files=["small.npy"], nav_shape=(12, 10), sig_shape=(16, 12)
        )
        assert {"npy", "small"} <= set(client.datasets.list())
        assert np.array_equal(npy.view().read(), VALUES)
        again = client.datasets["small"]
        assert (again.nav_shape, again.sig_shape, again.dtype) == ((12, 10), (16, 12), VALUES.dtype)
        assert again.fingerprint == small.fingerprint
        with pytest.raises(ProblemError) as caught:
            client.datasets["none"].view().read()
        assert caught.value.status == 404


def test_lists_of_positions_have_all_their_frames(url: str) -> None:
    with Client(url) as client:
        late = client.datasets.register(raw("small.raw", VALUES, 2, "late"), sync_offset=3)
        assert np.array_equal(late[[0, 2], 1], VALUES.reshape(120, 16, 12)[[4, 24]])
        with pytest.raises(IndexError, match="3 of 20 positions have no frame"):
            late[[0, 11]]
        with pytest.raises(IndexError, match="3 of 120 positions have no frame"):
            late[:, :]
        assert late[2:4, 5].shape == (2, 16, 12)


def test_frames_are_indexed_as_arrays_are(small: Dataset) -> None:
    assert small.shape == VALUES.shape
    assert repr(small) == "<dataset small: (12, 10) frames of (16, 12) <u2>"
    assert repr(Client("http://127.0.0.1:1").datasets["b"]) == "<dataset b>"
    bright = np.arange(120).reshape(12, 10) % 7 < 2
    lists = ([3, -1, 3], ([3, 1], 7), ([5, 2], [0, 9]), (slice(4), [1]), np.array([[0, 1], [2, 3]]))
    masks = (bright, (bright[:, 0], 2), bright[:, 0])
    index: Any
    for index in ((5, 7), (-1, 0), 3, slice(2, 9, 3), (slice(4), 7), *lists, *masks):
        assert np.array_equal(small[index], VALUES[index])
    outside: list[Any] = [[12], ([0], [10]), bright[:3], [0.5], (..., 3)]
    for index in outside:
        with pytest.raises(IndexError):
            small[index]
    assert np.array_equal(small.frame(5, 7), VALUES[5, 7])
    with pytest.raises(IndexError):
        small[12, 0]
    with pytest.raises(ValueError, match="2 indices"):
        small.frame(5)
    view = small.view()
    assert view.zarr_url.endswith(f"/zarr/{view.id}.{small.fingerprint}")
    assert view.zarr_url.startswith("http://127.0.0.1:")


def test_the_commands_of_frames_and_reductions(url: str, small: Dataset, tmp_path: Path) -> None:
    exact = VALUES.astype("f8")
    y, x = np.indices(VALUES.shape[2:])
    disk = np.hypot(y - 8, x - 6) <= 4

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "app.client", *arguments, "--url", url]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    wanted = {"frame": ("small", "5,7"), "reduce": ("small", "disk:8,6,4")}
    for name, arguments in wanted.items():
        assert run(name, *arguments, "-o", f"{name}.npy").returncode == 0
    assert np.array_equal(np.load(tmp_path / "frame.npy"), VALUES[5, 7])
    assert np.array_equal(np.load(tmp_path / "reduce.npy"), exact[..., disk].sum(-1))
    assert run("reduce", small.id, "com", "-o", "com.npz").returncode == 0
    assert sorted(np.load(tmp_path / "com.npz")) == ["com_0", "com_1"]
    assert (
        run("image", "small", "-o", "sum.png", "--map", "magma", "--scale", "log").returncode == 0
    )
    assert (tmp_path / "sum.png").read_bytes().startswith(b"\x89PNG")
    wrong: dict[tuple[str, ...], str] = {
        ("frame", "small", "5", "-o", "a.npy"): "a position has 2 indices",
        ("frame", "small", "5,70", "-o", "a.npy"): "positions are 0 to 9",
        ("reduce", "small", "com", "-o", "a.npy"): "in .npz for several (com_0, com_1)",
        ("reduce", "small", "disk:1", "-o", "a.npy"): "disk takes 3 numbers",
        ("image", "small", "-o", "a.png", "--map", "viridiz"): "Did you mean viridis?",
    }
    for command, said in wrong.items():
        failed = run(*command)
        assert failed.returncode in {1, 2}
        assert said in failed.stderr
        assert "Traceback" not in failed.stderr


def a_slice(rng: np.random.Generator, length: int, step: int = 1) -> slice:
    low, high = sorted(int(i) for i in rng.choice(length + 1, 2, replace=False))
    return slice(low, high, step)


def a_view(rng: np.random.Generator) -> tuple[dict[str, Any], Any]:
    options: dict[str, Any] = {}
    sig = tuple(a_slice(rng, n) for n in (16, 12))
    form = rng.integers(4)
    flat = VALUES.reshape(-1, 16, 12)
    if form == 0:
        nav = tuple(a_slice(rng, n, int(rng.integers(1, 4))) for n in (12, 10))
        options["nav"] = nav
        wanted = VALUES[nav]
    elif form == 1:
        frames = rng.integers(0, len(flat), rng.integers(1, 40))
        options["frames"], wanted = frames, flat[frames]
    elif form == 2:
        mask = rng.random((12, 10)) < 0.3
        mask[0, 0] = True
        options["mask"], wanted = mask, VALUES[mask]
    else:
        wanted = VALUES
    if rng.integers(2):
        options["sig"] = sig
        wanted = wanted[..., sig[0], sig[1]]
    if rng.integers(2):
        options["dtype"] = dtype = rng.choice(["<f4", ">i4", "<f8", "<c8"])
        wanted = wanted.astype(dtype)
    if rng.integers(2):
        options["tile_shape"] = tuple(int(rng.integers(1, n + 1)) for n in wanted.shape)
    else:
        options["target_bytes"] = int(rng.integers(50, 20_000))
    return options, wanted


@pytest.mark.parametrize("seed", range(examples(20)))
def test_views_are_what_numpy_slices(small: Dataset, seed: int, tmp_path: Path) -> None:
    options, wanted = a_view(np.random.default_rng(seed))
    view = small.view(**options)
    assert np.array_equal(view.read(), wanted)
    assert np.array_equal(view.read(threads=2), wanted)
    view.to_npy(tmp_path / "out.npy")
    assert np.array_equal(np.load(tmp_path / "out.npy"), wanted)
    view.raw(tmp_path / "raw")
    octets = (tmp_path / "raw").read_bytes()
    for tile, box in zip(view.tiles(), view.plan.boxes(), strict=True):
        assert tile.data.tobytes() == octets[box.offset : box.offset + box.nbytes]


def test_sums_and_shuffles(small: Dataset) -> None:
    view = small.view(bin={"nav": 2, "sig": 4})
    wanted = VALUES.reshape(6, 2, 5, 2, 4, 4, 3, 4).sum((1, 3, 5, 7), dtype="u4")
    assert np.array_equal(view.read(), wanted)
    shuffled = small.view(shuffle=3).read()
    assert not np.array_equal(shuffled, VALUES.reshape(-1, 16, 12))
    assert np.array_equal(np.sort(shuffled, 0), np.sort(VALUES.reshape(-1, 16, 12), 0))
    with pytest.raises(ProblemError) as caught:
        small.view(dtype="u1").read()
    assert caught.value.status == 422


@pytest.mark.parametrize("seed", range(examples(4)))
def test_cuts_leave_no_trace(
    connect: Connect, server: ServerProcess, small: Dataset, seed: int, tmp_path: Path
) -> None:
    options, wanted = a_view(np.random.default_rng(seed))
    size = small.view(**options).nbytes
    small.view(**options).raw(tmp_path / "uncut")
    with cutting(server, seed, 20, size + 5000, ways=["down"]) as proxy:
        view = connect(proxy.url, retries=30).datasets["small"].view(**options)
        got = [(tile.index, tile.data) for tile in view.tiles()]
        assert [index for index, _ in got] == list(range(view.plan.tiles))
        for index, data in got:
            assert np.array_equal(data, wanted[view.plan.box(index).slices])
        assert np.array_equal(view.read(threads=2), wanted)
        view.raw(tmp_path / "cut")
        assert (tmp_path / "cut").read_bytes() == (tmp_path / "uncut").read_bytes()
        view.to_npy(tmp_path / "cut.npy")
        assert np.array_equal(np.load(tmp_path / "cut.npy"), wanted)
        total = connect(proxy.url, retries=30).datasets["small"].reduce("sum")["sum"]
        assert np.array_equal(total, VALUES.sum((0, 1)))
        assert proxy.cuts


def test_files_that_change(url: str, roots: Path, tmp_path: Path) -> None:
    LARGE.tofile(roots / "changing.raw")
    with Client(url, retries=1) as client:
        scan = client.datasets.register(raw("changing.raw", LARGE, 1, "changing"))
        view = scan.view(target_bytes=100_000)
        tied = scan.view(target_bytes=200_000)
        assert tied.id
        tiles = view.tiles()
        token = next(tiles).token
        with (roots / "changing.raw").open("r+b") as file:
            file.write(b"other")
        with pytest.raises(ProblemError) as caught:
            list(tiles)
        assert (caught.value.code, caught.value.status) == ("data-changed", 412)
        for again in (
            lambda: list(view.tiles(after=token)),
            view.read,
            lambda: scan[0],
            lambda: scan.reduce("sum"),
            tied.read,
            lambda: tied.read(threads=2),
        ):
            with pytest.raises(ProblemError, match="data-changed"):
                again()
        for write in (tied.raw, view.to_npy):
            with pytest.raises(ProblemError, match=f"remove {tmp_path}/kept to start over"):
                write(tmp_path / "all.raw", state=tmp_path / "kept")
        assert client.datasets["changing"].view().read().tobytes()[:5] == b"other"


def test_the_service_is_killed(connect: Connect, server: ServerProcess) -> None:
    client = connect(server.url, retries=30)
    client.datasets.register(raw("large.raw", LARGE, 1, "large"))
    out = np.zeros_like(LARGE)
    tiles = client.datasets["large"].view(target_bytes=200_000).tiles(out=out)
    indices = [next(tiles).index for _ in range(10)]
    server.kill()
    server.start()
    indices += [tile.index for tile in tiles]
    assert indices == list(range(len(indices)))
    assert np.array_equal(out, LARGE)


def test_a_command_killed_again_and_again(url: str, tmp_path: Path) -> None:
    with Client(url) as client:
        client.datasets.register(raw("large.raw", LARGE, 1, "large"))
    command = [sys.executable, "-m", "app.client", "tiles", "large", "--url", url]
    command += ["-o", str(tmp_path / "out.npy"), "--tile-shape", "1,32,64", "--dtype", "<f8"]
    state = tmp_path / "out.npy.thalweg-state"
    places: list[int] = []
    while not (tmp_path / "out.npy").exists():
        process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while process.poll() is None and len(places) < 3 and time.monotonic() < deadline:
            if state.exists() and json.loads(state.read_bytes())["tile"] > sum(places[-1:]):
                process.kill()
                places.append(json.loads(state.read_bytes())["tile"])
            time.sleep(0.01)
        process.wait(60)
    assert np.array_equal(np.load(tmp_path / "out.npy"), LARGE.astype("<f8"))
    assert places
    assert places == sorted(set(places))
    assert [p.name for p in tmp_path.iterdir()] == ["out.npy"]
