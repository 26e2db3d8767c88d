"""Catalogue entries: what owners declare of their datasets, checked before opening a file."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from app.errors import InvalidOptionError, ServiceError
from core.errors import CoreError, names_hint, shown
from core.tiles.recording import Axis, Hints
from core.tiles.view import MAX_DIMS, parse_dtype

from .files.backends import BACKENDS

ITEM_FORMATS = ("loss", "parquet", "arrow", "lines")
"""Formats of items, which only pipelines read; all others are formats of arrays."""
_ARRAY_MEMBERS = (
    *("array", "dtype", "nav_shape", "sig_shape", "sync_offset", "partial"),
    *("file_header", "frame_header", "frame_footer", "axes", "corrections", "backend", "decoder"),
)
OPERATORS = ("backend", "decoder", "frame_bytes")
"""Members that only the operator may set: they name code, and ways to load the server."""
_GROWING_ITEMS = ("loss", "lines")
_FLOAT_WIDTHS = (4, 8)
_LOCATION = ("id", "files", "glob", "immutable", "backend", "partial")
"""Members that locate, read and check files rather than define what they mean."""
_PERSON = b"thalweg-entry-1"
_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", re.ASCII)
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", re.ASCII)
_MAX_NUMBER = 2**62
_MAX_PATH = 1024
_DESCRIBED = {"use_attribute_docstrings": True}
"""Has the OpenAPI document describe members as they are here."""


@dataclass(frozen=True, slots=True)
class CorrectionSpec:
    """Corrections of frames: files under the roots, or excluded pixels by coordinates."""

    __pydantic_config__: ClassVar = _DESCRIBED

    dark: str | None = None
    """File of an image in the shape of a frame, which is subtracted."""
    gain: str | None = None
    """File of one that frames are multiplied by, after that."""
    excluded: tuple[tuple[int, ...], ...] | str | None = None
    """Coordinates of defective pixels, [[y, x], …], or a file of a mask: they become the mean of
    their neighbours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetSpec:
    """One entry of the catalogue."""

    __pydantic_config__: ClassVar = _DESCRIBED

    id: str
    """Name of the dataset in addresses; without one it follows from the other members."""
    format: str | None = None
    """Format of the files; None to detect it."""
    files: tuple[str, ...] = ()
    """Paths below the dataset roots, in the order of their frames; this or ``glob``."""
    glob: str | None = None
    """Pattern of such paths, which are taken in the order of the numbers in their names."""
    array: str | None = None
    """Path of the array, in formats that hold several."""
    dtype: str | None = None
    """numpy type of a pixel in the files, such as ``<u2``, where they do not tell."""
    nav_shape: tuple[int, ...] | None = None
    """Positions along each axis of the scan; None for that of the files."""
    sig_shape: tuple[int, ...] | None = None
    """Pixels along each axis of a frame; None for that of the files."""
    sync_offset: int | None = None
    """Frame at which the scan begins; negative if its first positions have none."""
    partial: bool = False
    """Whether the scan may have other positions than there are frames."""
    file_header: int | None = None
    """Bytes before the first frame of each headerless file."""
    frame_header: int | None = None
    """Bytes before each frame of headerless files."""
    frame_footer: int | None = None
    """Bytes after each frame of headerless files."""
    immutable: bool = False
    """What the owner says of the files. Nothing relies on it: they are checked all the same."""
    growing: bool = False
    """Whether the files are still being written."""
    backend: str | None = None
    """How the files are read, one of ``files.backends.BACKENDS``; None for the default."""
    decoder: str | None = None
    """``module:function`` that decodes packed frames; None for those of the formats."""
    frame_bytes: int | None = None
    """Bytes of a packed frame, of which only its decoder knows the layout."""
    float_width: int | None = None
    """Bytes of a loss, which loss streams do not record; None for 4."""
    axes: tuple[Axis, ...] = ()
    """Names, units and scales of the axes, those of the scan first."""
    corrections: CorrectionSpec = field(default_factory=CorrectionSpec)
    """Dark and gain images, and defective pixels."""
    registered: str | None = None
    """What the files held when they were registered, which no client states."""

    @property
    def hints(self) -> Hints:
        """The declarations that detection and parsing of the format need."""
        return Hints(
            dtype=None if self.dtype is None else np.dtype(self.dtype),
            nav_shape=self.nav_shape,
            sig_shape=self.sig_shape,
            file_header=self.file_header,
            frame_header=self.frame_header,
            frame_footer=self.frame_footer,
            sync_offset=self.sync_offset,
            growing=self.growing,
        )

    def to_json(self) -> dict[str, Any]:
        """Return what is declared as canonical JSON values, defaults left out."""
        declared = asdict(self)
        del declared["registered"]
        corrections = declared["corrections"]
        declared["corrections"] = {n: v for n, v in corrections.items() if v is not None}
        # An offset of 0 is no default: the files may have another one.
        values = {
            name: value
            for name, value in declared.items()
            if value not in (None, (), {}, False) or (name == "sync_offset" and value == 0)
        }
        copied: dict[str, Any] = json.loads(json.dumps(values))
        return copied

    def meaning(self) -> dict[str, Any]:
        """Return what the entry declares the bytes of its files to mean, as JSON values."""
        return {name: value for name, value in self.to_json().items() if name not in _LOCATION}

    def fingerprint(self, contents: bytes) -> bytes:
        """Add what the entry declares, if anything, to the fingerprint of its files."""
        if not (meaning := self.meaning()):
            return contents
        text = json.dumps(meaning, sort_keys=True).encode()
        size = len(contents)
        return hashlib.blake2b(contents + text, digest_size=size, person=_PERSON).digest()


