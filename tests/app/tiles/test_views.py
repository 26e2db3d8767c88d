"""Registered views: known views are looked up no less than others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from app.errors import NotFoundError
from app.http.identity import SINGLE_USER
from app.state.ownership import Namespaces
from app.tiles.views import KIND
from tests.app.tiles.desk import ViewDesk


def test_a_view_that_another_worker_deleted_is_gone(tmp_path: Path) -> None:
    desk = ViewDesk(tmp_path, np.zeros((2, 3, 4, 5), "<u2"))
    ident, opened, _ = desk.views.register(SINGLE_USER, "scan", {})
    opened.close()
    desk.views.registered(SINGLE_USER, ident).close()
    Namespaces(desk.store, KIND).delete(SINGLE_USER.owner, ident)
    with pytest.raises(NotFoundError):
        desk.views.registered(SINGLE_USER, ident)
    desk.close()
