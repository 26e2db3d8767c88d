"""Pages of the documentation: what they are made of, and where their links lead."""

from __future__ import annotations

import posixpath
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import pytest

from app.errors import KINDS
from app.http.routes_operations import Site
from app.portfolio.layering import LAYERS
from app.portfolio.query import Query
from app.settings import Settings
from core.losses.reports import REPORTS
from core.pipelines.operations import OPERATIONS
from core.pipelines.reference import reference as stages
from core.portfolio import programme
from core.portfolio.contributions import KEYS
from core.portfolio.uncertainty import BANDS
from core.tiles.formats import FORMATS
from deploy.docs import existing, reference
from deploy.docs.__main__ import HERE, pack
from tests.scale import PURE_PYTHON

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(PURE_PYTHON, reason="pages are the same however kernels run")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All pages as Sphinx gets them."""
    target = tmp_path_factory.mktemp("pages") / "source"
    shutil.copytree(HERE / "pages", target)
    existing.write(target)
    reference.write(target / "reference")
    return target


def links(path: Path) -> Iterator[str]:
    text = re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)\s#]+)[^)]*\)", text):
        if "://" not in target:
            yield target


def test_links_lead_to_pages(source: Path) -> None:
    checked = 0
    for path in source.rglob("*.md"):
        for target in links(path):
            assert target.endswith(".png") or (path.parent / target).exists(), (path, target)
            checked += 1
    assert checked > 60


def test_the_index_leads_to_every_page(source: Path) -> None:
    listed = re.findall(r"^([a-z]+/[a-z]+)$", (source / "index.md").read_text(), re.MULTILINE)
    pages = {str(path.relative_to(source).with_suffix("")) for path in source.rglob("*/*.md")}
    assert sorted(listed) == sorted(pages)


@pytest.mark.parametrize("page", ["README.md", "deploy/docs/pages/explanation/formats.md"])
def test_every_format_is_named(page: str) -> None:
    text = (ROOT / page).read_text().lower()
    # What is recognised only to be refused is no format that is read.
    assert [name for name in FORMATS if name not in text and name != "raw_csr"] == []


def test_every_stage_has_a_row() -> None:
    rows = re.findall(r"^\| (`.+?`) \|", (ROOT / "app" / "README.md").read_text(), re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert OPERATIONS.keys() - named == {"delay"}


def test_links_of_documents_are_those_between_their_pages() -> None:
    text = "[a](../deploy/README.md#keys) [`b`](client/README.md) [c](#here) [d](../LICENSE)"
    assert existing.rewritten(text, "app/README.md") == (
        "[a](../operation/deployment.md#keys) [`b`](../guides/client.md) [c](#here) d"
    )
    code = "```python\nx[0](LICENSE)\n```\n"
    assert existing.rewritten(code, "README.md") == code


@pytest.mark.parametrize(
    ("page", "names"),
    [
        ("problems", [f"## {code}\n" for code in KINDS]),
        ("settings", [f"| `THALWEG_{name.upper()}` |" for name in Settings.model_fields]),
        ("reports", [f"`{c.name}`" for report in REPORTS.values() for c in report.columns]),
        ("portfolios", [f"| `{name}` |" for name in (*Query.model_fields, *programme.FIELDS)]),
        ("portfolios", [f"`{c.name}`" for r in (LAYERS, BANDS, KEYS) for c in r.columns]),
        ("stages", [f"## {name}\n" for name in stages()["stages"]]),
        ("stages", ['{"op": "scan", "fn": "count", "field": "label", "args": {}}']),
        ("stages", [f"### map {name}\n" for name in stages()["map"]]),
        ("routes", [r"## PATCH /v1/runs/\{run}/streams/\{stream}", "## GET /healthz"]),
        ("commands", ["### thalweg run upload\n", "### thalweg-server aggregate\n", "--live"]),
        ("python", ["autoclass:: app.client.client.Client\n", "## client.losses\n", "## View\n"]),
    ],
)
def test_reference_has_all_there_is(source: Path, page: str, names: list[str]) -> None:
    text = (source / "reference" / f"{page}.md").read_text()
    assert [name for name in names if name not in text] == []


def test_settings_have_their_docstrings(source: Path) -> None:
    text = (source / "reference" / "settings.md").read_text()
    assert (
        "| `THALWEG_LANES` | `auto` | Processes by lane, such as `front=1,quick=1,long=2`" in text
    )


def test_a_packed_site_is_what_was_built(tmp_path: Path) -> None:
    site = tmp_path / "site"
    (site / "a").mkdir(parents=True)
    (site / "index.html").write_text("<p>one</p>")
    (site / "a" / "b.css").write_text("p{}")
    packed = tmp_path / "site.zip"
    pack(site, packed)
    first = packed.read_bytes()
    (site / "index.html").touch()
    pack(site, packed)
    assert packed.read_bytes() == first
    assert ZipFile(packed).namelist() == [posixpath.join("a", "b.css"), "index.html"]
    assert Site(packed).read("").content == b"<p>one</p>"