_MEMBERS, _CORRECTIONS, _AXIS_MEMBERS = (
    frozenset(member.name for member in fields(kind)) - {"registered"}
    for kind in (DatasetSpec, CorrectionSpec, Axis)
)
_MEANT = {
    "offset": "Use file_header for the bytes before the first frame, sync_offset for the frames"
    " before the scan",
    "shape": "Divide it, such as [64, 64, 32, 32], into that of the scan and that of a frame:"
    ' "nav_shape": [64, 64], "sig_shape": [32, 32]',
    **dict.fromkeys(
        ("label", "labels"),
        'Register them too, {"id": "labels1", "files": ["labels.npy"]}; a pipeline joins both:'
        ' {"op": "source", "dataset": …, "labels": "labels1"}',
    ),
    **{name: f'Put it in corrections: "corrections": {{"{name}": …}}' for name in _CORRECTIONS},
}
"""What to do about members that others are meant by."""


def parse_dataset(spec: Mapping[str, Any], *, operator: bool = False) -> DatasetSpec:
    """Parse and check an entry from JSON or TOML values.

    Args:
        spec: the entry.
        operator: whether it is the operator's, who may set more than clients.

    Raises:
        InvalidOptionError: a member is unknown or invalid; names the member.
        OptionError: ``dtype`` is not a numeric dtype.
    """
    known = _MEMBERS if operator else _MEMBERS.difference(OPERATORS)
    if reserved := sorted(set(spec).intersection(OPERATORS) - known):
        raise _invalid(
            reserved[0],
            "can only be set in the server's catalogue file",
            f"Omit {reserved[0]}, or ask the operator to list the dataset",
        )
    if unknown := sorted(set(spec) - known):
        hint = _MEANT.get(unknown[0]) or names_hint(unknown[0], sorted(known))
        raise _invalid(unknown[0][:80], "is unknown", hint)
    files = _strings(spec.get("files", []), "files")
    glob = _string(spec, "glob")
    if bool(files) is (glob is not None):
        raise _invalid("files", "or glob is required, but not both")
    if spec.get("immutable") and spec.get("growing"):
        raise _invalid("growing", "and immutable exclude each other")
    ident = _string(spec, "id")
    if ident is None:
        ident = _default_id(spec)
    if not _ID.fullmatch(ident):
        raise _invalid(
            "id", f"{ident[:80]!r} is invalid", "Use up to 128 characters of A-Z a-z 0-9 . _ -"
        )
    _check_format(spec)
    _check_decoder(spec)
    return DatasetSpec(
        id=ident,
        format=_string(spec, "format"),
        files=files,
        glob=glob,
        array=_array(spec),
        dtype=parse_dtype(spec.get("dtype")),
        nav_shape=_shape(spec, "nav_shape"),
        sig_shape=_shape(spec, "sig_shape"),
        sync_offset=_number(spec, "sync_offset", -_MAX_NUMBER),
        partial=_flag(spec, "partial"),
        file_header=_number(spec, "file_header", 0),
        frame_header=_number(spec, "frame_header", 0),
        frame_footer=_number(spec, "frame_footer", 0),
        immutable=_flag(spec, "immutable"),
        growing=_flag(spec, "growing"),
        backend=_string(spec, "backend"),
        decoder=_string(spec, "decoder"),
        frame_bytes=_number(spec, "frame_bytes", 1),
        float_width=_number(spec, "float_width", 4),
        axes=_axes(spec.get("axes", [])),
        corrections=_corrections(spec.get("corrections", {})),
    )


