"""Options and headers of a post that are wrong, or contradict each other."""

from __future__ import annotations

import itertools
import time
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.datastructures import Headers as RequestHeaders

from app.engine.ledger import Ledger
from app.http.identity import USER_SCOPES, Identity
from app.losses.options import read_options
from app.losses.schemas import LossQuery
from app.losses.sums_room import Admission
from tests.app.harness import Contract, Headers, Post, Service, ask, is_problem
from tests.app.losses.posts import INPUTS, good, put_input
from tests.frames import read_frames

BAD_OPTIONS = [
    ("melt", "nonsense=1", "nonsense"),
    ("melt", "Format=csv", "Format"),
    ("melt", "format=", "format"),
    ("melt", "format=xml", "format"),
    ("melt", "format=CSV", "format"),
    ("melt", "float_width=2", "float_width"),
    ("melt", "float_width=", "float_width"),
    ("melt", "nan=ignore", "nan"),
    ("melt", "negative=zero", "negative"),
    ("melt", "sample_order=descending", "sample_order"),
    ("melt", "order=ascending", "order"),
    ("melt", "duplex=perhaps", "duplex"),
    ("melt", "no_of_periods=0", "no_of_periods"),
    ("melt", "no_of_periods=5", "no_of_periods"),
    ("melt", "no_of_periods=2147483648", "no_of_periods"),
    ("melt", "no_of_periods=ten", "no_of_periods"),
    ("melt", "expect_events=-1", "expect_events"),
    ("melt", "expect_events=1.5", "expect_events"),
    ("melt", "expect_events=99999999999999999999", "expect_events"),
    ("melt", "expect_bytes=1e9", "expect_bytes"),
    ("melt", "expect_bytes=", "expect_bytes"),
    ("aal", "expect_samples=0", "expect_samples"),
    ("aal", "expect_summaries=2147483648", "expect_summaries"),
    ("aal", "over_bound=", "over_bound"),
    ("melt", "expect_summaries=2", "expect_summaries"),
    ("melt", "over_bound=try", "over_bound"),
    ("melt", "sets=1", "sets"),
    ("melt", "summary_map=" + "0" * 32, "summary_map"),
    ("melt", "summary_xref=x", "summary_xref"),
    ("melt", "summary_info=x", "summary_info"),
    ("melt", "summary_info=" + "0" * 32 + "&format=bin", "summary_info"),
    ("melt", "event_rates=0.5", "event_rates"),
    ("melt", "event_rates=" + "A" * 32, "event_rates"),
    ("melt", "event_rates=../../../../../../etc/passwd", "event_rates"),
    ("melt", "occurrence=", "occurrence"),
    *(
        ("selt", f"summary_ids={text}", "summary_ids")
        for text in (
            *("", ",", "a", "0", "-1", "1-", "-", "5-1", "1,,2", "1.5", "1_0", "%2B1", "1%202"),
            *("2147483648", "1-2147483647", "1-1000001", "1-2-3", "%D9%A3", "9" * 5000),
        )
    ),
    ("events", "summary_ids=1", "summary_ids"),
    ("melt", "event_ids=0", "event_ids"),
    *(
        ("qelt", f"quantiles={text}", "quantiles")
        for text in ("", "x", "0.1,", "0.1,0.1", "2", "-0.1", "nan", "inf", "0.1;0.2", "%FF")
    ),
    ("melt", "nan=drop&nan=drop", "nan"),
    ("melt", "format=csv&format=bin", "format"),
    ("melt", "x=1&x=1", "x"),
    ("melt", "%00=1", "\0"),
    ("nonsense", "", "report"),
    ("MELT", "", "report"),
]


@pytest.mark.parametrize(("report", "query", "option"), BAD_OPTIONS)
def test_a_bad_option_is_named(
    service: Service, contract: Contract, report: str, query: str, option: str
) -> None:
    path = f"/v1/losses/{report}?{query}"
    for method in ("POST", "PUT"):
        answer = ask(service, Post(path, [good().encode()], method=method))
        is_problem(contract.check(method, path, answer), "option", option=option)


@pytest.mark.parametrize(
    "query",
    ["", "reports=", "reports=,", "reports=melt,melt", "reports=melt,nonsense", "reports=x"],
)
def test_bad_reports(service: Service, query: str) -> None:
    answer = ask(service, Post(f"/v1/losses?{query}", [good().encode()]))
    is_problem(answer, "option", option="reports")


def test_many_options_that_do_not_exist(service: Service) -> None:
    """Their number does not hold up others: it is not looked at twice."""
    names = ["".join(letters) for letters in itertools.product("ABCDEFGHIJKLMNOPQRS", repeat=3)]
    path = f"/v1/losses/melt?{'&'.join(names)}"
    start = time.perf_counter()
    is_problem(ask(service, Post(path, [b""])), "option", option="AAA")
    assert time.perf_counter() - start < 5


