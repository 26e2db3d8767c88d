"""Runs: how they are created, described and listed, and what is refused."""

from __future__ import annotations

import json
import struct
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.app.harness import Service, is_problem
from tests.app.losses.posts import put_input
from tests.app.runs.requests import Uploader, stream

RUN = {"perspective": "gul", "reports": ["melt", "qelt"]}


def create(service: Service, values: object, **headers: object) -> Any:  # noqa: ANN401 - an answer
    body = values if isinstance(values, bytes) else json.dumps(values).encode()
    return Uploader(service, "none").ask("POST", "/v1/runs", body, **headers)


def test_a_run_says_what_it_lacks_and_inputs_are_bound_to_it(service: Service) -> None:
    up = Uploader(service, reports=["melt", "qelt"])
    found = up.describe()
    assert (found["state"], found["missing_inputs"]) == ("created", ["quantiles"])
    assert found["links"]["self"] == up.path
    answer = up.ask("PUT", f"{up.path}/inputs/quantiles", b"quantile\n0.25\n")
    assert answer.status in {200, 201}
    found = up.describe()
    assert found["missing_inputs"] == []
    assert found["inputs"] == {"quantiles": answer.json()["digest"]}
    up.upload(stream())
    assert up.describe()["state"] == "uploading"
    assert up.describe()["events"] == 50
    is_problem(up.ask("PUT", f"{up.path}/inputs/quantiles", b"no"), "input")
    assert up.ask("PUT", f"{up.path}/inputs/items", b"no").status == 404
    # Pages call summaries by their names.
    answer = up.ask("PUT", f"{up.path}/inputs/summary_info", b"summary_id,name\n1,a\n")
    assert answer.status == 201


def test_a_label_is_for_people_and_stays(service: Service) -> None:
    up = Uploader(service, reports=["melt", "ept"], label="flood 2026, ∆ v3")
    assert Uploader(service).describe()["label"] is None
    up.upload(stream())
    body = json.dumps({"options": {"no_of_periods": 9, "return_periods": [5]}}).encode()
    assert up.ask("PUT", f"{up.path}/inputs/occurrence?no_of_periods=9", b"1,1,1\n").status == 201
    assert up.ask("POST", f"{up.path}/seal", body).status in {200, 202}
    assert up.describe()["options"]["return_periods"] == [5]
    assert up.describe()["label"] == "flood 2026, ∆ v3"
    listed = up.ask("GET", "/v1/runs").json()["runs"]
    assert {run["label"] for run in listed} == {"flood 2026, ∆ v3", None}
    for text, said in (
        (" ", "label: it is blank"),
        ("", "label: it is blank"),
        ("a\nb", "label: it has '\\n' as character 2, which nobody sees"),
        ("\x1b[2J", "label: it has '\\x1b' as character 1"),
        ("a\u202eb", "character 2"),
        ("a\u3164", "character 2"),
        ("\uffff", "character 1"),
    ):
        found = is_problem(create(service, RUN | {"label": text}), "option", 422)
        assert (found["option"], said in found["detail"]) == ("label", True), found
    for text in (
        " \u0645\u06cc\u200c\u0634\u0648\u062f",
        "1\u00a0000",
        "\U0001f468\u200d\U0001f469",
    ):
        assert create(service, RUN | {"label": text}).json()["label"] == text.strip()


def test_a_label_is_changed_in_any_state_of_the_run_and_nothing_else_is(service: Service) -> None:
    up = Uploader(service, reports=["melt"])
    before = up.describe()
    for label in ("flood", "flood, v2", None):
        answer = up.ask("PATCH", up.path, json.dumps({"label": label}).encode())
        assert (answer.status, answer.json()["label"]) == (200, label)
    assert up.describe() == before
    up.upload(stream())
    assert up.ask("POST", f"{up.path}/seal", b"").status in {200, 202}
    assert up.ask("PATCH", up.path, b'{"label": " v3 "}').json()["label"] == "v3"
    for body, option in (
        (b"{}", "label"),
        (b'{"label": 7}', "label"),
        (b'{"label": "a\\nb"}', "label"),
        (b'{"label": "a", "days": 3}', "days"),
    ):
        assert is_problem(up.ask("PATCH", up.path, body), "option", 422, option=option)
    assert up.describe()["label"] == "v3"
    assert is_problem(up.ask("PATCH", "/v1/runs/none", b'{"label": "a"}'), "not-found", 404)


def test_a_run_is_found_by_its_key_after_its_label_has_changed(service: Service) -> None:
    run = create(service, RUN | {"label": "a"}, Idempotency_Key="k9").json()["id"]
    answer = Uploader(service).ask("PATCH", f"/v1/runs/{run}", b'{"label": "b"}')
    assert answer.status == 200
    again = create(service, RUN | {"label": "a"}, Idempotency_Key="k9")
    assert (again.status, again.json()["id"], again.json()["label"]) == (200, run, "b")
    is_problem(
        create(service, RUN | {"reports": ["selt"]}, Idempotency_Key="k9"), "idempotency-key", 422
    )


