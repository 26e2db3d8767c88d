"""Machine code from LLVM's own language, where a kernel would not do.

A kernel is called by the interpreter and knows addresses only through arrays. A handler of signals
is called by the operating system, on a thread that may not hold the interpreter's lock.
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm


class MachineCode:
    """A function in machine code, which lives as long as this object.

    Args:
        source: a module in LLVM's language.
        name: of the function in it.

    Attributes:
        address: of the function.

    Raises:
        RuntimeError: the source is not valid.
    """

    def __init__(self, source: str, name: str) -> None:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        machine = llvm.Target.from_default_triple().create_target_machine()
        self._engine: Any = llvm.create_mcjit_compiler(llvm.parse_assembly(source), machine)
        self._engine.finalize_object()
        self.address: int = self._engine.get_function_address(name)
