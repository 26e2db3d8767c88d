"""What a check of the command ``doctor`` has found."""

from __future__ import annotations

from dataclasses import dataclass

OK, WARN, WRONG = "ok", "warn", "wrong"


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check has found."""

    verdict: str
    """``ok``, ``warn`` or ``wrong``."""
    found: str
    mend: str | None = None
    """How to mend it; None where it is well."""


def judge(found: str, warn: str = "", wrong: str = "") -> Finding:
    """Return a finding with the advice that is not empty: the worse decides."""
    verdict = WRONG if wrong else WARN if warn else OK
    # The same advice may be both.
    return Finding(verdict, found, ". ".join(filter(None, dict.fromkeys((wrong, warn)))) or None)
