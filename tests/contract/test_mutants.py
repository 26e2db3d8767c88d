"""The changes that tests must notice: what is changed, what is not, and the table of survivors."""

from __future__ import annotations

import ast

import pytest

from tests.mutants import survivors
from tests.mutants.changes import Change, changes_of, sample
from tests.mutants.modules import MODULES, ROOT, mirror, missing, unguarded

SOURCE = b'''"""Docstring 1."""

import os
from typing import Protocol, TYPE_CHECKING

if TYPE_CHECKING:
    LIMIT = 1


class Shape(Protocol):
    size: int = 3


@decorated(4)
class Spool:
    """Docstring 2."""

    def put(self, item: Literal[5], *, limit: int = 6) -> Literal[7]:
        detail = f"{item} of {8 + 9}"
        if self.size + item <= limit and not self.full:
            raise FullError(detail, hint="ten" + "eleven", offset=self.size - 12)
        os.fsync(self.file)
        self.log.info("stored", 13)
        assert item != 14
        return min(self.size, item)

    def preload(self) -> None:
        self.put(15, limit=16)
'''
CHANGED = [
    ("Spool.put", "limit: int = 7"),
    ("Spool.put", "if not (self.size + item <= limit and not self.full):"),
    ("Spool.put", "if self.size - item <= limit and not self.full:"),
    ("Spool.put", "if self.size + item < limit and not self.full:"),
    ("Spool.put", "if self.size + item <= limit or not self.full:"),
    ("Spool.put", "if ((self.size + item <= limit)):"),
    ("Spool.put", "if ((not self.full)):"),
    ("Spool.put", "if self.size + item <= limit and (self.full):"),
    ("Spool.put", "pass"),
    ("Spool.put", "offset=self.size + 12"),
    ("Spool.put", "offset=self.size - 13"),
    ("Spool.put", "pass"),
    ("Spool.put", "return None"),
    ("Spool.put", "return max(self.size, item)"),
]


def changed_line(change: Change) -> str:
    """The line that a change is in, as it is then."""
    after = change.apply(SOURCE)
    end = change.start + len(change.new)
    stop = after.find(b"\n", end)
    return after[after.rfind(b"\n", 0, change.start) + 1 : stop].decode().strip()


def test_what_is_data_is_changed_and_nothing_else() -> None:
    found = changes_of("app/spool.py", SOURCE)
    shown = [(change.place, changed_line(change)) for change in found]
    assert len(shown) == len(CHANGED)
    for place, words in CHANGED:
        assert any(where == place and words in line for where, line in shown), words
    for change in found:
        ast.parse(change.apply(SOURCE))
        assert change.before != change.after
        assert SOURCE.splitlines()[change.line - 1].strip()


def test_a_sample_has_every_module_and_stays_the_same_elsewhere() -> None:
    one, two = changes_of("app/spool.py", SOURCE), changes_of("app/other.py", SOURCE)
    assert {c.module for c in sample([*one, *two], 2, 1)} == {"app/spool.py", "app/other.py"}
    drawn = sample(one, 7, 1)
    assert len(drawn) == 7
    assert sample(one, 7, 1) == drawn
    assert sample(one, 7, 2) != drawn
    assert len(sample(one, 99, 1)) == len(one)
    # A line more before all others, and another folder.
    moved = changes_of("core/spool.py", b"# A comment.\n" + SOURCE)
    again = sample(moved, 7, 1)
    assert [c.after for c in again] == [c.after for c in drawn]
    assert [c.line for c in again] == [c.line + 1 for c in drawn]


@pytest.mark.parametrize(
    ("module", "tests"),
    [
        ("app/tokens.py", "tests/app/test_tokens.py"),
        ("app/losses/spool.py", "tests/app/losses/test_spool.py"),
        ("app/client/transport/frames.py", "tests/client/transport/test_frames.py"),
        ("core/losses/reader.py", "tests/core/losses/test_reader.py"),
    ],
)
def test_tests_are_found_by_the_name_of_their_module(module: str, tests: str) -> None:
    assert mirror(module) == tests


def test_every_module_and_test_of_the_table_is_there() -> None:
    assert missing() == []


def test_every_module_of_storage_and_isolation_is_in_the_table() -> None:
    assert unguarded() == []


def test_every_survivor_is_a_change_that_can_be_made_and_has_a_reason() -> None:
    known = survivors.load()
    modules = {row.module for row in known}
    assert modules <= set(MODULES)
    listed = {row[1:4] for row in known}
    sources = {module: (ROOT / module).read_bytes() for module in modules}
    changes = [c for module, source in sources.items() for c in changes_of(module, source, listed)]
    assert survivors.stale(known, changes) == []
