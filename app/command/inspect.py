"""The ``inspect`` command: the contents and the first fault of a stream or dataset."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from app.datasets.files.backends import DEFAULT, open_backend
from app.datasets.files.buffers import BufferPool
from app.datasets.files.file_set import FileSet
from app.datasets.files.roots import Roots
from app.datasets.files.zarr_files import DirectoryTop, StoredArray, open_store
from app.datasets.opened import OpenDataset
from app.datasets.opening import Source as ArraySource
from app.datasets.opening import parse_source
from app.datasets.spec import DatasetSpec
from app.decoding.base import Decoders
from app.decoding.pool import DecoderPool
from app.errors import InvalidOptionError, ServiceError
from app.losses.input_parsers import STREAM, beginning_of, described, kinds_of
from app.losses.sources import Source, Sources
from core.arrays import Rows
from core.errors import CoreError, InputError
from core.losses.analysis import Analysis
from core.losses.events import StreamHeader
from core.losses.format import BEGINNINGS, TYPE_SIZE
from core.losses.policy import Policy
from core.tiles.corrections import Corrections
from core.tiles.formats import FORMATS, HEAD
from core.tiles.recording import FileInfo, Hints
from core.tiles.view import parse_dtype

from .reading import policy_of

EXIT_FAULT = 1


@dataclass(slots=True)
class Findings:
    """Facts about one stream, up to its end or its first fault."""

    source: str
    header: StreamHeader | None = None
    bytes: int = 0
    """Bytes of the header and of whole blocks."""
    events: int = 0
    blocks: int = 0
    pairs: int = 0
    first_event: int | None = None
    lowest_event: int | None = None
    highest_event: int | None = None
    most_blocks: int = 0
    """Number of blocks of the event that has the most."""
    ascending: bool = True
    fault: CoreError | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the findings as a JSON object."""
        values = {name: getattr(self, name) for name in self.__slots__}
        if self.header is not None:
            values["header"] = asdict(self.header) | {"kind": self.header.kind.value}
        if self.fault is not None:
            names = ("code", "message", "offset", "event", "block", "hint")
            values["fault"] = {name: getattr(self.fault, name) for name in names}
        return values

    def note_events(self, rows: Rows) -> None:
        """Add rows of the ``events`` report."""
        ids = rows["EventId"]
        if self.first_event is None:
            self.first_event = int(ids[0])
        self.lowest_event = min(int(ids.min()), self.lowest_event or int(ids.min()))
        self.highest_event = max(int(ids.max()), self.highest_event or 0)
        self.most_blocks = max(self.most_blocks, int(rows["Blocks"].max()))


def looks_like_stream(name: str) -> bool:
    """Whether a file begins like a loss stream, and no format of frames, or can be read only once.

    Raises:
        InputError: the file cannot be opened.
    """
    with contextlib.closing(Source(name)) as source:
        if source.size is None:
            return True
        head, info = os.pread(source.fd, HEAD, 0), FileInfo(Path(name).name, source.size)
    if len(head) < TYPE_SIZE:
        end = Path(name).suffix.lower().lstrip(".")
        return end == "bin" or not any(end in form.extensions for form in FORMATS.values())
    if head[:TYPE_SIZE] in BEGINNINGS:
        return True
    return not (any(head[1:TYPE_SIZE]) or any(f.looks_like(info, head) for f in FORMATS.values()))


def inspect(name: str, policy: Policy) -> Findings:
    """Read one stream to its end or its first fault.

    Raises:
        InputError: the stream cannot be opened or read.
    """
    with Sources([name]) as sources:
        findings = Findings(sources.sources[0].name)
        analysis = Analysis(
            ["events"], lambda _name, rows: findings.note_events(rows), policy=policy
        )
        try:
            while (piece := sources.read()) is not None:
                if len(piece[1]):
                    analysis.receive(piece[1])
            analysis.close()
        except CoreError as e:
            findings.fault = e
            # Its row has the blocks that came before the fault.
            analysis.close_event()
    findings.header = analysis.header
    findings.bytes = analysis.offset
    findings.events = analysis.events
    findings.blocks = analysis.blocks
    findings.pairs = analysis.pairs
    findings.ascending = analysis.ascending
    return findings


def _open(path: Path) -> int:
    # Without O_NONBLOCK, opening a fifo would wait for a writer.
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)


def _opened(paths: Sequence[Path], array: str | None) -> tuple[FileSet, StoredArray | None]:
    if len(paths) == 1 and paths[0].is_dir():
        top = paths[0].resolve()
        return open_store(DirectoryTop(Roots([top]), top), array)
    return FileSet([path.absolute() for path in paths], _open), None


def _opened_as(hints: Hints, form: str | None, files: FileSet, source: ArraySource) -> OpenDataset:
    """The dataset that the files would be registered as, with the same checks."""
    dtype = None if hints.dtype is None else hints.dtype.str
    spec = DatasetSpec(id="", format=form, dtype=dtype, nav_shape=hints.nav_shape)
    backend = open_backend(DEFAULT, files, BufferPool())
    corrections = Corrections(source.recording.sig_shape)
    dataset = OpenDataset(spec, files, bytes(8), source, backend, corrections)
    dataset.check_headerless()
    dataset.check_scan(None)
    dataset.check_rows()
    return dataset


