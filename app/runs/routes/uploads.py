"""Routes of uploads: a stream is a resource that tus and the IETF draft upload to.

Each request has an :class:`Upload`: its bytes in, its answer out, in the protocol that it speaks.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator
from typing import Annotated, Any

import orjson
from fastapi import Query
from fastapi.responses import Response
from starlette.requests import Request

from app.errors import (
    BadRequestError,
    DrainingError,
    InvalidOptionError,
    ProblemError,
    ServiceError,
    TooLargeError,
    problem_of,
)
from app.http.bodies import discard, read_whole
from app.http.decompression import decoder
from app.http.dependencies import Routes
from app.http.identity import identity_of
from app.http.media_types import MEDIA_TYPES
from app.http.negotiation import Headers, choose_format, joined
from app.http.openapi import problem_responses
from app.http.trail import name_resource
from app.run_errors import UploadTakenError
from app.server.drain import drain_of
from app.server.lanes.table import FRONT, LONG
from app.server.responses import Exchange, ExchangeResponse
from app.streams.driver import Stream
from app.streams.sender import Head
from core.errors import CoreError
from core.losses.reports import REPORTS

from ..describing import describe_stream, stream_path
from ..records import RunRecord, StreamRecord
from ..rows.opening import MEMORY, RunRowStream, RunSupply, WantedRows, open_rows
from ..rows.tokens import place_of
from ..service import RunService
from ..spec import StreamAnswer, UploadQuery
from ..uploads import ietf, tus
from ..uploads.appending import AppendRequest
from ..uploads.checksums import check_bytes
from ..uploads.ietf import Ietf
from ..uploads.sources import Body, Source, Staged
from ..uploads.tus import Tus
from ..uploads.upload_protocol import Answer, Creation, UploadProtocol, refuse_coding

CHECKED_BYTES = 64 << 20
"""Maximum bytes of an append with a checksum: they wait in memory until it is verified."""
_PREFERENCE = "return=representation"
_INTERIM_SECONDS = 0.5


class Upload:
    """One request to a stream, or to the list of streams.

    It speaks tus if it has Tus-Resumable, and the IETF draft otherwise.

    Args:
        request: the request.
        service: the runs.
    """

    def __init__(self, request: Request, service: RunService) -> None:
        self.headers: Headers = request.headers
        self.scope = request.scope
        self.service = service
        self.caller = identity_of(request.scope)
        self.drain = drain_of(request.scope)
        self.protocol: UploadProtocol = Tus()
        if "Tus-Resumable" not in request.headers:
            version = joined(request.headers, ietf.HEADER)
            self.protocol = Ietf(version, service.uploads.most)

    @contextlib.asynccontextmanager
    async def _answering(self, exchange: Exchange) -> AsyncIterator[dict[str, str]]:
        """Turn errors into problems of the protocol; the headers yielded go with them."""
        headers: dict[str, str] = {}
        try:
            yield headers
        except (CoreError, ServiceError) as e:
            moved_on = isinstance(e, (UploadTakenError, DrainingError))
            if not (exchange.body.complete or moved_on or "expect" in self.headers):
                await discard(exchange.body)
            problem = problem_of(e)
            if "expected_offset" in problem.members:
                headers["Upload-Offset"] = str(problem.members["expected_offset"])
            problem.headers.update(headers)
            self.protocol.refine(problem)
            raise ProblemError(problem) from e

    def _check_version(self) -> None:
        """Check that the server takes the bytes of this request.

        Raises:
            BadRequestError: it names no version where it has to, or codes its body.
        """
        refuse_coding(self.headers)
        named = not isinstance(self.protocol, Ietf) or ietf.HEADER in self.headers
        if not (named or self.service.without_version):
            raise BadRequestError(
                "the request names no version of a protocol for uploads",
                hint=f"Send {ietf.HEADER}: 8, or Tus-Resumable: 1.0.0",
            )

    async def _run(self, ident: str, *, change: bool) -> RunRecord:
        runs = self.service.runs
        run: RunRecord = await self.service.threads.start(
            runs.own if change else runs.get, self.caller, ident
        )
        return run

    async def create(self, exchange: Exchange, ident: str, partition: int | None) -> None:
        """Create a stream of a run, with bytes or without, and answer."""
        async with self._answering(exchange) as headers:
            self._check_version()
            creation = self.protocol.creation(self.headers)
            run = await self._run(ident, change=True)
            stream = await self.service.threads.start(self._add, run, creation, partition)
            name_resource(self.scope, stream.id)
            path = stream_path(run.id, stream.id)
            location = self.service.addresses.of(self.scope, path)
            headers["Location"] = location
            if creation.append is not None:
                async with self.service.uploads.holding(stream):
                    self._interim(exchange, None, location)
                    request = creation.append
                    stream = await self._receive(exchange, run, stream.id, request, headers, stream)
            answer = self.protocol.created(run, stream, appended=creation.append is not None)
        await _send(exchange, answer, stream, {"Location": location})

    def _add(self, run: RunRecord, creation: Creation, partition: int | None) -> StreamRecord:
        service, uploads = self.service, self.service.uploads
        service.runs.check_open(run)
        if creation.length is not None:
            uploads.check_size(creation.length)
        template = StreamRecord(
            run.id,
            "",
            run.owner,
            0,
            0.0,
            length=creation.length,
            metadata=creation.metadata,
            expected_digest=creation.digest,
        )
        if partition is not None and creation.partition not in {None, partition}:
            fault = f"the query has partition {partition}, Upload-Metadata {creation.partition}"
            raise InvalidOptionError(fault, hint="Send one of the two", option="partition")
        return uploads.create(run, template, partition or creation.partition, creation.append)

    async def append(self, exchange: Exchange, ident: str, stream_id: str) -> None:
        """Append the body to a stream, and answer."""
        async with self._answering(exchange) as headers:
            self._check_version()
            request = self.protocol.append(self.headers)
            run = await self._run(ident, change=True)
            before: StreamRecord | None = None
            if self._wants_rows():
                before = await self.service.threads.start(self.service.streams.get, run, stream_id)
            stream = await self._receive(exchange, run, stream_id, request, headers)
            answer = self.protocol.appended(run, stream)
        if before is not None and await self._send_rows(exchange, run, before, answer):
            return
        await _send(exchange, answer, stream)

    def _wants_rows(self) -> bool:
        """Whether the answer to an append is to have its rows: tus has no room for them."""
        prefer = (joined(self.headers, "Prefer") or "").replace(" ", "").lower()
        return isinstance(self.protocol, Ietf) and _PREFERENCE in prefer.split(",")

    async def _send_rows(
        self, exchange: Exchange, run: RunRecord, before: StreamRecord, answer: Answer
    ) -> bool:
        """Answer with the rows of the events that an append completed.

        Return False if there are none to be had: the append is acknowledged all the same.
        """
        service = self.service
        of_rows = [name for name in run.spec["reports"] if REPORTS[name].scope != "run"]
        if not of_rows:
            return False
        place = place_of(before, before.cursor)
        try:
            form = choose_format(joined(self.headers, "accept"), ("frames", "ndjson"))
            wanted = WantedRows(run, of_rows[0], form, before.id)
            with service.losses.ledger.hold(self.caller.payer, MEMORY, "rows"):
                start = service.threads.start
                reader = await start(open_rows, service.losses, service.streams, wanted, place)
                rows = RunSupply(reader, service.threads, service.runs.watch, run.id)
                headers = {**answer.headers, "Preference-Applied": _PREFERENCE, "Vary": "Accept"}
                head = Head.of_stream(MEDIA_TYPES[form], None, headers)
                stream = RunRowStream(reader, rows)
                await Stream(rows, stream, head, service.threads, self.drain).send(exchange)
        except (CoreError, ServiceError):
            if exchange.started:
                raise
            return False
        return True

    async def _receive(
        self,
        exchange: Exchange,
        run: RunRecord,
        ident: str,
        request: AppendRequest,
        headers: dict[str, str],
        new: StreamRecord | None = None,
    ) -> StreamRecord:
        """Append a body; ``headers`` gets the offset that a problem is to state.

        ``new`` is the stream if its fence was taken by its creation.
        """
        service = self.service
        uploads, start = service.uploads, service.threads.start
        last = 0.0

        def interim(offset: int) -> None:
            nonlocal last
            if time.monotonic() - last >= _INTERIM_SECONDS:
                last = time.monotonic()
                self._interim(exchange, offset, None)

        with service.losses.metrics.uploading():
            async with self._source(exchange, run, ident, request) as source:
                stream = new
                if stream is None:
                    stream = await start(uploads.take, run, ident, request)
                appending = uploads.append(run, stream, request, source, interim)
                # It keeps a version of the stream of its own.
                stream = new = None
                try:
                    return await appending
                except (CoreError, ServiceError):
                    with contextlib.suppress(ServiceError):
                        stream = await service.threads.start(service.streams.get, run, ident)
                        headers["Upload-Offset"] = str(stream.offset)
                    raise

    @contextlib.asynccontextmanager
    async def _source(
        self, exchange: Exchange, run: RunRecord, ident: str, request: AppendRequest
    ) -> AsyncIterator[Source]:
        """Yield the body, received and verified before if it has a checksum."""
        losses = self.service.losses
        if not request.checksums:
            yield Body(exchange.body, self.caller.payer, losses, self.drain)
            return
        if (request.content_length or 0) > CHECKED_BYTES:
            raise TooLargeError(
                f"an append with a checksum may have {CHECKED_BYTES} bytes",
                hint="Send it in several, or without",
                limit="append",
                allowed=CHECKED_BYTES,
                setting=None,
            )
        await losses.threads.start(self.service.uploads.check, run, ident, request)
        with losses.ledger.hold(self.caller.payer, 0, "uploads") as hold:
            decode = decoder(None, CHECKED_BYTES)
            data = await read_whole(exchange.body, hold, decode, losses.rate, losses.threads)
            losses.metrics.on_upload_bytes(len(data))
            view = memoryview(data)
            await losses.threads.start(check_bytes, request.checksums, view)
            yield Staged(view, losses.threads.start)

    def _interim(self, exchange: Exchange, offset: int | None, location: str | None) -> None:
        headers = self.protocol.interim(offset, location)
        if headers is not None:
            exchange.informational(104, headers)

    async def look(self, exchange: Exchange, ident: str, stream_id: str) -> None:
        """Answer how far a stream has come."""
        async with self._answering(exchange):
            if isinstance(self.protocol, Tus):
                self.protocol.check_version(self.headers)
            run = await self._run(ident, change=False)
            stream = await self.service.uploads.look(run, stream_id)
            answer = self.protocol.offset(run, stream)
        await _send(exchange, answer, stream)

    async def delete(self, exchange: Exchange, ident: str, stream_id: str) -> None:
        """Delete a stream, and answer."""
        async with self._answering(exchange):
            if isinstance(self.protocol, Tus):
                self.protocol.check_version(self.headers)
            run = await self._run(ident, change=not self.caller.is_admin)
            await self.service.uploads.delete(run, stream_id)
        await _send(exchange, self.protocol.deleted(), None)


async def _send(
    exchange: Exchange,
    answer: Answer,
    stream: StreamRecord | None,
    headers: dict[str, str] | None = None,
) -> None:
    everything = {**answer.headers, **(headers or {})}
    if answer.describes and stream is not None:
        data = orjson.dumps(describe_stream(stream))
        everything["Content-Type"] = "application/json"
        await exchange.start(answer.status, everything, content_length=len(data))
        await exchange.end(data)
        return
    length = None if answer.status == 204 else 0  # noqa: PLR2004
    await exchange.start(answer.status, everything, content_length=length)
    await exchange.end()


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
    LONG,
    status_code=201,
    openapi_extra=_BODY,
    responses={201: {"model": StreamAnswer}, **_MANY},
)
async def create_stream(
    service: RunService, run: str, query: Annotated[UploadQuery, Query()], request: Request
) -> ExchangeResponse:
    """Create the upload of a partition, with bytes or without."""
    return ExchangeResponse(
        lambda exchange: Upload(request, service).create(exchange, run, query.partition)
    )


@router.patch("/{stream}", LONG, openapi_extra=_BODY, responses=_APPENDED)
async def append_to_stream(
    service: RunService, run: str, stream: str, request: Request
) -> ExchangeResponse:
    """Append bytes to an upload; what is acknowledged is durable and has been checked."""
    return ExchangeResponse(lambda exchange: Upload(request, service).append(exchange, run, stream))


@router.get("/{stream}", FRONT, responses={200: _EMPTY, 204: _EMPTY, **_MANY})
async def stream_offset(
    service: RunService, run: str, stream: str, request: Request
) -> ExchangeResponse:
    """Tell in headers how far an upload has come; an append that runs ends."""
    return ExchangeResponse(lambda exchange: Upload(request, service).look(exchange, run, stream))


@router.delete("/{stream}", FRONT, responses={204: _EMPTY, **_MANY})
async def delete_stream(
    service: RunService, run: str, stream: str, request: Request
) -> ExchangeResponse:
    """Delete an upload of a run that is not sealed; its partition can be uploaded again."""
    return ExchangeResponse(lambda exchange: Upload(request, service).delete(exchange, run, stream))


_METHODS = {"PATCH": Upload.append, "DELETE": Upload.delete, "HEAD": Upload.look}


@router.post("/{stream}", LONG, status_code=204, openapi_extra=_BODY, responses=_APPENDED)
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


@router.options("", FRONT, include_in_schema=False)
@router.options("/{stream}", FRONT, include_in_schema=False)
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