def test_inputs_that_are_missing_or_not_wanted(service: Service) -> None:
    data = good().encode()
    rates = put_input(service, "event_rates", INPUTS["event_rates.csv"]).json()["digest"]
    for path in (
        "/v1/losses/qelt",
        "/v1/losses?reports=melt,qelt",
        "/v1/losses/melt?quantiles=0.5",
        f"/v1/losses/selt?event_rates={rates}",
    ):
        is_problem(ask(service, Post(path, [data])), "report")


@pytest.mark.parametrize(
    "headers",
    [
        *([("Upload-Complete", text)] for text in ("", "0", "?2", "yes", "?0, ?1", "\xff")),
        *(
            [("Upload-Length", text)]
            for text in ("", "-1", "1e3", "abc", "9" * 81, "0x10", "\xb2", "12 13", "1_0")
        ),
        [("Upload-Complete", "?0"), ("Upload-Complete", "?1")],
        [("Upload-Complete", "?1"), ("Upload-Complete", "?1")],
        [("Upload-Length", "10"), ("Upload-Length", "12")],
    ],
)
def test_nonsense_about_the_upload(service: Service, headers: Headers) -> None:
    answer = ask(service, Post("/v1/losses/melt", [good().encode()], headers))
    assert headers[0][0] in is_problem(answer, "bad-request")["detail"]


def test_declarations_that_contradict_each_other_or_the_body(service: Service) -> None:
    data = good().encode()
    occurrence = put_input(service, "occurrence", INPUTS["occurrence.bin"]).json()["digest"]
    partial = ("Upload-Complete", "?0")
    cases: list[tuple[str, Headers, str, dict[str, Any]]] = [
        ("expect_bytes=12", [("Upload-Length", "13")], "bad-request", {}),
        ("", [("Upload-Length", str(len(data) + 1))], "stream-incomplete", {"offset": len(data)}),
        ("", [("Upload-Length", str(len(data) - 1))], "stream-excess", {"offset": len(data) - 1}),
        ("", [("Upload-Length", "0")], "stream-excess", {"offset": 0}),
        ("", [partial, ("Upload-Length", "5")], "stream-excess", {"offset": 5}),
        ("expect_events=1", [partial], "stream-excess", {"event": 2}),
        ("duplex=true", [partial], "option", {"option": "duplex"}),
        (f"occurrence={occurrence}&no_of_periods=3", [], "option", {"option": "no_of_periods"}),
    ]
    for query, headers, code, members in cases:
        answer = ask(service, Post(f"/v1/losses/melt?{query}", [data], headers))
        is_problem(answer, code, **members)
    length = [("Upload-Length", str(len(data)))]
    answer = ask(service, Post(f"/v1/losses/melt?expect_bytes={len(data)}", [data], length))
    assert answer.status == 200
    assert answer.getheader("Thalweg-Completeness") == "declared"


@pytest.mark.parametrize("accept", ["image/png", "text/html, image/*;q=0.5", "*/*;q=0", "csv"])
def test_no_format_that_is_accepted(service: Service, contract: Contract, accept: str) -> None:
    path = "/v1/losses/melt"
    answer = ask(service, Post(path, [good().encode()], [("Accept", accept)]))
    is_problem(contract.check("POST", path, answer), "not-acceptable", 406)
    answer = ask(service, Post(f"{path}?format=csv", [good().encode()], [("Accept", accept)]))
    assert answer.status == 200


def test_an_accept_header_in_several_lines(service: Service) -> None:
    headers = [("Accept", "image/png"), ("Accept", "application/x-ndjson")]
    answer = ask(service, Post("/v1/losses/melt", [good().encode()], headers))
    assert answer.media_type == "application/x-ndjson"


@pytest.mark.parametrize("reports", ["melt,selt", "melt"])
def test_reports_of_one_pass_come_in_frames(service: Service, reports: str) -> None:
    path = f"/v1/losses?reports={reports}"
    for form in ("csv", "ndjson", "bin", "arrow", "parquet"):
        answer = ask(service, Post(f"{path}&format={form}", [good().encode()]))
        is_problem(answer, "not-acceptable", 406)
    answer = ask(service, Post(path, [good().encode()], [("Accept", "text/csv")]))
    is_problem(answer, "not-acceptable", 406)
    answer = ask(service, Post(path, [good().encode()]))
    assert read_frames(answer.body)[-1].kind == "END"


def test_rows_that_wait_count_against_the_owner_of_the_key() -> None:
    limits: Any = SimpleNamespace(
        max_samples=100,
        max_blocks=100,
        inputs=None,
        admission=Admission(0, 0),
        ledger=Ledger(0, 0),
    )
    for owner in ("alice", "bob"):
        who = Identity(owner, USER_SCOPES)
        options = read_options(
            who, ("melt",), LossQuery.model_validate({}), RequestHeaders({}), limits
        )
        assert options.payer == owner
