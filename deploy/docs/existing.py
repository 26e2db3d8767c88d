"""Pages made of documents that the project has anyway; their links lead to pages."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = {
    "README.md": "project/overview.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "CHANGELOG.md": "project/changelog.md",
    "app/README.md": "reference/contract.md",
    "app/client/README.md": "guides/client.md",
    "app/oasis/README.md": "guides/oasis.md",
    "app/runs/README.md": "guides/uploads.md",
    "deploy/README.md": "operation/deployment.md",
    "deploy/LIMITS.md": "operation/limits.md",
    "deploy/SECURITY.md": "operation/security.md",
    "deploy/kubernetes/README.md": "operation/kubernetes.md",
    "deploy/scale.md": "operation/scale.md",
}
"""Page by document."""
_LINK = re.compile(r"\[([^\]]+)\]\(([^)\s]+)\)")
_BLOCK = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)


def write(target: Path) -> None:
    """Write all these pages below a folder."""
    for document, page in PAGES.items():
        path = target / page
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(rewritten((ROOT / document).read_text(), document))


def rewritten(text: str, document: str) -> str:
    """Return a document with links as they are between pages; code stays as it is.

    What is linked and no page, as a file of the source, is named without a link.
    """
    here, page = posixpath.dirname(document), posixpath.dirname(PAGES[document])

    def link(match: re.Match[str]) -> str:
        name, (path, hash_, anchor) = match[1], match[2].partition("#")
        if not path or "://" in path:
            return match[0]
        target = PAGES.get(posixpath.normpath(posixpath.join(here, path)))
        if target is None:
            return name
        return f"[{name}]({posixpath.relpath(target, page)}{hash_}{anchor})"

    parts = _BLOCK.split(text)
    return "".join(p if p.startswith("```") else _LINK.sub(link, p) for p in parts)
