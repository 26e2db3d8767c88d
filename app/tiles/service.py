"""The tile product of a running service."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.datasets.files.file_set import on_error
from app.engine.base import Cluster
from app.engine.workers import Workers
from app.errors import DataChangedError, InvalidOptionError
from app.http.addresses import Addresses
from app.http.identity import Identity
from app.http.json_bodies import JsonBodies
from core.tiles.reduce import is_over_pixels

from .reductions import PartialStore, ReductionJob
from .views import OpenView, Views


@dataclass(frozen=True, slots=True)
class TileService:
    """Everything the routes of views, tiles and reductions need."""

    views: Views
    partials: PartialStore
    threads: Workers
    reducing: Workers
    """Threads of reductions, which wait for calls of the others."""
    bodies: JsonBodies
    addresses: Addresses
    cluster: Cluster | None = None
    """Workers that reduce, too."""
    shared: Sequence[Path] = ()
    """Directories that they have at the same paths."""

    def reduction(
        self, caller: Identity, dataset: str, body: Mapping[str, Any]
    ) -> tuple[OpenView, ReductionJob]:
        """Open a view and prepare a reduction of it; the caller closes the view.

        Args:
            caller: the caller.
            dataset: id of the dataset.
            body: members ``view``, an object, and ``reduction``, an object or its short form.

        Raises:
            InvalidOptionError: the body has other members, or one is not an object.
            CoreError, ServiceError: the view or the reduction does not fit the dataset.
        """
        view_spec = {} if body.get("view") is None else body["view"]
        known = isinstance(view_spec, Mapping) and not set(body) - {"view", "reduction"}
        if not known or not isinstance(body.get("reduction"), Mapping | str):
            raise InvalidOptionError(
                "the body is not an object with the members view, an object, and reduction",
                hint='Send {"view": {}, "reduction": {"op": "sum"}}',
                option="reduction",
            )
        if "casting" in view_spec:
            fault = "casting is of tiles: results of reductions are float64"
            raise InvalidOptionError(fault, hint="Leave it out of the view", option="casting")
        if is_over_pixels(body["reduction"]) and view_spec.get("missing", "skip") == "skip":
            # Results keep the shape of the scan: a position without a frame is NaN there.
            view_spec = {**view_spec, "missing": "nan"}
        view = self.views.open(caller, dataset, view_spec)
        with on_error(view.close):
            job = ReductionJob(view, body["reduction"], self.threads, self.partials)
            if view.dataset.files.are_below(self.shared):
                job.spread(self.cluster, caller)
            return view, job


def reduce_segment(tiles: TileService, task: Mapping[str, Any]) -> None:
    """Reduce a segment, as a task: see ReductionJob.

    Raises:
        DataChangedError: the result would not be the one that was asked for.
        CoreError, ServiceError: the frames cannot be read, or the result not stored.
    """
    caller = Identity(task["owner"], frozenset(task["scopes"]))
    body = {"view": task["view"], "reduction": task["reduction"]}
    view, job = tiles.reduction(caller, task["dataset"], body)
    with closing(view):
        if job.name != task["name"]:
            raise DataChangedError("the dataset is not as it was when its reduction was asked for")
        first, last = task["tiles"]
        job.publish((first, last))
