"""The kernel cache: never stale, foreign or differently flagged, and never in the way."""

from __future__ import annotations

import ast
import os
import platform
import shutil
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import llvmlite.binding
import numpy as np
import pytest

from core import _jit, _sources
from core._jit import build_digest, portable_targets
from core._linking import KERNELS
from core.losses._kernels.seen import fill_table

ROOT = Path(__file__).parents[2]

PROBE = """
import sys
sys.path.insert(0, sys.argv[1])
from core import _jit
from core.losses._kernels import seen
import numpy as np
table = np.zeros(8, np.int64)
seen.fill_table(np.array([3], np.int32), 1, 1, table)
print(np.count_nonzero(table) == 1, not table.any(), _jit.is_build_published())
if "publish" in sys.argv:
    print(_jit.publish())
"""
"""Uses one small kernel, so that a cold start takes a second and not a minute."""

QUESTION = """
import sys
sys.path.insert(0, sys.argv[1])
from core import _jit
from core.losses._kernels import seen
print(_jit.is_build_published())
"""

pytestmark = [
    pytest.mark.skipif(
        os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="nothing is compiled in this mode"
    ),
    pytest.mark.once,
]


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A copy of the engine, byte code included, whose sources a test may edit."""
    root = tmp_path / "copy"
    shutil.copytree(ROOT / "core", root / "core")
    return root


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache in which the probe's build was published."""
    directory = tmp_path_factory.mktemp("published")
    shutil.copytree(ROOT / "core", directory / "copy" / "core")
    first = answers(probe(directory / "copy", directory / "cache", "publish"))
    assert first[:3] == ["True", "False", "False"]
    (build,) = (directory / "cache").iterdir()
    assert first[3] == str(build)
    return directory / "cache"


@pytest.fixture
def cache(published: Path, tmp_path: Path) -> Path:
    """That cache, the test's own; its digests hold for every copy of the engine."""
    return shutil.copytree(published, tmp_path / "cache")


def variables_for(package: Path, cache: Path) -> dict[str, str]:
    """An environment in which no other cache than this one can be found."""
    nowhere = str(package.parent / "nowhere")
    Path(nowhere).mkdir(exist_ok=True)
    return {
        "PATH": os.environ["PATH"],
        "PYTHONDONTWRITEBYTECODE": "1",
        "HOME": nowhere,
        "TMPDIR": nowhere,
        "THALWEG_KERNEL_CACHE": str(cache),
    }


