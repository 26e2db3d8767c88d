"""Perils of events, as a question lists them, for layers that are of some and for hours clauses."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from app.errors import InvalidOptionError
from app.losses.selection import parse_ids
from core.arrays import Indices
from core.budget import current
from core.portfolio.inuring import Perils
from core.portfolio.joining import Joint
from core.portfolio.losses import Int32s
from core.portfolio.programme import Programme
from core.slices import slices
from core.sorting import order_of

from .files import STAGE

MAX_EVENTS = 1_000_000
"""Events of all perils of a question."""
_EVENT_BYTES = 64


def read_perils(lists: Mapping[str, str], programme: Programme, joint: Joint) -> Perils | None:
    """Return the peril of each occurrence; those of events in no list share one without a name.

    Args:
        lists: events of each peril, as 1,5,10-20; empty if all are of the same.
        programme: whose layers are of perils.
        joint: the occurrences.

    Raises:
        InvalidOptionError: a list is malformed or too long, an event is of two perils or of two
            catalogues, a layer is of a peril of which no event happens, or none asks for perils.
    """
    of_perils = [layer for layer in programme.layers if layer.perils]
    if not lists:
        for layer in of_perils:
            raise _wrong(
                f"{layer.place}.ReinsPeril has {layer.perils[0]!r}, and no event has a peril",
                f'Say which events are of it: {{"perils": {{"{layer.perils[0]}": "1-500"}}}}',
            )
        return None
    if not any(layer.hours or "ReinsPeril" in layer.given for layer in programme.layers):
        raise _wrong("no layer has a ReinsPeril or an hours clause", "Leave perils out")
    ids, owners = _owned(lists)
    happening, sources = joint.calendar.occurrences.event_ids, joint.sources
    current().hold(STAGE, 4 * len(happening))
    perils = np.full(len(happening), len(lists), np.int32)
    # Catalogues that have each event, from first to last.
    first, last = np.full(len(ids), np.iinfo(np.int32).max), np.full(len(ids), -1)
    for a, b in slices(len(happening), STAGE, 1 << 17):
        at = np.minimum(np.searchsorted(ids, happening[a:b]), len(ids) - 1)
        found = np.flatnonzero(ids[at] == happening[a:b])
        at, rows = at[found], a + found
        perils[rows] = owners[at]
        np.minimum.at(first, at, sources[rows])
        np.maximum.at(last, at, sources[rows])
    if len(unclear := ids[first < last]):
        raise _wrong(
            f"event {unclear[0]} is in two catalogues of the loss sets, so its peril is not clear",
            "A peril goes by the ids of its events, which must differ between the loss sets",
        )
    happens = np.bincount(owners[last >= 0], minlength=len(lists))
    absent = {name for name, events in zip(lists, happens, strict=True) if not events}
    for layer in programme.layers:
        for name in absent.intersection(layer.perils):
            raise _wrong(
                f"{layer.place}.ReinsPeril has {name!r}, of which no event happens",
                "List events that the loss sets have, or leave the peril out",
            )
    return Perils([*lists, ""], perils)


def _owned(lists: Mapping[str, str]) -> tuple[Indices, Int32s]:
    """Events of all lists, ascending, and which list each is in."""
    parsed: list[Int32s] = []
    for name, text in lists.items():
        parsed.append(parse_ids(text, f"perils.{name}", least=0))
        if (count := sum(map(len, parsed))) > MAX_EVENTS:
            raise _wrong(f"perils has more than {MAX_EVENTS:,} events", "List those that happen")
    current().hold(STAGE, _EVENT_BYTES * count)
    ids, order = order_of(np.concatenate(parsed), STAGE)
    owners = np.repeat(np.arange(len(parsed), dtype=np.int32), list(map(len, parsed)))[order]
    if len(twice := np.flatnonzero(ids[1:] == ids[:-1])):
        one, other = (list(lists)[k] for k in owners[twice[0] :][:2])
        raise _wrong(
            f"event {ids[twice[0]]} is of the perils {one} and {other}",
            "List an event once; a layer may be of several perils: WW1;EQ",
        )
    return ids, owners


def _wrong(detail: str, hint: str) -> InvalidOptionError:
    return InvalidOptionError(detail, hint=hint, option="perils")
