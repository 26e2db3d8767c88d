"""What to do about problems, in the words of whoever has them."""

from __future__ import annotations

import pytest

from app.client import ProblemError
from app.client.hints import hint_of

CASES = [
    ({"code": "option", "hint": "PUT the file to /v1/inputs/periods"}, "a Path", "a Path"),
    ({"code": "report", "inputs": ["summary_xref"]}, "--summary-xref FILE", "summary_xref=Path(…)"),
    (
        {"code": "seal-refused", "inputs": ["periods"]},
        "thalweg run input RUN periods FILE",
        'client.runs.put_input(run, "periods", Path(…))',
    ),
    ({"code": "partition-taken"}, "thalweg run status RUN", "partition=N"),
    (
        {"code": "run-sealed", "hint": "Create another run"},
        "thalweg run create makes another one; thalweg run compute RUN adds reports",
        "client.runs.create(…) makes another one; client.runs.add_reports(run, …) adds reports",
    ),
    (
        {
            "code": "run-sealed",
            "hint": "POST /v1/runs/{run}/reports computes these with other options",
            "reports": ["ept"],
        },
        "thalweg run compute RUN --report ept takes these options",
        'client.runs.add_reports(run, ["ept"], …) takes these options',
    ),
    (
        {"code": "option", "hint": "Give result=com_0, or result=com_1"},
        "Give --result com_0, or --result com_1",
        'Give result="com_0", or result="com_1"',
    ),
    (
        {"code": "option", "hint": 'Say what one USD is in EUR: {"rates": {"USD": …}}'},
        "Say what one USD is in EUR: --rate USD=…",
        'Say what one USD is in EUR: rates={"USD": …}',
    ),
    (
        {"code": "option", "hint": 'If sure, {"id": "y", "samples": "repeat"} has them'},
        "If sure, --repeat y has them",
        'If sure, {"id": "y", "samples": "repeat"} has them',
    ),
    ({"code": "stream-failed"}, "--replace", "client.runs.delete_stream(run, stream)"),
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
    (
        {"code": "data-changed", "hint": "Open the dataset anew, and start without after"},
        "Run the command again",
        "Open the dataset anew: client.datasets[id]",
    ),
    (
        {
            "code": "head-exists",
            "hint": "Delete the dataset first, or give another id",
            "ids": ["scan1"],
        },
        "thalweg datasets delete scan1",
        'client.datasets["scan1"].delete()',
    ),
    (
        {
            "code": "not-found",
            "hint": "GET /v1/datasets lists those there are, POST /v1/datasets registers one",
        },
        "thalweg datasets list",
        "client.datasets.list()",
    ),
    ({"code": "report-not-ready", "state": "created"}, "thalweg run seal RUN", "runs.seal(run)"),
    (
        {"code": "not-found", "hint": "POST it to /v1/pipelines"},
        "thalweg pipelines list",
        "client.pipelines()",
    ),
    (
        {"code": "option", "hint": "Choose one with sets=1, or use format=frames"},
        "Choose one with --sets 1",
        "Choose one with sets=1",
    ),
    (
        {
            "code": "unsupported-stream",
            "hint": "Give the run a summary_xref, which says what to add up, and upload it again",
        },
        "thalweg run input RUN summary_xref FILE",
        'client.runs.put_input(run, "summary_xref", Path(…))',
    ),
    ({"code": "not-found", "detail": "Not Found"}, "is --url that of a", "is the url that of a"),
    (
        {"code": "stream", "hint": "read such losses as 0 with nan=zero, or use sample_order=any"},
        "with --nan zero, or use --sample-order any",
        'with nan="zero", or use sample_order="any"',
    ),
    (
        {"code": "not-acceptable", "hint": "Choose one of these with format=, or use format=csv"},
        "with --format, or use --format csv",
        'with format=…, or use format="csv"',
    ),
    (
        {"code": "report-missing", "hint": "Name one by set="},
        "Name some by --sets LIST",
        "Name one: set=1",
    ),
    (
        {"code": "input", "hint": "Delete one, or say with repeated=true that it is there twice"},
        "or say with --repeated that",
        "or say with repeated=True that",
    ),
    (
        {"code": "option", "hint": "Make it an event of its own with apart=true"},
        "its own with --apart",
        "its own with apart=True",
    ),
    (
        {"code": "option", "hint": "Import it again with no_of_periods=1500"},
        "with --no-of-periods 1500",
        "with no_of_periods=1500",
    ),
    (
        {"code": "not-acceptable", "hint": 'Name one: {"table": "ept"}, or ask for JSON'},
        "Name one: --table ept",
        'Name one: table="ept"',
    ),
    (
        {"code": "limit", "hint": "Read the answer faster, or post the stream in parts"},
        "--mode parts --part-size 1MiB",
        "part_size=1 << 20",
    ),
    (
        {"code": "casting", "hint": "Request a wider dtype, or casting=clip or wrap"},
        "Request a wider dtype, or --casting clip or wrap",
        'Request a wider dtype, or casting="clip" or wrap',
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
    assert error.hint == hint_of(problem)


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


def test_an_address_with_the_version_of_the_contract_is_told_so() -> None:
    said = hint_of({"code": "not-found", "detail": "Not Found"}, command=True)
    assert said == "There is no such route: is --url that of a service, without /v1 at its end?"
