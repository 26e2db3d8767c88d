"""A view as plain bytes, resumed at the exact byte, with either client."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.client import (
    ConnectionFailed,
    Dataset,
    ProblemError,
    ProtocolError,
    StateError,
    TileProgress,
)
from app.client.files.downloads import Download
from app.client.transport.requests import Head, Request

from ..conftest import Connect
from ..fakes.channel import FakeChannel
from ..fakes.clock import FakeClock
from ..fakes.exchange import Fault
from ..fakes.faces import leftovers
from ..fakes.service import FakeService
from ..fakes.tiles import TILED

HEAD = 100
"""Bytes of an answer that are certainly its head."""


def whole(scan: Dataset) -> bytes:
    return b"".join(tile.data.tobytes() for tile in scan.view(**TILED).tiles())


def test_a_cut_repeats_no_byte(service: FakeService, scan: Dataset, tmp_path: Path) -> None:
    wanted = whole(scan)
    for cut in (0, 50, 99, 110, 150, 200):
        service.script[:] = [Fault(cut=cut)]
        seen: list[TileProgress] = []
        scan.view(**TILED).raw(tmp_path / "out", progress=seen.append)
        assert (tmp_path / "out").read_bytes() == wanted
        assert seen[-1] == TileProgress(len(wanted), len(wanted), 0)
        assert [p.bytes for p in seen] == sorted({p.bytes for p in seen})
    assert leftovers(tmp_path) == ["out"]


def test_another_call_resumes(
    service: FakeService, connect: Connect, scan: Dataset, tmp_path: Path
) -> None:
    wanted, out, state = whole(scan), tmp_path / "out", tmp_path / "state"
    hasty = connect(service, retries=0).datasets["scan"]
    service.script[:] = [Fault(cut=150)]
    with pytest.raises(ConnectionFailed):
        hasty.view(**TILED).raw(out, state=state)
    size = json.loads(state.read_bytes())["size"]
    assert leftovers(tmp_path) == ["out.partial", "state"]
    with pytest.raises(StateError, match="another view"):
        scan.view(frames=[1]).raw(out, state=state)
    scan.view(**TILED).raw(out, state=state)
    assert out.read_bytes() == wanted
    assert service.streams[-1].headers["range"] == f"bytes={size}-"
    assert service.streams[-1].headers["if-range"] == '"f0"'
    assert leftovers(tmp_path) == ["out"]


def test_without_a_state_nothing_is_left(
    service: FakeService, connect: Connect, tmp_path: Path
) -> None:
    service.script[:] = [Fault(cut=150)]
    with pytest.raises(ConnectionFailed):
        connect(service, retries=0).datasets["scan"].view(**TILED).raw(tmp_path / "out")
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize("text", ["{", "[]", '{"thalweg_raw_state": 9}', '{"view": "x"}'])
def test_states_that_are_none(scan: Dataset, tmp_path: Path, text: str) -> None:
    (tmp_path / "state").write_text(text)
    with pytest.raises(StateError):
        scan.view().raw(tmp_path / "out", state=tmp_path / "state")
    assert leftovers(tmp_path) == ["state"]


def test_changed_data_is_not_joined(
    service: FakeService, scan: Dataset, tmp_path: Path, clock: FakeClock
) -> None:
    def change() -> None:
        service.scan.fingerprint = "f1"

    service.script[:] = [Fault(cut=150)]
    clock.on_pause = change
    with pytest.raises(ProblemError, match="data-changed"):
        scan.view(**TILED).raw(tmp_path / "out")
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize(
    "lie",
    [
        {"ETag": None},
        {"ETag": 'W/"f0"'},
        {"Content-Range": "bytes 1-143/144"},
        {"Content-Range": "bytes 50-142/144"},
        {"Content-Range": "bytes 50-143/145"},
        {"Content-Range": "bytes 0-143/144"},
        {"Content-Range": ""},
        {"Content-Range": None},
    ],
)
def test_an_answer_to_another_range_is_refused(
    service: FakeService,
    connect: Connect,
    scan: Dataset,
    tmp_path: Path,
    lie: dict[str, Any],
) -> None:
    """The first answer is cut after 50 bytes; the headers of the second one lie."""
    wanted = whole(scan)
    assert len(wanted) == 144

    def script() -> None:
        service.script[:] = [Fault(cut=service.scan.raw_head + 50)]
        service.scan.raw_headers = [{}, lie]

    scan.view(**TILED).raw(tmp_path / "probe")
    script()
    with pytest.raises(ProtocolError, match=r"ETag|instead of bytes 50-143/144"):
        connect(service, retries=1).datasets["scan"].view(**TILED).raw(tmp_path / "out")
    script()
    scan.view(**TILED).raw(tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == wanted


def test_the_whole_instead_of_the_rest_is_refused(
    service: FakeService, connect: Connect, scan: Dataset, tmp_path: Path
) -> None:
    scan.view(**TILED).raw(tmp_path / "probe")
    service.script[:] = [Fault(cut=service.scan.raw_head + 50)]
    service.scan.raw_headers = [{}, {"status": 200}]
    with pytest.raises(ProtocolError, match="from the start"):
        connect(service, retries=1).datasets["scan"].view(**TILED).raw(tmp_path / "out")


def test_no_more_is_taken_than_was_announced(tmp_path: Path) -> None:
    waits = [Head(202, {"retry-after": text}) for text in ("99", "2", "soon")]
    whole = Head(200, {"etag": '"a"', "content-length": "3"})
    channel = FakeChannel(*waits, whole, b"1", b"23456")
    download = Download(channel, Request("GET", "/"), "rows", "melt", tmp_path / "out", None)
    assert download.save() == 3
    assert (tmp_path / "out").read_bytes() == b"123"
    assert channel.pauses == [15.0, 2.0, 1.0]


def test_records_are_read_as_the_service_says_they_are(tmp_path: Path) -> None:
    rows = np.array([(1, 2.5), (3, 4.5)], [("a", "<i4"), ("b", "<f4")])
    told = {"thalweg-dtype": json.dumps([["a", "<i4"], ["b", "<f4"]])}
    for headers in (told, {}, {"thalweg-dtype": "no"}):
        head = Head(200, {"etag": '"a"', "content-length": "16"} | headers)
        channel = FakeChannel(head, rows.tobytes())
        download = Download(channel, Request("GET", "/"), "rows", "melt", tmp_path / "out", None)
        download.save()
        if headers is told:
            assert np.array_equal(download.records(), rows)
        else:
            with pytest.raises(ProtocolError, match="has no dtype of its records"):
                download.records()


class ResettingChannel(FakeChannel):
    """Every connection breaks after so many bytes, with those that wait to fill a view."""

    data = bytes(range(256)) * 64
    room = 5000

    def send(self, request: Request) -> Head:
        self.log.append(request)
        text = request.headers.get("Range", "bytes=0-")
        self.at = int(text.removeprefix("bytes=").rstrip("-"))
        self.left = self.room
        size = len(self.data)
        span = {"content-range": f"bytes {self.at}-{size - 1}/{size}"} if self.at else {}
        headers = {"etag": '"a"', "content-length": str(size - self.at), **span}
        return Head(206 if self.at else 200, headers)

    def receive(self, view: memoryview) -> int:
        count = min(len(view), len(self.data) - self.at)
        if count > self.left:
            raise ConnectionFailed("reset")
        view[:count] = self.data[self.at : self.at + count]
        self.at, self.left = self.at + count, self.left - count
        return count


def test_connections_that_all_break_early_bring_the_whole(tmp_path: Path) -> None:
    channel = ResettingChannel(retries=3)
    download = Download(channel, Request("GET", "/"), "rows", "melt", tmp_path / "out", None)
    assert download.save() == len(channel.data)
    assert (tmp_path / "out").read_bytes() == channel.data
