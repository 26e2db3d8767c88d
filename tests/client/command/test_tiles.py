from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.client.command.console import describe
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
        ["--nav", "1"],
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
    assert run(service, "tiles", "scan", "-o", out) == 1
    assert "data-changed" in capsys.readouterr().err


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
