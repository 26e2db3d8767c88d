"""Views: the part of a dataset a request selects, and the form in which it is returned.

A view has a canonical JSON form. Equal requests have equal digests, whatever the order of
their members; the digest changes if the same request would return different bytes.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import operator
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np

from ..arrays import Indices, Integers
from ..budget import current
from ..errors import OptionError, SelectionError, ShapeError, names_hint, shown

Casting = Literal["safe", "wrap", "clip"]
Missing = Literal["skip", "zero", "nan"]

ALGORITHM = 1
"""Version of the results: changes if the same view of the same data gives other bytes."""

MAX_DIMS = 8
_PIECE = 1 << 16
"""Positions, or bytes of a mask, that are turned into text or back at a time.

Such calls hold the interpreter's lock, and a whole list of millions would stop every other
thread of the process for a second."""

MAX_SELECTED = 1 << 28
"""Maximum number of positions in a list, mask or shuffle; a grid may have any size."""


@dataclass(frozen=True, slots=True)
class Every:
    """All positions of the scan, in C order."""


@dataclass(frozen=True, slots=True)
class Frames:
    """Positions by flat index, in the given order; repetitions are allowed."""

    packed: bytes
    """The indices as little-endian 64-bit integers."""

    @classmethod
    def of(cls, indices: Sequence[int]) -> Frames:
        """Pack indices, each from 0 to 2**62."""
        values = indices.values if isinstance(indices, Integers) else indices
        return cls(np.asarray(values, "<i8").tobytes())

    @property
    def indices(self) -> Indices:
        """The indices, shape (n,); read-only."""
        return np.frombuffer(self.packed, "<i8")


@dataclass(frozen=True, slots=True)
class Mask:
    """Positions whose bit is set, in ascending order."""

    bits: bytes
    """``np.packbits`` of the mask in C order; the first position is in the highest bit."""


@dataclass(frozen=True, slots=True)
class Grid:
    """A slice (start, stop, step) along each axis of the scan."""

    slices: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class Shuffle:
    """All positions, in an order determined by a seed."""

    seed: int


_MOST = 2**62
Chosen = Frames | Mask | Grid | Shuffle
Select = Every | Chosen


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A request that is valid in itself; :mod:`.plan` checks it against a dataset."""

    select: Select = Every()
    sig: tuple[tuple[int, int], ...] | None = None
    """Pixels (start, stop) along each axis of a frame; None for all."""
    bin_nav: int = 1
    """Number of positions along each axis that are summed into one."""
    bin_sig: int = 1
    """Number of pixels along each axis that are summed into one."""
    tile_shape: tuple[int, ...] | None = None
    target_bytes: int | None = None
    """Approximate size of a tile if ``tile_shape`` is None."""
    dtype: str | None = None
    """numpy type string; None for one that holds the values of the dataset (the service requests
    a floating one for corrected integers)."""
    casting: Casting = "safe"
    corrections: bool = True
    sync_offset: int | None = None
    """Frame at which the scan begins; None for that of the dataset."""
    missing: Missing = "skip"
    """Treatment of positions without a frame."""

    @property
    def bins(self) -> bool:
        """Whether positions or pixels are summed."""
        return (self.bin_nav, self.bin_sig) != (1, 1)

    @property
    def nbytes(self) -> int:
        """Memory of the listed positions or the mask in bytes."""
        match self.select:
            case Frames(octets) | Mask(octets):
                return len(octets)
        return 0

    def to_json(self) -> dict[str, Any]:
        """Return the view as canonical JSON values, without defaults."""
        members: dict[str, Any] = {}
        if not isinstance(self.select, Every):
            members["select"] = _select_json(self.select)
        if self.sig is not None:
            members["sig"] = [list(pair) for pair in self.sig]
        if self.bins:
            members["bin"] = {"nav": self.bin_nav, "sig": self.bin_sig}
        if self.tile_shape is not None:
            members["tile_shape"] = list(self.tile_shape)
        for name in ("target_bytes", "dtype", "sync_offset"):
            if getattr(self, name) is not None:
                members[name] = getattr(self, name)
        for name, default in (("casting", "safe"), ("corrections", True), ("missing", "skip")):
            if getattr(self, name) != default:
                members[name] = getattr(self, name)
        return members

    def digest(self) -> bytes:
        """Return 8 bytes that identify the view: the digest of its JSON with a version."""
        short, member = self, ""
        pieces: Iterator[bytes] = iter(())
        match self.select:
            case Frames():
                short = replace(self, select=Frames(b""))
                member, pieces = '"frames":[', _index_pieces(self.select)
            case Mask(bits):
                short = replace(self, select=Mask(b""))
                member, pieces = '"mask":"', _base64_pieces(bits)
        text = json.dumps([ALGORITHM, short.to_json()], sort_keys=True, separators=(",", ":"))
        # No string of a view contains a quote, so the member occurs once.
        before, member, after = text.partition(member) if member else (text, "", "")
        hashed = hashlib.blake2b((before + member).encode(), digest_size=8)
        for piece in pieces:
            current().check("view")
            hashed.update(piece)
        hashed.update(after.encode())
        return hashed.digest()


