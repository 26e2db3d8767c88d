"""Errors leave the data behind that the failed call worked with."""

from __future__ import annotations

import traceback
import weakref

import numpy as np

from app.tracebacks import forget_locals


def test_the_locals_of_an_error_and_of_its_causes_are_freed_and_its_lines_stay() -> None:
    arrays: list[weakref.ref[np.ndarray]] = []

    def fail(depth: int) -> None:
        array = np.zeros(8)
        arrays.append(weakref.ref(array))
        if depth:
            try:
                fail(depth - 1)
            except (ValueError, LookupError) as e:
                if depth % 2:
                    raise LookupError(str(array)) from e
                raise ValueError(str(array))  # noqa: B904 - its context is a chain, too
        raise ValueError(str(array))

    def caught() -> Exception:
        try:
            fail(4)
        except ValueError as e:
            return e
        raise AssertionError

    error = caught()
    assert all(array() is not None for array in arrays)
    forget_locals(error)
    assert [array() for array in arrays] == [None] * 5
    assert "".join(traceback.format_exception(error)).count("in fail") == 9


def test_errors_that_refer_to_each_other_are_no_endless_chain() -> None:
    first, second = ValueError(), ValueError()
    first.__cause__, second.__cause__ = second, first
    forget_locals(first)
