"""Only regular files under the roots are opened, however they are named."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.datasets.files.places import parse_roots
from app.datasets.files.roots import FileMissingError, PathRefusedError, Roots
from app.datasets.files.visits import numerically
from app.errors import BusyError, InvalidOptionError, ServiceError, TooLargeError, problem_of
from tests.descriptors import files_open, nothing_left_open
from tests.scale import examples


def content(roots: Roots, path: str | Path) -> bytes:
    descriptor = roots.open(path)
    try:
        return os.pread(descriptor, 100, 0)
    finally:
        os.close(descriptor)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A root, with files in it, and with what lies beside it."""
    root = tmp_path / "data"
    (root / "sub" / "deep").mkdir(parents=True)
    (root / "a.raw").write_bytes(b"a")
    (root / "sub" / "b.raw").write_bytes(b"b")
    (root / "sub" / "deep" / "c.raw").write_bytes(b"c")
    (tmp_path / "database").mkdir()
    (tmp_path / "database" / "secret").write_bytes(b"secret")
    (tmp_path / "secret").write_bytes(b"secret")
    return root


@pytest.fixture
def roots(data: Path) -> Iterator[Roots]:
    with nothing_left_open():
        yield Roots([data])


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a.raw", b"a"),
        ("sub/b.raw", b"b"),
        ("sub//deep/./c.raw", b"c"),
        ("sub/deep/../b.raw", b"b"),
        ("sub/../a.raw", b"a"),
        ("./a.raw", b"a"),
    ],
)
def test_files_inside_are_opened(roots: Roots, data: Path, name: str, expected: bytes) -> None:
    assert content(roots, name) == expected
    assert content(roots, f"{data}/{name}") == expected
    assert content(roots, f"//{data}/{name}") == expected


@pytest.mark.parametrize(
    "name",
    [
        "../secret",
        "sub/../../secret",
        "../data/../secret",
        "../database/secret",
        "../data",
        "../nothing at all",
        "/etc/passwd",
        "//etc/passwd",
        "/etc/nothing at all",
        "/proc/self/environ",
        "/proc/self/root/etc/passwd",
        "/",
        "",
        ".",
        "..",
        "a\0.raw",
        "a.raw\0",
        "a.raw\n",
        "\udcff",
        "x/" * 200,
    ],
)
def test_what_is_named_outside_is_refused(roots: Roots, name: str) -> None:
    with pytest.raises(PathRefusedError):
        roots.open(name)
    with pytest.raises(PathRefusedError):
        roots.expand([name])


@pytest.mark.parametrize(
    "name",
    [
        "nothing",
        "sub/nothing",
        "nothing/a.raw",
        "a.raw/x",
        "~/a.raw",
        "~root",
        "$HOME",
        "%2e%2e/secret",
        "..%2fsecret",
        "..\\secret",
        "\uff0e\uff0e/secret",
        "\u2024\u2024/secret",
        "A.RAW",
        "a.raw ",
        "n" * 300,
    ],
)
def test_what_is_not_there_is_missing(roots: Roots, name: str) -> None:
    with pytest.raises(FileMissingError):
        roots.open(name)
    with pytest.raises(FileMissingError):
        roots.expand([name])


def test_errors_do_not_tell_what_lies_outside(roots: Roots, data: Path) -> None:
    (data / "there").symlink_to(data.parent / "secret")
    (data / "not-there").symlink_to(data.parent / "nothing")
    (data / "not-allowed").symlink_to("/proc/1/mem")
    said = set()
    for name in ("there", "not-there", "not-allowed"):
        with pytest.raises(PathRefusedError) as caught:
            roots.open(name)
        said.add(str(caught.value).replace(name, "x"))
    (words,) = said
    assert words.startswith("'x' leads through a link to outside of the served directories")
    with pytest.raises(PathRefusedError, match="is not below a served directory"):
        roots.open("/etc/hosts")


