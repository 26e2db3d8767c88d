"""Datasets as sources of items: frames and tiles of arrays, and items of other formats.

A source is pinned to a number of items, and its fingerprint covers the bytes they depend
on. For a growing dataset these are the first bytes of its files, so that the fingerprint
holds while the dataset grows.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from app.datasets.catalogue import Catalogue
from app.datasets.items.segments import ItemRange
from app.datasets.opened import OpenDataset, Opened, OpenItems
from app.datasets.pinning import frame_stops, pinned_fingerprint
from app.http.identity import Identity
from app.tiles.views import OpenView
from core.errors import CoreError, OptionError
from core.iterate.base import Indexed
from core.tiles.view import View

from .arrays import FROM_CSV, FramesSource, LabelsSource, TilesSource, no_labels

FRAME, TILE = "frame", "tile"
OPTIONS = ("fields", "scan", "unit", "view")
"""Options of a source that define its items; with a scan they are labels of its positions."""
OpenViewOf = Callable[[str, Any], OpenView]
"""Opens a view of a dataset, by its id or its spec."""


@dataclass(slots=True, eq=False)
class PinnedSource:
    """A source of a pipeline with the files it reads; the caller closes its dataset."""

    key: str
    """The dataset and the options, as canonical JSON."""
    dataset: Opened
    indexed: Indexed
    count: int
    """Number of items it is pinned to."""
    stops: tuple[int, ...] | None
    """Leading bytes of each of the first files that it depends on; None for all files whole."""
    fingerprint: bytes
    """Of these bytes and of what the catalogue declares them to mean; 8 bytes. It is not that of
    the dataset, which changes as the dataset grows."""

    @property
    def growing(self) -> bool:
        """Whether the dataset may have more items than the pin."""
        return self.stops is not None

    def is_fresh(self) -> bool:
        """Whether the bytes are unchanged since the source was opened.

        Raises:
            DataChangedError: a file changed other than by growing.
            ReadFailedError: the disk failed.
        """
        files = self.dataset.files
        files.verify()
        return self.stops is None or self.fingerprint == pinned_fingerprint(
            self.dataset, self.stops
        )

    def describe(self) -> dict[str, Any]:
        """Describe the source, as JSON values."""
        return {
            **json.loads(self.key),
            "count": self.count,
            "growing": self.growing,
            "fingerprint": None if self.growing else self.dataset.fingerprint.hex(),
            "pinned_fingerprint": self.fingerprint.hex(),
        }


def source_key(dataset: str, options: Mapping[str, Any]) -> str:
    """Return the key of a source: its dataset and options as canonical JSON."""
    present = {name: options[name] for name in OPTIONS if options.get(name) is not None}
    return json.dumps({"dataset": dataset, "options": present}, sort_keys=True)


def open_source(
    caller: Identity,
    catalogue: Catalogue,
    open_view: OpenViewOf,
    key: str,
    count: int | None = None,
) -> PinnedSource:
    """Open a source of a pipeline.

    Args:
        caller: whose datasets the key names.
        catalogue: the datasets.
        open_view: opens their views.
        key: from ``source_key``.
        count: items to pin a growing dataset to; None for all there are. Other datasets
            are always pinned to all items.

    Raises:
        CoreError, ServiceError: there is no such dataset, it cannot be read, or it lacks
            the requested items or fields.
    """
    values = json.loads(key)
    options: Mapping[str, Any] = values["options"]
    dataset: Opened = catalogue.open_any(caller, values["dataset"], grown=count is None)
    try:
        view = None
        if isinstance(dataset, OpenDataset) and options.get("view") is not None:
            previous: Opened = dataset
            view = _view(dataset, options["view"], open_view)
            # The view opens the dataset itself, maybe in a newer state: use that one.
            dataset = view.dataset
            previous.close()
        growing = dataset.spec.growing
        if count is not None and growing and _count(dataset, options) < count:
            previous = dataset
            dataset = catalogue.open_any(caller, values["dataset"])
            previous.close()
        items, total = _all_items(dataset, options, view)
        pinned = min(count, total) if growing and count is not None else total
        stops = _stops(dataset, options, pinned) if growing else None
        # Nobody may rely on the shape of a scan that grows, so all growing items look alike.
        indexed = ItemRange(items, 0, pinned) if growing else items
        return PinnedSource(
            key, dataset, indexed, pinned, stops, pinned_fingerprint(dataset, stops)
        )
    except BaseException:
        dataset.close()
        raise


def _view(dataset: OpenDataset, value: Any, open_view: OpenViewOf) -> OpenView:  # noqa: ANN401 - JSON
    try:
        if dataset.spec.growing:
            hint = "Omit view, for its frames"
            raise OptionError("a growing dataset has no stable views", hint=hint)
        return open_view(dataset.spec.id, value)
    except CoreError as e:
        e.field = "view"
        raise


def _unit(dataset: Opened, options: Mapping[str, Any]) -> str:
    """Return the unit of the items, the dataset's default if the options name none.

    Raises:
        OptionError: the dataset has no such unit.
    """
    if isinstance(dataset, OpenItems):
        units = dataset.items.units
        if options.get("view") is not None:
            raise OptionError(
                f"only arrays have views, and the dataset holds {dataset.spec.format} items",
                hint="Omit view",
                field="view",
            )
    else:
        units = (FRAME,) if options.get("view") is None else (TILE, FRAME)
    unit = options.get("unit") or units[0]
    if unit not in units:
        hint = f"Use {' or '.join(units)}"
        raise OptionError(f"the dataset has no unit {unit!r}", hint=hint, field="unit")
    return str(unit)


def _count(dataset: Opened, options: Mapping[str, Any]) -> int:
    if isinstance(dataset, OpenItems):
        return dataset.items.count(_unit(dataset, options))
    return dataset.recording.frames


def _all_items(
    dataset: Opened, options: Mapping[str, Any], view: OpenView | None
) -> tuple[Indexed, int]:
    """Return a source of all items with the requested fields, and their number."""
    unit, fields = _unit(dataset, options), options.get("fields")
    scan = tuple(options.get("scan", ()))
    if scan and dataset.spec.growing:
        raise OptionError(f"the labels {dataset.spec.id!r} may grow", hint="Register them complete")
    if isinstance(dataset, OpenItems):
        if scan and dataset.spec.format == "lines":
            raise OptionError(f"the labels {dataset.spec.id!r} are lines of text", hint=FROM_CSV)
        count = dataset.items.count(unit)
        if scan and count != math.prod(scan):
            raise no_labels(dataset, f"{count:,} items", scan)
        return dataset.items.source(unit, fields), count
    if scan:
        labels = LabelsSource(dataset, scan, options["fields"][0])
        return labels, labels.length
    if unit == FRAME:
        frames = FramesSource(
            dataset, dataset.plan(dataset.typed(View())) if view is None else view.plan, fields
        )
        return frames, frames.length
    assert view is not None  # noqa: S101 - the unit tile implies a view
    tiles = TilesSource(view, fields)
    return tiles, tiles.length


def _stops(dataset: Opened, options: Mapping[str, Any], count: int) -> tuple[int, ...]:
    if isinstance(dataset, OpenItems):
        return dataset.items.stops(_unit(dataset, options), count)
    first = max(dataset.sync_offset, 0)
    return frame_stops(dataset.recording, dataset.files, count + first if count else 0)
