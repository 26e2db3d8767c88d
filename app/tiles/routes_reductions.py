"""Routes of reductions, as arrays and as images."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fastapi import Query
from fastapi.responses import Response
from starlette.requests import Request

from app.errors import BadRequestError, InvalidOptionError, Problem
from app.http.answers import WholeAnswer, head_response
from app.http.bodies import Threads
from app.http.dependencies import DrainDep, IdentityDep, Routes
from app.http.json_bodies import parse_object
from app.http.media_types import MEDIA_TYPES
from app.http.negotiation import answer_coding, not_modified
from app.http.openapi import NOT_MODIFIED, content_response, json_body, problem_responses
from app.server.drain import Drain
from app.server.lanes.table import LONG, QUICK
from app.server.responses import Exchange, ExchangeResponse
from app.streams.ahead import Ahead
from app.streams.driver import DRAIN, Encoder, Progress, Stream
from app.streams.frames import Buffers, FrameKind, FrameWriter
from app.streams.sender import Head
from core.arrays import Floats

from .encoding import npy_bytes, octets_of, values_header
from .pictures import MAPS, check_map, png, scaled
from .reductions import ReductionJob
from .routes import MAX_BODY, MEDIA
from .service import TileService

router = Routes(
    TileService,
    "/v1/datasets/{ident}",
    tags=["reductions"],
    responses=problem_responses(400, 401, 403, 404, 408, 409, 412, 413, 422, 503),
)

_SCHEMA = {
    "description": "In short, or as an object: op is sum, mean, std, min or max, over frames (the"
    " default) or pixels; com, perhaps of a detector; or virtual, with detectors: disk, annulus,"
    " rectangle, point, or weights, a value per pixel",
    "oneOf": [{"type": "string"}, {"type": "object"}],
    "examples": [
        "com",
        "com:disk:64,64,40",
        "point:64,64",
        "disk:64,64,20",
        "annulus:64,64,20,40",
        "rectangle:0,32,0,64",
        {"op": "mean", "over": "pixels"},
        {"op": "virtual", "detectors": [{"disk": {"centre": [64, 64], "radius": 20}}]},
    ],
}
HEARTBEAT_SECONDS = 0.5
"""Short, because a person may be watching."""


@router.post(
    "/reduce",
    LONG,
    openapi_extra=json_body(
        {"view": {"type": "object", "description": "As the body of /tiles"}, "reduction": _SCHEMA},
        {"view": {}, "reduction": {"op": "sum", "over": "frames"}},
    ),
    responses=content_response(200, MEDIA_TYPES["frames"], MEDIA["npy"]),
)
async def reduce_view(
    tiles: TileService,
    ident: str,
    request: Request,
    caller: IdentityDep,
    drain: DrainDep,
    form: Annotated[
        Literal["frames", "npy"],
        Query(alias="format", description="A stream of results, or one of them as npy"),
    ] = "frames",
    result: Annotated[str | None, Query(description="Which as npy, if there are several")] = None,
) -> ExchangeResponse:
    """Reduce a view; the frames are heartbeats with the progress, then an array per result."""
    if result is not None and form == "frames":
        raise InvalidOptionError("result applies only to format=npy", option="result")

    async def handle(exchange: Exchange) -> None:
        async with tiles.bodies.read(exchange, caller, MAX_BODY) as body:
            view, job = await tiles.threads.start(tiles.reduction, caller, ident, body)
            with closing(view):
                if form == "npy":
                    data = await tiles.reducing.start(_npy_of, job, result)
                    headers = {"Content-Type": MEDIA["npy"]}
                    await WholeAnswer(200, headers, data).send(exchange)
                    return
                stream = reduction_stream(
                    job,
                    coding=answer_coding(request.headers),
                    threads=tiles.threads,
                    reducing=tiles.reducing,
                    drain=drain,
                )
                await stream.send(exchange)

    return ExchangeResponse(handle)


@router.get(
    "/image.png",
    QUICK,
    response_class=Response,
    responses=content_response(200, "image/png") | NOT_MODIFIED,
)
async def image(
    tiles: TileService,
    ident: str,
    request: Request,
    caller: IdentityDep,
    reduction: Annotated[
        str, Query(description="Reduction in short, or as JSON; default: the sum over frames")
    ] = "sum",
    view: Annotated[str, Query(description="View as JSON; default: the whole dataset")] = "{}",
    result: Annotated[
        str | None, Query(description="Result to show if the reduction has several")
    ] = None,
    low: Annotated[float, Query(ge=0, le=100, description="Percentile shown darkest")] = 1.0,
    high: Annotated[float, Query(ge=0, le=100, description="Percentile shown brightest")] = 99.0,
    map: Annotated[str, Query(description=f"Colour map: {', '.join(MAPS)}")] = "gray",  # noqa: A002 - the option's name
    scale: Annotated[
        Literal["linear", "log"], Query(description="What is linear: values or logarithms")
    ] = "linear",
) -> Response:
    """Render a reduction as a PNG image; HEAD does not, so its answer has no Content-Length."""
    check_map(map)
    if high <= 1:
        raise InvalidOptionError(
            f"high is {high:g}, which is at most one percent: nearly all would be white",
            hint="Percentiles are 0 to 100: write 99, not 0.99",
            option="high",
        )
    if low >= high:
        raise InvalidOptionError(f"low is {low:g}, which is not below high, {high:g}", option="low")
    spec = _object(reduction, "reduction") if reduction.lstrip().startswith("{") else reduction
    body = {"view": _object(view, "view"), "reduction": spec}

    def render() -> Response:
        opened, job = tiles.reduction(caller, ident, body)
        with closing(opened):
            name = _chosen(job, result, "an image")
            look = hashlib.blake2b(repr((result, low, high, map, scale)).encode(), digest_size=8)
            etag = f'"{job.name}-{look.hexdigest()}"'
            headers = {"Cache-Control": "no-cache", "ETag": etag}
            if not_modified(request.headers, etag):
                return Response(status_code=304, headers=headers)
            if request.method == "HEAD":
                return head_response("image/png", headers)
            values = job.run(lambda _done, _total: None, lambda: False)[name]
        values = scaled(values, low, high, log=scale == "log")
        data = png(values, map)
        return Response(data, media_type="image/png", headers=headers)

    return await tiles.reducing.start(render)


def _npy_of(job: ReductionJob, result: str | None) -> bytes:
    name = _chosen(job, result, "npy", "; or request frames")
    return npy_bytes(job.run(lambda _done, _total: None, lambda: False)[name])


def _object(text: str, name: str) -> Mapping[str, Any]:
    try:
        return parse_object(text, name)
    except BadRequestError as e:
        raise InvalidOptionError(str(e), hint=e.hint, option=name) from e


def _chosen(job: ReductionJob, name: str | None, form: str, otherwise: str = "") -> str:
    """The result of a name; without one, the only one."""
    if name is None and len(job.results) > 1:
        raise InvalidOptionError(
            f"the reduction has several results, and {form} holds one",
            hint=f"Give result={', or result='.join(job.results)}{otherwise}",
            option="result",
        )
    if name not in {None, *job.results}:
        hint = f"Use {', '.join(job.results)}"
        raise InvalidOptionError(f"there is no result {name!r:.40}", hint=hint, option="result")
    return name or job.results[0]


@dataclass(frozen=True, slots=True)
class Result:
    """One named array of a reduction."""

    name: str
    values: Floats

    @property
    def nbytes(self) -> int:
        """Size of the values in bytes."""
        return self.values.nbytes


class RunningJob:
    """A reduction in progress.

    Attributes:
        done: tiles reduced so far.
        total: tiles to reduce; 0 until the first progress report.
        stopped: set it to cancel the job.
    """

    def __init__(self, job: ReductionJob) -> None:
        self._job = job
        self.done = 0
        self.total = 0
        self.stopped = threading.Event()

    def _update(self, done: int, total: int) -> None:
        self.done, self.total = done, total

    def results(self) -> Iterator[Result]:
        """Compute the results, then yield them one by one.

        Raises:
            CancelledError: ``stopped`` was set.
            CoreError, ServiceError: the frames cannot be read.
        """
        for name, values in self._job.run(self._update, self.stopped.is_set).items():
            yield Result(name, values)


class ResultFrames(Encoder[Result]):
    """Encoder of results as frames.

    Tokens are None: a repeated request resumes from the stored results of segments.
    """

    def __init__(self, running: RunningJob) -> None:
        self._running = running
        self._writer = FrameWriter()

    def item(self, item: Result) -> Buffers:
        """Encode a result; the payload is a view of its values."""
        header = {"name": item.name, "token": None, **values_header(item.values)}
        return self._writer.frame(FrameKind.DATA, header, octets_of(item.values))

    def heartbeat(self) -> Buffers:
        """Report how many tiles are done, and of how many."""
        header = {"token": None, "done": self._running.done, "of": self._running.total}
        return self._writer.frame(FrameKind.HEARTBEAT, header)

    def end(self, reason: str, _progress: Progress) -> Buffers:
        """Give the reason ``complete``, or ``drain`` if the results are missing."""
        header = {"reason": reason if reason == DRAIN else "complete", "token": None}
        return self._writer.frame(FrameKind.END, header)

    def fail(self, problem: Problem) -> Buffers:
        """Encode the problem; a failure ends the whole reduction."""
        return self._writer.frame(FrameKind.ERROR, {"problem": problem.to_json(), "token": None})


def reduction_stream(
    job: ReductionJob, *, coding: str | None, threads: Threads, reducing: Threads, drain: Drain
) -> Stream[Result]:
    """Build the answer to a reduction.

    Args:
        job: the reduction.
        coding: how the answer is compressed; None if it is not.
        threads: for calls that compute.
        reducing: other threads, in which the job waits for its engine.
        drain: cuts the answer when the server stops.
    """
    running = RunningJob(job)
    return Stream(
        Ahead(running.results(), reducing.start, running.stopped),
        ResultFrames(running),
        Head.of_stream(MEDIA_TYPES["frames"], coding),
        threads,
        drain,
        coding,
        heartbeat=HEARTBEAT_SECONDS,
    )
