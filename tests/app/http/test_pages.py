"""Pages for people."""

from __future__ import annotations

import pytest

from app.errors import KINDS
from tests.app.harness import Service


@pytest.mark.parametrize("code", sorted(KINDS))
def test_every_problem_is_explained(service: Service, code: str) -> None:
    answer = service.get(f"/problems/{code}")
    assert answer.status == 200
    assert answer.media_type == "text/html"
    text = answer.body.decode()
    assert code in text
    assert f"Status {KINDS[code].status}" in text
    assert KINDS[code].title in text
    assert f"/problems/{code}" in service.get("/docs").body.decode()
