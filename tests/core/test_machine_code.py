"""Machine code is called by address, and lives as long as its object."""

from __future__ import annotations

import ctypes

import pytest

from core.machine_code import MachineCode

ADD = """
define i64 @add(i64 %a, i64 %b) {
  %sum = add i64 %a, %b
  ret i64 %sum
}
"""


def test_a_function_is_called_by_its_address() -> None:
    code = MachineCode(ADD, "add")
    add = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)(code.address)
    assert add(2**40, -3) == 2**40 - 3


def test_a_source_that_is_not_valid_is_refused() -> None:
    with pytest.raises(RuntimeError, match="undefined"):
        MachineCode(ADD.replace("%b)", "%c)"), "add")