def _check_format(spec: Mapping[str, Any]) -> None:
    """Check that members and format go together."""
    form = _string(spec, "format")
    if form != "loss" and spec.get("float_width") is not None:
        raise _invalid("float_width", "applies only to loss streams")
    if spec.get("float_width") not in {None, *_FLOAT_WIDTHS}:
        raise _invalid("float_width", f"is {spec['float_width']!r}, not 4 or 8")
    if form not in ITEM_FORMATS:
        return
    for name in _ARRAY_MEMBERS:
        if spec.get(name):
            raise _invalid(name, f"applies only to arrays, not to {form} items", f"Omit {name}")
    if spec.get("growing") and form not in _GROWING_ITEMS:
        raise _invalid(
            "growing",
            f"does not apply to {form} files, whose metadata is at their end",
            "Register them once they are complete",
        )


def _check_decoder(spec: Mapping[str, Any]) -> None:
    """Check the members that name how files are read and decoded."""
    backend = _string(spec, "backend")
    if backend not in {None, *BACKENDS}:
        raise _invalid("backend", f"is {backend!r}", f"Use {', '.join(BACKENDS)}")
    decoder = _string(spec, "decoder")
    if decoder is None:
        if spec.get("frame_bytes") is not None:
            raise _invalid("frame_bytes", "applies only with decoder", "Omit frame_bytes")
        return
    if not _FUNCTION.fullmatch(decoder):
        raise _invalid("decoder", f"is {decoder!r}, not of the form module:function")
    if _string(spec, "format") not in {None, "raw"}:
        raise _invalid("decoder", "applies only to headerless frames", 'Use format = "raw"')
    for name in ("dtype", "sig_shape", "frame_bytes"):
        if spec.get(name) is None:
            raise _invalid(name, "is required with decoder", f"Add {name}")


