"""Scopes of a key against the paths of an entry."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.datasets.files.roots import FileMissingError, PathRefusedError, Roots
from app.datasets.permissions import check_paths, list_files
from app.datasets.spec import parse_dataset
from app.http.identity import Identity


@pytest.fixture
def roots(tmp_path: Path) -> Roots:
    for name in (
        "one/w/a.raw",
        "one/w/b.raw",
        "one/x/a.raw",
        "two/w/c.raw",
        "one/w/z.zarr/zarr.json",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (tmp_path / "one/w/out").symlink_to("../x/a.raw")
    (tmp_path / "one/w/in").symlink_to("a.raw")
    return Roots([tmp_path / "one", tmp_path / "two"])


def check(roots: Roots, scope: str, **entry: object) -> None:
    who = Identity("alice", frozenset({scope}), "0" * 12)
    check_paths(who, roots, parse_dataset({"id": "x", **entry}))


@pytest.mark.parametrize(
    "name",
    [
        "w/a.raw",
        "//w/a.raw",
        "./w/./a.raw",
        "x/../w/a.raw",
        "w/in",
        "w/z.zarr",
        "w/c.raw",
        "../one/w/b.raw",
    ],
)
def test_paths_that_a_scope_covers(roots: Roots, name: str) -> None:
    if name.startswith("//"):
        name = f"/{roots.roots[0]}{name[1:]}"
    check(roots, "register:w/*", files=[name])
    check(roots, f"register:{Path(roots.roots[0]).parent}/*/w/*", files=[name])
    check(roots, "register:*", files=[name])


@pytest.mark.parametrize("pattern", ["w/*.raw", "w/[ab].raw", "w/**/*.raw", "?/a.raw"])
def test_patterns_whose_matches_a_scope_covers(roots: Roots, pattern: str) -> None:
    if pattern.startswith("?"):
        with pytest.raises(PathRefusedError):
            check(roots, "register:w/*", glob=pattern)
    else:
        check(roots, "register:w/*", glob=pattern)


@pytest.mark.parametrize(
    "name",
    [
        *("x/a.raw", "w/../x/a.raw", "w/out", "ww/a.raw", "W/a.raw", "w", "", "x/nothing"),
        *("/etc/passwd", "/w/a.raw", "w/../../../../etc/passwd"),
    ],
)
def test_paths_that_no_scope_covers(roots: Roots, name: str) -> None:
    with pytest.raises(PathRefusedError):
        check(roots, "register:w/*", files=[name or "."])


@pytest.mark.parametrize("member", ["dark", "gain", "excluded"])
def test_corrections_are_files_too(roots: Roots, member: str) -> None:
    check(roots, "register:w/*", files=["w/a.raw"], corrections={member: "w/b.raw"})
    with pytest.raises(PathRefusedError):
        check(roots, "register:w/*", files=["w/a.raw"], corrections={member: "x/a.raw"})


def test_what_a_scope_covers_may_be_missing(roots: Roots) -> None:
    with pytest.raises(FileMissingError):
        check(roots, "register:w/*", files=["w/nothing"])


def test_other_scopes_cover_no_path(roots: Roots) -> None:
    for scope in ("admin", "read:*", "losses"):
        with pytest.raises(PathRefusedError):
            check(roots, scope, files=["w/a.raw"])


def test_directories_are_listed_for_who_may_register_all(roots: Roots, tmp_path: Path) -> None:
    (tmp_path / "one" / "w" / ".hidden").touch()
    (tmp_path / "one" / "w" / "10.raw").touch()
    (tmp_path / "one" / "w" / "9\n.raw").touch()
    (tmp_path / "one" / "w" / "away").symlink_to(tmp_path)
    everybody = Identity("alice", frozenset({"register:*"}), "0" * 12)
    names = ["10.raw", "a.raw", "b.raw", "c.raw", "in", "out", "z.zarr"]
    assert list_files(everybody, roots, "w") == {name: name == "z.zarr" for name in names}
    assert list_files(everybody, roots, "") == {"w": True, "x": True}
    with pytest.raises(PathRefusedError, match="leads through a link to outside"):
        list_files(everybody, roots, "w/away")
    some = Identity("alice", frozenset({"register:w/*"}), "0" * 12)
    with pytest.raises(PathRefusedError, match="and so not list them"):
        list_files(some, roots, "w")
