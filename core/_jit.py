"""How kernels are compiled and cached.

Beside this module only :mod:`._linking`, :mod:`._entries` and :mod:`._vectors` import numba.

numba's own cache is keyed per function, by source file time stamp. It serves a
stale kernel when a callee or constant in another file changed, ignores flags
such as ``NUMBA_BOUNDSCHECK``, and two processes that save different
specialisations of one function at the same moment can each be handed the
other's code. So the cache here is a directory per *build*:

* its name is a digest of the versions that generate code, the code-generation flags and the
  CPU, and another one of every source file of the engine;
* a kernel's name has a digest of the files that its code comes from (:mod:`._sources`), so a new
  build begins with the kernels of earlier ones that no change has touched;
* a process saves what it compiles, under a lock, and loads what others have saved;
  so whoever needs a few kernels compiles these, and the next one finds them;
* once :func:`publish` says that it is complete, it never changes;
* it is used only in a directory that nobody else could have written,
  because numba unpickles what it finds there.

Where nothing can be written the kernels still work, compiled in each process.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import platform
import re
import stat
import tempfile
import threading
from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import product, takewhile
from pathlib import Path
from typing import Any, TypeVar, cast

import llvmlite
import llvmlite.binding
import numba
import numpy as np
from numba.extending import is_jitted

from . import _sources
from ._linking import KERNELS, ForeignCompiler, KernelCompiler, PartCompiler

F = TypeVar("F", bound=Callable[..., Any])

CACHE_VARIABLE = "THALWEG_KERNEL_CACHE"
"""Environment variable that names the directory kernel builds are kept in."""

_IRRELEVANT_FLAGS = frozenset(
    {
        "CACHE_DIR",
        "CPU_FEATURES",
        "CPU_NAME",
        "CACHE_LOCATOR_CLASSES",
        "COLOR_SCHEME",
        "DEBUG_CACHE",
        "DISABLE_PERFORMANCE_WARNINGS",
        "FULL_TRACEBACKS",
        "FUNCTION_CACHE_SIZE",
        "NUMBA_DEFAULT_NUM_THREADS",
        "NUMBA_NUM_THREADS",
        "SHOW_HELP",
        "THREADING_LAYER",
        "THREADING_LAYER_PRIORITY",
    }
)
"""numba settings that cannot change generated code, or are of the CPU, which is in the digest
by itself; so are all others."""
_LEVELS = {
    "x86-64-v2": "cx16 popcnt sahf sse4.2 ssse3",
    "x86-64-v3": "avx2 bmi bmi2 f16c fma lzcnt movbe xsave",
    "x86-64-v4": "avx512bw avx512cd avx512dq avx512f avx512vl",
}
"""Features that each level of the architecture adds, by LLVM's names, as its psABI has them."""

_HALF = 16
"""Digits of a build's name that its environment has, and its sources."""
_COMPLETE = "complete"
"""A file that complete builds have."""
_KERNEL = re.compile(r"-([\w.]+)-\d+-([0-9a-f]+)\.")
"""Module and digest in the name of a kernel's index."""
_decorating = threading.Lock()


def _setting(name: str) -> Any:  # noqa: ANN401 - numba fills its settings in at import
    return getattr(numba.config, name)


def _flags() -> str:
    names = (name for name in dir(numba.config) if name.isupper())
    return repr([(name, _setting(name)) for name in names if name not in _IRRELEVANT_FLAGS])


def _target() -> tuple[str, str]:
    """Name and features of the CPU that code is made for, as numba chooses them."""
    name, features = _setting("CPU_NAME"), _setting("CPU_FEATURES")
    if features is None:
        features = llvmlite.binding.get_host_cpu_features().flatten()
    return name or llvmlite.binding.get_host_cpu_name(), features


def portable_targets() -> list[str]:
    """Names of CPUs, the best first, that every CPU of this kind or a later one can stand for."""
    if platform.machine() == "aarch64":
        return ["generic"]
    features = llvmlite.binding.get_host_cpu_features()
    levels = list(takewhile(lambda level: all(map(features.get, _LEVELS[level].split())), _LEVELS))
    return levels[::-1] if platform.machine() == "x86_64" else []


@cache
def build_digest(target: tuple[str, str] | None = None) -> str:
    """Identity of the code this process would generate, for its CPU or another one.

    Args:
        target: name and features of the other one.

    Returns:
        32 hexadecimal digits, of which builds that differ in sources share the first 16.
    """
    parts = [
        platform.python_implementation(),
        platform.python_version(),
        numba.__version__,
        llvmlite.__version__,
        np.__version__,
        platform.machine(),
        *(target or _target()),
        _flags(),
    ]
    environment = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    return environment[:_HALF] + _sources.digest_all()[:_HALF]


