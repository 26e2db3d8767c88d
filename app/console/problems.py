"""Problems of pages, as pages: whatever refused a request, browsers see what they can read."""

from __future__ import annotations

import json
from urllib.parse import quote

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.http.media_types import PROBLEM

from .pages import HEADERS, Pages


class ProblemPages:
    """A middleware around everything that refuses requests.

    Args:
        app: the application inside.
        pages: of the console.
    """

    def __init__(self, app: ASGIApp, pages: Pages) -> None:
        self._app = app
        self._pages = pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if _is_of_a_browser(scope):
            send = _Answer(self._pages, scope, send).send
        await self._app(scope, receive, send)


PLACE = "thalweg.place"
"""Where a form leads to, in the scope of its request."""


def _is_of_a_browser(scope: Scope) -> bool:
    if scope["type"] != "http" or not (scope["path"] == "/" or is_page(scope["path"])):
        return False
    return "text/html" in Headers(scope=scope).get("accept", "")


def is_page(path: str) -> bool:
    """Whether a path is one of the console's."""
    return path == "/console" or path.startswith("/console/")


class _Answer:
    """An answer, which is held back until it is whole if it is a problem."""

    def __init__(self, pages: Pages, scope: Scope, send: Send) -> None:
        self._pages, self._scope, self._send = pages, scope, send
        self._start: Message | None = None
        self._body = b""

    async def send(self, message: Message) -> None:
        """Send a message, or the page instead of the last."""
        if message["type"] == "http.response.start" and _is_problem(message):
            self._start = message
        elif self._start is None or message["type"] != "http.response.body":
            await self._send(message)
        else:
            self._body += message.get("body", b"")
            if not message.get("more_body"):
                await self._send_page(self._start)

    async def _send_page(self, start: Message) -> None:
        problem = json.loads(self._body)
        place = _place(self._scope)
        body = self._pages.render("problem", problem=problem, place=place)
        headers = MutableHeaders(scope=start)
        headers.update(HEADERS)
        headers["Content-Type"] = "text/html; charset=utf-8"
        headers["Content-Length"] = str(len(body))
        await self._send(start)
        await self._send({"type": "http.response.body", "body": body})


def _place(scope: Scope) -> str:
    """Return where to go from a problem: to the same page again, or from a form to the first."""
    if scope["method"] not in {"GET", "HEAD"}:
        return str(scope.get(PLACE, "/"))
    query = scope["query_string"].decode("latin-1")
    path = quote(scope["path"])
    return f"{path}?{query}" if query else path


def _is_problem(start: Message) -> bool:
    return MutableHeaders(scope=start).get("content-type") == PROBLEM
