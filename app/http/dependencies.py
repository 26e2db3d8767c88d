"""How routes are declared, bound to the service of their product, and what else they depend on."""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine, Sequence
from types import MethodType
from typing import Annotated, Any, Concatenate, Generic, TypeVar, get_args, get_type_hints

from fastapi import APIRouter, Depends, Request, Response
from fastapi.dependencies.utils import get_flat_params
from fastapi.params import Header, Path
from fastapi.routing import APIRoute
from starlette.routing import Route

from app.errors import InvalidOptionError
from app.server.drain import Drain, drain_of
from app.server.responses import ExchangeResponse
from core.errors import names_hint

from .identity import Identity, identity_of
from .openapi import NO_CONTENT

S = TypeVar("S")
Handler = Callable[[Request], Coroutine[Any, Any, Response]]
Endpoint = Callable[Concatenate[S, ...], Coroutine[Any, Any, Any]]
"""A function that answers requests; its first argument is the service of its product."""
Declare = Callable[[Endpoint[S]], Endpoint[S]]


_FORMS = {
    int: re.compile(r"-?[0-9]+", re.ASCII),
    float: re.compile(r"-?([0-9]+(\.[0-9]+)?|\.[0-9]+)([eE]-?[0-9]+)?", re.ASCII),
}
"""How a number may be written: pydantic takes `` 2``, ``+2``, ``0_2`` and ``2.0`` for 2."""


_SUCH_AS = {_FORMS[int]: "25", _FORMS[float]: "0.25"}


class StrictRoute(APIRoute):
    """A route that refuses what it does not know.

    That is options that it does not have, options given twice, and numbers in any but the plain
    form. Not a dependency: FastAPI takes as long to resolve one as many routes take to answer.
    """

    def get_route_handler(self) -> Handler:
        """See APIRoute."""
        handle = super().get_route_handler()
        params = get_flat_params(self.dependant)
        # The fields of a model of a query are no Query.
        others = (Path, Header)
        known = [field.alias for field in params if not isinstance(field.field_info, others)]
        forms = {
            field.alias: form
            for field in params
            if (form := _form_of(field.field_info.annotation)) is not None
        }

        async def check_and_handle(request: Request) -> Response:
            if request.scope["query_string"]:
                _check_options(request, known)
            _check_numbers(request, forms)
            return await handle(request)

        return check_and_handle


class Routes(Generic[S]):
    """The routes of a product, declared as those of FastAPI's routers are.

    FastAPI sees no service: each worker makes its functions methods of its own. What it is not told
    follows from the function: its name is the id of the operation, and what it returns the class
    of the response.

    Args:
        service: class of the service, which is the first argument of every endpoint.
        prefix: what all paths begin with.
        route_class: class of the routes.
        shared: other arguments of FastAPI's router.

    Attributes:
        routes: what is declared: paths, methods and endpoints.
    """

    def __init__(
        self,
        service: type[S],
        prefix: str = "",
        route_class: type[APIRoute] = StrictRoute,
        **shared: Any,  # noqa: ANN401 - see APIRouter
    ) -> None:
        self.service = service
        self.routes: list[Route] = []
        self._prefix = prefix
        self._shared = {"route_class": route_class, **shared}
        self._options: list[dict[str, Any]] = []

    def bound(self, service: S) -> APIRouter:
        """Return the routes that answer with a service."""
        router = APIRouter(**self._shared)
        for route, options in zip(self.routes, self._options, strict=True):
            endpoint = MethodType(route.endpoint, service)
            router.add_api_route(route.path, endpoint, methods=route.methods, **options)
        return router

    def add(self, method: str, path: str, lane: str, **options: Any) -> Declare[S]:  # noqa: ANN401 - as above
        """Return a decorator that declares a route and its lane, with HEAD where it has GET."""

        def declare(endpoint: Endpoint[S]) -> Endpoint[S]:
            endpoint.lane = lane  # type: ignore[attr-defined]  # functions take attributes
            self.routes.append(Route(self._prefix + path, endpoint, methods=[method]))
            self._options.append({**_options_of(endpoint), **options})
            return endpoint

        return declare

    def get(self, path: str, lane: str, **options: Any) -> Declare[S]:  # noqa: ANN401 - as above
        """Declare a route for GET, and for HEAD."""
        return self.add("GET", path, lane, **options)

    def post(self, path: str, lane: str, **options: Any) -> Declare[S]:  # noqa: ANN401 - as above
        """Declare a route for POST."""
        return self.add("POST", path, lane, **options)

    def put(self, path: str, lane: str, **options: Any) -> Declare[S]:  # noqa: ANN401 - as above
        """Declare a route for PUT."""
        return self.add("PUT", path, lane, **options)

    def patch(self, path: str, lane: str, **options: Any) -> Declare[S]:  # noqa: ANN401 - as above
        """Declare a route for PATCH."""
        return self.add("PATCH", path, lane, **options)

    def delete(self, path: str, lane: str, **options: Any) -> Declare[S]:  # noqa: ANN401 - as above
        """Declare a route for DELETE, which answers with nothing."""
        options["responses"] = NO_CONTENT | options["responses"]
        return self.add("DELETE", path, lane, **{"status_code": 204, **options})

    def options(self, path: str, lane: str, **options: Any) -> Declare[S]:  # noqa: ANN401 - as above
        """Declare a route for OPTIONS."""
        return self.add("OPTIONS", path, lane, **options)


def _options_of(endpoint: Endpoint[Any]) -> dict[str, Any]:
    options: dict[str, Any] = {"operation_id": endpoint.__name__}
    if get_type_hints(endpoint)["return"] is ExchangeResponse:
        options |= {"response_class": ExchangeResponse, "status_code": 200}
    return options


def _form_of(annotation: Any) -> re.Pattern[str] | None:  # noqa: ANN401 - of a parameter
    """Return the form of a parameter's values if they are numbers."""
    types = get_args(annotation) or (annotation,)
    return next((form for number, form in _FORMS.items() if number in types), None)


def _check_options(request: Request, known: Sequence[str]) -> None:
    """Check that the route has every option of the query, and that none is repeated.

    Raises:
        InvalidOptionError: there is no such option, or it is given twice.
    """
    names = set()
    for name, _ in request.query_params.multi_items():
        if name in names:
            raise InvalidOptionError(f"the option {name!r} is given twice", option=name)
        names.add(name)
    for name in sorted(names.difference(known)):
        raise InvalidOptionError(
            f"there is no option {name[:80]!r}",
            hint=names_hint(name[:80], known) if known else "This route has no options",
            option=name[:80],
        )


def _check_numbers(request: Request, forms: dict[str, re.Pattern[str]]) -> None:
    """Check how numbers are written in the path and the query.

    Raises:
        InvalidOptionError: one has spaces, a plus or the like.
    """
    for values in (request.path_params, request.query_params):
        for name, value in values.items():
            form = forms.get(name)
            if form is not None and not form.fullmatch(value):
                raise InvalidOptionError(
                    f"{name} is {value[:80]!r}, not a number",
                    hint=f"Write it in decimal digits, such as {_SUCH_AS[form]}",
                    option=name,
                )


async def _drain(request: Request) -> Drain:
    return drain_of(request.scope)


async def _identity(request: Request) -> Identity:
    return identity_of(request.scope)


DrainDep = Annotated[Drain, Depends(_drain)]
IdentityDep = Annotated[Identity, Depends(_identity)]