def probe(package: Path, cache: Path, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
    variables = variables_for(package, cache) | env
    command = [sys.executable, "-c", PROBE, str(package), *args]
    # Not from the checkout: the copy is what is to be imported.
    return subprocess.run(
        command,
        env=variables,
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
        cwd=package,
    )


def is_published(package: Path, cache: Path, **env: str) -> bool:
    """Whether a build is found, without a kernel that would be compiled if there is none."""
    command = [sys.executable, "-c", QUESTION, str(package)]
    done = subprocess.run(
        command,
        env=variables_for(package, cache) | env,
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
        cwd=package,
    )
    return {"True": True, "False": False}[done.stdout.strip()]


def answers(done: subprocess.CompletedProcess[str]) -> list[str]:
    return done.stdout.split()


def builds(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.iterdir())


def test_a_published_build_is_loaded_and_not_changed(package: Path, cache: Path) -> None:
    (build,) = cache.iterdir()
    before = {path: path.stat().st_mtime_ns for path in build.rglob("*")}
    assert any(path.suffix == ".nbc" for path in before)
    again = probe(package, cache, NUMBA_DEBUG_CACHE="1")
    assert "data loaded from" in again.stdout
    assert "data saved to" not in again.stdout
    assert "True" in again.stdout.splitlines()[-1]
    assert {path: path.stat().st_mtime_ns for path in build.rglob("*")} == before


def test_a_build_holds_kernels_and_not_the_parts_they_are_made_of(cache: Path) -> None:
    (build,) = cache.iterdir()
    names = {path.name.split("-")[0] for path in build.glob("*.nb*")}
    assert names == {"seen.fill_table"}


def test_a_part_raises_through_its_kernel(package: Path, tmp_path: Path) -> None:
    code = PROBE.replace("np.zeros(8,", "np.zeros(0,")
    done = subprocess.run(
        [sys.executable, "-c", code, str(package)],
        env=variables_for(package, tmp_path / "cache") | {"NUMBA_BOUNDSCHECK": "1"},
        cwd=package,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 1
    assert "IndexError: index is out of bounds" in done.stderr


SORTER = """
import numpy as np
from ..._jit import kernel
from ...arrays import Floats, Indices
from .quantiles import _heap_sort

@kernel
def sort_both(first: Floats, second: Floats) -> None:
    _heap_sort(first, np.int64(0), len(first))
    _heap_sort(second, np.int64(0), len(second))
"""
SORTS = """
import sys
sys.path.insert(0, sys.argv[1])
import numpy as np
from core._jit import foreign_kernel
from core.losses._kernels import quantiles, sorter
values = np.random.default_rng(1).random((2, 130))
sorter.sort_both(*values)

@foreign_kernel
def apart(values):
    quantiles._heap_sort(values, np.int64(0), len(values))
    quantiles._heap_sort(values, np.int64(1), len(values))

again = np.random.default_rng(1).random(130)
apart(again)
print((values[0] == np.sort(again)).all(), (again == np.sort(again)).all())
"""


def test_a_caller_s_function_has_parts_of_its_own(package: Path, tmp_path: Path) -> None:
    """Those of a kernel have lost arguments: called as if they had not, they crash."""
    (package / "core" / "losses" / "_kernels" / "sorter.py").write_text(SORTER)
    done = subprocess.run(
        [sys.executable, "-c", SORTS, str(package)],
        env=variables_for(package, tmp_path / "cache"),
        cwd=package,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "True True\n"), done.stderr


def test_what_one_process_compiles_others_load_before_all_is_compiled(
    package: Path, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    assert "data saved to" in probe(package, cache, NUMBA_DEBUG_CACHE="1").stdout
    again = probe(package, cache, NUMBA_DEBUG_CACHE="1").stdout
    assert "data loaded from" in again
    assert "data saved to" not in again
    assert again.split()[-1] == "False"
    assert not is_published(package, cache)


@pytest.mark.skipif(not portable_targets(), reason="the level of this CPU is not known")
def test_a_build_for_any_cpu_is_used_where_there_is_none_for_this_one(
    package: Path, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    level = portable_targets()[-1]
    env = {"NUMBA_CPU_NAME": level, "NUMBA_CPU_FEATURES": ""}
    (*_, portable) = answers(probe(package, cache, "publish", **env))
    found = probe(package, cache, "publish", NUMBA_DEBUG_CACHE="1").stdout
    assert "data loaded from" in found
    assert "data saved to" not in found
    assert found.split()[-2:] == ["True", portable]
    # Whoever asks for another CPU does not get it.
    assert not is_published(package, cache, NUMBA_CPU_NAME="generic")


def test_the_levels_of_a_cpu_are_those_whose_features_it_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = " ".join(_jit._LEVELS.values()).split()
    features = dict.fromkeys(names, True)
    monkeypatch.setattr(llvmlite.binding, "get_host_cpu_features", lambda: features)
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    assert portable_targets() == ["x86-64-v4", "x86-64-v3", "x86-64-v2"]
    features["avx512bw"] = False
    assert portable_targets() == ["x86-64-v3", "x86-64-v2"]
    features["popcnt"] = False
    assert portable_targets() == []
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    assert portable_targets() == ["generic"]
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    assert portable_targets() == []


def test_touching_a_source_changes_nothing_editing_one_does(package: Path, cache: Path) -> None:
    layout = package / "core" / "losses" / "_kernels" / "layout.py"
    os.utime(layout)
    assert is_published(package, cache)
    # A constant imported by the kernel: numba's own cache would not notice.
    layout.write_text(layout.read_text().replace("SEEN_PAGE_BITS = 12", "SEEN_PAGE_BITS = 11"))
    assert answers(probe(package, cache)) == ["True", "False", "False"]


def test_a_new_build_begins_with_the_kernels_that_no_change_has_touched(
    package: Path, cache: Path
) -> None:
    (earlier,) = cache.iterdir()
    kept = {file.name: file.read_bytes() for file in earlier.glob("*.nb[ci]")}
    for source in ("units.py", "losses/__init__.py"):
        with (package / "core" / source).open("a") as file:
            file.write("# Another revision.\n")
        loaded = probe(package, cache, "publish", NUMBA_DEBUG_CACHE="1").stdout
        assert "data loaded from" in loaded
        assert "data saved to" not in loaded
        assert answers(probe(package, cache)) == ["True", "False", "True"]
    builds = set(cache.iterdir())
    assert len(builds) == 3
    # What a change has touched is made anew, in its own build alone.
    with (package / "core" / "losses" / "_kernels" / "layout.py").open("a") as file:
        file.write("# Another layout.\n")
    changed = probe(package, cache, NUMBA_DEBUG_CACHE="1").stdout
    assert "data loaded from" not in changed
    assert "data saved to" in changed
    (newest,) = set(cache.iterdir()) - builds
    assert not kept.keys() & {file.name for file in newest.iterdir()}
    for build in builds:
        assert {file.name: file.read_bytes() for file in build.glob("*.nb[ci]")} == kept


def test_kernels_of_two_builds_are_not_mixed(tmp_path: Path) -> None:
    # The index of one tells of a file that only the other one has.
    for build, files in {"a": ["f.nbi"], "b": ["f.nbi", "f.1.nbc"], "new": []}.items():
        (tmp_path / build).mkdir()
        for file in files:
            (tmp_path / build / file).write_text(build)
    new = tmp_path / "new"
    for build in "ab":
        _jit._link(new, tmp_path / build / "f.nbi")
    assert {file.name: file.read_text() for file in new.iterdir()} == {"f.nbi": "a"}


def test_the_files_of_a_kernel_are_those_of_all_that_it_names() -> None:
    """A value that came in without an import would leave its code stale."""
    import core.warmup  # noqa: F401 - imports all kernels

    for name, compiled in KERNELS.items():
        function = getattr(compiled, "py_func", compiled)
        files = _sources.files_of(function.__module__)
        for used in function.__code__.co_names:
            value = function.__globals__.get(used)
            module = getattr(value, "__module__", None) or ""
            if module.partition(".")[0] == "core":
                assert Path(sys.modules[module].__file__ or "") in files, (name, used)


def test_the_engine_imports_itself_in_the_one_way_that_is_looked_for() -> None:
    for path in (ROOT / "core").rglob("*.py"):
        tree = ast.walk(ast.parse(path.read_bytes()))
        assert not any(
            isinstance(node, ast.Import) and any(n.name.startswith("core") for n in node.names)
            for node in tree
        )


@pytest.mark.parametrize("flag", ["NUMBA_BOUNDSCHECK", "NUMBA_OPT", "NUMBA_CPU_NAME"])
def test_a_flag_that_changes_code_is_another_build(package: Path, cache: Path, flag: str) -> None:
    value = {"NUMBA_CPU_NAME": "generic"}.get(flag, "1")
    assert not is_published(package, cache, **{flag: value})


def test_a_flag_that_does_not_is_the_same_build(package: Path, cache: Path) -> None:
    assert is_published(package, cache, NUMBA_NUM_THREADS="1")


def test_a_moved_package_finds_its_build(package: Path, cache: Path, tmp_path: Path) -> None:
    assert is_published(package, cache)
    moved = package.rename(tmp_path / "elsewhere")
    assert answers(probe(moved, cache)) == ["True", "False", "True"]


@pytest.mark.parametrize("what", ["root", "build"])
def test_a_build_others_could_have_written_is_not_loaded(
    package: Path, cache: Path, what: str
) -> None:
    (build,) = cache.iterdir()
    target = cache if what == "root" else build
    target.chmod(target.stat().st_mode | stat.S_IWOTH)
    assert not is_published(package, cache)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can hand a file to someone else")
def test_a_build_of_another_user_is_not_loaded(package: Path, cache: Path) -> None:
    (build,) = cache.iterdir()
    os.chown(build, 12345, 12345)
    assert answers(probe(package, cache)) == ["True", "False", "False"]


@pytest.mark.parametrize("temporary", ["'/proc/none'", "None"])
def test_without_a_home_or_any_place_to_write_it_still_works(
    package: Path, tmp_path: Path, temporary: str
) -> None:
    code = PROBE.replace(
        "from core import _jit\n",
        f"import tempfile\ntempfile.tempdir = {temporary}\n"
        "tempfile._candidate_tempdir_list = lambda: []\nfrom core import _jit\n",
    )
    env = variables_for(package, Path("/proc/none"))
    command = [sys.executable, "-B", "-c", code, str(package), "publish"]
    done = subprocess.run(
        command,
        env=env | {"HOME": "/proc/none"},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
        cwd=tmp_path,
    )
    assert done.stdout.split() == ["True", "False", "False", "None"]


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="only root can become another user"
)
def test_any_user_can_use_a_build_root_published(package: Path, cache: Path) -> None:
    # The interpreter may lie where other users cannot read: that is not the question.
    become = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    become += ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
    done = subprocess.run(
        [*become, sys.executable, "-c", PROBE, str(package)],
        env=variables_for(package, cache),
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
        cwd="/",
    )
    assert answers(done) == ["True", "False", "True"]


def test_processes_that_race_on_an_empty_cache_all_work(package: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(lambda _: probe(package, cache, "publish"), range(4)))
    assert all(answers(d)[:2] == ["True", "False"] for d in done)
    assert len(builds(cache)) == 1
    assert answers(probe(package, cache))[2] == "True"


def test_a_kernel_that_cannot_be_cached_works(package: Path, tmp_path: Path) -> None:
    """Numba does not cache code with addresses in it, such as that of a large array."""
    (package / "core" / "large.py").write_text("""
import numpy as np
from core._jit import kernel

TABLE = np.arange(1 << 18)

@kernel
def look_up(index):
    return TABLE[index]
""")
    done = subprocess.run(
        [sys.executable, "-c", "from core.large import look_up; print(look_up(7))"],
        env=variables_for(package, tmp_path / "cache"),
        cwd=package,
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert done.stdout == "7\n"
    assert "large.py" in done.stderr


def test_a_full_disk_only_costs_the_cache(package: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    code = PROBE.replace(
        "from core import _jit\n",
        "from core import _jit\nimport resource, signal\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n",
    )
    env = variables_for(package, cache)
    command = [sys.executable, "-B", "-c", code, str(package), "publish"]
    done = subprocess.run(
        command, env=env, capture_output=True, text=True, timeout=300, check=True, cwd=package
    )
    assert done.stdout.split()[:2] == ["True", "False"]
    # What lacks a kernel does not count as complete.
    assert not is_published(package, cache)
    assert answers(probe(package, cache, "publish"))[:3] == ["True", "False", "False"]
    assert is_published(package, cache)


ONE = """
import sys
sys.path.insert(0, sys.argv[1])
from core import _jit
from core.losses._kernels import seen
import numpy as np
log = np.ones(1, np.int32)
log.flags.writeable = sys.argv[2] == "writeable"
seen.fill_table(log, 1, 1, np.zeros(8, np.int64))
seen.mark_event(5, np.ones(9, np.int32), np.zeros((2, 512), np.uint8))
"""
BOTH = """
import sys
sys.path.insert(0, sys.argv[1])
from core import _jit
from core.losses._kernels import seen
import numpy as np
for writeable in (True, False):
    log, table = np.array([3], np.int32), np.zeros(8, np.int64)
    log.flags.writeable = writeable
    seen.fill_table(log, 1, 1, table)
    assert np.count_nonzero(table) == 1
pages = np.zeros((2, 512), np.uint8)
seen.mark_event(5, np.ones(9, np.int32), pages)
assert pages.any()
print({name: k.stats.cache_misses for name, k in _jit.KERNELS.items() if k.stats.cache_misses})
"""


def test_what_processes_compile_at_once_is_one_build(package: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    env = variables_for(package, cache)

    def run(code: str, *args: str) -> str:
        command = [sys.executable, "-c", code, str(package), *args]
        done = subprocess.run(
            command, env=env, capture_output=True, text=True, timeout=300, check=True, cwd=package
        )
        return done.stdout.strip()

    # Specialisations of the same function, which numba would save under the same name.
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda which: run(ONE, which), ["writeable", "read-only"] * 2))
    assert len(builds(cache)) == 1
    assert run(BOTH) == "{}"


def test_a_kernel_for_kernels_cannot_be_called_from_python() -> None:
    from core.losses._kernels.seen import add_block

    fill_table(np.ones(1, np.int32), 1, 1, np.zeros(8, np.int64))
    for _ in range(2):
        with pytest.raises(TypeError, match="add_block"):
            add_block(3, 1, np.zeros(8, np.int64))


def test_the_digest_is_stable_within_a_process() -> None:
    assert build_digest() == build_digest()
    assert len(build_digest()) == 32


def test_kernels_are_registered_by_name() -> None:
    import core.losses._kernels.seen  # noqa: F401 - registers its kernels

    assert "core.losses._kernels.seen.add_block" in KERNELS
