"""Import this to have applications made in a third of the time, from a process's second one on.

A service is made hundreds of times here, in tests and in each process of the servers they start.
Most of that time FastAPI looks at the same functions, and scripts of the console are made small.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from types import MethodType
from typing import Any

import fastapi.routing
from fastapi.dependencies.models import Dependant

from app.console import pages
from app.main import ROUTERS

# What they import for themselves, which is not theirs to give.
_routing: Any = fastapi.routing
_pages: Any = pages
_find: Callable[..., Dependant] = _routing.get_dependant
_known: dict[tuple[str, object], Dependant] = {}


def _get_dependant(*, path: str, call: Callable[..., Any], **options: Any) -> Dependant:  # noqa: ANN401 - FastAPI's
    """Return what a function needs of a request, in which its service has no part."""
    if not isinstance(call, MethodType):
        return _find(path=path, call=call, **options)
    key = path, call.__func__
    if key not in _known:
        # Without the service, which has open files and ends some time.
        _known[key] = replace(_find(path=path, call=call, **options), call=None)
    found = _known[key]
    # To this list, a route adds.
    return replace(found, call=call, dependencies=list(found.dependencies))


_routing.get_dependant = _get_dependant
_routing.create_model_field = functools.cache(_routing.create_model_field)
_pages._sent = functools.cache(_pages._sent)


def prepare() -> None:
    """Look at all functions and scripts, for the processes that are forked from this one."""
    for routes in ROUTERS:
        routes.bound(object())
    assert pages.Pages().assets
