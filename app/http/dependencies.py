"""What routes are given besides the request."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from app.context import Services
from app.errors import InvalidOptionError
from app.server.drain import Drain, drain_of


def services_of(request: Request) -> Services:
    """The services; for routes that are asked for so often that a dependency is too slow."""
    services: Services = request.app.state.services
    return services


def check_options_once(request: Request) -> None:
    """Make sure that no option is given twice.

    Raises:
        InvalidOptionError: one is.
    """
    known = set()
    for name, _ in request.query_params.multi_items():
        if name in known:
            raise InvalidOptionError(f"the option {name!r} is given twice", option=name)
        known.add(name)


async def _services(request: Request) -> Services:
    return services_of(request)


async def _drain(request: Request) -> Drain:
    return drain_of(request.scope)


async def _no_option_twice(request: Request) -> None:
    check_options_once(request)


ServicesDep = Annotated[Services, Depends(_services)]
DrainDep = Annotated[Drain, Depends(_drain)]
OPTIONS_ONCE = Depends(_no_option_twice)
