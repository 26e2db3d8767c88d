"""Data to try the service with."""

from __future__ import annotations

import hashlib
import io
import os
from pathlib import Path

import numpy as np
import pytest

from app.console import samples
from app.datasets.files.roots import PathRefusedError
from app.errors import NotFoundError
from app.http.identity import SINGLE_USER, Identity
from app.settings import Settings
from core.losses.inputs import parse_occurrence
from core.losses.reader import LossReader

WHO = Identity("alice", frozenset({"register:*.npy"}))


def test_a_stream_and_its_occurrences_are_always_the_same() -> None:
    stream, occurrence = (samples.losses(name) for name in samples.LOSSES)
    assert samples.losses("stream.bin") is stream
    assert 1e6 < len(stream) < 3e6
    reader = LossReader()
    reader.receive(stream)
    reader.close()
    assert {event.event_id for event in reader.drain()} == set(range(1, 1001))
    assert parse_occurrence(occurrence).event_ids.size
    with pytest.raises(NotFoundError, match="no sample 'x'"):
        samples.losses("x")


def test_the_scan_lies_in_the_first_root(tmp_path: Path) -> None:
    assert samples.place_of_scan(Settings(data_dir=tmp_path / "data")) is None
    roots = f"{tmp_path / 'a'}:{tmp_path / 'b'}"
    settings = Settings(data_dir=tmp_path / "data", dataset_roots=roots)
    assert samples.place_of_scan(settings) == tmp_path / "a" / samples.SCAN


def test_no_file_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / samples.SCAN
    assert samples.store_scan(SINGLE_USER, path)
    content = path.read_bytes()
    scan = np.load(io.BytesIO(content))
    assert (scan.shape, scan.dtype) == ((32, 32, 48, 48), np.dtype("<u2"))
    assert not samples.store_scan(WHO, path)
    path.write_bytes(b"mine")
    assert not samples.store_scan(SINGLE_USER, path)
    assert path.read_bytes() == b"mine"
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere")
    samples.store_scan(SINGLE_USER, path)
    assert not (tmp_path / "elsewhere").exists()
    path.unlink()
    samples.store_scan(SINGLE_USER, path)
    assert hashlib.sha256(path.read_bytes()).digest() == hashlib.sha256(content).digest()
    assert sorted(tmp_path.iterdir()) == [path]


def test_who_may_not_register_stores_nothing(tmp_path: Path) -> None:
    path = tmp_path / samples.SCAN
    for scopes in ({"register:other/*", "admin"}, {"losses"}):
        who = Identity("bob", frozenset(scopes))
        with pytest.raises(PathRefusedError, match="may not register"):
            samples.store_scan(who, path)
    with pytest.raises(PathRefusedError):
        samples.store_scan(SINGLE_USER, None)
    assert not path.exists()


def test_a_root_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(PathRefusedError, match=os.strerror(2)):
        samples.store_scan(SINGLE_USER, tmp_path / "nowhere" / samples.SCAN)
