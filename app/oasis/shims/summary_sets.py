"""The summary sets of a perspective: from the peer's prepared arrays, else from its xref and map.

``summarypy --create-summarypy-files`` prepares five arrays in a folder named after the perspective.
Where they are there they win over the files they were made from::

    summary_info                         one record, the number of risks
    summary_set_id_to_summary_set_index  [set id] -> index of the set, -1 for none
    summary_set_index_to_loss_ptr        [index]  -> summaries of the sets before it
    item_id_to_summary_id                [item, index] -> summary, -1 for none
    item_id_to_risks_i                   [item] -> risk, from 0; empty where risks are not counted
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from app.losses.outputs import OutputFile
from core.errors import InputError
from core.losses.inputs import SummaryMap, SummaryXref, parse_summary_map, parse_summary_xref
from core.losses.summaries import SummarySets

from .files import tool_outputs
from .run_inputs import read, require

_NONE: Final = -1
_INFO: Final = np.dtype([("nb_risk", "<i4")])
_FILES: Final = {
    "gul": ("gulsummaryxref", "gul_summary_map", "item_id"),
    "il": ("fmsummaryxref", "fm_summary_map", "output_id"),
    "ri": ("fmsummaryxref", None, None),
}
"""Names of the xref and of the map of each perspective, and of the map's column."""

_Ints = npt.NDArray[np.int32]


class Prepared(NamedTuple):
    """The prepared arrays, by the names of their files."""

    summary_info: npt.NDArray[np.void]
    summary_set_id_to_summary_set_index: _Ints
    summary_set_index_to_loss_ptr: _Ints
    item_id_to_summary_id: _Ints
    item_id_to_risks_i: _Ints


def read_sets(folder: Path, perspective: str, requested: Sequence[int]) -> SummarySets:
    """Read the requested sets.

    Args:
        folder: of the xref, ``input`` or ``input/RI_1``.
        perspective: ``gul``, ``il`` or ``ri``.
        requested: ids, in the order in which they are written.

    Raises:
        InputError: a file is missing or unusable, or a set is not there.
    """
    prepared = folder / perspective
    if (prepared / "summary_info.npy").is_file():
        xref, risks = _from_arrays(_load(prepared))
        return SummarySets(xref, requested, risks, name=str(prepared))
    xref, risks = _from_files(folder, perspective)
    names = [None if name is None else f"{folder}/{name}" for name in _FILES[perspective][:2]]
    return SummarySets(xref, requested, risks, name=names[0], map_name=names[1])


def _from_files(folder: Path, perspective: str) -> tuple[SummaryXref, SummaryMap | None]:
    xref_name, map_name, column = _FILES[perspective]
    path = require(folder, xref_name)
    xref = parse_summary_xref(read(path), str(path))
    if map_name is None:
        return xref, None
    path = require(folder, map_name)
    data: Any = read(path)
    if path.suffix == ".bin":
        rows = np.frombuffer(data, [("loc_id", "<i4"), ("item_id", "<i4"), ("building_id", "<i4")])
        data = {
            "loc_id": rows["loc_id"],
            str(column): rows["item_id"],
            "building_id": rows["building_id"],
        }
    return xref, parse_summary_map(data, str(path))


def _load(folder: Path) -> Prepared:
    arrays = []
    for name in Prepared._fields:
        path = folder / f"{name}.npy"
        try:
            arrays.append(np.load(path, allow_pickle=False))
        except (OSError, ValueError, EOFError) as e:
            raise InputError(f"cannot be read: {e}", source=str(path)) from e
    prepared = Prepared(*arrays)
    _check(prepared, str(folder))
    return prepared


def _check(prepared: Prepared, source: str) -> None:
    """Refuse arrays that are not of one xref."""
    indices, summaries = prepared[1], prepared.item_id_to_summary_id
    risks = prepared.item_id_to_risks_i
    sound = (
        prepared.summary_info.dtype.names == ("nb_risk",)
        and prepared.summary_info.shape == (1,)
        and all(array.dtype.kind == "i" for array in prepared[1:])
        and (indices.ndim, summaries.ndim, risks.ndim) == (1, 2, 1)
        and indices.max(initial=_NONE) < summaries.shape[1]
        and (not prepared.summary_info["nb_risk"][0] or len(risks) == len(summaries))
    )
    if not sound:
        raise InputError("the prepared arrays are not of one summary xref", source=source)


def _from_arrays(prepared: Prepared) -> tuple[SummaryXref, SummaryMap | None]:
    summaries = prepared.item_id_to_summary_id
    items, numbers, sets = [], [], []
    for set_id, index in enumerate(prepared.summary_set_id_to_summary_set_index.tolist()):
        if index != _NONE:
            of_set = np.flatnonzero(summaries[:, index] > 0)
            items.append(of_set)
            numbers.append(summaries[of_set, index])
            sets.append(np.full(len(of_set), set_id))
    # The arrays do not tell whether they are of items or of outputs.
    xref = SummaryXref(_joined(items), _joined(numbers), _joined(sets), None)
    if not prepared.summary_info["nb_risk"][0]:
        return xref, None
    known = np.unique(xref.ids)
    risks = prepared.item_id_to_risks_i[known].astype(np.int32)
    return xref, SummaryMap(known, risks, np.zeros(len(known), np.int32), "item_id")


def _joined(arrays: Sequence[npt.NDArray[Any]]) -> _Ints:
    return np.concatenate([np.zeros(0, np.int32), *arrays]).astype(np.int32)


def prepare(folder: Path, perspective: str) -> None:
    """Write the prepared arrays of a perspective, those of every set.

    Raises:
        InputError: a file is missing or unusable, or the arrays cannot be written.
    """
    xref, risks = _from_files(folder, perspective)
    target = folder / perspective
    try:
        target.mkdir(exist_ok=True)
    except OSError as e:
        raise InputError(f"cannot be made: {e.strerror}", source=str(target)) from e
    with tool_outputs() as outputs:
        for name, array in _prepared(xref, risks)._asdict().items():
            np.save(OutputFile(outputs.open(target / f"{name}.npy")), array)


def _prepared(xref: SummaryXref, risks: SummaryMap | None) -> Prepared:
    sets = xref.sets
    indices = np.full(int(sets.max()) + 1, _NONE, np.int32)
    indices[sets] = np.arange(len(sets))
    largest = np.zeros(len(sets) + 1, np.int32)
    np.maximum.at(largest, indices[xref.set_ids] + 1, xref.summary_ids)
    summaries = np.full((int(xref.ids.max()) + 1, len(sets)), _NONE, np.int32)
    summaries[xref.ids, indices[xref.set_ids]] = xref.summary_ids
    info = np.zeros(1, _INFO)
    risk_of = np.zeros(0, np.int32)
    if risks is not None:
        risk_of = np.zeros(len(summaries), np.int32)
        numbers = _in_order(risks.risks())
        known = risks.ids < len(summaries)
        risk_of[risks.ids[known]] = numbers[known]
        info["nb_risk"] = numbers.max() + 1
    return Prepared(info, indices, np.cumsum(largest, dtype=np.int32), summaries, risk_of)


def _in_order(risks: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The same risks, numbered as they first come."""
    first = np.unique(risks, return_index=True)[1]
    numbers: npt.NDArray[np.int64] = np.argsort(np.argsort(first))
    return numbers[risks]
