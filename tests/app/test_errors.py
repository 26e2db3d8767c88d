"""The table of problems."""

from __future__ import annotations

from app.errors import KINDS
from core.errors import OptionError
from tests.app.harness import STATUS


def test_the_table_of_problems_is_sound() -> None:
    for code, kind in KINDS.items():
        assert code == code.lower().strip()
        assert 400 <= kind.status < 600
        assert kind.title
        assert kind.explanation.endswith(".")
    assert {code: KINDS[code].status for code in STATUS} == STATUS
    assert OptionError.code in KINDS
