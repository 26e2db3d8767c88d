"""What to do about problems, in the words of whoever has them."""

from __future__ import annotations

import pytest

from app.client import ProblemError
from app.client.hints import hint_of

CASES = [
    ({"code": "report", "inputs": ["summary_xref"]}, "--summary-xref FILE", "summary_xref=Path(…)"),
    (
        {"code": "seal-refused", "inputs": ["periods"]},
        "thalweg run input RUN periods FILE",
        'client.runs.put_input(run, "periods", Path(…))',
    ),
    ({"code": "partition-taken"}, "--partition N", "partition=N"),
    ({"code": "unauthorized"}, "--key KEY, or set THALWEG_KEY", "Client(url, key)"),
    (
        {"code": "report-missing", "reports": ["selt"]},
        "thalweg run compute RUN --report selt",
        'client.runs.add_reports(run, ["selt"])',
    ),
    (
        {"code": "data-changed", "hint": "Start without after"},
        "Start over without the state or token file",
        "Start without after",
    ),
    ({"code": "report-not-ready", "state": "created"}, "thalweg run seal RUN", "runs.seal(run)"),
    (
        {"code": "not-found", "hint": "POST it to /v1/datasets"},
        "thalweg datasets register SPEC",
        "client.datasets.register(spec)",
    ),
    (
        {"code": "not-found", "hint": "POST it to /v1/pipelines"},
        "thalweg pipelines list",
        "client.pipelines()",
    ),
]


@pytest.mark.parametrize(("problem", "command", "python"), CASES)
def test_a_hint_names_the_option_or_the_argument(
    problem: dict[str, object], command: str, python: str
) -> None:
    problem = {"detail": "so", "hint": "PUT it", **problem}
    assert command in str(hint_of(problem, command=True))
    assert python in str(hint_of(problem))
    error = ProblemError(400, problem)
    assert python in str(error)
    assert error.hint == problem["hint"]


@pytest.mark.parametrize(
    "problem",
    [
        {"code": "other"},
        {"code": "report", "inputs": []},
        {"code": "seal-refused"},
        {"code": "report-not-ready", "state": "failed"},
    ],
)
def test_others_keep_the_hint_of_the_service(problem: dict[str, object]) -> None:
    assert hint_of({**problem, "hint": "Do"}, command=True) == "Do"
    assert hint_of(problem) is None