@pytest.mark.parametrize("always", [False, True])
def test_a_link_that_is_replaced_while_it_is_followed(
    roots: Roots, data: Path, monkeypatch: pytest.MonkeyPatch, always: bool
) -> None:
    (data / "broken").symlink_to(data.parent / "nothing")
    follow, failures = os.path.realpath, 0

    def fail(path: str) -> str:
        nonlocal failures
        failures += path.endswith("broken")
        if path.endswith("broken") and (always or failures == 1):
            raise FileNotFoundError(path)
        return follow(path)

    monkeypatch.setattr("os.path.realpath", fail)
    with pytest.raises(PathRefusedError, match="leads through a link to outside"):
        roots.open("broken")


def test_links_inside_are_followed(roots: Roots, data: Path) -> None:
    (data / "link.raw").symlink_to("sub/b.raw")
    (data / "far.raw").symlink_to(data / "sub" / ".." / "sub" / "b.raw")
    (data / "folder").symlink_to("sub")
    assert content(roots, "link.raw") == content(roots, "far.raw") == b"b"
    assert content(roots, "folder/deep/c.raw") == b"c"
    assert roots.expand(["folder/*.raw"]) == [data / "folder" / "b.raw"]


def test_links_outside_are_refused(roots: Roots, data: Path) -> None:
    (data / "file").symlink_to("../secret")
    (data / "chain").symlink_to("file")
    (data / "folder").symlink_to("..")
    (data / "self").symlink_to("/proc/self/fd")
    (data / "round").symlink_to("round")
    for name in ("file", "chain", "folder/secret", "folder/data/../secret", "self/0", "round"):
        with pytest.raises(PathRefusedError):
            roots.open(name)
    # It leads out and in again: where it ends is what counts.
    assert content(roots, "folder/data/a.raw") == b"a"
    for pattern in ("fil?", "folder/*", "folde[r]/secret", "*/secret", "chai*"):
        with pytest.raises(PathRefusedError):
            roots.expand([pattern])
    with pytest.raises(FileMissingError):
        roots.expand(["**/secret"])


def test_a_root_may_be_a_link_and_come_late(data: Path) -> None:
    root = data.parent / "link"
    roots = Roots([root])
    with pytest.raises((FileMissingError, PathRefusedError)):
        roots.open("a.raw")
    root.symlink_to(data)
    assert content(roots, "a.raw") == b"a"
    assert content(roots, root / "a.raw") == b"a"
    # Under another name it is not what is served.
    with pytest.raises(PathRefusedError):
        roots.open(data / "a.raw")


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        here = Path.cwd()
        os.chdir(path.parent)
        made.bind(path.name)
        os.chdir(here)


def _device(path: Path) -> None:
    path.symlink_to("/dev/null")


@pytest.mark.parametrize("make", [_fifo, _socket, _device, Path.mkdir])
def test_only_regular_files(roots: Roots, data: Path, make: Callable[[Path], None]) -> None:
    make(data / "odd.raw")
    with pytest.raises(PathRefusedError):
        roots.open("odd.raw")
    if make is Path.mkdir:
        assert roots.expand(["*.raw"]) == [data / "a.raw"]
    else:
        with pytest.raises(PathRefusedError):
            roots.expand(["*.raw"])


def test_a_link_to_nowhere_is_not_passed_over(roots: Roots, data: Path) -> None:
    (data / "gone.raw").symlink_to("nothing")
    with pytest.raises(PathRefusedError, match="broken link"):
        roots.expand(["*.raw"])
    with pytest.raises(FileMissingError):
        roots.open("gone.raw")


