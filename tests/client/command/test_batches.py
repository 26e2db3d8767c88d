from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.client import Client
from app.client.command.main import main

from ..fakes.exchange import Fault
from ..fakes.pipelines import REGISTERED, SPEC
from ..fakes.service import FakeService

TEXT = json.dumps(SPEC)


def run(service: FakeService, *args: object) -> int:
    return main(["batches", *map(str, args), "--url", service.url])


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_a_line_for_each(
    service: FakeService, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "spec.json").write_text(TEXT)
    assert run(service, tmp_path / "spec.json", "-n", 2, "--quiet") == 0
    first, second = lines(capsys)
    assert second["sequence"] == 1
    assert first == {
        "sequence": 0,
        "epoch": 0,
        "count": 4,
        "rows": [0, 4],
        "fields": {
            "x": {"dtype": "<i8", "shape": [4]},
            "m": {"dtype": "<f4", "shape": [4, 2, 3]},
            "r": {
                "dtype": ">f8",
                "shape": [len(service.pipeline.columns(0)["r"][0])],
                "items": 4,
            },
        },
        "token": "1.f0.k",
    }
    assert run(service, TEXT, "--after", " 3.f0.k\n", "--epoch", "--parallel", 2) == 0
    assert [line["sequence"] for line in lines(capsys)] == [3, 4, 5]
    assert run(service, REGISTERED, "-n", 2) == 0
    assert lines(capsys) == [first, second]
    assert run(service, "scan1") == 2
    assert "to thalweg batches also by its id" in capsys.readouterr().err
    (tmp_path / "spec.json").write_text("{")
    assert run(service, tmp_path / "spec.json") == 2
    assert capsys.readouterr().err.endswith("(char 1)\n")


def test_without_a_batch_it_says_why(
    service: FakeService, capsys: pytest.CaptureFixture[str]
) -> None:
    service.pipeline.epochs, service.pipeline.notes = 0, ["nothing is left"]
    assert run(service, TEXT) == 0
    said = "0 batches; nothing is left"
    assert capsys.readouterr().err == f"thalweg: {said}\n"


