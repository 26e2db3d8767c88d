"""What routes are given besides the request."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, Request

from app.errors import InvalidOptionError
from app.server.drain import Drain, drain_of


def from_state(name: str) -> Any:  # noqa: ANN401 - what annotates a parameter
    """A dependency on the part of the application that ``main`` keeps under this name."""

    async def find(request: Request) -> Any:  # noqa: ANN401 - the annotation has its type
        return getattr(request.app.state, name)

    return Depends(find)


def check_options_once(request: Request) -> None:
    """Refuse a query that gives an option twice.

    Raises:
        InvalidOptionError: it does.
    """
    known = set()
    for name, _ in request.query_params.multi_items():
        if name in known:
            raise InvalidOptionError(f"the option {name!r} is given twice", option=name)
        known.add(name)


async def _drain(request: Request) -> Drain:
    return drain_of(request.scope)


async def _options_once(request: Request) -> None:
    check_options_once(request)


DrainDep = Annotated[Drain, Depends(_drain)]
OPTIONS_ONCE = Depends(_options_once)
