"""Pages made of templates, and the files that they load.

Pages are complete as they are sent: they list and link without any script. Scripts are modules that
add what moves: curves, frames, uploads. They are served as they are written, but for comments and
white space that tells nothing, under a path with the digest of all of them, so that a browser may
keep them for good and no page meets those of another version::

    /console/assets/<digest>/runs.js    imports ./api.js, ./charts.js beside it

The policy of pages lets nothing be loaded, run or sent but from this service: no inline script,
no inline style, no foreign host.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined
from xxhash import xxh3_64_hexdigest

from app import __version__
from app.http.media_types import FILE_TYPES

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    # Else forms would not say where they are from.
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_NAMES = ("Runs", "Portfolio", "Datasets", "Pipelines", "Operations")
PLACES = {name: f"/console/{name.lower()}" for name in _NAMES}
"""Where the navigation of every page leads."""
_IDLE = re.compile(rb"^\s*(//.*\n\s*)*|(?<=[\])},;]) // .*$", re.MULTILINE)
"""Indentation and comments, before the code of a line and after it."""
_CODE = re.compile(rb"^[^`/\n]+|[^\"'`/\n]+$", re.MULTILINE)
"""What of a line is before its first template or pattern, and after its last text."""
_MARK, _SIGN = rb"[=,:?<>&|*{};()\[\]!]", rb"(?<=[\w\])]) ([-+%]) (?=[\w(\[])"
_TIGHT = re.compile(rb"(\"[^\"]*\"?|'[^']*'?)|(?<=%b) | (?=%b)|%b" % (_MARK, _MARK, _SIGN))
"""Texts, which stay, and white space between them that separates nothing."""
_JOINED = re.compile(rb"(?<=[{,;(\[])\n|;?\n(?=})|\n(?=[)\].])")
"""Ends of lines that are not needed; no text has one."""
_LOOSE = re.compile(rb"/\*.*?\*/|;?\s*(})\s*|\s*([{;])\s*|(?<=[:,])\s+", re.DOTALL)
"""Comments of a style, and white space that separates nothing."""


@dataclass(frozen=True, slots=True)
class Asset:
    """A file that pages load."""

    content: bytes
    media_type: str


class Pages:
    """The templates and files of the console.

    Args:
        has_keys: whether people may have signed in.
        has_docs: whether there is a site of documentation to lead to.
        root: path below which people see the service, such as ``/thalweg``; "" is none.
    """

    def __init__(
        self,
        has_keys: Callable[[], bool] = lambda: False,
        has_docs: Callable[[], bool] = lambda: False,
        root: str = "",
    ) -> None:
        self._templates = Environment(
            loader=PackageLoader("app.console"), autoescape=True, undefined=StrictUndefined
        )
        self.root = root
        assets = f"{root}/console/assets/{self.digest}"
        known = {"has_keys": has_keys, "has_docs": has_docs, "root": root, "places": PLACES}
        self._templates.globals.update(version=__version__, assets=assets, **known)

    @cached_property
    def assets(self) -> dict[str, Asset]:
        """The files by name, as pages and each other name them."""
        found = (entry for entry in files("app.console").joinpath("static").iterdir())
        return {
            entry.name: Asset(_sent(entry), FILE_TYPES[entry.name.rpartition(".")[2]])
            for entry in sorted(found, key=lambda entry: entry.name)
        }

    @cached_property
    def digest(self) -> str:
        """The digest of all files."""
        return xxh3_64_hexdigest(b"".join(asset.content for asset in self.assets.values()))

    def answer(self, template: str, status: int = 200, **values: Any) -> HTMLResponse:  # noqa: ANN401 - of the template
        """Return a page; values are escaped where they are text."""
        return HTMLResponse(self.render(template, **values), status, HEADERS)

    def render(self, template: str, **values: Any) -> bytes:  # noqa: ANN401 - of the template
        """Return the text of a page in UTF-8."""
        return self._templates.get_template(f"{template}.html").render(**values).encode()


def _sent(entry: Traversable) -> bytes:
    content = entry.read_bytes()
    if entry.name.endswith(".css"):
        return _LOOSE.sub(rb"\1\2", content)
    if not entry.name.endswith(".js") or entry.name.endswith(".min.js"):
        return content
    code = _CODE.sub(lambda part: _TIGHT.sub(rb"\1\2", part[0]), _IDLE.sub(b"", content))
    return _JOINED.sub(b"", code)
