"""What the OpenAPI document says of a view."""

from __future__ import annotations

from app.tiles.routes import VIEW
from core.tiles.view import MEMBERS


def test_every_member_of_a_view_is_described() -> None:
    assert VIEW.keys() == MEMBERS
    assert all(member["description"] for member in VIEW.values())
