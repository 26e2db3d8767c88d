"""A stream in partitions: their bytes are those of the stream, event by event."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.command.main import main
from app.command.split import split_stream
from core.errors import OptionError
from core.losses.format import Kind, header_size
from core.losses.policy import Policy
from core.losses.samples import SampleSpec, generate_stream
from tests.streams import Block, Stream

SPEC = SampleSpec(events=40, summaries=5, samples=10, kind=Kind.GUL)


def write(path: Path, octets: bytes) -> str:
    path.write_bytes(octets)
    return str(path)


def test_partitions_are_the_stream(tmp_path: Path) -> None:
    octets, head = b"".join(generate_stream(SPEC)), header_size(SPEC.kind)
    name = write(tmp_path / "gul.bin", octets)
    for partitions in (1, 3, 39, 40):
        paths = split_stream(name, partitions, tmp_path / "parts", Policy(), force=True)
        parts = [path.read_bytes() for path in paths]
        assert all(part[:head] == octets[:head] and len(part) > head for part in parts)
        assert octets[:head] + b"".join(part[head:] for part in parts) == octets
        if partitions == 3:
            assert max(map(len, parts)) < 2 * min(map(len, parts))
    assert [path.name for path in paths][:2] == ["gul_P1.bin", "gul_P2.bin"]


@pytest.mark.parametrize("sizes", [[1, 1, 500], [500, 1, 1], [1, 500, 1]])
def test_each_partition_has_an_event(tmp_path: Path, sizes: list[int]) -> None:
    pairs = [tuple((sidx, 1.0) for sidx in range(1, count + 1)) for count in sizes]
    blocks = tuple(Block(event, 1, losses) for event, losses in enumerate(pairs, 1))
    stream = Stream("gul", 500, 4, blocks)
    name = write(tmp_path / "gul.bin", stream.encode())
    paths = split_stream(name, 3, tmp_path, Policy())
    assert [path.stat().st_size - 8 for path in paths] == [16 + 8 * count for count in sizes]


def test_what_cannot_be_split(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    octets = b"".join(generate_stream(SPEC))
    whole, cut = write(tmp_path / "a.bin", octets), write(tmp_path / "b.bin", octets[:-3])
    out = tmp_path / "out"
    for partitions in (0, 41):
        with pytest.raises(OptionError, match="not 1 to 40"):
            split_stream(whole, partitions, out, Policy())
    assert main(["split", cut, "--partitions", "2", "--out", str(out)]) == 1
    assert "stream-truncated" in capsys.readouterr().err
    with pytest.raises(OptionError, match="only a file"):
        split_stream("/dev/null", 2, out, Policy())
    assert not out.exists()
    out.mkdir()
    (out / "a_P2.bin").touch()
    again = ["split", whole, "--partitions", "2", "--out", str(out)]
    assert main(again) == 2
    assert (
        "a_P2.bin exists. Give --force to replace it, or another --out" in capsys.readouterr().err
    )
    assert [path.name for path in out.iterdir()] == ["a_P2.bin"]
    assert main([*again, "--force"]) == 0
    assert "a_P2.bin" in capsys.readouterr().out
