"""Problems as pages for browsers, as documents for programs."""

from __future__ import annotations

import html

from tests.app.conftest import KEY
from tests.app.harness import PROBLEM, Answer, Service, is_problem

HTML = ("Accept", "text/html,application/xhtml+xml,*/*;q=0.8")


def shows(answer: Answer, status: int, *texts: str) -> str:
    assert (answer.status, answer.media_type) == (status, "text/html"), answer.body[:500]
    assert "script-src 'self'" in (answer.getheader("Content-Security-Policy") or "")
    text = html.unescape(answer.body.decode())
    for part in texts:
        assert part in text, part
    return answer.body.decode()


def test_browsers_get_pages(service: Service, guarded: Service) -> None:
    page = service.get("/console/runs/none?x=<b>", [HTML])
    text = shows(page, 404, "Not found", "there is no run", str(page.getheader("X-Request-Id")))
    assert 'href="/console/runs/none?x=%3Cb%3E"' in text or "x=&lt;b&gt;" in text
    assert 'href="/console/a%3Fb%C3%A9"' in shows(service.get("/console/a%3Fb%c3%a9", [HTML]), 404)
    shows(service.get("/console/runs?after=" + "x" * 200, [HTML]), 422)
    shows(guarded.get("/console/runs", [HTML]), 401)
    wrong = guarded.get("/console/runs", [HTML, ("Authorization", "Bearer wrong")])
    shows(wrong, 401, "the API key is unknown")
    assert wrong.getheader("WWW-Authenticate") == "Bearer"


def test_a_hint_that_names_a_request_is_a_link_on_a_page(service: Service) -> None:
    text = shows(service.get("/console/datasets/none", [HTML]), 404, "there is no dataset")
    assert "/v1/" not in text
    assert '<a href="/console/datasets">See those there are</a>' in text
    assert "/v1/" in service.get("/v1/datasets/none").json()["hint"]


def test_explanations_and_routes_lead_to_the_pages(service: Service) -> None:
    for path in ("/problems/busy", "/docs"):
        text = service.get(path, [HTML]).body.decode()
        assert '<a href="/">Thalweg</a><a href="/console/runs">Runs</a>' in text


def test_programs_get_documents(service: Service, guarded: Service) -> None:
    is_problem(service.get("/console/runs/none"), "not-found", 404)
    is_problem(
        service.get("/console/runs/none", [("Accept", "application/json")]), "not-found", 404
    )
    is_problem(guarded.get("/console/runs"), "unauthorized", 401)
    # The API answers with documents, whoever asks.
    assert service.get("/v1/runs/none", [HTML]).media_type == PROBLEM
    assert service.get("/consoles", [HTML]).media_type == PROBLEM


def test_head_tells_the_same(service: Service) -> None:
    whole = service.get("/console/runs/none", [HTML, ("X-Request-Id", "same")])
    bare = service.get("/console/runs/none", [HTML, ("X-Request-Id", "same")], method="HEAD")
    assert (bare.status, bare.body) == (404, b"")
    assert bare.getheader("Content-Length") == whole.getheader("Content-Length")
    assert int(str(whole.getheader("Content-Length"))) == len(whole.body)


def test_with_a_key_pages_are_answered(guarded: Service) -> None:
    answer = guarded.get("/console/runs", [HTML, ("Authorization", f"Bearer {KEY}")])
    shows(answer, 200, "<h1>Runs: loss streams and their curves</h1>")
    assert answer.getheader("Cache-Control") == "private, no-store"
