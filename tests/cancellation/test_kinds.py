"""Kinds of work are complete."""

from __future__ import annotations

from tests.cancellation.kinds import KINDS, SHORT
from tests.contract.test_openapi import ROUTES


def test_every_route_has_a_kind_of_work_or_a_reason() -> None:
    routes = {" ".join(route) for route in ROUTES}
    kinds = {kind.route for kind in KINDS.values()}
    assert kinds | {*SHORT} == routes
    assert not kinds & {*SHORT}
