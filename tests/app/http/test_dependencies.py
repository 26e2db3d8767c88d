"""Routes are declared once, and bound to the service of each worker."""

from __future__ import annotations

import asyncio
import warnings
from typing import Annotated, NamedTuple

import httpx
import pytest
from fastapi import FastAPI, Query

from app.http.dependencies import _FORMS, Routes
from app.server.lanes.table import FRONT, LONG


class Things(NamedTuple):
    names: list[str]


ROUTES = Routes(Things, "/v1", tags=["things"])


@ROUTES.put("/things", LONG, include_in_schema=False)
@ROUTES.get("/things", FRONT, operation_id="things")
async def things(service: Things, least: Annotated[int, Query()] = 0) -> list[str]:
    """List things."""
    return service.names[least:]


def app_of(names: list[str]) -> FastAPI:
    app = FastAPI()
    app.include_router(ROUTES.bound(Things(names)))
    return app


def ask(app: FastAPI, method: str, path: str) -> httpx.Response:
    async def request() -> httpx.Response:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            return await client.request(method, path)

    return asyncio.run(request())


def test_each_application_answers_with_its_own_service() -> None:
    first, second = app_of(["a", "b"]), app_of(["c"])
    assert ask(first, "GET", "/v1/things?least=1").json() == ["b"]
    assert ask(second, "PUT", "/v1/things").json() == ["c"]
    assert ask(second, "HEAD", "/v1/things").status_code == 200
    assert ask(second, "POST", "/v1/things").status_code == 405


def test_the_service_is_no_option_of_a_route() -> None:
    with warnings.catch_warnings():
        # HEAD has the id of GET.
        warnings.simplefilter("ignore")
        operation = app_of([]).openapi()["paths"]["/v1/things"]["get"]
    assert [option["name"] for option in operation["parameters"]] == ["least"]
    assert (operation["operationId"], operation["tags"]) == ("things", ["things"])
    assert operation["description"] == "List things."


def test_what_is_declared_is_known_without_a_service() -> None:
    declared = [(route.path, sorted(route.methods or ())) for route in ROUTES.routes]
    assert declared == [("/v1/things", ["GET", "HEAD"]), ("/v1/things", ["PUT"])]
    assert all(route.endpoint is things for route in ROUTES.routes)


@pytest.mark.parametrize("text", ["0.9", ".9", "1", "-2", "9e-1", ".5e1"])
def test_numbers_as_people_write_them(text: str) -> None:
    assert _FORMS[float].fullmatch(text)


@pytest.mark.parametrize("text", ["", ".", "+1", "1.", "1_0", " 1", "nan", "inf", "1e", "-"])
def test_numbers_as_only_python_writes_them(text: str) -> None:
    assert not _FORMS[float].fullmatch(text)
