"""Partitions that are far ahead are left alone until the others have caught up."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from app.oasis.streams import StreamOption, read_streams
from core.errors import OptionError


class _Taker:
    """Counts bytes by partition; the rows of whoever is ahead wait."""

    def __init__(self, parts: int) -> None:
        self.taken = [0] * parts
        self.open = set(range(parts))
        self.ahead = 0

    @property
    def waiting_bytes(self) -> int:
        low = min((self.taken[part] for part in self.open), default=max(self.taken))
        return sum(max(0, count - low) for count in self.taken)

    def slowest(self) -> int | None:
        return min(self.open, key=lambda part: self.taken[part]) if self.open else None

    def receive(self, index: int, data: Any, /) -> None:  # noqa: ANN401 - any buffer
        self.taken[index] += len(data)
        self.ahead = max(self.ahead, self.waiting_bytes)

    def close(self, index: int, /) -> None:
        self.open.remove(index)


def test_a_fast_partition_waits_for_a_slow_one(tmp_path: Path) -> None:
    fast, slow = tmp_path / "fast", tmp_path / "slow"
    size = 8 << 20
    go_on = threading.Event()

    def write_slowly() -> None:
        with slow.open("wb", 0) as file:
            file.write(b"x")
            go_on.wait()
            file.write(bytes(size))

    for path in (fast, slow):
        os.mkfifo(path)
    writers = [
        threading.Thread(target=fast.write_bytes, args=(bytes(size),), daemon=True),
        threading.Thread(target=write_slowly, daemon=True),
    ]
    taker = _Taker(2)

    def observe(_nbytes: int) -> None:
        # The slow writer goes on only after the fast one has been left alone.
        if taker.waiting_bytes > 1 << 20:
            go_on.set()

    for writer in writers:
        writer.start()
    read_streams(
        [([str(fast), str(slow)], taker)],
        in_order=True,
        limit=1 << 20,
        idle_timeout=30,
        observe=observe,
    )
    assert taker.taken == [size, size + 1]
    assert taker.ahead < 4 << 20
    for writer in writers:
        writer.join()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gul=a.bin", ("gul", None, "a.bin")),
        ("ri_IP12=fifo/x=1", ("ri_IP12", None, "fifo/x=1")),
        ("il_S3=-", ("il", 3, "-")),
        ("rl_IP1_S2=a", ("rl_IP1", 2, "a")),
    ],
)
def test_streams_are_named_by_their_losses(
    text: str, expected: tuple[str, int | None, str]
) -> None:
    option = StreamOption.parse(text)
    assert (option.losses, option.set_id, option.path) == expected


@pytest.mark.parametrize("text", ["gul", "gul=", "fm=a", "gul_S0=a", "=a", "gul_IPx=a"])
def test_names_that_say_nothing_are_refused(text: str) -> None:
    with pytest.raises(OptionError, match="does not say what it is a stream of"):
        StreamOption.parse(text)