def _select_json(select: Chosen) -> dict[str, Any]:
    match select:
        case Frames():
            return {"frames": select.indices.tolist()}
        case Mask(bits):
            return {"mask": b"".join(_base64_pieces(bits)).decode()}
        case Grid(slices):
            return {"nav": [list(bounds) for bounds in slices]}
        case Shuffle(seed):
            return {"shuffle": {"seed": seed}}


def _index_pieces(frames: Frames) -> Iterator[bytes]:
    """Yield the indices as the text of a JSON array, without its brackets."""
    indices = frames.indices
    for at in range(0, len(indices), _PIECE):
        text = ",".join(map(str, indices[at : at + _PIECE].tolist()))
        yield (text if at == 0 else f",{text}").encode()


def _base64_pieces(bits: bytes) -> Iterator[bytes]:
    step = 3 * _PIECE
    for at in range(0, len(bits), step):
        yield base64.b64encode(bits[at : at + step])


MEMBERS = {
    *("select", "sig", "bin", "tile_shape", "target_bytes"),
    *("dtype", "casting", "corrections", "sync_offset", "missing"),
}
"""Members of a view in JSON."""


_FORMS = {"all", "frames", "mask", "nav", "shuffle"}
"""Members of select, one of which says what is selected."""


def parse_view(spec: Mapping[str, Any]) -> View:
    """Parse a view from JSON values.

    Raises:
        OptionError: a member is unknown or has the wrong type.
        SelectionError: a selection is empty or too large.
        ShapeError: tile_shape has too few or too many axes.
    """
    if "select" not in spec and (form := min(_FORMS & set(spec), default=None)):
        hint = f'Give {{"select": {{"{form}": …}}}}'
        raise OptionError(f"{form} is a member of select, not of a view", hint=hint)
    check_members(spec, sorted(MEMBERS), "a view")
    if not isinstance(binning := spec.get("bin", {}), Mapping):
        hint = 'Such as {"nav": 2, "sig": 4}'
        raise OptionError(f"bin is {binning!r:.40}, not an object", hint=hint)
    check_members(binning, ("nav", "sig"), "bin")
    if spec.get("tile_shape") is not None and spec.get("target_bytes") is not None:
        raise OptionError("tile_shape and target_bytes exclude each other")
    return View(
        select=_parse_select(spec.get("select", {"all": True})),
        sig=_pairs(spec["sig"], "sig") if spec.get("sig") is not None else None,
        bin_nav=_integer(binning.get("nav", 1), "bin.nav", 1),
        bin_sig=_integer(binning.get("sig", 1), "bin.sig", 1),
        tile_shape=_shape(spec.get("tile_shape"), "tile_shape"),
        target_bytes=_optional(spec.get("target_bytes"), "target_bytes", 1),
        dtype=parse_dtype(spec.get("dtype")),
        casting=_choice(spec.get("casting", "safe"), "casting", get_args(Casting)),
        corrections=_boolean(spec.get("corrections", True), "corrections"),
        sync_offset=_optional(spec.get("sync_offset"), "sync_offset", -(2**62)),
        missing=_choice(spec.get("missing", "skip"), "missing", get_args(Missing)),
    )


