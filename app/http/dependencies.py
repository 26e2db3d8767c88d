"""Dependencies that routes declare, and the class of routes."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Annotated, Any

from fastapi import Depends, Request, Response
from fastapi.routing import APIRoute

from app.errors import InvalidOptionError
from app.server.drain import Drain, drain_of

from .identity import Identity, identity_of

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


def from_state(name: str) -> Any:  # noqa: ANN401 - FastAPI's marker
    """Return a dependency on the attribute of ``app.state`` with this name."""

    async def find(request: Request) -> Any:  # noqa: ANN401 - the parameter states its type
        return getattr(request.app.state, name)

    return Depends(find)


class OnceRoute(APIRoute):
    """A route that refuses query options which are given twice.

    Not a dependency: FastAPI takes as long to resolve one as many routes take to answer.
    """

    def get_route_handler(self) -> Handler:
        """See APIRoute."""
        handle = super().get_route_handler()

        async def check_and_handle(request: Request) -> Response:
            _check_options_once(request)
            return await handle(request)

        return check_and_handle


def _check_options_once(request: Request) -> None:
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


async def _identity(request: Request) -> Identity:
    return identity_of(request.scope)


DrainDep = Annotated[Drain, Depends(_drain)]
IdentityDep = Annotated[Identity, Depends(_identity)]
