"""Pictures over HTTP: as those of the tables, and refused where they cannot be drawn."""

from __future__ import annotations

import gzip
import sys
from collections.abc import Mapping

import pytest
from starlette.datastructures import Headers

from app.errors import NotAcceptableError
from app.losses.options import _format
from app.losses.pictures.drawing import PICTURES, draw
from app.losses.pictures.options import PictureOptions
from app.losses.request import parse_ids
from app.losses.schemas import LossQuery
from core.losses.analysis import aggregate
from core.losses.inputs import parse_occurrence
from core.losses.samples import SampleSpec, generate_inputs, generate_stream
from tests.app.harness import Answer, Contract, Post, Service, ask, is_problem, with_query
from tests.app.losses.posts import put_input

SPEC = SampleSpec(events=20, summaries=13, samples=4)
STREAM = b"".join(generate_stream(SPEC))
OCCURRENCE = generate_inputs(SPEC)["occurrence.bin"]
FEW = {"summary_ids": "2,5"}


@pytest.fixture(scope="module")
def digest(service: Service) -> str:
    stored: str = put_input(service, "occurrence", OCCURRENCE).json()["digest"]
    return stored


def post(
    service: Service,
    report: str,
    options: Mapping[str, object],
    headers: Mapping[str, str] | None = None,
) -> Answer:
    path = with_query(f"/v1/losses/{report}", options)
    return ask(service, Post(path, [STREAM], tuple((headers or {}).items())))


@pytest.mark.parametrize("report", PICTURES)
def test_a_posted_picture_equals_that_of_the_tables(
    service: Service, contract: Contract, digest: str, report: str
) -> None:
    options = {"occurrence": digest, "theme": "dark", "perspective": "il", "currency": "EUR"}
    options |= {"plot_tvar": "true", **FEW, "format": "svg"}
    answer = contract.check("POST", f"/v1/losses/{report}", post(service, report, options))
    assert answer.media_type == "image/svg+xml"
    assert int(answer.getheader("Content-Length") or 0) == len(answer.body)
    assert answer.getheader("Thalweg-Events") == str(SPEC.events)
    tables = aggregate(STREAM, PICTURES[report], occurrence=parse_occurrence(OCCURRENCE))
    assert answer.body == draw(
        report,
        tables,
        PictureOptions(
            theme="dark",
            perspective="il",
            currency="EUR",
            tail_means=True,
            summary_ids=parse_ids(FEW["summary_ids"]),
            summary_set=1,
        ),
    )


def test_accept_asks_for_a_picture_and_svg_is_compressed(service: Service, digest: str) -> None:
    options = {"occurrence": digest, **FEW}
    png = post(service, "ept", options, {"Accept": "image/png"})
    assert png.media_type == "image/png"
    assert png.body.startswith(b"\x89PNG")
    accepted = {"Accept": "image/svg+xml, text/csv;q=0.1", "Accept-Encoding": "gzip"}
    svg = post(service, "ept", options, accepted)
    assert svg.getheader("Content-Encoding") == "gzip"
    assert gzip.decompress(svg.body) == post(service, "ept", options | {"format": "svg"}).body


@pytest.mark.parametrize("report", ["ept", "aal"])
def test_caches_treat_a_picture_as_the_table(service: Service, digest: str, report: str) -> None:
    """Answers to a post are not stored, so there is no tag to compare them by."""
    options = {"occurrence": digest, **FEW}
    table, svg, png = (
        post(service, report, options | {"format": form}) for form in ("csv", "svg", "png")
    )
    for name in ("Cache-Control", "Vary", "ETag", "Thalweg-Completeness", "Thalweg-Events"):
        assert svg.getheader(name) == png.getheader(name) == table.getheader(name)
    assert svg.getheader("Cache-Control") == "no-store"
    assert svg.getheader("ETag") is None
    assert int(svg.getheader("Content-Length") or 0) == len(svg.body)
    assert int(png.getheader("Content-Length") or 0) == len(png.body)


def test_pictures_that_cannot_be_drawn_are_problems(service: Service, digest: str) -> None:
    options = {"occurrence": digest, "format": "svg"}
    many = is_problem(post(service, "ept", options), "report")
    assert "up to 12 summaries" in many["detail"]
    assert "summary_ids" in many["hint"]
    none = is_problem(post(service, "aal", options | {"summary_ids": "99"}), "report")
    assert "no row of AAL" in none["detail"]
    is_problem(post(service, "ept", options | {"duplex": "true"}), "option", option="duplex")
    is_problem(post(service, "ept", options | {"theme": "blue"}), "option", option="theme")
    is_problem(post(service, "ept", options | {"currency": "$"}), "option", option="currency")
    part = post(service, "ept", options, {"Upload-Complete": "?0"})
    is_problem(part, "report-needs-whole-stream", 422)


def test_other_reports_have_no_picture(service: Service, digest: str) -> None:
    options = {"occurrence": digest}
    found = is_problem(post(service, "alct", options | {"format": "png"}), "not-acceptable", 406)
    assert found["detail"] == "there is no picture of ALCT"
    is_problem(post(service, "melt", options, {"Accept": "image/*"}), "not-acceptable", 406)
    path = with_query("/v1/losses", options | {"reports": "ept,aal", "format": "svg"})
    is_problem(ask(service, Post(path, [STREAM])), "not-acceptable", 406)


def test_a_server_without_the_library_says_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(NotAcceptableError, match="draws no pictures") as refused:
        _format(LossQuery.model_validate({"format": "svg"}), Headers(), ("ept",))
    assert "extra plot" in str(refused.value.hint)
    with pytest.raises(NotAcceptableError, match="none of the media types"):
        _format(LossQuery.model_validate({}), Headers({"Accept": "image/svg+xml"}), ("ept",))
    assert (
        _format(LossQuery.model_validate({}), Headers({"Accept": "image/png, */*"}), ("ept",))
        == "csv"
    )
