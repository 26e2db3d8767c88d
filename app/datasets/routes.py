"""Routes of the catalogue: datasets and their files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from fastapi import Query
from fastapi.responses import Response
from starlette.requests import Request

from app.engine.workers import Workers
from app.errors import NotFoundError
from app.http.addresses import Addresses
from app.http.dependencies import IdentityDep, Routes
from app.http.identity import ADMIN, Identity, identity_of, require
from app.http.json_bodies import JsonBodies, json_response, send_resource
from app.http.openapi import NOT_MODIFIED, content_response, json_body, problem_responses
from app.server.lanes.table import FRONT, LONG
from app.server.responses import Exchange, ExchangeResponse
from app.streams.plain import Piece, Whole, send_range

from .catalogue import Catalogue
from .files.passing import LEAST, Run, StoredBytes
from .opened import OpenDataset, Opened
from .spec import OPERATORS, DatasetSpec


@dataclass(frozen=True, slots=True)
class DatasetService:
    """Everything the routes of datasets need."""

    catalogue: Catalogue
    threads: Workers
    bodies: JsonBodies
    addresses: Addresses


_JSON = content_response(200, "application/json")
_OCTETS = content_response(200, "application/octet-stream") | content_response(
    206, "application/octet-stream"
)
_PROBLEMS = problem_responses(400, 401, 403, 404, 408, 409, 412, 413, 416, 422, 429, 503)

router = Routes(DatasetService, "/v1/datasets", tags=["datasets"])

_MAX_BODY = 1 << 20
_PIECE = 1 << 21


Owner = Annotated[
    str | None, Query(max_length=100, description="Owner of the datasets, for the scope admin")
]


def _check_owner(caller: Identity, owner: str | None) -> None:
    if owner not in {None, caller.owner}:
        require(caller, ADMIN)


@router.get("", FRONT, responses=_JSON | _PROBLEMS)
async def list_datasets(
    datasets: DatasetService,
    request: Request,
    after: Annotated[str, Query(max_length=128, description="List ids after this one")] = "",
    limit: Annotated[int, Query(ge=1, le=1000, description="Maximum number of ids")] = 100,
    owner: Owner = None,
) -> Response:
    """List the ids of the datasets, in order."""
    caller = identity_of(request.scope)
    _check_owner(caller, owner)
    ids = await datasets.threads.start(datasets.catalogue.ids, caller, after, limit, owner)
    page = {"datasets": ids, "after": ids[-1] if len(ids) == limit else None}
    notice = datasets.catalogue.notice_for(caller)
    if notice is not None:
        page["notice"] = notice
    return json_response(page)


@router.post(
    "",
    LONG,
    status_code=201,
    openapi_extra=json_body(
        DatasetSpec,
        {"id": "scan1", "files": ["scan1.npy"], "nav_shape": [64, 64], "sig_shape": [32, 32]},
        without=(*OPERATORS, "registered"),
        optional=("id",),
    ),
    responses=_JSON | content_response(201, "application/json") | _PROBLEMS,
)
async def register_dataset(
    datasets: DatasetService, request: Request, caller: IdentityDep
) -> ExchangeResponse:
    """Register files under the roots as a dataset; registering them again returns it."""

    async def handle(exchange: Exchange) -> None:
        async with datasets.bodies.read(exchange, caller, _MAX_BODY) as values:
            register = datasets.catalogue.register
            opened, created = await datasets.threads.start(register, caller, values)
            with closing(opened):
                description = opened.describe()
            at = (request.scope, datasets.addresses, f"/v1/datasets/{opened.spec.id}")
            await send_resource(exchange, *at, description, created)

    return ExchangeResponse(handle)


@router.get("/{ident}", FRONT, responses=_JSON | _PROBLEMS)
async def dataset(datasets: DatasetService, ident: str, request: Request) -> Response:
    """Describe a dataset: shape, axes, dtype, files, metadata and fingerprint."""
    caller = identity_of(request.scope)

    def describe() -> dict[str, Any]:
        with closing(datasets.catalogue.open_any(caller, ident)) as opened:
            return opened.describe()

    return json_response(await datasets.threads.start(describe))


@router.delete("/{ident}", FRONT, responses=_PROBLEMS)
async def delete_dataset(
    datasets: DatasetService, ident: str, caller: IdentityDep, owner: Owner = None
) -> Response:
    """Forget a registered dataset; its files stay, and streams that run over it finish."""
    _check_owner(caller, owner)
    await datasets.threads.start(datasets.catalogue.delete, caller, ident, owner)
    return Response(status_code=204)


@router.get("/{ident}/files/{number}", LONG, responses=_OCTETS | NOT_MODIFIED | _PROBLEMS)
async def dataset_file(
    datasets: DatasetService, ident: str, number: int, request: Request, caller: IdentityDep
) -> ExchangeResponse:
    """Send a file of a dataset unconverted: the whole file, or a byte range."""

    async def handle(exchange: Exchange) -> None:
        opened = await datasets.threads.start(datasets.catalogue.open_any, caller, ident)
        with closing(opened):
            whole = _file(opened, number)
            body = request.method != "HEAD"
            await send_range(exchange, whole, request.headers, datasets.threads, body=body)

    return ExchangeResponse(handle)


def _file(opened: Opened, number: int) -> Whole:
    infos = opened.files.infos
    if not 0 <= number < len(infos):
        raise NotFoundError(f"dataset {opened.spec.id} has files 0 to {len(infos) - 1}")
    number = opened.order[number]

    def pieces(start: int, stop: int) -> Iterator[Piece]:
        while start < stop:
            piece = opened.files.read(number, start, min(start + _PIECE, stop))
            start += len(piece)
            yield Piece(piece)

    etag = f'"{opened.contents.hex()}-{number}"'
    headers = {"Content-Type": "application/octet-stream", "Cache-Control": "no-cache"}
    source = partial(_stored, opened, number) if isinstance(opened, OpenDataset) else None
    return Whole(infos[number].size, etag, headers, pieces, source)


def _stored(opened: OpenDataset, number: int, start: int, stop: int) -> StoredBytes | None:
    if stop - start < LEAST:
        return None
    return StoredBytes(stop - start, iter([Run(number, start, stop)]), opened.backend)
