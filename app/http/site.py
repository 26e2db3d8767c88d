"""The documentation as a site, which ``make docs`` packs into one file.

Pages are looked up by name in that file, so no path can lead out of it. Each page has a policy of
its own: nothing is loaded but from this service, and of scripts and styles that are written in the
page only those that it was packed with::

    Content-Security-Policy: default-src 'none'; script-src 'self' 'sha256-…'; …
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple
from zipfile import BadZipFile, ZipFile
from zlib import error as ZlibError  # noqa: N812 - a class

from xxhash import xxh3_64_hexdigest

from app.errors import NotFoundError

from .media_types import FILE_TYPES

BUILT = Path(__file__).with_name("site.zip")
"""Where ``make docs`` leaves the site, and wheels have it."""
_SCRIPT = re.compile(rb"<script(?:\s[^>]*)?>(.*?)</script>", re.DOTALL)
_STYLE = re.compile(rb"<style(?:\s[^>]*)?>(.*?)</style>", re.DOTALL)
_STYLE_ATTRIBUTE = re.compile(rb'\sstyle="([^"]+)"')
_POLICY = (
    "default-src 'none'; script-src 'self'{scripts}; style-src 'self'{styles}; "
    "img-src 'self' data:; font-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)


class Document(NamedTuple):
    """A file of the site."""

    content: bytes
    media_type: str

    @property
    def etag(self) -> str:
        """The tag of the content."""
        return f'"{xxh3_64_hexdigest(self.content)}"'

    @property
    def headers(self) -> dict[str, str]:
        """The headers of an answer with it."""
        headers = {"ETag": self.etag, "Cache-Control": "no-cache", "Referrer-Policy": "same-origin"}
        if self.media_type.startswith(("text/html", "image/svg")):
            headers["Content-Security-Policy"] = policy_of(self.content)
        return headers


class Site:
    """The documentation.

    Args:
        path: the file that ``make docs`` has packed; by default the one of the installation. It
            may be replaced while the service runs.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = BUILT if path is None else path

    @property
    def is_built(self) -> bool:
        """Whether there is a site."""
        return self._path.is_file()

    def read(self, name: str) -> Document:
        """Read a file; a folder stands for the index in it.

        Raises:
            NotFoundError: there is no such file, or no site.
        """
        whole = f"{name}index.html" if name.endswith("/") or not name else name
        try:
            with ZipFile(self._path) as archive:
                content = archive.read(whole)
        except KeyError:
            raise NotFoundError(
                f"the documentation has no page {name[:80]!r}", hint="Begin at /docs/"
            ) from None
        except (OSError, BadZipFile, ZlibError) as error:
            raise NotFoundError(
                "this service has no documentation site that can be read",
                hint="/docs lists all routes and problems; make docs builds the site",
            ) from error
        kind = whole.rpartition(".")[2]
        return Document(content, FILE_TYPES.get(kind, "application/octet-stream"))


def policy_of(page: bytes) -> str:
    """Return the Content-Security-Policy of a page, by the hashes of what is written in it."""
    scripts = _hashes(_SCRIPT.findall(page))
    attributes = _hashes(html.unescape(a.decode()).encode() for a in _STYLE_ATTRIBUTE.findall(page))
    styles = _hashes(_STYLE.findall(page)) + (f" 'unsafe-hashes'{attributes}" if attributes else "")
    return _POLICY.format(scripts=scripts, styles=styles)


def _hashes(texts: Iterable[bytes]) -> str:
    digests = sorted(
        {base64.b64encode(hashlib.sha256(text).digest()).decode() for text in texts if text}
    )
    return "".join(f" 'sha256-{digest}'" for digest in digests)
