"""Paths and methods that are not there, and pages of those that are."""

from __future__ import annotations

import re
from typing import Any

import pytest

from app.errors import KINDS
from tests.app.harness import Answer, Contract, Post, Service, ask, head, is_problem


@pytest.mark.parametrize(
    "path",
    [
        *("/v1", "/v1/", "/v1/nothing", "/v1/losses/", "/v1/losses/melt/", "/v1/losses/a/b"),
        *("/v1/inputs", "/v1/tokens", "/v1/tokens/other", "/problems", "/problems/"),
        *("//v1/losses/melt", "/v1/losses%2Fmelt%2F", "/../etc/passwd", "/problems/nothing"),
        *("/problems/%00", "/problems/%FF", "/problems/a%0d%0ab", "/openapi.yaml", "/%ff"),
    ],
)
def test_nothing_is_there(service: Service, contract: Contract, path: str) -> None:
    for method in ("GET", "POST"):
        answer = ask(service, Post(path, [b"abc"], method=method))
        if path.startswith("/problems/") and method == "POST":
            continue
        is_problem(contract.check(method, path, answer), "not-found", 404)


def test_methods_that_are_not_there(service: Service, contract: Contract) -> None:
    allowed = {
        "/v1/losses/melt": {"POST", "PUT"},
        "/v1/losses": {"POST", "PUT"},
        "/v1/inputs/quantiles": {"PUT"},
        "/v1/tokens/inspect": {"POST"},
        "/v1/tokens/refresh": {"POST"},
        "/": {"GET", "HEAD"},
        "/healthz": {"GET", "HEAD"},
        "/readyz": {"GET", "HEAD"},
        "/metrics": {"GET", "HEAD"},
        "/openapi.json": {"GET", "HEAD"},
        "/docs": {"GET", "HEAD"},
        "/problems/busy": {"GET", "HEAD"},
    }
    for path, methods in allowed.items():
        for method in {"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"} - methods:
            answer = ask(service, Post(path, [b""], method=method))
            contract.check(method, path, answer)
            is_problem(answer, "method-not-allowed", 405)
            assert set(str(answer.getheader("Allow")).split(", ")) == methods


@pytest.mark.parametrize(
    "path", ["/healthz", "/readyz", "/metrics", "/docs", "/openapi.json", "/problems/busy"]
)
def test_head(service: Service, path: str) -> None:
    answer = service.get(path, method="HEAD")
    assert answer.status == 200
    assert not answer.body
    assert answer.media_type == service.get(path).media_type
    with service.connect() as client:
        # Nothing of a body stands in the way of the next answer.
        for method, body in (("HEAD", b""), ("GET", b'{"status":"ok"}')):
            client.sendall(head(method, "/healthz" if body else path))
            assert Answer(client, method).body == body


@pytest.mark.parametrize("path", ["/v1/losses/melt", "/nothing", "/problems/nothing"])
def test_head_of_what_is_not_there(service: Service, path: str) -> None:
    answer = service.get(path, method="HEAD")
    assert answer.status in {404, 405}
    assert not answer.body


def test_no_route_takes_an_option_twice(service: Service) -> None:
    paths = service.get("/openapi.json").json()["paths"]
    asked = 0
    for template, operations in paths.items():
        if not template.startswith("/v1/"):
            continue
        path = re.sub(r"\{\w+\}", "0", template.replace("{kind}", "quantiles"))
        for method in operations:
            asked += 1
            answer = ask(service, Post(f"{path}?x=1&y=1&x=2", [b""], method=method.upper()))
            is_problem(answer, "option", option="x")
            assert "given twice" in answer.json()["detail"], (method, path)
    assert asked > 40


@pytest.mark.parametrize(
    "value", ["%202", "2%20", "%2B2", "1_0", "2.5", "2.0", "", "nan", "%D9%A2"]
)
def test_numbers_are_written_in_digits_in_every_route(service: Service, value: str) -> None:
    paths = service.get("/openapi.json").json()["paths"]
    asked = 0
    for template, operations in paths.items():
        for method, operation in operations.items():
            for parameter in operation.get("parameters", ()):
                types = _types_of(parameter["schema"])
                if not types & ({"integer"} if value.startswith("2.") else {"integer", "number"}):
                    continue
                name, query = parameter["name"], parameter["in"] == "query"
                if not (query or value):
                    continue
                asked += 1
                path = template.replace(f"{{{name}}}", value)
                path = re.sub(r"\{\w+\}", "0", path.replace("{kind}", "quantiles"))
                path += f"?{name}={value}" if query else ""
                answer = ask(service, Post(path, [b""], method=method.upper()))
                is_problem(answer, "option", option=name)
    assert asked > 20


def _types_of(schema: dict[str, Any]) -> set[str]:
    return {str(one.get("type")) for one in (schema, *schema.get("anyOf", ()))}


@pytest.mark.parametrize("code", sorted(KINDS))
def test_every_problem_is_explained(service: Service, code: str) -> None:
    answer = service.get(f"/problems/{code}")
    assert answer.status == 200
    assert answer.media_type == "text/html"
    text = answer.body.decode()
    assert code in text
    assert f"Status {KINDS[code].status}" in text
    assert KINDS[code].title in text
    assert f'href="problems/{code}"' in service.get("/docs").body.decode()