def test_an_option_at_the_top_of_a_body_is_told_where_it_belongs(service: Service) -> None:
    answer = create(service, RUN | {"return_periods": [100]})
    found = is_problem(answer, "option", 422, option="return_periods")
    assert found["hint"] == 'Give it as a member of options: {"options": {"return_periods": …}}'
    assert "hint" not in is_problem(create(service, RUN | {"bogus": 1}), "option", 422)


def test_a_list_that_is_an_option_is_bound_to_no_input(service: Service) -> None:
    up = Uploader(service, reports=["ept"], options={"return_periods": [100]})
    answer = up.ask("PUT", f"{up.path}/inputs/return_periods", b"return_period\n50\n")
    found = is_problem(answer, "option", 422, option="return_periods")
    assert "as an option and as an input" in found["detail"]
    assert up.describe()["inputs"] == {}


@pytest.mark.parametrize(
    ("report", "options", "detail"),
    [
        ("psept", {"curves": "FS"}, "PSEPT has none of the curves FS"),
        ("ept", {"curves": "W", "summary_ids": "3"}, "EPT has none of the curves W"),
        ("melt", {"curves": "F"}, "curves is given, but EPT or PSEPT is not wanted"),
        ("aal", {"tvar": "weight"}, "tvar is given, but EPT or PSEPT is not wanted"),
        ("ept", {"confidence": 0.9}, "confidence is given, but ALCT is not wanted"),
        ("aal", {"confidence": 0.9}, "confidence is given, but ALCT is not wanted"),
    ],
)
def test_options_without_effect_are_refused_of_runs_and_posts(
    service: Service, report: str, options: dict[str, object], detail: str
) -> None:
    option = next(iter(options))
    answer = create(service, {**RUN, "reports": [report], "options": options})
    assert is_problem(answer, "report", 422, option=option)["detail"] == detail
    if report != "melt":
        put = put_input(service, "occurrence", b"1,1,1\n", query="?no_of_periods=9").json()
        options = options | {"occurrence": put["digest"], "no_of_periods": 9}
    query = f"/v1/losses/{report}?{urlencode(options)}"
    answer = Uploader(service).ask("POST", query, stream())
    assert is_problem(answer, "report", 422, option=option)["detail"] == detail


def test_a_number_of_periods_that_is_wrong_or_lacking_is_corrected_with_the_occurrences(
    service: Service,
) -> None:
    data = b"event_id,period_no,occ_date_id\n1,7,5\n"
    for options in ({}, {"no_of_periods": 5}):
        up = Uploader(service, reports=["aal"], options=options)
        path = f"{up.path}/inputs/occurrence"
        is_problem(up.ask("PUT", f"{path}?no_of_periods=6", data), "input")
        answer = up.ask("PUT", "/v1/inputs/occurrence?no_of_periods=9", data)
        assert answer.status in {200, 201}
        assert up.describe()["missing_inputs"] == ["occurrence"]
        assert up.describe()["options"].get("no_of_periods") == options.get("no_of_periods")
        assert up.ask("PUT", f"{path}?no_of_periods=9", data).status in {200, 201}
        assert up.describe()["options"]["no_of_periods"] == 9
        assert up.describe()["missing_inputs"] == []
        found = is_problem(up.ask("PUT", path, struct.pack("<5i", 1, 8, 1, 7, 5)), "option")
        assert "8 periods, and 9 were given" in found["detail"]
        assert "PUT it with the right no_of_periods" in found["hint"]


def test_an_input_that_is_gone_is_missing_until_it_is_put_again(service: Service) -> None:
    up = Uploader(service, reports=["qelt"])
    data = b"quantile\n0.125\n"
    digest = up.ask("PUT", f"{up.path}/inputs/quantiles", data).json()["digest"]
    up.upload(stream())
    assert up.ask("DELETE", f"/v1/inputs/quantiles/{digest}").status == 204
    assert up.describe()["missing_inputs"] == ["quantiles"]
    is_problem(up.ask("POST", f"{up.path}/seal"), "input-gone", 410)
    assert up.ask("PUT", f"{up.path}/inputs/quantiles", data).json()["digest"] == digest
    assert up.describe()["missing_inputs"] == []
    assert up.ask("POST", f"{up.path}/seal").status == 202


def test_a_key_creates_one_run(service: Service) -> None:
    answers = [create(service, RUN, Idempotency_Key='"k1"') for _ in range(2)]
    assert [answer.status for answer in answers] == [201, 200]
    assert len({answer.json()["id"] for answer in answers}) == 1
    other = create(service, {**RUN, "reports": ["melt"]}, Idempotency_Key="k1")
    is_problem(other, "idempotency-key", 422)
    is_problem(create(service, RUN, Idempotency_Key="a b"), "bad-request")


