"""Sizes as people read them."""

from __future__ import annotations

import pytest

from core.units import in_units


@pytest.mark.parametrize(
    ("nbytes", "said"),
    [
        (17, "17 bytes"),
        (1536, "1.5 KiB"),
        (3_576_911_904, "3.33 GiB"),
        (1023 << 20, "1,023 MiB"),
        (1 << 30, "1 GiB"),
    ],
)
def test_sizes_have_units(nbytes: int, said: str) -> None:
    assert in_units(nbytes) == said
