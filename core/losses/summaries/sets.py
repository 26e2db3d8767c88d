"""The requested summary sets of an xref, as arrays for kernels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ...arrays import Array, Indices
from ...errors import InputError
from ...slices import SLICE, slices
from ...sorting import distinct, numbered, order_of
from .._kernels.summary_sums import Places
from ..inputs import SummaryMap, SummaryXref

_SHOWN = 5
"""Ids that a message names at the most."""


class SummarySets:
    """The summary of each item in each requested set, and the risk it belongs to.

    Immutable, and shared by all partitions of a run.

    Args:
        xref: summaries of items, or of outputs of the financial module.
        requested: ids of sets, in the order in which they are written; None for all,
            ascending.
        risks: locations and buildings of the items, by which affected risks are counted;
            None if they are not, as in the perspective ri.
        name: of the xref, for messages.
        map_name: of the map, for messages.

    Raises:
        InputError: a set is requested that the xref lacks, one twice, or none; or the map is
            of another perspective, or its items are not those of the xref.
    """

    def __init__(
        self,
        xref: SummaryXref,
        requested: Sequence[int] | None = None,
        risks: SummaryMap | None = None,
        *,
        name: str | None = None,
        map_name: str | None = None,
    ) -> None:
        self.set_ids = _choose(xref.sets.tolist(), requested, name)
        """Ids of the requested sets, in order."""
        self.id_column = xref.id_column
        """``item_id`` or ``output``, if the xref tells what its ids are."""
        if risks is not None:
            _check_map(xref, risks, map_name)
        self.counts_risks = risks is not None
        """Whether streams have the number of affected risks, sidx -4."""
        items, item_numbers = numbered(xref.ids, "summary_xref")
        summaries = np.full((len(items), len(self.set_ids)), -1, np.int32)
        ids, set_indices = [], []
        count = 0
        for index, set_id in enumerate(self.set_ids):
            rows = xref.set_ids == set_id
            known, numbers = numbered(xref.summary_ids[rows], "summary_xref")
            of_rows = item_numbers[rows]
            for a, b in slices(len(of_rows), "summary_xref"):
                summaries[of_rows[a:b], index] = numbers[a:b] + count
            ids.append(known)
            set_indices.append(np.full(len(known), index, np.int32))
            count += len(known)
        pairs = np.zeros((0, len(self.set_ids)), np.int32)
        if risks is not None:
            # The items of the map are those of the xref.
            of_items = order_of(risks.ids, "summary_map")[1]
            pairs = _pairs(summaries, risks.risks()[of_items])
        self.places = Places(
            items.astype(np.int32),
            summaries,
            pairs,
            np.concatenate(ids).astype(np.int32),
            np.concatenate(set_indices),
            np.array(self.set_ids, np.int32),
        )
        self.pair_count = int(pairs.max(initial=-1)) + 1
        """Number of pairs of a summary and a risk."""

    @property
    def summaries(self) -> int:
        """Number of summaries of all requested sets."""
        return len(self.places.summary_ids)

    def summary(self, number: int) -> tuple[int, int]:
        """Ids of the set and the summary of this number."""
        places = self.places
        index = int(places.set_indices[number])
        return self.set_ids[index], int(places.summary_ids[number])


def _choose(
    available: Sequence[int], requested: Sequence[int] | None, name: str | None
) -> tuple[int, ...]:
    """The requested sets, or all."""
    listed = ", ".join(map(str, available))
    if requested is None:
        return tuple(available)
    if not requested:
        raise InputError("no summary set is requested", parameter="sets", hint=f"Choose {listed}")
    for set_id in requested:
        if set_id not in available:
            message = f"there is no summary set {set_id}"
            hint = f"Choose from the sets of the xref: {listed}"
            raise InputError(message, parameter="sets", hint=hint, source=name)
    if len(set(requested)) < len(requested):
        raise InputError("a summary set is requested twice", parameter="sets")
    return tuple(requested)


def _check_map(xref: SummaryXref, risks: SummaryMap, name: str | None) -> None:
    """Refuse a map whose items are not those of the xref.

    Raises:
        InputError: naming some of them.
    """
    of_items = risks.id_column == "item_id"
    if xref.id_column is not None and (xref.id_column == "item_id") is not of_items:
        raise InputError(
            f"the summary map is of {risks.id_column}, but the xref of {xref.id_column}",
            hint="Use the files of one perspective: gul, or fm for il",
            source=name,
        )
    of_xref, _ = distinct(xref.ids, "summary_xref")
    of_map, _ = distinct(risks.ids, "summary_map")
    if np.array_equal(of_xref, of_map):
        return
    for message, missing in (
        ("the summary map lacks items of the xref", _missing(of_xref, of_map)),
        ("the summary map has items that the xref lacks", _missing(of_map, of_xref)),
    ):
        if missing:
            shown = ", ".join(map(str, missing[:_SHOWN]))
            more = ", ..." if len(missing) > _SHOWN else ""
            hint = "Use the xref and the map of one perspective and portfolio"
            raise InputError(f"{message}: {shown}{more}", hint=hint, source=name)


def _missing(values: Indices, among: Indices) -> list[int]:
    """The first values that are not among others, one more than are shown; both ascend."""
    found: list[int] = []
    for a, b in slices(len(values), "summary_map"):
        part = values[a:b]
        places = np.minimum(np.searchsorted(among, part), len(among) - 1)
        found += part[among[places] != part][: _SHOWN + 1].tolist()
        if len(found) > _SHOWN:
            break
    return found


def _pairs(summaries: Array, risks: Indices) -> npt.NDArray[np.int32]:
    """Number the pairs of a summary and a risk, for each item and set."""
    # A place without a summary is -1; keys are not negative.
    keys = np.empty(summaries.shape, np.int64)
    for a, b in slices(len(keys), "summary_map", max(SLICE // summaries.shape[1], 1)):
        keys[a:b] = (summaries[a:b].astype(np.int64) + 1) << 32 | risks[a:b, None]
    _, numbers = numbered(keys.ravel(), "summary_map")
    return numbers.reshape(summaries.shape).astype(np.int32)
