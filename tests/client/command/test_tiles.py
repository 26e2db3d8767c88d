from __future__ import annotations

import argparse
import json
import socket
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.client import ProblemError
from app.client.command.console import describe, told
from app.client.command.main import main
from app.client.tiles.saving import TileProgress

from ..fakes.exchange import Fault
from ..fakes.service import FakeService
from ..fakes.tiles import FakeScan

VALUES = FakeScan().values


def run(service: FakeService, *args: object) -> int:
    return main([*map(str, args), "--url", service.url])


def test_the_catalogue(
    service: FakeService, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(service, "datasets") == run(service, "datasets", "list") == 0
    assert capsys.readouterr().out == "a\nb\nscan\n" * 2
    assert run(service, "datasets", "show", "scan") == 0
    assert json.loads(capsys.readouterr().out)["dtype"] == "<u2"
    (tmp_path / "spec").write_text('{"id": "new", "files": ["a"]}')
    assert run(service, "datasets", "register", '{"id": "new", "files": ["a"]}') == 0
    assert run(service, "datasets", "register", "--file", tmp_path / "spec") == 0
    assert capsys.readouterr().out.count('"id": "new"') == 2
    assert run(service, "datasets", "show", "none") == 1
    assert run(service, "datasets", "delete", "scan", "--view", "v") == 0
    assert run(service, "datasets", "delete", "scan") == 0
    assert run(service, "datasets", "delete", "scan") == 1
    assert service.scan.deleted == ["v", "scan"]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ("tiles scan --nav 0:3 -o o.npy", "nav goes to 3 along axis 0, which has a length of 2"),
        ("tiles scan --sig :,0:4 -o o.npy", "sig goes to 4 along axis 1"),
        (
            "tiles scan --nav :,:,: -o o.npy",
            "nav has 3 indices for 2 axes of the scan: those",
        ),
        ("tiles data/scan.raw -o o.npy", "'data/scan.raw' is a path: register the file"),
        ("frame scan 1,1 -o f.png", "f.png must end in .npy or .npz: thalweg image draws"),
        ("reduce scan {'op':'com'} -o o.npy", "what is given is not JSON, whose names and"),
        ("tiles scan --dtype uint12 -o o.npy", "dtype is 'uint12', which is no type"),
        ("tiles scan --mask ints.npy -o o.npy", "ints.npy holds int64: --mask takes"),
        ("reduce scan weights:objects.npy -o o.npy", "objects.npy: Object arrays cannot be loaded"),
        ("reduce scan ones.npy -o o.npy", "'ones.npy' is no reduction: weights:FILE.npy takes"),
        ("reduce scan weights: -o o.npy", "'weights:' is no reduction: weights:FILE.npy takes"),
        (
            "image scan weights:ones.npy -o o.png",
            "weights, or listed positions, are too long for the",
        ),
        ("tiles scan -o none/o.npy", "there is no directory none\n"),
        ("tiles scan -o d.npy", "d.npy is a directory: name a file in it\n"),
        ("tiles scan -o /", "/ is a directory: name a file in it\n"),
        ("reduce scan sum -o sum.png", "sum.png must end in .npy or .npz: thalweg image draws"),
        ("frame scan 0,1 0,2 -o o.npy", "frame reads one position, such as 5,7: tiles --nav reads"),
        ("frame scan -3,-1 -o o.npy", "nav has the index -3, but positions are 0 to 1"),
        ('datasets register {"dtype":"uint12"}', "dtype is 'uint12', which is no type"),
    ],
)
def test_what_cannot_be_is_said_in_a_sentence(
    service: FakeService,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    args: str,
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "d.npy").mkdir()
    np.save("ints.npy", np.ones((2, 3), np.int64))
    np.save("ones.npy", np.ones((99, 99)))
    np.save("objects.npy", np.array([None]))
    assert run(service, *args.split()) in {1, 2}
    assert f"thalweg: {said}" in capsys.readouterr().err


