"""Sizes as people read them."""

from __future__ import annotations

_UNITS = ((40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB"))
_FEW = 10


def in_units(nbytes: int) -> str:
    """Say a number of bytes with a few digits: ``3.33 GiB``, ``512 MiB``, ``17 bytes``."""
    for bits, unit in _UNITS:
        if nbytes >= 1 << bits:
            size = nbytes / (1 << bits)
            digits = f"{size:.2f}".rstrip("0").rstrip(".") if size < _FEW else f"{size:,.0f}"
            return f"{digits} {unit}"
    return f"{nbytes} bytes"
