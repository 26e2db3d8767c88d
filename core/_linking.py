"""How the code of one function gets into the code of another.

Compiling is slow where functions are nested: numba optimises each and makes machine code of
it, then does the same again with its code in the caller, and so on up to the kernel::

    numba    kernel [f [g [h]]]   f [g [h]]   g [h]   h    h is optimised and assembled 4 times
    here     kernel [f [g [h]]]                            once, when the kernel has all parts

So a function that only kernels call (:func:`._jit.subkernel`) is a *part*: translated, simplified,
and no more until a kernel takes it in. Nothing of it is saved but what is in its kernels. That
saves two fifths of the time that all kernels take.

A kernel takes the code of its parts in as its own, which nothing else can call. So LLVM may drop
the arguments that a part does not use: for the arrays of a scan most of a hundred words, which
every call would write to memory, 150 ns for each block of a stream.

A caller's own function (:func:`._jit.foreign_kernel`) may call kernels of the engine. numba would
optimise and assemble a whole scan once more for ten lines around it. Its machine code is already
in this process, so these functions call it where it is.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from typing import Any, ClassVar, cast

from llvmlite.binding import Linkage
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import register_pass
from numba.core.typed_passes import NativeLowering

KERNELS: dict[str, Any] = {}
"""Every kernel by qualified name: what the warm-up has to have compiled."""

_pass: Any = register_pass
_passes: Any = DefaultPassBuilder


class _Library(cast("Any", JITCodeLibrary)):  # type: ignore[misc]
    """Code whose functions are only simplified before they are linked: kernels are optimised whole.

    That takes a thirtieth of the time that all kernels take; they are as fast.
    """

    def _optimize_functions(self, ll_module: Any) -> None:  # noqa: ANN401 - LLVM's
        codegen = self._codegen
        ll_module.data_layout = codegen._data_layout  # noqa: SLF001 - as numba's own
        passes, builder = codegen._function_pass_manager(opt=1, loop_vectorize=False)  # noqa: SLF001 - as above
        for function in ll_module.functions:
            passes.run(function, builder)


class _Part(_Library):
    """The code of a subkernel, with that of its own parts; it cannot run by itself."""

    def finalize(self) -> None:
        self._raise_if_finalized()
        for library in dict.fromkeys(self._linking_libraries):
            self._reload_init.update(library._reload_init)  # noqa: SLF001 - as numba's own
            code = library._get_module_for_linking()  # noqa: SLF001 - as above
            self._final_module.link_in(code, preserve=True)
        if not any(isinstance(library, _Part) for library in self._linking_libraries):
            # Loops vectorise best before they are inlined, and most are in such functions.
            self._optimize_final_module()
        self._finalize_dynamic_globals()
        self._finalized = True


@_pass(mutates_CFG=True, analysis_only=False)
class _PartLowering(cast("Any", NativeLowering)):  # type: ignore[misc]
    """Translates a subkernel into a :class:`_Part`."""

    _name = "thalweg_part_lowering"

    def run_pass(self, state: Any) -> bool:  # noqa: ANN401 - numba's state of a compilation
        state.library = _Part(state.targetctx.codegen(), state.func_id.func_qualname)
        # A copy, as numba keeps what it knows of functions by the flags of this compilation.
        state.flags = state.flags.copy()
        state.flags.no_compile = True
        super().run_pass(state)
        # Callers look code up by its entry point; it has none, so any object is as good.
        entry = object()
        state.targetctx.insert_user_function(entry, state["cr"].fndesc, [state.library])
        state["cr"] = state["cr"]._replace(cfunc=entry)
        return True


class _Whole(cast("Any", JITCodeLibrary)):  # type: ignore[misc]
    """Code with that of its parts, which nothing else calls.

    Were they not its own, numba's loader would take those of a kernel by the same name, of which
    LLVM has dropped arguments.
    """

    _linking_libraries: list[Any]
    _final_module: Any

    def _optimize_final_module(self) -> None:
        for function in self._final_module.functions:
            if function.linkage == Linkage.linkonce_odr and not function.is_declaration:
                function.linkage = Linkage.internal
        super()._optimize_final_module()


class _Foreign(_Whole):
    """The code of a caller's function; it calls the kernels of the engine where they are."""

    def finalize(self) -> None:
        loaded = {
            result.library
            for compiled in KERNELS.values()
            for result in compiled.overloads.values()
            if not isinstance(result.library, _Part)
        }
        self._linking_libraries = [x for x in self._linking_libraries if x not in loaded]
        super().finalize()


@_pass(mutates_CFG=True, analysis_only=False)
class _ForeignLowering(cast("Any", NativeLowering)):  # type: ignore[misc]
    """Translates a caller's function into a :class:`_Foreign`."""

    _name = "thalweg_foreign_lowering"

    def run_pass(self, state: Any) -> bool:  # noqa: ANN401 - numba's state of a compilation
        state.library = _Foreign(state.targetctx.codegen(), state.func_id.func_qualname)
        return bool(super().run_pass(state))


class _Kernel(_Library, _Whole):
    """The code of a kernel."""


@_pass(mutates_CFG=True, analysis_only=False)
class _KernelLowering(cast("Any", NativeLowering)):  # type: ignore[misc]
    """Translates a kernel into a :class:`_Kernel`."""

    _name = "thalweg_kernel_lowering"

    def run_pass(self, state: Any) -> bool:  # noqa: ANN401 - numba's state of a compilation
        state.library = _Kernel(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        return bool(super().run_pass(state))


@contextlib.contextmanager
def _without_collections() -> Iterator[None]:
    """Look for no garbage: compilers make many objects, and to go through them takes a sixth."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class _Compiler(cast("Any", CompilerBase)):  # type: ignore[misc]
    """numba's compiler with another last step."""

    lowering: ClassVar[type]

    def compile_extra(self, func: Any) -> Any:  # noqa: ANN401 - numba's
        with _without_collections():
            return super().compile_extra(func)

    def define_pipelines(self) -> list[Any]:
        pipeline = _passes.define_nopython_pipeline(self.state)
        pipeline.passes = [
            (self.lowering if step is NativeLowering else step, text)
            for step, text in pipeline.passes
        ]
        return [pipeline]


class PartCompiler(_Compiler):
    """Compiles a :class:`_Part`."""

    lowering = _PartLowering


class KernelCompiler(_Compiler):
    """Compiles a :class:`_Kernel`."""

    lowering = _KernelLowering


class ForeignCompiler(_Compiler):
    """Compiles a :class:`_Foreign`."""

    lowering = _ForeignLowering
