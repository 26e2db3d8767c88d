"""Absolute URLs."""

from __future__ import annotations

import pytest

from app.http.addresses import Addresses


@pytest.mark.parametrize("base", ["http://here", "http://here/"])
def test_the_base_of_the_request(base: str) -> None:
    assert Addresses(None).of(base, "/v1/x") == "http://here/v1/x"


@pytest.mark.parametrize("public", ["https://there/api", "https://there/api/"])
def test_the_public_url_comes_first(public: str) -> None:
    assert Addresses(public).of("http://here", "/v1/x") == "https://there/api/v1/x"
