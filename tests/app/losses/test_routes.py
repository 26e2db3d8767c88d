"""Auxiliary files that are wrong, missing or too large."""

from __future__ import annotations

import struct

import pytest

from tests.app.conftest import MAX_INPUT
from tests.app.harness import MIB, Contract, Post, Service, ask, compress_whole, is_problem
from tests.app.losses.posts import INPUTS, good, put_input

ROWS = b"".join(b"%d,\n" % i for i in range(1, 2000))
BAD_INPUTS = [
    ("quantiles", b""),
    ("quantiles", b"quantile\n"),
    ("quantiles", b"quantile\n0.5\n1.5\n"),
    ("quantiles", b"quantile\nhalf\n"),
    ("quantiles", struct.pack("<ff", 0.5, 7.0)),
    ("quantiles", b"\0\0\0"),
    ("quantiles", bytes(400)),
    ("event_rates", b""),
    ("event_rates", b"EventIds,Event_rates\n1,-1\n"),
    ("event_rates", b"EventIds,Event_rates\n1,0.5\n1,0.5\n"),
    ("event_rates", b"EventIds,Event_rates\n0,0.5\n"),
    ("event_rates", b"\xff\xfe\x00"),
    ("occurrence", b""),
    ("occurrence", b"event_id,period_no,occ_date_id\n1,0,1\n"),
    ("occurrence", b"event_id\n1\n"),
    ("occurrence", INPUTS["occurrence.bin"][:-3]),
    ("occurrence", bytes(8)),
    ("occurrence", b"PAR1" + bytes(96) + b"PAR1"),
    ("periods", b""),
    ("periods", b"period_no,weighting\n1,0.5\n3,0.5\n"),
    ("periods", b"period_no,weighting\n1,-1\n"),
    ("periods", bytes(11)),
    ("return_periods", b"return_period\n5\n5\n"),
    ("return_periods", b"return_period\n0\n"),
    ("return_periods", b"\0\0"),
    ("summary_xref", b"item_id,summary_id\n1,1\n"),
    ("summary_xref", b"item_id,summary_id,summaryset_id\n1,0,1\n"),
    ("summary_map", b"loc_id\n1\n"),
    ("summary_info", b"summary_id,tiv\n1,5\n1,6\n"),
    # A column takes as much memory as its longest text in each of its rows.
    (
        "summary_info",
        b"summary_id,text\n"
        + b"".join(b"%d,\n" % i for i in range(1, 2000))
        + b"2000,"
        + b"x" * 50_000,
    ),
]
GOOD_INPUTS = {
    "periods": b"period_no,weighting\n2,0.5\n1,0.5\n",
    "return_periods": b"return_period\n100\n50\n",
    "summary_xref": b"item_id,summary_id,summaryset_id\n1,1,1\n2,1,1\n",
    "summary_map": b"loc_id,item_id,building_id\n1,1,1\n1,2,1\n",
    "summary_info": b"summary_id,_not_set_,tiv\n1,All-Risks,5\n",
}


@pytest.mark.parametrize(("name", "data"), BAD_INPUTS)
def test_a_bad_input(service: Service, contract: Contract, name: str, data: bytes) -> None:
    for coding in (None, "gzip", "zstd"):
        headers = [] if coding is None else [("Content-Encoding", coding)]
        body = data if coding is None else compress_whole(coding, data)
        answer = contract.check(
            "PUT", f"/v1/inputs/{name}", put_input(service, name, body, headers)
        )
        problem = is_problem(answer, "input")
        assert problem["source"] == name
        assert problem["detail"].startswith(f"{name}: ")


@pytest.mark.parametrize("name", GOOD_INPUTS)
def test_every_input_of_a_report_is_stored(service: Service, contract: Contract, name: str) -> None:
    path = f"/v1/inputs/{name}"
    answer = contract.check("PUT", path, put_input(service, name, GOOD_INPUTS[name]))
    assert answer.json()["name"] == name
    digest = answer.json()["digest"]
    assert ask(service, Post(f"{path}/{digest}", [], method="DELETE")).status == 204