def cache_roots() -> Iterator[Path]:
    """Directories that may hold builds, best first."""
    named = os.environ.get(CACHE_VARIABLE)
    if named:
        yield Path(named)
    xdg = os.environ.get("XDG_CACHE_HOME")
    if xdg:
        yield Path(xdg) / "thalweg" / "kernels"
    home = Path(os.path.expanduser("~"))  # noqa: PTH111 - Path.home() raises without a passwd entry
    if home.is_absolute():
        yield home / ".cache" / "thalweg" / "kernels"
    with contextlib.suppress(FileNotFoundError):  # no directory for temporary files
        yield Path(tempfile.gettempdir()) / f"thalweg-kernels-{os.geteuid()}"


def _is_ours_alone(directory: Path) -> bool:
    """Whether we can read it, and only we or the administrator could have put files there."""
    try:
        status = directory.lstat()
    except OSError:
        return False
    if not os.access(directory, os.R_OK | os.X_OK, effective_ids=True):
        return False
    trusted_owner = status.st_uid in (0, os.geteuid())
    return stat.S_ISDIR(status.st_mode) and trusted_owner and not status.st_mode & 0o022


def find_published() -> Path | None:
    """Find a complete build; create nothing.

    One for this very CPU comes first, and then those that an image may carry for any.
    """
    for root in cache_roots():
        if _is_complete(root / build_digest()):
            return root / build_digest()
    if _setting("CPU_NAME") is None:
        for name, root in product(portable_targets(), cache_roots()):
            build = root / build_digest((name, ""))
            if _is_complete(build):
                # What it holds is found by the CPU that it is for.
                setattr(numba.config, "CPU_NAME", name)  # noqa: B010 - see _setting
                setattr(numba.config, "CPU_FEATURES", "")  # noqa: B010 - see _setting
                return build
    return None


def _find_build() -> Path | None:
    """Find a complete build, else the first directory that one can be saved to."""
    if (published := find_published()) is not None:
        return published
    for root in cache_roots():
        build = root / build_digest()
        with contextlib.suppress(OSError):
            root.mkdir(mode=0o700, parents=True, exist_ok=True)
            is_new = not build.exists()
            build.mkdir(mode=0o700, exist_ok=True)
            if _are_ours_alone(build) and os.access(build, os.W_OK):
                if is_new:
                    with contextlib.suppress(OSError):
                        _inherit(build)
                return build
    return None


