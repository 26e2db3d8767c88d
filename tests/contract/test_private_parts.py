"""What the code uses of libraries that they do not promise to keep is listed in one place."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
TABLE = (ROOT / "CONTRIBUTING.md").read_text().split("## Private parts")[1].split("\n## ")[0]
PRIVATE = re.compile(
    r"# noqa: SLF001|^ *(from|import) (?!core|app)[a-z]\w*(\.\w+)*\._", re.MULTILINE
)
OURS = {
    "app/engine/workers.py",
    "app/server/worker.py",  # the documented way to see other threads
    "core/compat/dataio/_readers.py",
    "core/losses/analysis.py",
    "core/losses/ledger/ledger.py",
}
"""Files that use private parts of the engine or the application alone."""


def test_every_file_that_uses_private_parts_is_listed() -> None:
    using = {
        str(path.relative_to(ROOT))
        for package in ("app", "core")
        for path in (ROOT / package).rglob("*.py")
        if PRIVATE.search(path.read_text())
    }
    assert using >= OURS
    assert {path for path in using - OURS if f"`{path}`" not in TABLE} == set()
    listed = set(re.findall(r"`((?:app|core)/[\w/]+\.py)`", TABLE))
    assert {path for path in listed if not (ROOT / path).is_file()} == set()


def test_only_libraries_of_the_table_are_pinned_from_above() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pinned = [re.split(r"[\[<>=]", each)[0] for each in project["dependencies"] if "<" in each]
    assert pinned
    assert [name for name in pinned if name not in TABLE.lower()] == []