@pytest.mark.parametrize("name", ["ensemble", "items", "coverages"])
def test_files_that_no_report_needs_are_not_found(
    service: Service, contract: Contract, name: str
) -> None:
    path = f"/v1/inputs/{name}"
    answer = contract.check("PUT", path, put_input(service, name, b"1,2\n"))
    assert name in is_problem(answer, "not-found", 404)["detail"]
    answer = ask(service, Post(f"{path}/{'0' * 32}", [], method="DELETE"))
    is_problem(answer, "not-found", 404)


def test_inputs_that_are_not_there(service: Service) -> None:
    digest = "0" * 32
    for path, name in (
        (f"/v1/losses/melt?event_rates={digest}", "event_rates"),
        (f"/v1/losses/melt?occurrence={digest}", "occurrence"),
        (f"/v1/losses/qelt?quantiles={digest}", "quantiles"),
    ):
        answer = ask(service, Post(path, [good().encode()]))
        assert f"/v1/inputs/{name}" in is_problem(answer, "input-gone", 410)["hint"]
    # The digest of one kind of input is none of another.
    rates = put_input(service, "event_rates", INPUTS["event_rates.csv"]).json()["digest"]
    answer = ask(service, Post(f"/v1/losses/qelt?quantiles={rates}", [good().encode()]))
    problem = is_problem(answer, "input-gone", 410)
    assert problem["detail"] == f"{rates} is of the input event_rates, not quantiles"
    assert problem["hint"].startswith("Give it as event_rates")


def test_a_file_that_comes_as_a_form_is_told_how_to_be_sent(service: Service) -> None:
    form = [("Content-Type", "application/x-www-form-urlencoded")]
    # As --data sends lines of 100 and 50: one of 10,050 would be stored.
    answer = put_input(service, "return_periods", b"10050", form)
    problem = is_problem(answer, "input", source="return_periods")
    assert "as curl --data sends one" in problem["detail"]
    assert problem["hint"] == "Send the file as it is: curl -T FILE"
    # As --data-binary sends it, whatever its name.
    assert put_input(service, "return_periods", b"100\n50\n", form).status in {200, 201}
    body = b"--x\r\nContent-Disposition: form-data; name=file\r\n\r\n100\r\n--x--\r\n"
    multipart = [("Content-Type", "multipart/form-data; boundary=x")]
    problem = is_problem(put_input(service, "return_periods", body, multipart), "input")
    assert problem["hint"] == "Send the file alone: curl -T FILE"
    answer = ask(service, Post("/v1/inputs/return_periods", [b"10050"], form))
    assert is_problem(answer, "method-not-allowed", 405)["hint"] == "Use PUT, as curl -T FILE does"


def test_options_of_inputs(service: Service) -> None:
    data = INPUTS["occurrence.csv"]
    for query, option in (
        ("?nonsense=1", "nonsense"),
        ("?no_of_periods=0", "no_of_periods"),
        ("?no_of_periods=9&no_of_periods=9", "no_of_periods"),
    ):
        is_problem(put_input(service, "occurrence", data, query=query), "option", option=option)
    is_problem(put_input(service, "nonsense", data), "option", option="name")
    # The number of a PUT checks the file, and is not stored.
    put = put_input(service, "occurrence", data, query="?no_of_periods=1000000")
    digest = put_input(service, "occurrence", data).json()["digest"]
    assert put.json()["digest"] == digest
    for query, option in (("", "no_of_periods"), ("&no_of_periods=3", "no_of_periods")):
        path = f"/v1/losses/melt?occurrence={digest}{query}"
        is_problem(ask(service, Post(path, [good().encode()])), "option", option=option)


def test_an_input_that_is_too_large(service: Service) -> None:
    data = b"quantile\n" + b"0.5\n" * (MAX_INPUT // 4)
    is_problem(put_input(service, "quantiles", data), "too-large")
    for coding in ("gzip", "zstd"):
        headers = [("Content-Encoding", coding)]
        for bomb in (data, bytes(200 * MIB)):
            small = compress_whole(coding, bomb)
            assert len(small) < MAX_INPUT + MIB
            is_problem(put_input(service, "quantiles", small, headers), "too-large")
