"""Routes of reductions and their pictures."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import orjson
from fastapi import APIRouter, Query
from fastapi.responses import Response

from app.context import Services
from app.datasets.routes import JSON_BODY
from app.errors import InvalidOptionError, ServiceError, problem_of
from app.http.dependencies import OPTIONS_ONCE, ServicesDep
from app.http.json_bodies import read_json
from app.http.schemas import content_response, problem_responses
from app.server.responses import Exchange, ExchangeResponse
from app.streams.frames import MEDIA_TYPES, FrameKind, FrameWriter, describe_array
from core.errors import CoreError

from .encoding import octets_of
from .pictures import png, scaled
from .reductions import CancelledError, ReductionJob

router = APIRouter(
    prefix="/v1/datasets/{ident}",
    tags=["reductions"],
    dependencies=[OPTIONS_ONCE],
    responses=problem_responses(400, 401, 403, 404, 408, 409, 412, 413, 422, 503),
)

_MOST_BODY = 64 << 20
_BEAT_SECONDS = 0.5
Results = dict[str, npt.NDArray[np.float64]]


class _Running:
    """A job in the engine's threads, watched from the event loop."""

    def __init__(self, job: ReductionJob) -> None:
        self.done = (0, 0)
        self._stop = threading.Event()
        # A thread of its own: it waits for the engine, and requests need theirs.
        coming = asyncio.to_thread(job.run, self._progress, self._stop.is_set)
        self.result = asyncio.ensure_future(coming)

    def _progress(self, done: int, of: int) -> None:
        self.done = (done, of)

    async def cancel(self) -> None:
        """Stop it soon, and wait until it has."""
        self._stop.set()
        await asyncio.wait({self.result})
        with contextlib.suppress(CancelledError):
            self.result.cancelled() or self.result.exception()


def _job(services: Services, ident: str, body: Mapping[str, Any]) -> tuple[Any, ReductionJob]:
    unknown = sorted(set(body) - {"view", "reduction"})
    if unknown or not isinstance(body.get("reduction"), Mapping):
        raise InvalidOptionError(
            "the body has members view and reduction, both objects", option="reduction"
        )
    view = services.tiles.open(ident, body.get("view") or {})
    try:
        return view, ReductionJob(view, body["reduction"], services.engine, services.partials)
    except BaseException:
        view.close()
        raise


@router.post(
    "/reduce",
    operation_id="reduce_view",
    response_class=ExchangeResponse,
    status_code=200,
    openapi_extra=JSON_BODY,
    responses=content_response(200, MEDIA_TYPES["frames"]),
)
async def reduce_view(ident: str, services: ServicesDep) -> ExchangeResponse:
    """A reduction of a view, in frames: progress, then an array for each result."""

    async def handle(exchange: Exchange) -> None:
        body = await read_json(exchange, services, _MOST_BODY)
        view, job = await services.workers.start(_job, services, ident, body)
        running = _Running(job)
        try:
            await _send(exchange, running)
        finally:
            await running.cancel()
            view.close()

    return ExchangeResponse(handle)


async def _send(exchange: Exchange, running: _Running) -> None:
    writer = FrameWriter()
    while True:
        finished, _ = await asyncio.wait({running.result}, timeout=_BEAT_SECONDS)
        if finished:
            break
        if not exchange.started:
            await _begin(exchange)
        done, of = running.done
        frame = writer.frame(FrameKind.HEARTBEAT, {"token": None, "done": done, "of": of})
        await exchange.write(b"".join(frame))
    try:
        results = running.result.result()
    except (CoreError, ServiceError) as e:
        if not exchange.started:
            raise
        problem = {"problem": problem_of(e).to_json(), "token": None}
        await exchange.end(b"".join(writer.frame(FrameKind.ERROR, problem)))
        return
    if not exchange.started:
        await _begin(exchange)
    for name, values in results.items():
        for piece in writer.frame(FrameKind.DATA, _header(name, values), octets_of(values)):
            await exchange.write(piece)
    end = writer.frame(FrameKind.END, {"reason": "complete", "token": None})
    await exchange.end(b"".join(end))


async def _begin(exchange: Exchange) -> None:
    headers = {"Content-Type": MEDIA_TYPES["frames"], "Cache-Control": "no-store"}
    await exchange.start(200, {**headers, "X-Accel-Buffering": "no"})


def _header(name: str, values: npt.NDArray[np.float64]) -> dict[str, Any]:
    array = describe_array("data", values)
    return {
        "name": name,
        "token": None,
        "arrays": [array],
        "dtype": array["dtype"],
        "shape": array["shape"],
    }


@router.get(
    "/image.png",
    operation_id="image",
    response_class=Response,
    responses=content_response(200, "image/png"),
)
async def image(
    ident: str,
    services: ServicesDep,
    reduction: Annotated[
        str, Query(description="JSON of a reduction; default: the sum over frames")
    ] = '{"op":"sum"}',
    view: Annotated[str, Query(description="JSON of a view; default: everything")] = "{}",
    result: Annotated[str | None, Query(description="Which result, if there are several")] = None,
    low: Annotated[float, Query(ge=0, le=100, description="Percentile that is dark")] = 1.0,
    high: Annotated[float, Query(ge=0, le=100, description="Percentile that is bright")] = 99.0,
    map: Annotated[str, Query(description="gray or viridis")] = "gray",  # noqa: A002 - its name outside
) -> Response:
    """A reduction as a picture."""
    body = {"view": _object(view, "view"), "reduction": _object(reduction, "reduction")}

    def make() -> bytes:
        opened, job = _job(services, ident, body)
        try:
            results = job.run(lambda _done, _of: None, lambda: False)
        finally:
            opened.close()
        return png(scaled(_chosen(results, result), low, high), map)

    data = await asyncio.to_thread(make)
    return Response(data, media_type="image/png", headers={"Cache-Control": "no-cache"})


def _object(text: str, name: str) -> Mapping[str, Any]:
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as e:
        raise InvalidOptionError(f"{name} is not JSON: {e}", option=name) from e
    if not isinstance(value, Mapping):
        raise InvalidOptionError(f"{name} is no object", option=name)
    return value


def _chosen(results: Results, name: str | None) -> npt.NDArray[np.float64]:
    if name is None:
        return next(iter(results.values()))
    if name not in results:
        raise InvalidOptionError(
            f"there is no result {name[:40]!r}", hint=", ".join(results), option="result"
        )
    return results[name]