def _inherit(build: Path) -> None:
    """Begin a build with the kernels of earlier ones whose names say that they still hold."""
    with (build / "lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for earlier in filter(_is_ours_alone, build.parent.glob(f"{build.name[:_HALF]}*")):
            for index in earlier.glob("*.nbi"):
                named = _KERNEL.search(index.name)
                if named and named[2] == _sources.digest_of(named[1])[:_HALF]:
                    _link(build, index)


def _link(build: Path, index: Path) -> None:
    """Take a function's files over, all of the same build: the index numbers the others."""
    if not (build / index.name).exists():
        for file in (*index.parent.glob(f"{index.stem}.*.nbc"), index):
            (build / file.name).hardlink_to(file)


def _is_complete(build: Path) -> bool:
    return _are_ours_alone(build) and (build / _COMPLETE).exists()


def _are_ours_alone(build: Path) -> bool:
    return _is_ours_alone(build.parent) and _is_ours_alone(build)


class _Build:
    """The directory that this process loads kernels from, and saves them to."""

    def __init__(self) -> None:
        self.path = None if _setting("DISABLE_JIT") else _find_build()
        self.complete = self.path is not None and _is_complete(self.path)
        self._has_failed = False

    def save(self, save: Callable[..., None], *args: object) -> None:
        """Save a kernel, unless the build is complete; a full disk only costs the cache.

        Two processes that saved kernels of one function at the same moment would give them the
        same name.
        """
        if self.path is None or self.complete:
            return
        try:
            with (self.path / "lock").open("ab") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                save(*args)
        except OSError:
            self._has_failed = True

    def publish(self) -> None:
        if self.path is not None and not self.complete and not self._has_failed:
            with contextlib.suppress(OSError):
                (self.path / _COMPLETE).touch()
            self.complete = True


@cache
def _build() -> _Build:
    return _Build()


class BuildLocator:
    """Tells numba where a kernel's files are (numba's ``CACHE_LOCATOR_CLASSES`` hook)."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._line = function.__code__.co_firstlineno
        self._module = function.__module__
        # Numba names it in its warning about a kernel that cannot be cached.
        self._py_file = function.__code__.co_filename

    @classmethod
    def from_function(cls, function: Callable[..., Any], _file: str) -> BuildLocator:
        """The locator of one function."""
        return cls(function)

    def get_cache_path(self) -> str:
        """The build's directory."""
        return str(_build().path)

    def get_source_stamp(self) -> str:
        """Freshness of the source: that of its environment, as its name tells the rest."""
        path = _build().path
        return (build_digest() if path is None else path.name)[:_HALF]

    def get_disambiguator(self) -> str:
        """What tells equally named functions apart."""
        return f"{self._module}-{self._line}-{_sources.digest_of(self._module)[:_HALF]}"

    def ensure_cache_path(self) -> None:
        """Called before a save; the directory exists since the build was opened."""


_jit = partial(
    cast("Any", numba.jit), nopython=True, nogil=True, error_model="numpy", no_cfunc_wrapper=True
)
"""Divisions by zero follow numpy. No fast-math flag: kernels test for NaN, and their
results must not depend on a machine's vector width. No entry point for C: nobody calls
one, and it takes a sixth of the time to compile."""


def kernel(function: F) -> F:
    """Compile a function on first use, without the GIL, through the build cache.

    Typed as the identity, so that type checkers see the real signature. Kernels do
    not allocate: they are compiled without numba's reference counts, whose atomic
    operations cost more than the work of a short function (5 to 40 times, measured
    on the functions that read one block).
    """
    return _cached(function)


def subkernel(function: F, **options: bool) -> F:
    """Compile a function that only kernels call.

    It has no entry point for Python, which takes longer to compile than most of these
    functions themselves, and no code of its own in the build: calling it from Python is a
    TypeError.
    """
    if _setting("DISABLE_JIT"):
        return function
    # Before numba looks at the CPU: a build for any may be found.
    _build()
    compiled = _jit(_nrt=False, no_cpython_wrapper=True, pipeline_class=PartCompiler, **options)(
        function
    )
    # numba would call the missing entry point and crash the process.
    compiled.add_overload = partial(_add_subkernel, compiled)
    compiled._compile_for_args = partial(_refuse_call, function.__name__)  # noqa: SLF001 - no public way
    _register(function, compiled)
    return cast("F", compiled)


def inlined(function: F) -> F:
    """Compile a subkernel into each of its callers.

    An array is passed as seven words, and a block's scratch memory as a hundred: more work
    than most functions do for a block. It is for the few functions that every block goes
    through, as each of their callers takes longer to compile.
    """
    return subkernel(function, forceinline=True)


def _add_subkernel(compiled: Any, result: Any) -> None:  # noqa: ANN401 - numba's dispatcher
    """Keep a specialisation where kernels look for it, and nowhere else."""
    compiled.overloads[tuple(result.signature.args)] = result


def _refuse_call(name: str, *_args: object, **_options: object) -> None:
    raise TypeError(f"{name} is compiled for kernels and cannot be called from Python")


def _cached(function: F) -> F:
    if _setting("DISABLE_JIT"):
        return function
    if _build().path is None:
        compiled = _jit(_nrt=False, pipeline_class=KernelCompiler)(function)
    else:
        with _decorating:
            before = _setting("CACHE_LOCATOR_CLASSES")
            setattr(numba.config, "CACHE_LOCATOR_CLASSES", f"{__name__}.{BuildLocator.__name__}")  # noqa: B010 - see _setting
            try:
                compiled = _jit(_nrt=False, cache=True, pipeline_class=KernelCompiler)(function)
            finally:
                setattr(numba.config, "CACHE_LOCATOR_CLASSES", before)  # noqa: B010 - see _setting
        # numba offers no public way to stop a save or to load less; without this attribute
        # the build would still be right, only not protected against a full disk.
        store = getattr(compiled, "_cache", None)
        if store is not None:
            store.save_overload = partial(_build().save, store.save_overload)
            # The public method imports and registers numba's implementations of the language
            # first: a sixth of a second for a process that compiles nothing. The compiler does
            # so itself before it compiles.
            store.load_overload = store._load_overload  # noqa: SLF001 - no public way
    _register(function, compiled)
    return cast("F", compiled)


def _register(function: Callable[..., Any], compiled: object) -> None:
    KERNELS[f"{function.__module__}.{function.__qualname__}"] = compiled


def foreign_kernel(function: F) -> F:
    """Compile a caller's function, or one that closes over it, for this process only.

    A closure's meaning is not in its source, so it must never be cached. The kernels that it
    calls are not compiled again with it, as numba would do, which takes ten seconds for a scan.
    """
    if _setting("DISABLE_JIT") or is_jitted(function):
        return function
    return cast("F", _jit(pipeline_class=ForeignCompiler)(function))


def is_build_published() -> bool:
    """Whether this process loads its kernels from a complete build."""
    return _build().complete


def is_build_begun() -> bool:
    """Whether this process loads kernels that it or another one has compiled before."""
    build = _build()
    return build.complete or (build.path is not None and any(build.path.glob("*.nbi")))


def publish() -> str | None:
    """Declare this process's build complete; return where it is kept, or None."""
    build = _build()
    build.publish()
    return None if build.path is None else str(build.path)