def _default_id(spec: Mapping[str, Any]) -> str:
    """Derive an id from the entry, so that a repeated request gets the same one."""
    text = json.dumps(spec, sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _invalid(name: str, problem: str, hint: str | None = None) -> InvalidOptionError:
    return InvalidOptionError(f"{name} {problem}", hint=hint, option=name)


def _string(spec: Mapping[str, Any], name: str, subject: str = "a string") -> str | None:
    value = spec.get(name)
    if value == "":
        raise _invalid(name, "is empty", f"Omit {name}, or write it out")
    if not isinstance(value, str | None):
        raise _invalid(name, f"is {shown(value)}, not {subject}")
    return value


def _array(spec: Mapping[str, Any]) -> str | None:
    """Parse the path of an array, which must not lead upwards."""
    path = _string(spec, "array")
    if path is not None and (
        len(path) > _MAX_PATH
        or not path.isprintable()
        or not {".", ".."}.isdisjoint(path.split("/"))
    ):
        raise _invalid("array", f"is {path[:80]!r}, not a path", 'Use a path such as "entry/data"')
    return path


def _strings(value: Any, name: str) -> tuple[str, ...]:  # noqa: ANN401 - JSON
    is_list = isinstance(value, Sequence) and not isinstance(value, str)
    if not is_list or not all(isinstance(item, str) and item for item in value):
        hint = f"Write {json.dumps([value])}" if value and isinstance(value, str) else None
        raise _invalid(name, "is not an array of strings", hint)
    return tuple(value)


def _number(spec: Mapping[str, Any], name: str, minimum: int) -> int | None:
    value = spec.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= _MAX_NUMBER:
        raise _invalid(name, f"is {shown(value)}, not an integer of at least {minimum}")
    return value


def _flag(spec: Mapping[str, Any], name: str) -> bool:
    value = spec.get(name, False)
    if not isinstance(value, bool):
        raise _invalid(name, f"is {shown(value)}, not true or false")
    return value


def _shape(spec: Mapping[str, Any], name: str) -> tuple[int, ...] | None:
    value = spec.get(name)
    if value is None:
        return None
    if isinstance(value, str) or not isinstance(value, Sequence) or not 1 <= len(value) <= MAX_DIMS:
        raise _invalid(name, f"is {shown(value)}, not an array of 1 to {MAX_DIMS} lengths")
    for item in value:
        if isinstance(item, bool) or not isinstance(item, int) or item < 1:
            raise _invalid(name, f"contains {shown(item)}, which is not a length")
    if math.prod(value) > _MAX_NUMBER:
        raise _invalid(name, f"has more than {_MAX_NUMBER} positions")
    return tuple(value)


def _axes(value: Any) -> tuple[Axis, ...]:  # noqa: ANN401 - JSON
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise _invalid("axes", "is not an array")
    return tuple(_axis(item, f"axes[{k}]") for k, item in enumerate(value))


def _axis(item: Any, name: str) -> Axis:  # noqa: ANN401 - JSON
    _check_members(item, _AXIS_MEMBERS, name)
    if "name" not in item:
        raise _invalid(name, "has no name", 'Give one, such as {"name": "y"}')
    if type(size := item.get("size", 0)) is not int:
        raise _invalid(f"{name}.size", f"is {size!r:.80}, not an integer")
    unit = None if item.get("unit") is None else str(item["unit"])
    scale, offset = _real(item, name, "scale", 1.0), _real(item, name, "offset", 0.0)
    if not math.isfinite(offset + scale * _MAX_NUMBER):
        raise _invalid(name, "has coordinates beyond float64", "Give a smaller scale and offset")
    return Axis(str(item["name"]), size, unit, scale, offset)


def _real(item: Mapping[str, Any], axis: str, name: str, default: float) -> float:
    try:
        number = float(value := item.get(name, default))
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        hint = f'Such as "{name}": 0.5, "unit": "nm"'
        raise _invalid(f"{axis}.{name}", f"is {shown(value)}, not a finite number", hint)
    return number


def _check_members(item: Any, known: frozenset[str], name: str) -> None:  # noqa: ANN401 - JSON
    if not isinstance(item, Mapping):
        raise _invalid(name, f"is {shown(item)}, not an object", f"Use {', '.join(sorted(known))}")
    if unknown := sorted(set(item) - known):
        hint = names_hint(unknown[0], sorted(known))
        raise _invalid(name, f"has no member {unknown[0][:80]!r}", hint)


def _corrections(value: Any) -> CorrectionSpec:  # noqa: ANN401 - JSON
    _check_members(value, _CORRECTIONS, "corrections")
    excluded = value.get("excluded")
    if excluded is not None and not isinstance(excluded, str):
        excluded = _pixels(excluded)
    dark, gain = (_string(value, name, "a file") for name in ("dark", "gain"))
    return CorrectionSpec(dark, gain, excluded)


def _pixels(value: Any) -> tuple[tuple[int, ...], ...]:  # noqa: ANN401 - JSON
    try:
        pixels = tuple(tuple(pixel) for pixel in value)
    except TypeError:
        raise _invalid("corrections.excluded", "is neither an array of pixels nor a file") from None
    for number in itertools.chain.from_iterable(pixels):
        # A number beyond 64 bits is a float after parsing.
        if type(number) is not int or not -_MAX_NUMBER <= number <= _MAX_NUMBER:
            raise _invalid(
                "corrections.excluded", f"contains {str(number)[:40]!r}, which is not a coordinate"
            )
    return pixels


def read_catalogue(path: Path | None) -> dict[str, DatasetSpec]:
    """Read entries from a TOML file with one table per dataset, named by its id.

    Raises:
        InvalidOptionError: the file cannot be read, or an entry is invalid.
    """
    if path is None:
        return {}
    try:
        tables = tomllib.loads(path.read_text())
    except (OSError, ValueError) as e:
        raise InvalidOptionError(f"the catalogue {path} cannot be read: {e}") from e
    entries = {}
    for ident, values in tables.items():
        if not isinstance(values, Mapping):
            raise InvalidOptionError(f"{ident!r} in the catalogue is not a table")
        try:
            entries[ident] = parse_dataset({"id": ident, **values}, operator=True)
        except (CoreError, ServiceError) as e:
            hint = getattr(e, "hint", None)
            raise InvalidOptionError(f"[{ident}] in the catalogue {path}: {e}", hint=hint) from e
    return entries