def test_a_path_that_is_changed_all_the_time_never_leads_out(roots: Roots, data: Path) -> None:
    """A directory and a link to the outside take turns at one name."""
    (data / "real").mkdir()
    (data / "real" / "secret").write_bytes(b"inside")
    (data / "way").symlink_to("real")
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            for target in ("..", "real"):
                (data / "fresh").symlink_to(target)
                (data / "fresh").replace(data / "way")

    thread = threading.Thread(target=swap)
    thread.start()
    seen = {True: 0, False: 0}
    try:
        # As often as is worth it, and on until both ways were met: who runs is chance.
        for turn in range(200_000):
            if turn >= examples(1500) and min(seen.values()):
                break
            try:
                found = content(roots, "way/secret")
            except ServiceError:
                seen[False] += 1
            else:
                assert found == b"inside"
                seen[True] += 1
    finally:
        stop.set()
        thread.join()
    assert min(seen.values()) > 0


def test_several_roots(data: Path) -> None:
    other = data.parent / "database"
    roots = parse_roots(f"{data}{os.pathsep}{os.pathsep}{other}")
    assert roots.roots == (str(data), str(other))
    assert content(roots, "a.raw") == b"a"
    assert content(roots, "secret") == b"secret"
    assert content(roots, other / "secret") == b"secret"
    assert roots.expand(["sub/*", "sec*"]) == [data / "sub" / "b.raw", other / "secret"]
    # A link from one root to another stays inside.
    (data / "link").symlink_to(other / "secret")
    assert content(roots, "link") == b"secret"


