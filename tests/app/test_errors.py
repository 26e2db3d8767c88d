"""The table of problems."""

from __future__ import annotations

from app.errors import KINDS, problem_of
from core.errors import LimitError, OptionError
from tests.app.harness import STATUS


def test_the_table_of_problems_is_sound() -> None:
    for code, kind in KINDS.items():
        assert code == code.lower().strip()
        assert 400 <= kind.status < 600
        assert kind.title
        assert kind.explanation.endswith(".")
    assert {code: KINDS[code].status for code in STATUS} == STATUS
    assert OptionError.code in KINDS


def test_limits_of_the_engine_are_named_by_their_settings() -> None:
    hint = "If the number is right, raise max_samples; else the header is damaged"
    problem = problem_of(
        LimitError("too many", limit="max_samples", allowed=9, hint=hint)
    ).to_json()
    assert problem["setting"] == "THALWEG_MAX_SAMPLES"
    assert "raise the service's THALWEG_MAX_SAMPLES; else" in problem["hint"]
