"""What the owner of a dataset says about it, checked before a file is opened."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from app.errors import InvalidOptionError
from core.tiles.recording import Axis, Hints
from core.tiles.view import MAX_DIMS, parse_dtype

ITEM_FORMATS = ("loss", "parquet", "arrow", "lines")
"""Formats of items, which pipelines read; all others are of arrays."""
_OF_ARRAYS = (
    "array",
    "dtype",
    "nav_shape",
    "sig_shape",
    "sync_offset",
    "file_header",
    "frame_header",
    "frame_footer",
    "axes",
    "corrections",
)
_GROWING_ITEMS = ("loss", "lines")
_FLOAT_WIDTHS = (4, 8)
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", re.ASCII)
_MOST = 2**62
_LONGEST_PATH = 1024


@dataclass(frozen=True, slots=True)
class CorrectionSpec:
    """Where corrections come from: files under the roots, or pixels by number."""

    dark: str | None = None
    gain: str | None = None
    excluded: tuple[tuple[int, ...], ...] | str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetSpec:
    """One entry of the catalogue."""

    id: str
    format: str | None = None
    """None to find out by content."""
    files: tuple[str, ...] = ()
    glob: str | None = None
    array: str | None = None
    """Path of the array in files that can have several."""
    dtype: str | None = None
    nav_shape: tuple[int, ...] | None = None
    sig_shape: tuple[int, ...] | None = None
    sync_offset: int | None = None
    file_header: int | None = None
    frame_header: int | None = None
    frame_footer: int | None = None
    immutable: bool = False
    growing: bool = False
    float_width: int | None = None
    """Bytes of a loss, which a stored loss stream does not say; None for 4."""
    axes: tuple[Axis, ...] = ()
    corrections: CorrectionSpec = field(default_factory=CorrectionSpec)

    @property
    def hints(self) -> Hints:
        """For the format module."""
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
        """As canonical JSON values, what was not said left out."""
        made = {
            name: value for name, value in asdict(self).items() if value not in (None, (), False)
        }
        corrections = {n: v for n, v in asdict(self.corrections).items() if v is not None}
        made.pop("corrections", None)
        if corrections:
            made["corrections"] = corrections
        copied: dict[str, Any] = json.loads(json.dumps(made))
        return copied


_MEMBERS = frozenset(DatasetSpec.__dataclass_fields__)
_AXIS_MEMBERS = frozenset(Axis.__dataclass_fields__)


def parse_dataset(spec: Mapping[str, Any]) -> DatasetSpec:
    """An entry out of JSON or TOML values.

    Raises:
        InvalidOptionError: naming the member that is unknown or cannot be.
        CastingError: dtype is no type of numbers.
    """
    unknown = sorted(set(spec) - _MEMBERS)
    if unknown:
        raise _wrong(unknown[0], "is not known", f"There are {', '.join(sorted(_MEMBERS))}")
    files = _strings(spec.get("files", []), "files")
    glob = _string(spec, "glob")
    if bool(files) is (glob is not None):
        raise _wrong("files", "or glob is needed, and not both")
    if spec.get("immutable") and spec.get("growing"):
        raise _wrong("growing", "and immutable exclude each other")
    ident = _string(spec, "id")
    if ident is None:
        ident = _made_up_id(spec)
    if not _ID.fullmatch(ident):
        raise _wrong("id", f"is {ident[:80]!r}", "Up to 128 of A-Z a-z 0-9 . _ -")
    _check_format(spec)
    return DatasetSpec(
        id=ident,
        format=_string(spec, "format"),
        files=files,
        glob=glob,
        array=_array(spec),
        dtype=parse_dtype(spec.get("dtype")),
        nav_shape=_shape(spec, "nav_shape"),
        sig_shape=_shape(spec, "sig_shape"),
        sync_offset=_number(spec, "sync_offset", -_MOST),
        file_header=_number(spec, "file_header", 0),
        frame_header=_number(spec, "frame_header", 0),
        frame_footer=_number(spec, "frame_footer", 0),
        immutable=_flag(spec, "immutable"),
        growing=_flag(spec, "growing"),
        float_width=_number(spec, "float_width", 4),
        axes=_axes(spec.get("axes", [])),
        corrections=_corrections(spec.get("corrections", {})),
    )


def _check_format(spec: Mapping[str, Any]) -> None:
    """Accept members that go with the format."""
    form = _string(spec, "format")
    if form != "loss" and spec.get("float_width") is not None:
        raise _wrong("float_width", "is for loss streams")
    if spec.get("float_width") not in {None, *_FLOAT_WIDTHS}:
        raise _wrong("float_width", f"is {spec['float_width']!r}, not 4 or 8")
    if form not in ITEM_FORMATS:
        return
    for name in _OF_ARRAYS:
        if spec.get(name):
            raise _wrong(name, f"is for arrays, and the format is {form}", "Leave it out")
    if spec.get("growing") and form not in _GROWING_ITEMS:
        raise _wrong("growing", f"does not go with {form}: its end says what is in it")


def _made_up_id(spec: Mapping[str, Any]) -> str:
    """An id that the same request gets again."""
    text = json.dumps(spec, sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _wrong(name: str, problem: str, hint: str | None = None) -> InvalidOptionError:
    return InvalidOptionError(f"{name} {problem}", hint=hint, option=name)


def _string(spec: Mapping[str, Any], name: str) -> str | None:
    value = spec.get(name)
    if value is not None and (not isinstance(value, str) or not value):
        raise _wrong(name, f"is {value!r}, not a string")
    return value


def _array(spec: Mapping[str, Any]) -> str | None:
    """A path of names, none of which leads upwards."""
    path = _string(spec, "array")
    if path is not None and (
        len(path) > _LONGEST_PATH
        or not path.isprintable()
        or not {".", ".."}.isdisjoint(path.split("/"))
    ):
        raise _wrong("array", f"is {path[:80]!r}, no path of an array", 'Such as "entry/data"')
    return path


def _strings(value: Any, name: str) -> tuple[str, ...]:  # noqa: ANN401 - JSON
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise _wrong(name, "is not an array of strings")
    if not all(isinstance(item, str) and item for item in value):
        raise _wrong(name, "is not an array of strings")
    return tuple(value)


def _number(spec: Mapping[str, Any], name: str, least: int) -> int | None:
    value = spec.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _MOST:
        raise _wrong(name, f"is {value!r}, not a whole number from {least}")
    return value


def _flag(spec: Mapping[str, Any], name: str) -> bool:
    value = spec.get(name, False)
    if not isinstance(value, bool):
        raise _wrong(name, f"is {value!r}, not true or false")
    return value


def _shape(spec: Mapping[str, Any], name: str) -> tuple[int, ...] | None:
    value = spec.get(name)
    if value is None:
        return None
    if isinstance(value, str) or not isinstance(value, Sequence) or not 1 <= len(value) <= MAX_DIMS:
        raise _wrong(name, f"is {value!r}, not an array of 1 to {MAX_DIMS} lengths")
    for item in value:
        if isinstance(item, bool) or not isinstance(item, int) or item < 1:
            raise _wrong(name, f"has {item!r}, which is no length")
    if math.prod(value) > _MOST:
        raise _wrong(name, "has more positions than can be counted")
    return tuple(value)


def _axes(value: Any) -> tuple[Axis, ...]:  # noqa: ANN401 - JSON
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise _wrong("axes", "is not an array")
    found = []
    for item in value:
        if not isinstance(item, Mapping) or set(item) - _AXIS_MEMBERS or "name" not in item:
            raise _wrong("axes", "has members name, size, unit, scale, offset")
        try:
            axis = Axis(
                str(item["name"]),
                int(item.get("size", 0)),
                None if item.get("unit") is None else str(item["unit"]),
                float(item.get("scale", 1.0)),
                float(item.get("offset", 0.0)),
            )
        except (TypeError, ValueError) as e:
            raise _wrong("axes", f"has a value that cannot be: {e}") from e
        if not (math.isfinite(axis.scale) and math.isfinite(axis.offset)):
            raise _wrong("axes", "has a scale or offset that is not finite")
        found.append(axis)
    return tuple(found)


def _corrections(value: Any) -> CorrectionSpec:  # noqa: ANN401 - JSON
    if not isinstance(value, Mapping) or set(value) - {"dark", "gain", "excluded"}:
        raise _wrong("corrections", "has members dark, gain and excluded")
    excluded = value.get("excluded")
    if excluded is not None and not isinstance(excluded, str):
        try:
            excluded = tuple(tuple(int(i) for i in pixel) for pixel in excluded)
        except (TypeError, ValueError):
            raise _wrong("corrections.excluded", "is no array of pixels, nor a file") from None
    return CorrectionSpec(_string(value, "dark"), _string(value, "gain"), excluded)
