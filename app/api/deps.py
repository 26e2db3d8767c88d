"""What routes are given besides the request."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from app.errors import InvalidOptionError
from app.server.drain import Drain, drain_of
from app.services.context import Services


def _services(request: Request) -> Services:
    services: Services = request.app.state.services
    return services


def _drain(request: Request) -> Drain:
    return drain_of(request.scope)


def _no_option_twice(request: Request) -> None:
    names = [name for name, _ in request.query_params.multi_items()]
    for name in names:
        if names.count(name) > 1:
            raise InvalidOptionError(f"the option {name!r} is given twice", option=name)


ServicesDep = Annotated[Services, Depends(_services)]
DrainDep = Annotated[Drain, Depends(_drain)]
OPTIONS_ONCE = Depends(_no_option_twice)
