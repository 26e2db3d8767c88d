"""Bodies that hold no token."""

from __future__ import annotations

import itertools

import pytest

from tests.app.harness import MIB, Contract, Post, Service, ask, is_problem


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 422),
        (b"null", 422),
        (b"[]", 422),
        (b"{}", 422),
        (b"{", 422),
        (b'"x"', 422),
        (b'{"token": 5}', 422),
        (b'{"token": null}', 422),
        (b'{"token": "\\ud800"}', 422),
        (b'{"token": "x", "more": 1}', 422),
        (b'{"token": "' + b"A" * 5000 + b'"}', 422),
        (b'{"token": "\xff"}', 400),
        (b"[" * 20_000, 400),
        (b'{"token": "' + b"A" * 40_000 + b'"}', 413),
        (b" " * MIB, 413),
    ],
)
def test_bodies_that_hold_no_token(
    service: Service, contract: Contract, body: bytes, status: int
) -> None:
    for route, sized in itertools.product(("inspect", "refresh"), (True, False)):
        path = f"/v1/tokens/{route}"
        answer = ask(service, Post(path, [body], [("Content-Type", "application/json")], sized))
        assert contract.check("POST", path, answer).status == status
        assert "option" not in answer.json()
        for declared in ([], [("Content-Type", "text/plain")]):
            undeclared = ask(service, Post(path, [body], declared, sized))
            assert (undeclared.status, undeclared.json()["code"]) == (status, answer.json()["code"])


def test_a_large_body_for_tokens_takes_no_memory(service: Service) -> None:
    service.reset_peak()
    before = service.memory()
    headers = [("Content-Type", "application/json")]
    answer = ask(service, Post("/v1/tokens/inspect", [bytes(24 * MIB)], headers))
    is_problem(answer, "too-large")
    assert service.memory("VmHWM") - before < 16 * MIB
