"""Routes of uploads: a stream is a resource that tus and the IETF draft upload to."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query
from fastapi.responses import Response
from starlette.requests import Request

from app.errors import BadRequestError
from app.http.dependencies import Routes
from app.http.negotiation import joined
from app.http.openapi import problem_responses
from app.server.lanes.table import FRONT, LONG, in_lane
from app.server.responses import ExchangeResponse

from ..service import RunService
from ..spec import StreamAnswer, UploadQuery
from ..uploads import ietf, tus
from .uploading import Upload

router = Routes(RunService, "/v1/runs/{run}/streams", tags=["runs"])

_MANY = problem_responses(*(400, 401, 403, 404, 408, 409, 410, 412, 413, 415, 422, 429, 460, 503))
_BODY: dict[str, Any] = {
    "requestBody": {
        "description": "Bytes of a loss stream, under the media type of the protocol: "
        f"{tus.MEDIA_TYPE}, {ietf.MEDIA_TYPE}, or any",
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}
_EMPTY = {"description": "Answered in headers", "content": {}}
_APPENDED: dict[int | str, Any] = {
    200: {"model": StreamAnswer, "description": "The upload is complete"},
    204: _EMPTY,
    **_MANY,
}


@router.post(
    "",
    status_code=201,
    openapi_extra=_BODY,
    responses={201: {"model": StreamAnswer}, **_MANY},
)
@in_lane(LONG)
async def create_stream(
    service: RunService, run: str, query: Annotated[UploadQuery, Query()], request: Request
) -> ExchangeResponse:
    """Create the upload of a partition, with bytes or without."""
    return ExchangeResponse(
        lambda exchange: Upload(request, service).create(exchange, run, query.partition)
    )


@router.patch("/{stream}", openapi_extra=_BODY, responses=_APPENDED)
@in_lane(LONG)
async def append_to_stream(
    service: RunService, run: str, stream: str, request: Request
) -> ExchangeResponse:
    """Append bytes to an upload; what is acknowledged is durable and has been checked."""
    return ExchangeResponse(lambda exchange: Upload(request, service).append(exchange, run, stream))


@router.get("/{stream}", responses={200: _EMPTY, 204: _EMPTY, **_MANY})
@in_lane(FRONT)
async def stream_offset(
    service: RunService, run: str, stream: str, request: Request
) -> ExchangeResponse:
    """Tell in headers how far an upload has come; an append that runs ends."""
    return ExchangeResponse(lambda exchange: Upload(request, service).look(exchange, run, stream))


@router.delete("/{stream}", responses={204: _EMPTY, **_MANY})
@in_lane(FRONT)
async def delete_stream(
    service: RunService, run: str, stream: str, request: Request
) -> ExchangeResponse:
    """Delete an upload of a run that is not sealed; its partition can be uploaded again."""
    return ExchangeResponse(lambda exchange: Upload(request, service).delete(exchange, run, stream))


_METHODS = {"PATCH": Upload.append, "DELETE": Upload.delete, "HEAD": Upload.look}


@router.post("/{stream}", status_code=204, openapi_extra=_BODY, responses=_APPENDED)
@in_lane(LONG)
async def override_method(
    service: RunService, run: str, stream: str, request: Request
) -> ExchangeResponse:
    """Do what the method in X-HTTP-Method-Override does, for clients that cannot send it."""
    method = joined(request.headers, "X-HTTP-Method-Override") or ""
    handle = _METHODS.get(method.strip().upper())
    if handle is None:
        raise BadRequestError(
            "POST to an upload needs X-HTTP-Method-Override", hint="Send PATCH, HEAD or DELETE"
        )
    return ExchangeResponse(
        lambda exchange: handle(Upload(request, service), exchange, run, stream)
    )


@router.options("", include_in_schema=False)
@router.options("/{stream}", include_in_schema=False)
@in_lane(FRONT)
async def describe_uploads(service: RunService) -> Response:
    """Say which protocols, extensions and sizes the server takes."""
    most = service.uploads.most
    return Response(
        status_code=204,
        headers={
            **tus.describe_server(most),
            "Upload-Limit": ietf.upload_limit(most, None),
            "Accept-Patch": f"{tus.MEDIA_TYPE}, {ietf.MEDIA_TYPE}",
            "Cache-Control": "no-store",
        },
    )
