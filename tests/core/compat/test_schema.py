"""Schemas and records, as in Caffe2."""

from __future__ import annotations

import numpy as np
import pytest

from core.compat.schema import Record, Scalar, Struct, from_blob_list

LABEL = Struct(("label", np.int64))


def test_schemas_and_records() -> None:
    nested = Struct(("x", np.float32), ("inner", Struct(("y", np.int8), ("z", Scalar(bool)))))
    assert nested.field_names() == ["x", "inner:y", "inner:z"]
    assert nested.field_types() == [np.dtype("f4"), np.dtype("i1"), np.dtype(bool)]
    record = Record(nested, [1.5, 2, True])
    assert (record["x"], record["inner"]) == (1.5, {"y": 2, "z": True})
    assert repr(record) == "Record({'x': 1.5, 'inner': {'y': 2, 'z': True}})"
    same = Struct(("x", np.float32), ("inner", Struct(("y", np.int8), ("z", Scalar(bool)))))
    assert nested == same
    assert hash(nested) == hash(same)
    assert nested != Struct(("inner", nested["inner"]), ("x", np.float32))
    assert Scalar("i4") != LABEL
    assert repr(LABEL) == "Struct(('label', Scalar(int64)))"
    with pytest.raises(AssertionError, match=r"Values must have 3 elements, got 2\."):
        Record(nested, [1, 2])
    with pytest.raises(AssertionError, match="comes twice"):
        Struct(("x", int), ("x", int))
    with pytest.raises(AssertionError, match="comes twice"):
        Struct(("a:b", "i8"), ("a", Struct(("b", "i4"))))


def test_a_record_is_made_of_a_list_of_values_and_gives_it_back() -> None:
    nested = Struct(("x", np.float32), ("inner", Struct(("y", np.int8), ("z", Scalar(bool)))))
    assert not nested.has_blobs()
    with pytest.raises(AssertionError, match="Value is not set for this field"):
        nested.field_blobs()
    record = from_blob_list(nested, [1.5, 2, True])
    assert record.has_blobs()
    assert record.field_blobs() == [1.5, 2, True]
    assert record.field_names() == nested.field_names()
    assert record.field_types() == nested.field_types()
    assert record["inner"] == {"y": 2, "z": True}
    again = from_blob_list(record, [2.5, 3, False])
    assert (again.schema, again["x"]) == (nested, 2.5)
    assert again.assemble(iter([0, 1, 2])) == {"x": 0, "inner": {"y": 1, "z": 2}}


def test_a_list_of_values_that_does_not_fit_the_schema_is_refused() -> None:
    array = np.zeros(3, np.int64)
    assert from_blob_list(LABEL, [array], throw_on_type_mismatch=True).field_blobs() == [array]
    assert from_blob_list(LABEL, [0.5])["label"] == 0.5
    for schema, values, words in (
        (LABEL, [array, array], r"Values must have 1 element, got 2\. The fields are"),
        (LABEL, [array.astype("f4")], "Expected int64, got float32"),
        (LABEL, [7], "Got 7"),
        (("label", np.int64), [array], "`schema` must be a Field"),
    ):
        with pytest.raises(AssertionError, match=words):
            from_blob_list(schema, values, throw_on_type_mismatch=True)  # type: ignore[arg-type]