@pytest.mark.parametrize("text", ["/", "//", "/etc/..", "..", "~"])
def test_roots_that_are_none(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/etc")
    monkeypatch.setenv("HOME", "/")
    with pytest.raises(ValueError, match="absolute path other than /"):
        parse_roots(text)


def test_a_relative_root_begins_where_the_service_is_started(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(data.parent)
    monkeypatch.setenv("HOME", str(data.parent))
    roots = parse_roots(f"{data.name}{os.pathsep}./{data.name}/sub{os.pathsep}~/{data.name}/sub")
    assert roots.roots == (str(data), *[str(data / "sub")] * 2)
    assert content(roots, "a.raw") == b"a"


def test_without_roots_nothing_is_served() -> None:
    roots = parse_roots("")
    for name in ("a.raw", "/etc/passwd", "*"):
        with pytest.raises(PathRefusedError):
            roots.open(name)
        with pytest.raises(PathRefusedError):
            roots.expand([name])


def test_five_thousand_files_in_the_order_of_their_numbers(roots: Roots, data: Path) -> None:
    many = data / "many"
    many.mkdir()
    for k in range(5000):
        (many / f"scan_{k}.raw").touch()
    (many / "scan_7.txt").touch()
    (many / ".scan_7.raw").touch()
    assert roots.expand(["many/*.raw"]) == [many / f"scan_{k}.raw" for k in range(5000)]
    assert len(roots.expand(["many/scan_*5.raw"])) == 500
    with pytest.raises(TooLargeError):
        roots.expand(["many/*.raw"], limit=4999)
    with pytest.raises(TooLargeError, match="more than 5000 with those of 'many") as caught:
        roots.expand(["a.raw", "many/*.raw"], limit=5000)
    assert caught.value.members == {"limit": "files", "allowed": 5000, "setting": None}


def test_patterns(roots: Roots, data: Path) -> None:
    (data / "sub" / ".hidden.raw").touch()
    (data / ".hidden").mkdir()
    (data / ".hidden" / "h.raw").touch()
    (data / "x[1].raw").write_bytes(b"literal")
    (data / "x1.raw").write_bytes(b"one")
    (data / "d[1]").mkdir()
    (data / "d[1]" / "y.raw").touch()

    def names(*patterns: str) -> list[str]:
        return [str(path.relative_to(data)) for path in roots.expand(patterns)]

    everything = ["a.raw", "d[1]/y.raw", "sub/b.raw", "sub/deep/c.raw", "x1.raw", "x[1].raw"]
    assert names("**/*.raw") == everything
    assert names(f"{data}/**/*.raw") == everything
    assert names("**") == everything
    assert names("sub/**/*.raw") == ["sub/b.raw", "sub/deep/c.raw"]
    assert names("**/deep/*") == ["sub/deep/c.raw"]
    assert names("*/b.raw") == ["sub/b.raw"]
    assert names("*/*/c.raw") == ["sub/deep/c.raw"]
    assert names("sub/.h*") == ["sub/.hidden.raw"]
    assert names("x[1].raw") == ["x[1].raw"]
    assert names("x[[]1].raw") == ["x[1].raw"]
    assert names("x[0-9].raw") == ["x1.raw"]
    assert names("d[1]/*.raw") == ["d[1]/y.raw"]
    assert names("x*", "a.raw") == ["x1.raw", "x[1].raw", "a.raw"]
    for pattern in ("*.tif", "*/*/*/*", "nothing/*", "a.raw/*", "**/*.tif", "[", "sub"):
        with pytest.raises(FileMissingError):
            roots.expand([pattern])
    with pytest.raises(InvalidOptionError):
        roots.expand(["a.raw", "*.raw"])
    with pytest.raises(PathRefusedError):
        roots.expand(["../*"])


def test_files_below_a_directory(roots: Roots, data: Path) -> None:
    assert roots.directory("sub/deep") == data / "sub" / "deep"
    assert [roots.directory(name) for name in ("a.raw", "nothing")] == [None, None]
    store = data / "store"
    (store / "c").mkdir(parents=True)
    (store / ".git").mkdir()
    for name in ("zarr.json", "c/10", "c/2", ".attributes", ".git/x"):
        (store / name).touch()
    (store / "link").symlink_to(data / "a.raw")
    files, directories = roots.below(store, limit=4)
    assert [str(path.relative_to(store)) for path in files] == ["c/2", "c/10", "link", "zarr.json"]
    assert set(directories) == {store, store / "c"}
    with pytest.raises(TooLargeError, match="more than 3 files"):
        roots.below(store, limit=3)
    (store / "d").symlink_to(data / "sub")
    with pytest.raises(PathRefusedError, match="link to a directory"):
        roots.below(store)


def test_too_much_to_look_through(roots: Roots, data: Path) -> None:
    for k in range(30):
        (data / f"f{k}").touch()
    with pytest.raises(TooLargeError) as caught:
        Roots([data], max_entries=20).expand(["*.tif"])
    assert problem_of(caught.value).members["setting"] == "THALWEG_MAX_ENTRIES"
    with pytest.raises(TooLargeError):
        Roots([data], max_entries=20).below(data)
    few = Roots([data], max_entries=90)
    assert len(few.expand(["f1*", "f2*"])) == 22
    with pytest.raises(TooLargeError, match="more than 90"):
        few.expand(["f1*", "f2*", "f3*", "f4"])
    folder = data
    for _ in range(101):
        folder /= "d"
        folder.mkdir()
    with pytest.raises(TooLargeError):
        roots.expand(["**/*.tif"])


def test_names_that_cannot_be_said_are_not_passed_over(roots: Roots, data: Path) -> None:
    with Path(os.fsdecode(os.fsencode(data) + b"/\xff.raw")).open("wb"):
        pass
    with pytest.raises(PathRefusedError):
        roots.expand(["*.raw"])


def test_too_many_open_files(roots: Roots, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_more(*_: object) -> int:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(os, "open", no_more)
    with pytest.raises(BusyError):
        roots.open("a.raw")


@given(st.lists(st.integers(0, 10**30), unique=True))
def test_numbers_sort_as_numbers(numbers: list[int]) -> None:
    paths = [Path(f"/x3/scan_{k}_of_5.raw") for k in numbers]
    expected = [Path(f"/x3/scan_{k}_of_5.raw") for k in sorted(numbers)]
    assert sorted(paths, key=numerically) == expected


@given(st.lists(st.text("ab/.*?[]!-012\n\0~ \udc80", max_size=12), min_size=1, max_size=3))
def test_whatever_is_asked_for_is_inside_or_refused(patterns: list[str]) -> None:
    root = Path(__file__).parent
    roots = Roots([root])
    try:
        found = roots.expand(patterns, limit=50)
    except ServiceError:
        found = []
    assert all(root in path.parents for path in found)
    assert not files_open(root)


# -- the data directory of the service ------------------------------------------------------


def test_problems_show_paths_below_the_roots_only(data: Path, roots: Roots) -> None:
    (data / "loop").symlink_to("loop")
    (data / "broken").symlink_to("nothing")
    (data / "sub" / "link").symlink_to("deep")
    os.mkfifo(data / "pipe")
    for act in (
        lambda: roots.open(data / "none"),
        lambda: roots.open(data / "loop"),
        lambda: roots.open(data / "sub"),
        lambda: roots.open(data / "a.raw" / "b"),
        lambda: roots.expand(["loop"]),
        lambda: roots.expand(["brok*"]),
        lambda: roots.expand(["pipe"]),
        lambda: roots.expand([str(data / "pip*")]),
        lambda: roots.expand([str(data / "none")]),
        lambda: roots.below(data / "sub"),
        lambda: roots.below(data / "sub", limit=0),
    ):
        with pytest.raises(ServiceError) as caught:
            act()
        problem = problem_of(caught.value)
        assert str(data) not in problem.detail + str(problem.members), problem


@pytest.fixture
def private(tmp_path: Path) -> Path:
    """A data directory with a key in it, beside the roots."""
    directory = tmp_path / "state"
    (directory / "inputs").mkdir(parents=True)
    (directory / "token.keys").write_bytes(b"key")
    return directory


@pytest.mark.parametrize("root", [".", "state", "state/inputs", "link", "link/inputs", "up/.."])
def test_roots_that_would_serve_the_keys_are_refused(
    data: Path, private: Path, tmp_path: Path, root: str
) -> None:
    (tmp_path / "link").symlink_to(private)
    (tmp_path / "up").symlink_to(data)
    for directory in (private, tmp_path / "link"):
        with pytest.raises(ValueError, match="THALWEG_DATA_DIR"):
            Roots([data, tmp_path / root], directory)
    Roots([data], private)
    Roots([tmp_path / root])


def test_a_data_directory_that_is_yet_to_be_made_counts_too(data: Path) -> None:
    with pytest.raises(ValueError, match="THALWEG_DATA_DIR"):
        parse_roots(str(data), data / "new" / "state")
    parse_roots(str(data), data.with_name("data-of-the-service"))


def test_a_link_into_the_data_directory_is_not_followed(
    data: Path, private: Path, tmp_path: Path
) -> None:
    moving = tmp_path / "moving"
    moving.symlink_to(data)
    roots = Roots([data, moving], private)
    (data / "keys").symlink_to(private / "token.keys")
    (data / "all").symlink_to(private)
    for name in ("keys", "all/token.keys", f"{private}/token.keys"):
        with pytest.raises(PathRefusedError):
            roots.open(name)
    with pytest.raises(PathRefusedError):
        roots.directory("all")
    # A root that becomes a link there, after the start.
    moving.unlink()
    moving.symlink_to(private)
    for name in (f"{moving}/token.keys", f"{moving}/inputs/../token.keys"):
        with pytest.raises(PathRefusedError):
            roots.open(name)
    with pytest.raises((PathRefusedError, FileMissingError)):
        roots.expand([f"{moving}/*"])
    with pytest.raises(PathRefusedError):
        roots.below(moving)
    # Without the data directory the root leads where it leads.
    assert content(Roots([moving]), "token.keys") == b"key"


def test_a_name_that_begins_at_a_root_is_told_how_to_begin(tmp_path: Path) -> None:
    with pytest.raises(FileMissingError) as beside:
        Roots([tmp_path]).expand([f"{tmp_path.name}/s.raw"])
    assert str(beside.value.hint).endswith("roots of the service: here, 's.raw'")
    with pytest.raises(FileMissingError) as other:
        Roots([tmp_path]).expand(["~/s.raw"])
    assert "~ stands for no directory" in str(other.value.hint)