def inspect_files(
    paths: Sequence[Path],
    hints: Hints,
    form: str | None,
    array: str | None = None,
    decoders: Decoders | None = None,
) -> dict[str, Any]:
    """Describe the array in some files by their headers, as JSON values.

    Args:
        paths: the files of one dataset, or one directory that is a zarr store.
        hints: what the caller knows of the data.
        form: name of the format; None to detect it.
        array: path of the array, in formats that hold several.
        decoders: read HDF5 and zarr; None refuses them.

    Raises:
        FormatError, AmbiguousFormatError, ShapeError: the files cannot be understood.
        InvalidOptionError: the scan has other positions than there are frames.
        InputError: the files cannot be read.
    """
    try:
        files, stored = _opened(paths, array)
        with files:
            source = parse_source(files, stored, hints, decoders=decoders, form=form, array=array)
            recording = source.recording
            dataset = _opened_as(hints, form, files, source)
    except InvalidOptionError:
        raise
    except (ServiceError, OSError, ValueError) as e:
        raise InputError(f"cannot be read: {e}", source=str(paths[0])) from e
    built_in = recording.built_in
    corrections = {"dark": built_in.dark, "gain": built_in.gain, "excluded": built_in.excluded}
    return {
        "format": recording.format,
        "frames": recording.frames,
        "nav_shape": list(recording.nav_shape),
        "sig_shape": list(recording.sig_shape),
        "dtype": recording.dtype.str,
        "stored": recording.decoder
        or (recording.stored.str if recording.stored is not None else None),
        "sync_offset": recording.sync_offset,
        "files": len(paths),
        "corrections": [name for name, image in corrections.items() if image is not None],
        "axes": [f"{axis.name} {axis.size} {axis.scale} {axis.unit}" for axis in recording.axes],
        "metadata": dict(recording.metadata),
        "notes": dataset.notes(),
    }


def _describe(findings: Findings) -> list[str]:
    header = findings.header
    lines = [f"{findings.source}: {header.describe() if header else 'no header'}"]
    if header is not None:
        order = "ascending" if findings.ascending else "not ascending"
        order += "; blocks of the last may be missing" if findings.fault else ""
        most_blocks = f"at most {findings.most_blocks:,} per event"
        lines += [
            f"  bytes in whole blocks  {findings.bytes:,}",
            f"  events                 {findings.events:,} (ids {order})",
            f"  blocks                 {findings.blocks:,} ({most_blocks})",
            f"  pairs                  {findings.pairs:,}",
        ]
    if findings.lowest_event is not None:
        lines.append(
            f"  event ids              {findings.lowest_event} to {findings.highest_event}"
        )
    fault = "none; a stream has no end marker, so blocks may be missing at its end"
    if findings.fault is not None:
        fault = f"[{findings.fault.code}] {findings.fault}"
        fault = fault.replace("float_width=", "--float-width ")
    return [*lines, f"  first fault            {fault}"]


def _check_kind(name: str) -> None:
    """Check that a file is not an auxiliary one.

    Raises:
        InputError: it is.
    """
    path = Path(name)
    if path.is_file():
        with path.open("rb") as file:
            kinds = kinds_of(file.read(beginning_of(path.stat().st_size)))
        if kinds and kinds != [STREAM]:
            raise InputError(
                f"it looks like {described(kinds)} to aggregate",
                source=name,
                hint="Of frames without a header, give --dtype and --sig-shape, or an EMPAD's .xml",
            )


def inspect_command(args: argparse.Namespace) -> int:
    """Describe a stream or a dataset; return the exit code."""
    hints = (args.format, args.dtype, args.sig_shape, args.array)
    directory = Path(args.files[0]).is_dir()
    if len(args.files) > 1 or any(hints) or directory:
        return _inspect_dataset(args)
    if not looks_like_stream(args.files[0]):
        try:
            return _inspect_dataset(args)
        except CoreError:
            _check_kind(args.files[0])
            raise
    findings = inspect(args.files[0], policy_of(args))
    if findings.header is None:
        _check_kind(args.files[0])
    text = "\n".join(_describe(findings)).encode()
    if args.json:
        text = orjson.dumps(findings.to_json(), option=orjson.OPT_INDENT_2)
    sys.stdout.buffer.write(text + b"\n")
    return EXIT_FAULT if findings.fault is not None else 0


def _inspect_dataset(args: argparse.Namespace) -> int:
    hints = Hints(
        dtype=None if args.dtype is None else np.dtype(parse_dtype(args.dtype)),
        sig_shape=args.sig_shape,
        nav_shape=args.nav_shape,
    )
    paths = list(map(Path, args.files))
    with contextlib.closing(DecoderPool()) as decoders:
        description = inspect_files(paths, hints, args.format, args.array, decoders)
    text = orjson.dumps(description, option=orjson.OPT_INDENT_2)
    if not args.json:
        text = "\n".join(f"{name:<14}{value}" for name, value in description.items()).encode()
    sys.stdout.buffer.write(text + b"\n")
    return 0
