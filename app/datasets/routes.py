"""Routes of the catalogue of datasets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import Response
from starlette.requests import Request

from app.errors import NotFoundError, ServiceError
from app.http.dependencies import OPTIONS_ONCE, from_state
from app.http.json_bodies import json_response, read_json, send_json
from app.http.openapi import JSON_BODY, NOT_MODIFIED, content_response, problem_responses
from app.http.ranges import not_modified, wanted_range
from app.server.responses import Exchange, ExchangeResponse

from .opened import Opened
from .service import DatasetService

_JSON = content_response(200, "application/json")
_OCTETS = content_response(200, "application/octet-stream") | content_response(
    206, "application/octet-stream"
)
_PROBLEMS = problem_responses(400, 401, 403, 404, 408, 409, 412, 413, 416, 422, 503)

router = APIRouter(prefix="/v1/datasets", tags=["datasets"], dependencies=[OPTIONS_ONCE])

_MAX_BODY = 1 << 20
_PIECE = 1 << 20


DatasetsDep = Annotated[DatasetService, from_state("datasets")]


@router.get(
    "",
    operation_id="list_datasets",
    responses=content_response(200, "application/json") | _PROBLEMS,
)
async def list_datasets(
    datasets: DatasetsDep,
    after: Annotated[str, Query(max_length=128, description="Ids behind this one")] = "",
    limit: Annotated[int, Query(ge=1, le=1000, description="Ids at the most")] = 100,
) -> Response:
    """Ids of the datasets, in order."""
    ids = await datasets.threads.start(datasets.catalogue.ids, after, limit)
    return json_response({"datasets": ids, "after": ids[-1] if len(ids) == limit else None})


@router.post(
    "",
    operation_id="register_dataset",
    response_class=ExchangeResponse,
    status_code=201,
    openapi_extra=JSON_BODY,
    responses=content_response(200, "application/json")
    | content_response(201, "application/json")
    | _PROBLEMS,
)
async def register_dataset(request: Request, datasets: DatasetsDep) -> ExchangeResponse:
    """Make a dataset of files under the roots; the same request again finds it again."""

    async def handle(exchange: Exchange) -> None:
        values = await read_json(exchange, datasets.buffers, _MAX_BODY)
        register = datasets.catalogue.register
        opened, created = await datasets.threads.start(register, values)
        try:
            about = opened.describe()
        finally:
            opened.close()
        where = datasets.addresses.of(str(request.base_url), f"/v1/datasets/{opened.spec.id}")
        await send_json(exchange, about, 201 if created else 200, {"Location": where})

    return ExchangeResponse(handle)


@router.head("/{ident}", include_in_schema=False)
@router.get(
    "/{ident}",
    operation_id="dataset",
    responses=content_response(200, "application/json") | _PROBLEMS,
)
async def dataset(ident: str, datasets: DatasetsDep) -> Response:
    """Shape, axes, type, files and what else is known of a dataset."""

    def about() -> dict[str, Any]:
        opened = datasets.catalogue.open_any(ident)
        try:
            return opened.describe()
        finally:
            opened.close()

    return json_response(await datasets.threads.start(about))


@router.head("/{ident}/files/{number}", include_in_schema=False, response_class=ExchangeResponse)
@router.get(
    "/{ident}/files/{number}",
    operation_id="dataset_file",
    response_class=ExchangeResponse,
    status_code=200,
    responses=content_response(200, "application/octet-stream")
    | content_response(206, "application/octet-stream")
    | NOT_MODIFIED
    | _PROBLEMS,
)
async def dataset_file(
    ident: str, number: int, request: Request, datasets: DatasetsDep
) -> ExchangeResponse:
    """A file of a dataset as it is, whole or a range of it."""
    opened = await datasets.threads.start(datasets.catalogue.open_any, ident)
    try:
        size = _size(opened, number)
        etag = f'"{opened.fingerprint.hex()}-{number}"'
        headers = {
            "Content-Type": "application/octet-stream",
            "Accept-Ranges": "bytes",
            "ETag": etag,
            "Cache-Control": "no-cache",
        }
        if not_modified(request.headers, etag):
            opened.close()
            return ExchangeResponse(_nothing(304, headers))
        span = wanted_range(request.headers, size, etag)
    except BaseException:
        opened.close()
        raise
    return ExchangeResponse(
        _file_sender(opened, datasets, number, span, size, headers, head=request.method == "HEAD")
    )


def _size(opened: Opened, number: int) -> int:
    infos = opened.files.infos
    if not 0 <= number < len(infos):
        raise NotFoundError(f"dataset {opened.spec.id} has files 0 to {len(infos) - 1}")
    return infos[number].size


def _nothing(status: int, headers: Mapping[str, str]) -> Any:  # noqa: ANN401 - a handler
    async def handle(exchange: Exchange) -> None:
        await exchange.start(status, headers)
        await exchange.end()

    return handle


def _file_sender(
    opened: Opened,
    datasets: DatasetService,
    number: int,
    span: tuple[int, int] | None,
    size: int,
    headers: dict[str, str],
    *,
    head: bool,
) -> Any:  # noqa: ANN401 - a handler
    async def handle(exchange: Exchange) -> None:
        start, stop = span or (0, size)
        if span is not None:
            headers["Content-Range"] = f"bytes {start}-{stop - 1}/{size}"
        try:
            await exchange.start(200 if span is None else 206, headers, content_length=stop - start)
            while start < stop and not head:
                end = min(start + _PIECE, stop)
                piece = await datasets.threads.start(opened.files.read, number, start, end)
                start += len(piece)
                await exchange.write(piece)
        except ServiceError:
            if not exchange.started:
                raise
            exchange.abort()
        finally:
            opened.close()

    return handle