def test_going_on_from_a_token_file(
    service: FakeService, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    token = tmp_path / "t"
    got: list[int] = []
    for world in (1, 2, 3, 1):
        assert run(service, TEXT, "-n", 3, "--token-file", token, "--world", world) == 0
        said = capsys.readouterr()
        for line in map(json.loads, said.out.splitlines()):
            got.append(line["sequence"])
            assert line["rows"] == service.pipeline.rows(line["sequence"], 0, world)
        assert token.read_text() == f"{len(got)}.f0.k\n"
    assert got == list(range(12))
    assert "3 batches, the last of the pipeline" in said.err
    assert run(service, TEXT, "--token-file", token) == 0
    assert capsys.readouterr() == ("", "thalweg: 0 batches: the token is at the end\n")
    token.write_text("12.f0.cut\n")
    assert run(service, TEXT, "--token-file", token) == 1
    assert f"the token is of {token}: remove the file" in capsys.readouterr().err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["t"]


def test_giving_up_and_going_on(
    service: FakeService, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    token, out = tmp_path / "t", tmp_path / "out"
    got: list[int] = []
    args: list[object] = [TEXT, "--token-file", token, "-o", out, "--retries", 0]
    for cut in range(500, 9000, 700):
        service.script[:] = [Fault(cut=cut)]
        code = run(service, *args)
        got.extend(line["sequence"] for line in lines(capsys))
        assert token.exists() is bool(got)
        if code == 0:
            break
        assert code == 3
    assert got == list(range(12))
    service.pipeline.fingerprint = "f1"
    assert run(service, *args) == 1
    assert "data-changed" in capsys.readouterr().err


def test_files(service: FakeService, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    service.pipeline.fields = ("m", "r", "t")
    assert run(service, TEXT, "-o", tmp_path / "a" / "b", "-n", 2, "--rank", 1, "--world", 2) == 0
    assert capsys.readouterr().err == "thalweg: 2 batches\n"
    found = {path.name: np.load(path) for path in (tmp_path / "a" / "b").glob("*.npy")}
    assert len(found) == 8
    for sequence in (0, 1):
        wanted = service.pipeline.columns(sequence, 1, 2)
        values, offsets = wanted.pop("r")
        assert np.array_equal(found[f"{sequence:08d}.r.npy"], values)
        assert np.array_equal(found[f"{sequence:08d}.r.offsets.npy"], offsets)
        for name, column in wanted.items():
            assert np.array_equal(found[f"{sequence:08d}.{name}.npy"], column)


def test_files_of_another_pipeline_are_not_replaced_unasked(
    service: FakeService, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, token = tmp_path / "out", tmp_path / "t"
    args: list[object] = [TEXT, "-o", out, "-n", 1]
    assert run(service, *args) == run(service, *args) == 0  # the same again: the same files
    others: list[list[object]] = [["--rank", 1, "--world", 2], []]
    for other in others:
        service.pipeline.change = {} if other else {"id": "p2"}
        before = {path: path.read_bytes() for path in out.iterdir()}
        assert run(service, *args, *other) == 2
        said = ", of rank 0" if other else ", of pipeline p1"
        assert f".npy exists{said}: give --force to replace it" in capsys.readouterr().err
        assert {path: path.read_bytes() for path in out.iterdir()} == before
    service.pipeline.change, service.pipeline.fingerprint = {}, "f1"
    assert run(service, *args) == 2
    assert run(service, *args, "--force") == 0
    assert run(service, *args, "--token-file", token) == 0
    assert run(service, *args, "--token-file", token, "--rank", 1, "--world", 2) == 0
    assert sorted(path.name for path in out.glob("*.x.npy")) == ["00000000.x.npy", "00000001.x.npy"]
    assert run(service, *args) == 2  # two ranks are in it


def test_names_do_not_lead_out_of_the_directory(service: FakeService, tmp_path: Path) -> None:
    about = service.pipeline.about()["schema"]
    service.pipeline.change = {"schema": [{**about[0], "name": "../x"}]}
    service.pipeline.fields = ("x",)
    frame = service.pipeline.frame

    def renamed(sequence: int, rank: int, world: int) -> tuple[int, dict[str, Any], bytes]:
        kind, header, payload = frame(sequence, rank, world)
        header["arrays"][0]["name"] = "../x"
        return kind, header, payload

    service.pipeline.frame = renamed  # type: ignore[method-assign]
    assert run(service, TEXT, "-o", tmp_path / "out", "-n", 1) == 0
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
    assert [p.name for p in (tmp_path / "out").glob("*.npy")] == ["00000000...%2Fx.npy"]


@pytest.mark.parametrize(
    ("code", "args"),
    [
        (2, ["{"]),
        (2, ["none.json"]),
        (2, [TEXT, "--out", f"{__file__}/x"]),
        (2, [TEXT, "--rank", "2", "--world", "2"]),
        (2, [TEXT, "--world", "0"]),
        (1, [TEXT, "--world", "5"]),
        (2, ["{}"]),
        (1, [TEXT, "--after", "a b"]),
    ],
)
def test_what_cannot_be(service: FakeService, code: int, args: list[str]) -> None:
    assert run(service, *args) == code


def test_token_files_that_hold_something_else(
    service: FakeService, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    token = tmp_path / "t"
    for wrong in (b"a b", b"\xff\xfe", b"x" * 600, b"", b"\n"):
        token.write_bytes(wrong)
        assert run(service, TEXT, "--token-file", token) == 1
        assert "token-malformed" in capsys.readouterr().err
        assert token.read_bytes() == wrong
    token.unlink()
    assert run(service, TEXT, "--token-file", token, "-n", 1) == 0
    with pytest.raises(SystemExit):
        run(service, TEXT, "--token-file", token, "--after", "t")


def test_names_that_are_meant_otherwise(
    service: FakeService, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("out.npy", "v1.2", __file__):
        with pytest.raises(SystemExit) as caught:
            run(service, TEXT, "-o", tmp_path / name)
        assert caught.value.code == 2
        assert f"{name} is no folder: if it shall be one, write" in capsys.readouterr().err
    assert run(service, TEXT, "-n", 1, "-o", f"{tmp_path}/v1.2/") == 0
    assert run(service, TEXT, "-n", 1, "-o", f"{tmp_path}/v1.2") == 0  # it is there
    (tmp_path / "spec.json").write_text(TEXT)
    capsys.readouterr()
    assert run(service, tmp_path / "specs.json") == 2
    assert f"Did you mean {tmp_path}/spec.json?" in capsys.readouterr().err
    assert run(service, TEXT.replace('"', "'")) == 2
    assert 'are in double quotes: \'{"stages"' in capsys.readouterr().err


def test_commands_say_that_the_service_is_away(
    service: FakeService, capsys: pytest.CaptureFixture[str]
) -> None:
    for quiet in ([], ["--quiet"]):
        service.script[:] = [Fault(status=503), Fault(status=503), None]
        assert run(service, TEXT, "-n", 1, *quiet) == 0
        said = capsys.readouterr().err.splitlines()
        assert len(said) == (0 if quiet else 3)
        assert quiet or said[1] == "thalweg: the service answers again"


def test_files_are_synced_in_groups_before_the_token(
    service: FakeService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token, synced, real = tmp_path / "t", list[str](), os.fsync

    def sync(fd: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{fd}").readlink()))
        real(fd)

    monkeypatch.setattr(os, "fsync", sync)
    assert run(service, TEXT, "-o", tmp_path / "out", "--token-file", token) == 0
    files = {str(path) for path in (tmp_path / "out").glob("*.npy")}
    assert files <= set(synced)
    assert synced.count(str(tmp_path / "out")) < 5  # not once for each file
    last = max(synced.index(path) for path in files)
    assert any(path.endswith("t.new") for path in synced[last:])


def test_it_survives_kills(service: FakeService, tmp_path: Path) -> None:
    """Killed at any moment and run again, it leaves the same files, and nothing else."""
    assert run(service, TEXT, "-o", tmp_path / "whole") == 0
    command = [sys.executable, "-m", "app.client", "batches", TEXT, "-o", str(tmp_path / "out")]
    command += ["--token-file", str(tmp_path / "t"), "--url", service.url]
    service.pipeline.delays = dict.fromkeys(range(12), 0.1)
    for kills in range(6):
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert process.stdout is not None
        for _ in range(kills):
            process.stdout.readline()
        process.kill()
        process.wait()
        process.stdout.close()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    found, whole = (
        {path.name: path.read_bytes() for path in (tmp_path / name).glob("*.npy*")}
        for name in ("out", "whole")
    )
    assert found == whole
    assert (tmp_path / "t").read_text() == "12.f0.k\n"


def test_notes_of_the_pipeline_are_said_at_once(
    service: FakeService, capsys: pytest.CaptureFixture[str]
) -> None:
    service.pipeline.change = {"notes": ["train is small"]}
    service.pipeline.notes = ["train is small"]
    assert run(service, TEXT, "-n", 1) == 0
    assert capsys.readouterr().err.splitlines() == ["thalweg: train is small", "thalweg: 1 batches"]
    assert main(["pipelines", "register", TEXT, "--url", service.url]) == 0
    assert capsys.readouterr().err == "thalweg: train is small\n"
    with pytest.warns(UserWarning, match="train is small") as told, Client(service.url) as client:
        assert len(list(client.pipeline(SPEC).batches())) == 12
    assert [Path(warning.filename).name for warning in told] == ["test_batches.py"]
