"""Dependencies that routes declare."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, Request

from app.errors import InvalidOptionError
from app.server.drain import Drain, drain_of

from .identity import Identity, identity_of


def from_state(name: str) -> Any:  # noqa: ANN401 - FastAPI's marker
    """Return a dependency on the attribute of ``app.state`` with this name."""

    async def find(request: Request) -> Any:  # noqa: ANN401 - the parameter states its type
        return getattr(request.app.state, name)

    return Depends(find)


def check_options_once(request: Request) -> None:
    """Check that no query option is repeated.

    Raises:
        InvalidOptionError: one is.
    """
    names = set()
    for name, _ in request.query_params.multi_items():
        if name in names:
            raise InvalidOptionError(f"the option {name!r} is given twice", option=name)
        names.add(name)


async def _drain(request: Request) -> Drain:
    return drain_of(request.scope)


async def _options_once(request: Request) -> None:
    check_options_once(request)


async def _identity(request: Request) -> Identity:
    return identity_of(request.scope)


DrainDep = Annotated[Drain, Depends(_drain)]
IdentityDep = Annotated[Identity, Depends(_identity)]
OPTIONS_ONCE = Depends(_options_once)