def parse_dtype(text: Any) -> str | None:  # noqa: ANN401 - JSON
    """Return the canonical numpy type string of a requested dtype; None for None.

    Raises:
        OptionError: the value does not name a numeric type.
    """
    if text is None:
        return None
    if not isinstance(text, str):
        raise OptionError(f"dtype is {text!r}, not a string such as '<f4'")
    try:
        # Characters that numpy has for codes of its own name no type.
        dtype = np.dtype(text if text.isprintable() else "")
    except (TypeError, ValueError, SyntaxError) as e:
        hint = "Try '<f4' or 'uint16'"
        raise OptionError(f"dtype is {text[:80]!r}, which is no type", hint=hint) from e
    if dtype.kind not in "biufc" or dtype.subdtype is not None:
        raise OptionError(f"dtype is {text[:80]!r}, which is not numeric")
    return dtype.str


def _parse_select(value: Any) -> Select:  # noqa: ANN401 - JSON
    spec = _mapping(value, "select")
    if len(spec) != 1:
        raise OptionError(
            f"select has {len(spec)} members, not one of frames, mask, nav, shuffle, all",
            hint='Select with a single member, such as {"frames": [0, 1]}',
        )
    (form, argument), *_ = spec.items()
    if form == "all":
        if argument is not True:
            raise OptionError("select.all can only be true")
        return Every()
    if form == "frames":
        return _frames(argument)
    if form == "mask":
        return _mask(argument)
    if form == "nav":
        return Grid(_slices(argument))
    if form == "shuffle":
        shuffle = _mapping(argument, "select.shuffle")
        check_members(shuffle, ("seed",), "select.shuffle")
        return Shuffle(_integer(shuffle.get("seed"), "select.shuffle.seed", 0, 2**64 - 1))
    hint = names_hint(form, sorted(_FORMS))
    raise OptionError(f"select has no member {form!r}", hint=hint)


def _frames(value: Any) -> Frames:  # noqa: ANN401 - JSON
    items = _sequence(value, "select.frames")
    if not items:
        raise SelectionError("select.frames is empty: nothing is selected")
    if len(items) > MAX_SELECTED:
        raise SelectionError(f"select.frames has more than {MAX_SELECTED} indices")
    if isinstance(items, Integers):
        for extreme in (items.values.min(), items.values.max()):
            _integer(extreme, "select.frames", 0)
        return Frames.of(items)
    return Frames.of([_integer(item, "select.frames", 0) for item in items])


def _mask(value: Any) -> Mask:  # noqa: ANN401 - JSON
    if not isinstance(value, str):
        raise OptionError("select.mask is not a string of base64")
    try:
        bits = from_base64(value)
    except (binascii.Error, ValueError) as e:
        raise OptionError(
            "select.mask is not base64", hint="Send base64 of np.packbits(mask)"
        ) from e
    if len(bits) > MAX_SELECTED // 8:
        raise SelectionError(f"select.mask has more than {MAX_SELECTED} bits")
    return Mask(bits)


def from_base64(text: str) -> bytes:
    """Decode base64 piece by piece.

    Raises:
        binascii.Error, ValueError: the text is not base64.
    """
    step = 4 * _PIECE
    whole = bytearray()
    for at in range(0, len(text), step):
        piece = base64.b64decode(text[at : at + step], validate=True)
        if at + step < len(text) and len(piece) != 3 * _PIECE:
            raise ValueError("padding before the end")
        whole += piece
    return bytes(whole)