def test_positions_and_slices_may_count_from_the_end(
    service: FakeService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    summary = FakeScan.summary

    def note(self: FakeScan, view: Any) -> dict[str, Any]:  # noqa: ANN401
        asked.append(view)
        return summary(self, {})

    monkeypatch.setattr(FakeScan, "summary", note)
    run(service, "tiles", "scan", "-o", tmp_path / "o.npy", "--nav", "-1:", "--sig", "-3:,-2:-1")
    run(service, "frame", "scan", "-1,-2", "-o", tmp_path / "p.npy")
    run(service, "frame", "scan", "-1", "-2", "-o", tmp_path / "r.npy")
    run(service, "tiles", "scan", "-o", tmp_path / "q.npy", "--nav", "1,-1", "--sig", "2,-1")
    assert asked == [
        {"select": {"nav": [[1, 2, 1], [0, 3, 1]]}, "sig": [[1, 4], [1, 2]]},
        *[{"select": {"nav": [[1, 2, 1], [1, 2, 1]]}}] * 2,
        {"select": {"nav": [[1, 2, 1], [2, 3, 1]]}, "sig": [[2, 3], [2, 3]]},
    ]


@pytest.mark.parametrize(
    "args",
    [
        ["datasets", "show"],
        ["datasets", "list", "x"],
        ["datasets", "show", "--file", "x"],
        ["datasets", "register"],
        ["datasets", "delete"],
        ["datasets", "delete", "x", "--file", "y"],
        ["datasets", "show", "x", "--view", "y"],
        ["datasets", "register", "{"],
        ["datasets", "register", "{}", "--file", "x"],
        ["tiles", "scan", "-o", "out.txt"],
        ["datasets", "register", '{"id": "a", "files": ["a"], "dtype": "unit16"}'],
        ["tiles", "scan", "-o", "out.npy", "--dtype", "nonsense"],
        ["tiles", "scan", "-o", "out.npy", "--nav", "::,::,::"],
    ],
)
def test_wrong_usage(service: FakeService, args: list[str]) -> None:
    assert run(service, *args) == 2


@pytest.mark.parametrize(
    "args",
    [
        ["--frames", "1", "--nav", "1:2"],
        ["--frames", "x"],
        ["--nav", "1-2"],
        ["--nav", "0:2:0"],
        ["--tile-shape", "a"],
    ],
)
def test_wrong_options(service: FakeService, args: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        run(service, "tiles", "scan", "-o", "out.npy", *args)
    assert caught.value.code == 2


def test_a_view(service: FakeService, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.npy"
    assert run(service, "tiles", "scan", "-o", out) == 0
    assert "2 x 3 x 4 x 3 of <u2, 144 bytes" in capsys.readouterr().err
    assert np.array_equal(np.load(out), VALUES)
    again = ["tiles", "scan", "-o", out, "--frames", "3,1-2", "--quiet"]
    assert run(service, *again) == 2
    assert "--force" in capsys.readouterr().err
    assert np.array_equal(np.load(out), VALUES)
    assert run(service, *again, "--force") == 0
    assert capsys.readouterr().err == ""
    assert np.array_equal(np.load(out), VALUES.reshape(6, 4, 3)[[3, 1, 2]])
    assert run(service, "tiles", "scan", "-o", tmp_path / "out.raw") == 0
    assert (tmp_path / "out.raw").read_bytes() == VALUES.tobytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.npy", "out.raw"]


def test_giving_up_and_going_on(
    service: FakeService, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.npy"
    service.script[:] = [Fault(drain=3)]
    assert run(service, "tiles", "scan", "-o", out, "--retries", 0) == 3
    assert "the same command resumes" in capsys.readouterr().err
    assert run(service, "tiles", "scan", "-o", out) == 0
    assert service.streams[-1].query["after"].startswith("3.")
    assert np.array_equal(np.load(out), VALUES)
    out.unlink()
    service.script[:] = [Fault(drain=3)]
    assert run(service, "tiles", "scan", "-o", out, "--retries", 0) == 3
    service.scan.fingerprint = "f1"
    capsys.readouterr()
    assert run(service, "tiles", "scan", "-o", out) == 1
    said = capsys.readouterr().err
    assert said == "thalweg: [data-changed] other data. --force starts over\n"
    assert run(service, "tiles", "scan", "-o", out, "--frames", 1) == 1
    said = capsys.readouterr().err
    assert said == f"thalweg: {out}.thalweg-state is of another view: --force starts over\n"
    assert run(service, "tiles", "scan", "-o", out, "--force") == 0
    assert np.array_equal(np.load(out), VALUES)
    assert [path.name for path in tmp_path.iterdir()] == ["out.npy"]


def test_force_leaves_other_files_alone(
    service: FakeService, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "notes").write_text("mine")
    args = ["tiles", "scan", "-o", tmp_path / "out.npy", "--state", tmp_path / "notes", "--force"]
    assert run(service, *args) == 1
    assert "is not a state file" in capsys.readouterr().err
    assert (tmp_path / "notes").read_text() == "mine"


@pytest.mark.parametrize(
    "args", [["frame", "scan", "1,2"], ["reduce", "scan", "sum"], ["image", "scan"]]
)
def test_finished_files_are_replaced_by_force_only(
    service: FakeService, tmp_path: Path, args: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / ("a.png" if args[0] == "image" else "a.npy")
    out.write_bytes(b"mine")
    assert run(service, *args, "-o", out) == 2
    assert f"{out} exists" in capsys.readouterr().err
    assert not service.seen
    assert out.read_bytes() == b"mine"
    assert run(service, *args, "-o", out, "--force") == 0
    assert out.read_bytes() != b"mine"


@pytest.mark.parametrize(
    ("head", "found"),
    [
        (b"\x89PNG", "a PNG picture"),
        (b"PK\3\4", "a zip archive, as .npz files are"),
        (b"\x1f\x8b", "compressed with gzip"),
        (b"", "no .npy file"),
    ],
)
def test_a_mask_of_another_kind_is_named(
    service: FakeService,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    head: bytes,
    found: str,
) -> None:
    (tmp_path / "mask").write_bytes(head + bytes(99))
    assert run(service, "tiles", "scan", "-o", "o.npy", "--mask", tmp_path / "mask") == 2
    said = capsys.readouterr().err
    assert f"mask is {found}: --mask takes what numpy.save wrote" in said


@pytest.mark.parametrize("form", [["--file"], []])
@pytest.mark.parametrize(
    ("content", "found"), [(b"\x93NUMPY", "but bytes"), (b"hello", "Expecting"), (b"[]", "object")]
)
def test_a_data_file_is_no_description(
    service: FakeService,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    form: list[str],
    content: bytes,
    found: str,
) -> None:
    (tmp_path / "scan.raw").write_bytes(content)
    assert run(service, "datasets", "register", *form, tmp_path / "scan.raw") == 2
    said = capsys.readouterr().err
    assert f"{tmp_path}/scan.raw" in said
    assert found in said
    assert "thalweg datasets register '{" in said


def test_the_address_precedes_the_command_or_follows_it(
    service: FakeService, capsys: pytest.CaptureFixture[str]
) -> None:
    nobody = ["--url", "http://127.0.0.1:1", "--retries", "0"]
    here = ["--url", service.url, "--key", "k"]
    for group, name in (("datasets", "list"), ("pipelines", "show x")):
        for before, between, after in ((here, [], []), (nobody, here, []), (nobody, [], here)):
            service.seen.clear()
            main([*before, group, *between, *name.split(), *after])
            assert service.seen[0].headers["authorization"] == "Bearer k"
    capsys.readouterr()
    assert main([*nobody, "datasets"]) == 3


@pytest.mark.parametrize("args", [["--dtyp", "<f4"], ["--forc"]])
def test_options_are_not_abbreviated(
    service: FakeService, capsys: pytest.CaptureFixture[str], args: list[str]
) -> None:
    with pytest.raises(SystemExit):
        run(service, "tiles", "scan", "-o", "o.npy", *args)
    said = capsys.readouterr().err
    assert f"there is no option {args[0]}. Did you mean {args[0]}e?" in said


def test_options_reach_the_service(
    service: FakeService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    summary = FakeScan.summary

    def note(self: FakeScan, view: Any) -> dict[str, Any]:  # noqa: ANN401
        asked.append(view)
        return summary(self, {})

    monkeypatch.setattr(FakeScan, "summary", note)
    np.save(tmp_path / "mask.npy", np.ones((2, 3), bool))
    args: list[object] = ["--sig", "0:3,1:", "--bin-nav", 1, "--bin-sig", 2, "--dtype", "float32"]
    args += ["--casting", "clip", "--no-corrections", "--sync-offset", -2, "--missing", "nan"]
    args += ["--mask", tmp_path / "mask.npy"]
    run(service, "tiles", "scan", "-o", tmp_path / "o.npy", *args, "--target-bytes", "1M")
    run(service, "tiles", "scan", "-o", tmp_path / "p.npy", "--nav", "0:2,:3:2")
    run(service, "tiles", "scan", "-o", tmp_path / "q.npy", "--shuffle", 3, "--tile-shape", "1,2")
    assert asked == [
        {
            "select": {"mask": "/A=="},
            "sig": [[0, 3], [1, 3]],
            "bin": {"nav": 1, "sig": 2},
            "dtype": "<f4",
            "casting": "clip",
            "corrections": False,
            "sync_offset": -2,
            "missing": "nan",
            "target_bytes": 1 << 20,
        },
        {"select": {"nav": [[0, 2, 1], [0, 3, 2]]}},
        {"select": {"shuffle": {"seed": 3}}, "tile_shape": [1, 2]},
    ]


def test_what_the_bar_says() -> None:
    assert describe(TileProgress(50_000_000, 200_000_000, 1234), 2e7) == (
        " 25% [######                  ] 50.0/200.0 MB  20 MB/s  1,234 tiles"
    )


def test_a_reduction_shows_how_far_it_is(
    service: FakeService,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    assert run(service, "reduce", "scan", "sum", "-o", tmp_path / "a.npy") == 0
    assert "\r\x1b[K 50% [############            ] 1 of 2 tiles\r\x1b[K" in capsys.readouterr().err
    assert run(service, "reduce", "scan", "sum", "-o", tmp_path / "b.npy", "--no-progress") == 0
    assert not capsys.readouterr().err


def test_a_service_without_tls_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            with server.accept()[0] as client:
                client.recv(1 << 16)
                client.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        url = f"https://127.0.0.1:{server.getsockname()[1]}"
        assert main(["datasets", "--url", url, "--retries", "0", "--timeout", "20"]) == 3
        thread.join(20)
    assert "the service speaks http, not https" in capsys.readouterr().err


def test_members_of_a_description_are_no_options() -> None:
    args = argparse.Namespace()
    problem = {"code": "option", "detail": "x is unknown", "hint": "Use files, float_width, format"}
    assert "files, float_width, format" in told(ProblemError(422, problem), args)
    args.float_width = 4
    assert "files, --float-width, format" in told(ProblemError(422, problem), args)