def test_options_are_those_of_posts(service: Service) -> None:
    quantiles = put_input(service, "quantiles", b"quantile\n0.5\n").json()["digest"]
    options = {"quantiles": [0.1, 0.5], "partitions": 2, "nan": "zero", "float_width": 8}
    assert create(service, {**RUN, "options": options}).json()["missing_inputs"] == []
    both = {**RUN, "options": options, "inputs": {"quantiles": quantiles}}
    assert is_problem(create(service, both), "option")["option"] == "quantiles"


@pytest.mark.parametrize(
    ("change", "option"),
    [
        ({"perspective": "x"}, "perspective"),
        ({"reports": []}, "reports"),
        ({"reports": ["melt", "melt"]}, "the body"),
        ({"reports": ["none"]}, "reports.0"),
        ({"more": 1}, "more"),
        ({"options": {"nan": "maybe"}}, "options.nan"),
        ({"options": {"partitions": 0}}, "options.partitions"),
        ({"options": {"partitions": 10_001}}, "options.partitions"),
        ({"options": {"quantiles": [2.0]}}, "quantiles"),
        # Whatever input is missing besides:
        ({"reports": ["ept"], "options": {"return_periods": [0]}}, "return_periods"),
        ({"reports": ["ept"], "options": {"summary_ids": "x"}}, "summary_ids"),
        ({"reports": ["ept"], "options": {"sets": [1, 1]}}, "sets"),
        ({"options": {"partitions": True}}, "options.partitions"),
        ({"options": {"partitions": 1.0}}, "options.partitions"),
        ({"options": {"partitions": "1"}}, "options.partitions"),
        ({"options": {"float_width": 4.0}}, "options.float_width"),
        ({"options": {"confidence": False}}, "options.confidence"),
        ({"options": {"quantiles": [0.5, True]}}, "options.quantiles.1"),
        ({"days": -1}, "days"),
        ({"days": True}, "days"),
        ({"label": "x" * 201}, "label"),
        ({"label": 7}, "label"),
        ({"inputs": {"quantiles": "short"}}, "quantiles"),
        ({"inputs": {"occurence": "0" * 32}}, "inputs.occurence"),
    ],
)
def test_a_run_that_is_refused(service: Service, change: dict[str, object], option: str) -> None:
    found = is_problem(create(service, {**RUN, **change}), "option")
    assert found["option"] == option


@pytest.mark.parametrize(
    ("tool", "ours"),
    [
        ("leccalc", "ept or psept"),
        ("ordleccalc", "ept or psept"),
        ("eltpy", "melt, selt or qelt"),
        ("pltpy", "mplt, splt or qplt"),
        ("aalpy", "aal or alct"),
        ("summarycalc", "any report with a summary xref"),
        ("fmcalc", "any report, and post what gulpy, fmpy or summarypy writes: items with"),
        ("evepy", "any report, and post what"),
    ],
)
def test_reports_by_the_names_of_tools(service: Service, tool: str, ours: str) -> None:
    for answer in (
        create(service, {**RUN, "reports": [tool]}),
        Uploader(service).ask("POST", f"/v1/losses/{tool}", b""),
    ):
        assert f"no report {tool!r}. Use {ours}" in is_problem(answer, "option", 422)["detail"]


def test_inputs_must_be_there(service: Service) -> None:
    answer = create(service, {**RUN, "inputs": {"quantiles": "0" * 32}})
    is_problem(answer, "input-gone", 410)
    is_problem(create(service, b"[]"), "bad-request")


def test_runs_that_have_expired_are_not_listed(service: Service) -> None:
    brief = create(service, {**RUN, "days": 1e-9}).json()["id"]
    kept = create(service, {**RUN, "days": 1}).json()["id"]
    is_problem(service.get(f"/v1/runs/{brief}"), "run-expired", 410)
    page = service.get("/v1/runs?limit=1000").json()
    ids = [run["id"] for run in page["runs"]]
    assert kept in ids
    assert brief not in ids


def test_lists_have_pages(service: Service) -> None:
    up = Uploader(service)
    for _ in range(3):
        up.create()
    first = up.ask("GET", f"{up.path}/streams?limit=2").json()
    assert [s["partition"] for s in first["streams"]] == [1, 2]
    rest = up.ask("GET", f"{up.path}/streams?limit=2&after={first['after']}").json()
    assert ([s["partition"] for s in rest["streams"]], rest["after"]) == ([3], None)
    found: list[str] = []
    after: str | None = ""
    while after is not None:
        page = up.ask("GET", f"/v1/runs?limit=1&after={after}").json()
        found += [run["id"] for run in page["runs"]]
        after = page["after"]
    assert found == sorted(set(found))
    assert up.path.rpartition("/")[2] in found
    assert up.ask("DELETE", up.path).status == 204
    is_problem(up.ask("GET", up.path), "not-found", 404)
