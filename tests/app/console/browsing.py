"""Requests of a browser."""

from __future__ import annotations

import json
from typing import Any

from tests.app.harness import Post, Service, ask

HTML = ("Accept", "text/html")


def page(service: Service, path: str) -> str:
    """Return a page, which a HEAD tells of as well."""
    answer = service.get(path, [HTML])
    assert (answer.status, answer.media_type) == (200, "text/html"), answer.body[:500]
    bare = service.get(path, [HTML], method="HEAD")
    assert (bare.status, bare.body) == (200, b"")
    return answer.body.decode()


def post(service: Service, path: str, values: object) -> Any:  # noqa: ANN401 - JSON
    """Post JSON; return the answer's."""
    answer = ask(service, Post(path, [json.dumps(values).encode()]))
    assert answer.status in {200, 201}, answer.body
    return answer.json()
