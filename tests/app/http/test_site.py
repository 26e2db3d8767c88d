"""Files of the documentation, from a packed site and from a running service."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import pytest

from app.errors import NotFoundError
from app.http.routes_operations import Site, policy_of
from tests.app.harness import Post, Service, ask, is_problem
from tests.scale import PURE_PYTHON

PAGE = (
    b"<html><head><style>p{}</style><style></style><script src='a.js'></script>"
    b'<script type="module">\nrun("a");\n</script></head>'
    b'<body style="color: &quot;red&quot;"><p>words</p></body></html>'
)
FILES = {
    "index.html": PAGE,
    "tutorials/index.html": b"<p>tutorials</p>",
    "_static/site.css": b"p{}",
    "_static/icon.svg": b"<svg/>",
    "objects.inv": b"\0",
}


def pack(path: Path, files: dict[str, bytes]) -> Path:
    with ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Service, Path]]:
    if PURE_PYTHON:
        pytest.skip("the server is a process of its own, whatever kernels are here")
    directory = tmp_path_factory.mktemp("documentation")
    site = pack(directory / "site.zip", FILES)
    service = Service(directory / "service", docs_site=site, api_keys="0" * 64)
    try:
        yield service, site
        assert service.stop() == 0
        assert not service.failures()
    finally:
        service.kill()


def digest(text: bytes) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text).digest()).decode()}'"


def test_a_policy_has_the_hashes_of_what_is_written_in_the_page() -> None:
    parts = dict(part.split(" ", 1) for part in policy_of(PAGE).split("; "))
    assert parts["default-src"] == "'none'"
    script, style, attribute = map(digest, (b'\nrun("a");\n', b"p{}", b'color: "red"'))
    assert parts["script-src"] == f"'self' {script}"
    assert parts["style-src"] == f"'self' {style} 'unsafe-hashes' {attribute}"
    plain = policy_of(b"<p>words</p>")
    assert "script-src 'self'; style-src 'self'; " in plain
    assert "unsafe" not in plain


def test_a_folder_is_its_index(tmp_path: Path) -> None:
    site = Site(pack(tmp_path / "site.zip", FILES))
    assert site.is_built
    assert site.read("").content == PAGE
    assert site.read("tutorials/").content == FILES["tutorials/index.html"]
    for name in ("tutorials", "/index.html", "../index.html", "_static/", "index.html\0"):
        with pytest.raises(NotFoundError, match="no page"):
            site.read(name)


def test_a_site_that_is_missing_or_damaged(tmp_path: Path) -> None:
    damaged = pack(tmp_path / "damaged.zip", FILES)
    octets = damaged.read_bytes()
    damaged.write_bytes(octets.replace(b"<p>words</p>", b"<p>wordz</p>"))
    (tmp_path / "cut.zip").write_bytes(octets[:-40])
    for name in ("damaged", "cut", "missing"):
        with pytest.raises(NotFoundError, match="no documentation site") as caught:
            Site(tmp_path / f"{name}.zip").read("")
        assert "make docs" in str(caught.value.hint)


def test_pages_are_served_without_a_key_and_kept_by_browsers(
    served: tuple[Service, Path],
) -> None:
    service, site = served
    answer = service.get("/docs/?v=1")
    assert (answer.status, answer.media_type, answer.body) == (200, "text/html", PAGE)
    assert answer.getheader("Content-Security-Policy") == policy_of(PAGE)
    assert answer.getheader("Cache-Control") == "no-cache"
    bare = service.get("/docs/", method="HEAD")
    assert (bare.status, bare.body) == (200, b"")
    etag = str(answer.getheader("ETag"))
    assert bare.getheader("ETag") == etag
    again = service.get("/docs/", [("If-None-Match", etag)])
    assert (again.status, again.body, again.getheader("ETag")) == (304, b"", etag)
    pack(site, FILES | {"index.html": b"<p>newer</p>"})
    assert service.get("/docs/", [("If-None-Match", etag)]).body == b"<p>newer</p>"
    pack(site, FILES)


@pytest.mark.parametrize(
    ("name", "media_type"),
    [
        ("_static/site.css", "text/css"),
        ("_static/icon.svg", "image/svg+xml"),
        ("objects.inv", "application/octet-stream"),
    ],
)
def test_files_have_their_types(served: tuple[Service, Path], name: str, media_type: str) -> None:
    answer = served[0].get(f"/docs/{name}")
    assert (answer.status, answer.media_type, answer.body) == (200, media_type, FILES[name])
    assert answer.getheader("X-Content-Type-Options") == "nosniff"


@pytest.mark.parametrize(
    "path",
    [
        *("/docs/nothing.html", "/docs/..", "/docs/../etc/passwd", "/docs/%00", "/docs/%ff"),
        *("/docs/%2e%2e/%2e%2e/etc/passwd", "/docs//etc/passwd", "/docs/..%2f..%2fetc%2fpasswd"),
    ],
)
def test_nothing_else_can_be_read(served: tuple[Service, Path], path: str) -> None:
    for method in ("GET", "HEAD"):
        answer = served[0].get(path, method=method)
        assert answer.status in ({404} if path.startswith("/docs/%") else {401, 404})
        assert b"root:" not in answer.body


def test_nothing_can_be_written(served: tuple[Service, Path]) -> None:
    answer = ask(served[0], Post("/docs/index.html", [b"x"], method="PUT"))
    is_problem(answer, "method-not-allowed", 405)


def test_other_pages_lead_to_the_site(served: tuple[Service, Path]) -> None:
    for path, link in (("/docs", b'href="docs/"'), ("/", b'href="/docs/"')):
        assert link in served[0].get(path, [("Accept", "text/html")]).body
