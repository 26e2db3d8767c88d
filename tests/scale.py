"""How much work the tests do: less where kernels are plain Python, more in a soak."""

from __future__ import annotations

import os

PURE_PYTHON = os.environ.get("NUMBA_DISABLE_JIT", "0") not in {"", "0"}
"""Whether kernels run as plain Python, about a hundred times slower."""
SOAK = os.environ.get("THALWEG_SOAK", "0") not in {"", "0"}
CHANGED = os.environ.get("THALWEG_CHANGED", "0") not in {"", "0"}
"""Whether the tests are to notice a change: see :mod:`tests.mutants`."""
THOROUGH = SOAK or CHANGED
"""Whether cases that go nearly the same way are all run: a normal run takes some of them."""
BOUNDS_CHECKED = os.environ.get("NUMBA_BOUNDSCHECK", "0") not in {"", "0"}
"""Whether kernels check every index: what they compute was shown without."""


def examples(n: int) -> int:
    """Examples to try where a change is looked for with ``n``: a third of them in a normal run.

    A few where kernels check every index or are plain Python: what is computed was shown without.
    """
    if SOAK:
        n *= 20
    if PURE_PYTHON:
        n //= 5 if CHANGED else 40
    elif BOUNDS_CHECKED:
        n //= 10
    elif not (SOAK or CHANGED):
        n //= 3
    return max(n, 3)


def half(n: int) -> int:
    """Half of the examples, but all of them in a soak: for tests that take long over each."""
    return examples(n if SOAK else n // 2)
