"""Chunks of a run, computed on several machines: what each leaves, and how they are merged.

A chunk is one process of a run with all of its streams. Oasis takes its work folder to the machine
that computes the outputs, and merges all of them into one folder ``work``::

    3.work/kat/gul_S1_elt_sample_P3          rows of reports by event, packed
    3.work/gul_S1_summary_palt/P3.bin        sums of the partition: a partial file
    3.work/gul_S1_summaryleccalc/P3.bin      the same sums, by another name
    3.work/thalweg_gul_P3.json               which run the chunk is of, and its files

These are the names of Oasis' own work files, and none is empty, which Oasis checks. Sums of chunks
are exact, so the outputs do not depend on how many chunks there are.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import structlog

from app.losses.analyses import taken_inputs
from app.losses.outputs import Outputs
from app.losses.report_files import Exchange, partial_header
from core.arrays import Rows
from core.errors import InputError, MismatchError
from core.losses.finishing import LedgerReports, LedgerResources
from core.losses.parameters import make_rules
from core.losses.policy import Policy
from core.losses.reports import REPORTS, choose_reports

from .directory import OutputTables, RunDirectory, check_writable, set_name
from .files import json_object, locked, write_whole
from .merging import Piece, join_rows, merge
from .outputs import OUTPUTS, kat_file, summary_file
from .settings import Losses, SetRequest

VERSION: Final = 1
_SUMS_ONLY = "aal"
"""Computed where a chunk has no other report of sums, and thrown away."""
_PIECE_ROWS = 1 << 16


def _row_outputs(request: SetRequest) -> list[str]:
    return [name for name in request.outputs if OUTPUTS[name].kat_flag is not None]


def run_outputs(request: SetRequest) -> list[str]:
    """The outputs of a set that need the sums of the whole run."""
    return [name for name in request.outputs if OUTPUTS[name].kat_flag is None]


def manifest_file(perspective: str, process: int) -> str:
    """Name of the description of a chunk, below its work folder."""
    return f"thalweg_{perspective}_P{process}.json"


def _digest_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()[:32]


@dataclass(eq=False)
class ChunkFiles:
    """What a chunk leaves."""

    outputs: Outputs
    """Of which the files are."""
    directory: RunDirectory
    """Of the run."""
    work: Path
    """Folder of the chunk."""
    chunk: tuple[int, int]
    """Number of the chunk, and of chunks."""
    sort: bool
    """Whether rows ascend by event."""
    paths: list[Path] = field(default_factory=list, init=False)
    """Paths of all files, once they are complete."""
    _exchanges: dict[tuple[str, int], Exchange] = field(default_factory=dict, init=False)
    _losses: dict[str, list[Losses]] = field(default_factory=partial(defaultdict, list), init=False)
    _sums: dict[Path, list[Path]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._tables = OutputTables(self.outputs, self.directory, self.work)

    def add(self, losses: Losses, request: SetRequest) -> None:
        """Open the files of a set.

        Raises:
            InputError: one cannot be made.
        """
        if losses not in self._losses[losses.perspective]:
            self._losses[losses.perspective].append(losses)
        process = self.chunk[0]
        name = set_name(losses, request)
        paths = {o: self.work / kat_file(name, o, process) for o in _row_outputs(request)}
        self._tables.add_files(losses, request, paths, "bin")
        sums = [self.work / summary_file(name, o, process) for o in run_outputs(request)]
        if sums:
            first, *others = dict.fromkeys(sums)
            self._sums[first] = others
            self._exchanges[losses.name, request.set_id] = Exchange([], str(first), self.outputs)

    def reports(
        self, request: SetRequest, inputs: Mapping[str, Any]
    ) -> tuple[Sequence[str], Mapping[str, Any]]:
        """Reports of a chunk, and those of the inputs that they take."""
        names = list(dict.fromkeys(OUTPUTS[name].report for name in _row_outputs(request)))
        if run_outputs(request):
            names.append(_SUMS_ONLY)
        used = taken_inputs(REPORTS[name] for name in names)
        return names, {name: value for name, value in inputs.items() if name in used}

    def exchange(self, losses: Losses, request: SetRequest) -> Exchange | None:
        """What writes the sums of a set; None without outputs of the whole run."""
        return self._exchanges.get((losses.name, request.set_id))

    def write(self, group: Hashable, report: str, rows: Rows) -> None:
        """Write rows of a report; those of sums are thrown away."""
        if REPORTS[report].calculate is None:
            self._tables.write(group, report, rows)

    def end(self) -> None:
        """Write what comes after the last rows."""
        self._tables.end()

    def describe(self) -> None:
        """Describe the files, which are complete; without a description they do not count.

        Raises:
            InputError: a disk is full, or failed.
        """
        self.paths = list(self._tables.paths)
        for first, others in self._sums.items():
            self.paths += [first, *others]
            for other in others:
                _link(first, other)
        for perspective in self._losses:
            self._describe(perspective)

    def _describe(self, perspective: str) -> None:
        process, chunks = self.chunk
        # A table is a file gul_..., sums are in a folder gul_...
        files = {
            str(path.relative_to(self.work)): {
                "bytes": path.stat().st_size,
                "digest": _digest_of(path),
            }
            for path in self.paths
            if any(part.startswith(f"{perspective}_") for part in path.parts[-2:])
        }
        document = {
            "version": VERSION,
            "process": process,
            "processes": chunks,
            "sorted": self.sort,
            "runs": {
                losses.name: self.directory.digest(losses) for losses in self._losses[perspective]
            },
            "files": files,
        }
        path = self.work / manifest_file(perspective, process)
        write_whole(path, json.dumps(document, indent=1))


def _link(first: Path, other: Path) -> None:
    """Give a file another name; a copy where the file system has no links."""
    other.parent.mkdir(parents=True, exist_ok=True)
    other.unlink(missing_ok=True)
    try:
        os.link(first, other)
    except OSError:
        shutil.copyfile(first, other)


# -- merging ---------------------------------------------------------------------------


def merge_chunks(  # noqa: PLR0913, PLR0917 - what a command says
    directory: RunDirectory, out: Path, work: Path, count: int, use: LedgerResources, policy: Policy
) -> list[Path]:
    """Write the outputs of a run whose chunks have been computed; return their paths.

    Args:
        directory: the files of the run.
        out: where the outputs go.
        work: folder of the merged work folders.
        count: how many chunks there are.
        use: what sums may use.
        policy: what the streams were read with.

    Raises:
        CoreError: a chunk is missing, damaged or of another run; or an output cannot be written.
    """
    check_writable(out)
    log = structlog.get_logger()
    with locked(out, "outputs"), Outputs() as outputs:
        tables = OutputTables(outputs, directory, out)
        for losses in directory.losses():
            manifests = _check_chunks(directory, work, losses, count)
            in_order = all(manifest["sorted"] for manifest in manifests)
            for request in directory.requests(losses):
                tables.add(losses, request)
                chunk = _Chunks(directory, work, losses, request, count)
                chunk.merge_rows(tables, in_order=in_order)
                chunk.merge_sums(tables, use, policy)
            log.info("chunks merged", of=losses.name, chunks=count)
        tables.end()
    return tables.paths


def _check_chunks(
    directory: RunDirectory, work: Path, losses: Losses, chunks: int
) -> list[dict[str, Any]]:
    """Check that all chunks are there, whole, and of this run; return their descriptions."""
    digest = directory.digest(losses)
    manifests = []
    for process in range(1, chunks + 1):
        path = work / manifest_file(losses.perspective, process)
        try:
            manifest = json_object(path.read_bytes(), path)
        except OSError as e:
            raise InputError(
                f"chunk {process} of {chunks} of {losses.perspective} is missing",
                hint="Compute it, and merge its work folder into this one",
                source=str(path),
            ) from e
        _check_chunk(manifest, path, losses, digest, chunks)
        _check_files(manifest, work, process, f"{losses.name}_S")
        manifests.append(manifest)
    return manifests


def _check_chunk(
    manifest: Mapping[str, Any], path: Path, losses: Losses, digest: str, chunks: int
) -> None:
    if manifest.get("version") != VERSION:
        raise InputError(f"is of version {manifest.get('version')!r}", source=str(path))
    if manifest["processes"] != chunks:
        raise MismatchError(
            f"is of a run with {manifest['processes']} chunks, not {chunks}", source=str(path)
        )
    if manifest["runs"].get(losses.name) != digest:
        raise MismatchError(
            "is of another run: settings, inputs or float width differ from this one's",
            hint="Compute the chunk again with the settings and inputs of this run",
            source=str(path),
        )


def _check_files(manifest: Mapping[str, Any], work: Path, process: int, prefix: str) -> None:
    for name, facts in manifest["files"].items():
        if prefix not in name:
            continue
        path = work / name
        if not path.is_file():
            raise InputError(f"a file of chunk {process} is missing", source=str(path))
        if path.stat().st_size != facts["bytes"] or _digest_of(path) != facts["digest"]:
            raise InputError(
                f"is not the file that chunk {process} left: it is cut, damaged or of another run",
                source=str(path),
            )


@dataclass(frozen=True, slots=True)
class _Chunks:
    """All chunks of one summary set."""

    directory: RunDirectory
    work: Path
    losses: Losses
    request: SetRequest
    chunks: int

    @property
    def group(self) -> tuple[str, int]:
        """That of the tables."""
        return self.losses.name, self.request.set_id

    def _paths(self, file: Callable[[str, str, int], str], output: str) -> list[Path]:
        """A file of an output in each chunk."""
        name = set_name(self.losses, self.request)
        return [self.work / file(name, output, n) for n in range(1, self.chunks + 1)]

    def merge_rows(self, tables: OutputTables, *, in_order: bool) -> None:
        """Write the reports by event."""
        for output in _row_outputs(self.request):
            report = REPORTS[OUTPUTS[output].report]
            dtype = report.dtype(self.directory.float_width)
            parts = [packed_rows(path, dtype) for path in self._paths(kat_file, output)]
            for rows in merge_rows(parts) if in_order else in_pieces(parts):
                tables.write(self.group, report.name, rows)

    def merge_sums(self, tables: OutputTables, use: LedgerResources, policy: Policy) -> None:
        """Write the reports of the whole run."""
        request = self.request
        outputs = run_outputs(request)
        if not outputs:
            return
        paths = [str(path) for path in self._paths(summary_file, outputs[0])]
        use = replace(use, on_merged=Exchange(paths, None, Outputs()))
        header = partial_header(paths[0])
        inputs = self.directory.inputs(request, self.losses)
        reports = choose_reports(list(dict.fromkeys(OUTPUTS[o].report for o in outputs)))
        ledger = LedgerReports(reports, request.options, use)
        ledger.begin(header, make_rules(header, policy), inputs.to_dict())
        ledger.finish(partial(tables.write, self.group))


def packed_rows(path: Path, dtype: np.dtype[np.void]) -> Rows:
    """Packed rows of a file, mapped rather than read.

    Raises:
        InputError: it ends inside a row.
    """
    size = path.stat().st_size
    if size % dtype.itemsize:
        raise InputError(f"is not whole rows of {dtype.itemsize} bytes", source=str(path))
    if size == 0:
        return np.zeros(0, dtype)
    with suppress(OSError):
        return np.memmap(path, dtype, "r")
    return np.fromfile(path, dtype)


def in_pieces(parts: Iterable[Rows], piece: int = _PIECE_ROWS) -> Iterator[Rows]:
    """Rows of one part after the other, a piece at a time."""
    for rows in parts:
        for begin in range(0, len(rows), piece):
            yield rows[begin : begin + piece]


def merge_rows(parts: Sequence[Rows], piece: int = _PIECE_ROWS) -> Iterator[Rows]:
    """Merge rows that ascend by event in each part; no event is in two of them.

    Args:
        parts: rows with a column EventId.
        piece: rows of a part that are looked at together.

    Returns:
        The rows of all parts by event, those of an event in the order of their part.
    """

    def keyed(part: Rows) -> Iterator[Piece[Rows]]:
        for rows in in_pieces([part], piece):
            yield rows["EventId"].astype(np.int64), rows

    return merge([keyed(part) for part in parts], join_rows)