def _slices(value: Any) -> tuple[tuple[int, int, int], ...]:  # noqa: ANN401 - JSON
    slices = []
    for numbers in _sequence(value, "select.nav"):
        if not isinstance(numbers, Sequence) or len(numbers) not in {2, 3}:
            raise OptionError(
                "select.nav needs [start, stop] or [start, stop, step] per axis",
                hint="Such as [[5, 6], [0, 64, 2]]",
            )
        step = 1 if len(numbers) == 2 else _integer(numbers[2], "select.nav step", 1)  # noqa: PLR2004
        bounds = _bounds(numbers, "select.nav")
        slices.append((*bounds, step))
    return tuple(slices)


def _pairs(value: Any, name: str) -> tuple[tuple[int, int], ...]:  # noqa: ANN401 - JSON
    pairs = []
    for numbers in _sequence(value, name):
        if not isinstance(numbers, Sequence) or len(numbers) != 2:  # noqa: PLR2004
            raise OptionError(f"{name} needs a [start, stop] per axis, such as [[32, 96], [0, 64]]")
        pairs.append(_bounds(numbers, name))
    return tuple(pairs)


def _bounds(numbers: Sequence[Any], name: str) -> tuple[int, int]:
    low, high = (_integer(number, name, 0) for number in numbers[:2])
    if high <= low:
        raise SelectionError(f"{name} [{low}, {high}] selects nothing")
    return low, high


def _shape(value: Any, name: str) -> tuple[int, ...] | None:  # noqa: ANN401 - JSON
    if value is None:
        return None
    items = _sequence(value, name)
    if not 1 <= len(items) <= MAX_DIMS:
        raise ShapeError(f"{name} has {len(items)} axes, not 1 to {MAX_DIMS}")
    return tuple(_integer(item, name, 1) for item in items)


def _mapping(value: Any, name: str) -> Mapping[str, Any]:  # noqa: ANN401 - JSON
    if not isinstance(value, Mapping):
        hint = 'Such as {"all": true}' if name == "select" else None
        raise OptionError(f"{name} is not an object", hint=hint)
    return value


def _sequence(value: Any, name: str) -> Sequence[Any]:  # noqa: ANN401 - JSON
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        raise OptionError(f"{name} is not an array")
    return value


def check_members(spec: Mapping[str, Any], known: Collection[str], name: str) -> None:
    """Refuse members of a JSON object that are not known.

    Raises:
        OptionError: naming the first of them, and ``name``, which has them.
    """
    unknown = sorted(set(spec).difference(known))
    if unknown:
        hint = names_hint(str(unknown[0]), known)
        raise OptionError(f"{name} has no member {unknown[0]!r}", hint=hint)


def _integer(value: Any, name: str, minimum: int, maximum: int = _MOST) -> int:  # noqa: ANN401 - JSON
    if isinstance(value, bool):
        raise OptionError(f"{name} is {shown(value)}, not a whole number")
    try:
        number = operator.index(value)
    except TypeError:
        raise OptionError(f"{name} is {shown(value)}, not a whole number") from None
    if not minimum <= number <= maximum:
        most = "" if maximum == _MOST else f" and at most {maximum}"
        raise OptionError(f"{name} is {number}, but must be at least {minimum}{most}")
    return number


def _optional(value: Any, name: str, minimum: int) -> int | None:  # noqa: ANN401 - JSON
    return None if value is None else _integer(value, name, minimum)


def _boolean(value: Any, name: str) -> bool:  # noqa: ANN401 - JSON
    if not isinstance(value, bool):
        raise OptionError(f"{name} is {shown(value)}, not true or false")
    return value


def _choice(value: Any, name: str, choices: tuple[Any, ...]) -> Any:  # noqa: ANN401 - JSON
    if not isinstance(value, str) or value not in choices:
        raise OptionError(
            f"{name} is {shown(value)}", hint=names_hint(str(value), map(str, choices))
        )
    return value
