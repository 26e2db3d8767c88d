"""What routes are given besides the request."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from app.errors import InvalidOptionError
from app.server.drain import Drain, drain_of
from app.services.context import Services


async def _services(request: Request) -> Services:
    services: Services = request.app.state.services
    return services


async def _drain(request: Request) -> Drain:
    return drain_of(request.scope)


async def _no_option_twice(request: Request) -> None:
    known = set()
    for name, _ in request.query_params.multi_items():
        if name in known:
            raise InvalidOptionError(f"the option {name!r} is given twice", option=name)
        known.add(name)


ServicesDep = Annotated[Services, Depends(_services)]
DrainDep = Annotated[Drain, Depends(_drain)]
OPTIONS_ONCE = Depends(_no_option_twice)
