"""Pages of other sites must not act through the browsers of the service's users.

Two ways lead there. *DNS rebinding*: a name of the attacker's comes to mean the address of the
service, whose answers a page of that name may then read. Where there are no keys, a request is
answered only if its Host is an address, a name that no stranger can own, or one that the operator
has named. *Cross-site requests*: a page sends a form, or a request that it cannot read the answer
of. Browsers say where a request comes from, and one that changes something is refused if that is
elsewhere. A request with an Authorization header no page can send without being asked first.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response

from app.errors import OriginRefusedError, new_request_id, problem_of

from .problems import ProblemResponse

_PORT = re.compile(r":[0-9]*$")
_READS = frozenset({"GET", "HEAD", "OPTIONS"})
_OWN = frozenset({"same-origin", "none"})
"""Values of Sec-Fetch-Site of requests by pages of the service itself, and by no page."""
_KEPT = ("vary", "access-control-")
"""How headers begin that a refused preflight keeps."""
_SHOWN = 200
"""Characters of a header that a problem shows."""


class Origins:
    """The names and web origins of a service.

    Args:
        hosts: further names of it, or ``*`` for any.
        public_url: its address for clients, if it has one.
        allowed: other web origins that may call it, or ``*``.
    """

    def __init__(
        self, hosts: Iterable[str] = (), public_url: str | None = None, allowed: Iterable[str] = ()
    ) -> None:
        public = urlsplit(public_url or "")
        self._hosts = {name.lower() for name in hosts} | {public.hostname or ""}
        self._public = public.netloc
        self._allowed = frozenset(allowed)

    def check_host(self, headers: Mapping[str, str]) -> None:
        """Check that the Host of a request to a service without keys is one of its names.

        Raises:
            OriginRefusedError: it may be a name of anybody's.
        """
        host = headers.get("host", "localhost")
        name = _PORT.sub("", host).strip("[]").lower()
        if "." not in name or _is_address(name) or self._hosts & {name, "*"}:
            return
        raise OriginRefusedError(
            f"this service has no keys, and {name[:_SHOWN]!r} is not known to be a name of it",
            hint=f"Use its address, set THALWEG_HOSTS={name[:_SHOWN]}, or add keys to the service",
        )

    def check_sender(self, method: str, headers: Mapping[str, str]) -> None:
        """Check that no page of another site sends what may change something.

        Raises:
            OriginRefusedError: one does.
        """
        if method in _READS or "authorization" in headers:
            return
        origin = headers.get("origin")
        if self.is_own(headers, absent=True) or self._allowed & {origin, "*"}:
            return
        site = (origin or "unnamed")[:_SHOWN]
        raise OriginRefusedError(
            f"a page of another site sent the request: {site}",
            hint="Send it from a page of this service, or add the site to THALWEG_CORS_ORIGINS",
        )

    def is_own(self, headers: Mapping[str, str], *, absent: bool) -> bool:
        """Whether a request comes from a page of the service or from no page.

        Args:
            headers: of the request.
            absent: the answer where they say nothing.
        """
        site, origin = headers.get("sec-fetch-site"), headers.get("origin")
        if site is not None:
            return site in _OWN
        if origin is None:
            return absent
        return origin.partition("://")[2] in {headers.get("host"), self._public} - {""}


class CrossOrigin(CORSMiddleware):
    """Answers preflights as the framework does; refusals are problem documents."""

    def preflight_response(self, request_headers: Headers) -> Response:
        """Return the answer to a preflight."""
        answer = super().preflight_response(request_headers)
        ident = new_request_id()
        if answer.status_code != 200:  # noqa: PLR2004
            part = bytes(answer.body).decode().removeprefix("Disallowed CORS ")
            hint = "Use GET or POST, and headers that the API has"
            if "origin" in part:
                hint = "Have the operator add the origin to THALWEG_CORS_ORIGINS"
            error = OriginRefusedError(
                f"a page of {request_headers['origin'][:_SHOWN]} may not send this: its {part}",
                hint=hint,
                request_id=ident,
            )
            kept = {name: v for name, v in answer.headers.items() if name.startswith(_KEPT)}
            answer = ProblemResponse(problem_of(error), kept)
        answer.headers.update({"X-Request-Id": ident, "X-Content-Type-Options": "nosniff"})
        return answer


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
