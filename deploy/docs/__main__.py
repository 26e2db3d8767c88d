"""Build the documentation: ``python -m deploy.docs``.

Pages are written, taken over from documents, or made from the tables of the service; pictures are
those that the tutorials make when they are run. Sphinx makes a site of them in ``build/docs``,
which can be read as files, and which is packed for the service to serve it.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from app.http.routes_operations import BUILT

from . import existing, reference
from .tutorials import PAGES, Tutorial

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
SOURCE, SITE = ROOT / "build" / "docs-source", ROOT / "build" / "docs"
_PICTURES = {"losses": ("--plot", "pictures/ept.png"), "scan": ("-o annulus.png", "annulus.png")}
"""The words of a tutorial by which it draws, and the picture that its page shows."""


def main() -> int:
    """Write the pages, have Sphinx build the site, and pack it."""
    shutil.rmtree(SOURCE, ignore_errors=True)
    shutil.copytree(HERE / "pages", SOURCE)
    shutil.copy(HERE / "conf.py", SOURCE)
    static = shutil.copytree(HERE / "static", SOURCE / "_static")
    shutil.copy(ROOT / "app" / "console" / "static" / "icon.svg", static)
    existing.write(SOURCE)
    reference.write(SOURCE / "reference")
    draw(SOURCE / "tutorials")
    shutil.rmtree(SITE, ignore_errors=True)
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-d"]
    doctrees = ROOT / "build" / "docs-trees"
    subprocess.run([*command, str(doctrees), str(SOURCE), str(SITE)], check=True)  # noqa: S603
    pack(SITE, BUILT)
    print(f"{SITE}, {BUILT} ({BUILT.stat().st_size / 1e6:.1f} MB)")  # noqa: T201 - what it is for
    return 0


def draw(target: Path) -> None:
    """Run the tutorials, and keep the pictures that they make."""
    for name, (words, picture) in _PICTURES.items():
        folder = ROOT / "build" / "docs-tutorials" / name
        shutil.rmtree(folder.parent, ignore_errors=True)
        folder.mkdir(parents=True)
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
        Tutorial(PAGES / f"{name}.md", until=words).run(folder, THALWEG_PORT=str(port))
        shutil.copy(folder / picture, target)


def pack(site: Path, target: Path) -> None:
    """Pack a site into a file, which replaces one of that name once it is whole."""
    partial = target.with_suffix(".partial")
    with ZipFile(partial, "w") as archive:
        for path in sorted(path for path in site.rglob("*") if path.is_file()):
            # The time of a build is no part of what it builds.
            info = ZipInfo(str(path.relative_to(site)))
            info.external_attr = 0o644 << 16
            archive.writestr(info, path.read_bytes(), ZIP_DEFLATED)
    partial.replace(target)


if __name__ == "__main__":
    sys.exit(main())
