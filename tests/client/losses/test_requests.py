from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest

from app.client.errors import ProtocolError, SourceError
from app.client.losses.requests import (
    INPUTS_OF,
    Choices,
    LossRequests,
    PartPlan,
    end_of_table,
    options_for,
    position_of_table,
    put_input,
)
from app.client.losses.rows import End, Position
from app.client.transport.requests import Head, Reply, token_request
from core.losses.reports import REPORTS


def query(target: str) -> dict[str, str]:
    return {k: v[0] for k, v in parse_qs(urlsplit(target).query).items()}


def test_a_part_and_the_last_part() -> None:
    requests = LossRequests(("melt",), "frames", {"expect_events": 9, "expect_bytes": 77}, 77)
    part = requests.part(Position(None, 0), last=False)
    assert (part.method, urlsplit(part.target).path) == ("POST", "/v1/losses/melt")
    assert query(part.target) == {"format": "frames"}
    assert part.headers["Upload-Complete"] == "?0"
    assert part.headers["Upload-Length"] == "77"
    last = requests.part(Position("tok-en_", 5), last=True)
    assert query(last.target) == {
        "format": "frames",
        "after": "tok-en_",
        "expect_events": "9",
        "expect_bytes": "77",
    }
    assert last.headers["Upload-Complete"] == "?1"


def test_everything_at_once() -> None:
    requests = LossRequests(("melt", "qelt"), "frames", {"expect_events": 9}, None)
    rest = requests.rest(Position(), duplex=True)
    assert query(rest.target) == {
        "format": "frames",
        "reports": "melt,qelt",
        "expect_events": "9",
        "duplex": "true",
    }
    assert urlsplit(rest.target).path == "/v1/losses"
    assert "Upload-Length" not in rest.headers
    assert "Upload-Complete" not in rest.headers


@pytest.mark.parametrize(
    ("given", "written"),
    [
        ({"quantiles": [0.1, 0.5]}, "0.1,0.5"),
        ({"quantiles": "0a1b"}, "0a1b"),
        ({"summary_ids": "1,5,10-20"}, "1,5,10-20"),
        ({"summary_ids": range(3)}, "0,1,2"),
        ({"summary_ids": 3}, "3"),
        ({"event_ids": np.int32(3)}, "3"),
        ({"sets": 3}, "3"),
        ({"return_periods": 250}, "250"),
        ({"return_periods": np.array([250.0, 100.0])}, "250,100"),
        ({"quantiles": 0.5}, "0.5"),
        ({"float_width": 8}, "8"),
        ({"nan": "zero"}, "zero"),
        ({"occurrence": "digest"}, "digest"),
    ],
)
def test_how_options_are_written(given: Any, written: str) -> None:  # noqa: ANN401
    target = LossRequests(("melt",), "csv", given, None).part(Position(), last=True).target
    assert query(target)[next(iter(given))] == written


def test_inputs_that_have_to_be_put(tmp_path: Path) -> None:
    (tmp_path / "rates.csv").write_text("1,0.5\n")
    requests = LossRequests(("melt",), "csv", {"event_rates": tmp_path / "rates.csv"}, None)
    ((name, put),) = requests.inputs()
    assert (name, put.method, put.target) == ("event_rates", "PUT", "/v1/inputs/event_rates")
    assert put.body == b"1,0.5\n"
    requests.input_stored("event_rates", "abc")
    assert query(requests.part(Position(), last=True).target)["event_rates"] == "abc"
    with pytest.raises(SourceError):
        LossRequests(("melt",), "csv", {"event_rates": tmp_path / "none"}, None)


@pytest.mark.parametrize(
    ("reports", "table_format", "options", "error"),
    [
        ((), "csv", {}, ValueError),
        ("", "csv", {}, ValueError),
        (("a", ""), "frames", {}, ValueError),
        (("a", "a"), "frames", {}, ValueError),
        (("a", "b"), "csv", {}, ValueError),
        (("a",), "csv", {"colour": 1}, TypeError),
        (("a",), "csv", {"summary_ids": "1;2"}, ValueError),
        (("a",), "csv", {"summary_ids": ""}, ValueError),
        (("a",), "csv", {"return_periods": ["x"]}, TypeError),
        (("a",), "csv", {"return_periods": [250.7]}, TypeError),
        (("a",), "csv", {"return_periods": [float("inf")]}, TypeError),
        (("a",), "csv", {"summary_ids": [1.7]}, TypeError),
        (("a",), "csv", {"event_ids": np.array([1, 2.9])}, TypeError),
        (("a",), "csv", {"sets": [True]}, TypeError),
        (("a",), "csv", {"quantiles": np.array([True])}, TypeError),
        (("a",), "csv", {"occurrence": 5}, TypeError),
    ],
)
def test_what_is_refused(
    reports: str | tuple[str, ...],
    table_format: str,
    options: Any,  # noqa: ANN401
    error: type[Exception],
) -> None:
    with pytest.raises(error):
        LossRequests(reports, table_format, options, None)


