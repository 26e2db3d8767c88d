"""``summarypy``: from a stream of items to a stream of summaries for each set.

Streams have no end marker. Where a stream of items is faulty, what was written to a fifo so far
looks like a whole stream to its readers; so it gets half a block more, at which they fail too.
"""

from __future__ import annotations

import argparse
import contextlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from app.losses.outputs import OutputFile, SummaryFiles
from app.losses.sources import STDIN, Sources
from app.oasis.files import failing_as
from core.arrays import Octets
from core.errors import InputError, OptionError
from core.losses.inputs import SummaryMap, SummaryXref, parse_summary_map, parse_summary_xref
from core.losses.summaries import JoinedSummaries, Reading, SummarySets

from .certifying import Writer
from .environment import read_environment, tool_outputs
from .reading import policy, read, require
from .starting import ProcessLog
from .watching import watching

_ERROR_FILE: Final = "event_error.json"
"""Tells the peer's replay of a failed run which event it failed in."""
_NONE: Final = -1
_INFO: Final = np.dtype([("nb_risk", "<i4")])
_FILES: Final = {
    "gul": ("gulsummaryxref", "gul_summary_map", "item_id"),
    "il": ("fmsummaryxref", "fm_summary_map", "output_id"),
    "ri": ("fmsummaryxref", None, None),
}
"""Names of the xref and of the map of each perspective, and of the map's column."""
_STATIC_PATH: Final = "name the one of the xref with -p"
_Ints = npt.NDArray[np.int32]


def summarypy(args: argparse.Namespace, _log: ProcessLog) -> None:
    """Write the streams, and with ``-m`` their indices.

    Raises:
        CoreError: the stream, the xref or an output is unusable.
        BrokenPipeError: the reader of a stream has gone.
    """
    width = read_environment().float_width
    if args.run_type is None:
        raise OptionError("the perspective is not named", hint="Give -t gul, il or ri")
    folder = Path(args.static_path)
    if args.create_summarypy_files:
        prepare(folder, args.run_type)
        return
    paths = _paths(args.summary_sets_output)
    stream = args.files_in or STDIN
    writer = Writer(stream, paths)
    with (
        watching(),
        tool_outputs(live=True) as outputs,
        SummaryFiles(outputs, paths, indexed=args.low_memory) as files,
    ):

        def write(set_id: int, octets: Octets) -> None:
            writer.add(set_id, octets.data)
            files.write(set_id, octets)

        sets = read_sets(folder, args.run_type, list(paths))
        # The peer reads NaN as no loss here, and only here.
        reading = Reading(policy(width, nan="zero"), zeros=args.output_zeros)
        with Sources([stream]) as sources:
            names = [source.name for source in sources.sources]
            summaries = JoinedSummaries(names, sets, write, reading, files.write_index)
            _feed(sources, summaries)
        writer.certify(summaries.summarisers[0].events)
        # Readers of fifos are not to take a stream for whole whose index finds no room, and a
        # process is not to end before they are there.
        outputs.save()


def _paths(words: Sequence[str]) -> dict[int, str]:
    """The files of the sets, from words such as ``-1 S1.bin -2 S2.bin``."""
    numbers, paths = words[::2], words[1::2]
    understood = all(word[:1] == "-" and word[1:].isdecimal() for word in numbers)
    if len(numbers) != len(paths) or not words or not understood:
        raise OptionError(
            f"sets and files are not understood: {' '.join(words)!r}",
            hint="Give pairs such as -1 S1.bin -2 S2.bin",
        )
    return {int(word[1:]): path for word, path in zip(numbers, paths, strict=True)}


def _feed(sources: Sources, summaries: JoinedSummaries) -> None:
    try:
        sources.feed(summaries)
    except Exception:
        event = summaries.summarisers[0].open_event
        if event:
            # The fault matters more than the file that helps to look into it.
            with contextlib.suppress(OSError):
                Path(_ERROR_FILE).write_text(json.dumps({"event_id": event}), encoding="utf-8")
        raise


class Prepared(NamedTuple):
    """The prepared arrays, by the names of their files.

    ``summarypy --create-summarypy-files`` prepares five arrays in a folder named after the
    perspective. Where they are there they win over the files they were made from::

        summary_info                         one record, the number of risks
        summary_set_id_to_summary_set_index  [set id] -> index of the set, -1 for none
        summary_set_index_to_loss_ptr        [index]  -> summaries of the sets before it
        item_id_to_summary_id                [item, index] -> summary, -1 for none
        item_id_to_risks_i                   [item] -> risk, from 0; empty if risks are not counted
    """

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
    path = require(folder, xref_name, _STATIC_PATH)
    xref = parse_summary_xref(read(path), str(path))
    if map_name is None:
        return xref, None
    path = require(folder, map_name, _STATIC_PATH)
    data: Any = read(path)
    if path.suffix == ".bin":
        names = ("loc_id", str(column), "building_id")
        rows = np.frombuffer(data, [(name, "<i4") for name in names])
        data = {name: rows[name] for name in names}
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
    with failing_as("cannot be made", target):
        target.mkdir(exist_ok=True)
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
