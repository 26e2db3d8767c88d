from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from app.client import ProtocolError
from app.client.pipelines.layout import Layout, parse_dtype


def test_types() -> None:
    assert parse_dtype([["a", "<i4"], ["b", [["c", "<f4", [2, 3]]]]]) == np.dtype(
        [("a", "<i4"), ("b", [("c", "<f4", (2, 3))])]
    )
    wrong: Any
    for wrong in (None, 3, [], [["a"]], [3], "O", "(2,)f4", [["a", "V0"]], ["a", "b"], "x" * 99):
        with pytest.raises(ProtocolError):
            parse_dtype(wrong)
    with pytest.raises(ProtocolError):
        Layout.parse("x")