def test_refusals_name_the_number_and_the_nearest_option() -> None:
    wrong: Any = {"return_periods": [250, 250.7]}
    with pytest.raises(TypeError, match=r"^return_periods must be a whole number, .* not 250\.7$"):
        LossRequests("ept", "csv", wrong, None)
    wrong = {"occurence": "digest"}
    with pytest.raises(TypeError, match=r"no option occurence\. Did you mean occurrence\?"):
        LossRequests("ept", "csv", wrong, None)


def test_how_far_parts_reach() -> None:
    plan = PartPlan(100, 1000)
    assert plan.stop == 1100
    plan.answered(1080, 1100)
    assert plan.stop == 1180
    plan.answered(1100, 1180)  # 80 bytes of the next part were seen before
    assert plan.stop == 1260
    plan.answered(1100, 1260)
    assert plan.stop == 1420
    with pytest.raises(ValueError, match="at least one byte"):
        Choices("parts", 0)


def test_what_answers_say() -> None:
    headers = {
        "thalweg-completeness": "partial",
        "thalweg-events": "3",
        "thalweg-bytes": "90",
        "upload-complete": "?0",
        "thalweg-token": "t",
        "thalweg-offset": "80",
    }
    assert end_of_table(Head(200, headers)) == End("partial", "partial", 3, 90, "whole")
    assert position_of_table(Head(200, headers)) == Position("t", 80)
    for wrong in ({}, headers | {"thalweg-events": "x"}):
        with pytest.raises(ProtocolError):
            end_of_table(Head(200, wrong))
    with pytest.raises(ProtocolError):
        position_of_table(Head(200, {"thalweg-token": "t"}))


def test_small_replies() -> None:
    assert Reply(Head(200, {}), b'{"a": "b"}').text("a") == "b"
    for wrong in (b"", b"[]", b"{}", b'{"a": 1}'):
        with pytest.raises(ProtocolError):
            Reply(Head(200, {}), wrong).text("a")
    assert token_request("inspect", "t").body == b'{"token": "t"}'
    assert put_input("a b", b"").target == "/v1/inputs/a%20b"


def test_one_of_several_reports_gets_the_inputs_that_are_for_it() -> None:
    options = {"quantiles": [0.5], "occurrence": b"o", "no_of_periods": 9, "curves": "F"}
    reports = ["selt", "qelt", "ept"]
    assert options_for("selt", reports, options) == {}
    assert options_for("qelt", reports, options) == {"quantiles": [0.5]}
    assert options_for("ept", reports, options) == {
        "occurrence": b"o",
        "no_of_periods": 9,
        "curves": "F",
    }
    # What is for none of them is left to the service to refuse.
    assert options_for("selt", ["selt", "ept"], {"quantiles": [0.5]}) == {"quantiles": [0.5]}


def test_inputs_are_for_the_reports_that_take_them() -> None:
    taken = {
        entry: tuple(
            report.name
            for report in REPORTS.values()
            if entry in {each.name for each in (*report.needs, *report.takes)} | {*report.options}
        )
        for entry in INPUTS_OF
    }
    taken["no_of_periods"] = taken["occurrence"]
    assert {entry: set(names) for entry, names in taken.items()} == {
        entry: set(names) for entry, names in INPUTS_OF.items()
    }


def test_another_size_than_was_expected() -> None:
    with pytest.raises(SourceError, match="expect_bytes is 8, but the stream has 77 bytes"):
        LossRequests(("melt",), "csv", {"expect_bytes": 8}, 77)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"inputs": {"occurrence": "o"}}, r"options of their own: occurrence=Path\(…\)"),
        ({"occurrence": 5}, "occurrence must be a digest, a Path or bytes, not 5"),
    ],
)
def test_options_of_a_wrong_type(options: Any, said: str) -> None:  # noqa: ANN401
    with pytest.raises(TypeError, match=said):
        LossRequests(("melt",), "csv", options, None)


def test_parts_have_a_number_of_bytes() -> None:
    size: Any = "1M"
    with pytest.raises(TypeError, match="part_size must be a number of bytes, not '1M'"):
        Choices("parts", size)
