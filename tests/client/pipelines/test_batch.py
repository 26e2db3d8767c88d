from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

from app.client import Batch, Ragged


def test_lines_are_strings() -> None:
    data = "größe,x".encode()
    lines = Ragged(np.frombuffer(data, np.uint8), np.array([0, 7, 7, len(data)]))
    assert lines.text() == ["größe", "", ",x"]
    with pytest.raises(TypeError, match="float64"):
        Ragged(np.zeros(3), np.array([0, 3])).text()
    with pytest.raises(UnicodeDecodeError):
        Ragged(np.array([255], np.uint8), np.array([0, 1])).text()


def test_batches_as_they_are() -> None:
    ragged = Ragged(np.arange(6), np.array([0, 1, 1, 6]))
    batch = Batch({"r": ragged}, token="t", sequence=3, epoch=1, count=3, rows=(0, 3))  # noqa: S106
    assert [item.tolist() for item in ragged] == [[0], [], [1, 2, 3, 4, 5]]
    assert ragged[-1].tolist() == [1, 2, 3, 4, 5]
    with pytest.raises(IndexError):
        ragged[3]
    assert ragged.padded(-1).tolist() == [[0, *[-1] * 4], [-1] * 5, [1, 2, 3, 4, 5]]
    assert Ragged(np.empty((0, 2)), np.array([0])).padded().shape == (0, 0, 2)
    again = pickle.loads(pickle.dumps(batch))  # noqa: S301
    assert (again.token, again.sequence, again.rows, list(again)) == ("t", 3, (0, 3), ["r"])
    assert len({batch, batch, again}) == 2
    assert "Batch 3 of epoch 1: r" in repr(batch)
    assert len(batch) == 1


def test_a_field_is_no_attribute_but_is_named() -> None:
    batch = Batch({"data": np.zeros(2)}, token="t", sequence=0, epoch=0, count=2, rows=(0, 2))  # noqa: S106
    with pytest.raises(AttributeError, match=r"the field is batch\['data'\]"):
        batch.data  # noqa: B018
    assert not hasattr(batch, "labels")
    again = pickle.loads(pickle.dumps(batch))  # noqa: S301 - our own
    assert (list(again), copy.copy(batch).token) == (["data"], "t")
