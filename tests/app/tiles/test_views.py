"""Registered views: known views are looked up no less than others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from app.errors import NotFoundError
from app.tiles.views import KIND
from tests.app.tiles.desk import ViewDesk


@pytest.fixture
def desk(tmp_path: Path) -> ViewDesk:
    return ViewDesk(tmp_path, np.zeros((2, 3, 4, 5), "<u2"))


def test_a_view_that_is_used_is_noted_however_often_it_was_read(desk: ViewDesk) -> None:
    ident, opened, _ = desk.views.register("scan", {})
    opened.close()
    store = desk.views._store
    for _ in range(3):
        before = store.get(KIND, ident).used
        desk.views.registered(ident).close()
        desk.views.registered(ident).close()
        assert store.get(KIND, ident).used > before
    desk.close()


def test_a_view_that_another_worker_deleted_is_gone(desk: ViewDesk) -> None:
    ident, opened, _ = desk.views.register("scan", {})
    opened.close()
    desk.views.registered(ident).close()
    desk.views._store.delete(KIND, ident)
    with pytest.raises(NotFoundError):
        desk.views.registered(ident)
    desk.close()
