"""Parsing and encoding headers of streams."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from .. import errors
from .events import StreamHeader
from .format import ID_MAX, ITEM_HEADER_SIZE, SOURCE_CDF, TYPE_SIZE, TYPES, Kind, header_size
from .policy import Policy

_COMPRESSED = "Send it decompressed: {1} -c FILE | ...; or a post with Content-Encoding: {0}"
_OTHERS = {
    b"\x1f\x8b": ("gzip", _COMPRESSED.format("gzip", "gunzip")),
    b"\x28\xb5\x2f\xfd": ("zstd", _COMPRESSED.format("zstd", "zstd -d")),
    b"PK\x03\x04": ("a zip archive", "Extract the stream first"),
    b"PAR1": ("a parquet file", "Send a binary loss stream; tables are inputs of reports"),
    b"--": ("a multipart form", "Send the stream alone: curl --data-binary @FILE, or curl -T FILE"),
    b"\x93NUM": ("a NumPy file", "Send a binary loss stream"),
}
"""What is taken for loss streams by mistake, by its first bytes, and what to do about it."""


def _kind(octets: bytes, source: str | None) -> tuple[Kind, int, int]:
    aggregation = int.from_bytes(octets[:3], "little")
    source_type = octets[3]
    kind = TYPES.get((source_type, aggregation))
    if kind is not None:
        return kind, aggregation, source_type
    if (source_type, aggregation) == (SOURCE_CDF, 1):
        raise errors.UnsupportedStreamError(
            "this is a cdf stream, which holds no losses yet",
            offset=0,
            hint="Put a loss sampler such as gulpy between, or send its output; occurrences and"
            " periods, which may begin like one, are inputs of reports",
            source=source,
        )
    found, hint = _recognised(octets[:TYPE_SIZE])
    raise errors.HeaderError(
        f"the stream begins with {octets[:TYPE_SIZE].hex(' ')}, which is {found}",
        offset=0,
        hint=hint,
        source=source,
    )


def _recognised(head: bytes) -> tuple[str, str]:
    """Return what begins with some bytes, as far as is known, and what to do about it."""
    for magic, known in _OTHERS.items():
        if head.startswith(magic):
            return known
    if head.isascii() and head.decode().isprintable():
        return "text", "Send a binary loss stream; tables such as occurrences are inputs of reports"
    gul = "gul begins with 01 00 00 01 or 02 00 00 01"
    others = "loss with 01 00 00 02, summary with 01 00 00 03"
    advice = "curl -d changes bytes, --data-binary or -T do not"
    return "not a known type", f"{gul}, {others}; {advice}"


def parse_header(octets: bytes, policy: Policy, source: str | None) -> StreamHeader | None:
    """Parse the header at the start of a stream; None if more bytes are needed.

    Raises:
        UnsupportedStreamError: it is a cdf stream.
        HeaderError: its type is unknown, or its sample count below 1.
        LimitError: its sample count is above the limit of the policy.
    """
    if len(octets) < TYPE_SIZE:
        return None
    kind, aggregation, source_type = _kind(octets, source)
    if len(octets) < header_size(kind):
        return None
    samples = int.from_bytes(octets[4:8], "little", signed=True)
    if samples < 1:
        raise errors.HeaderError(
            f"len_sample is {samples}: there are no samples to report on",
            offset=TYPE_SIZE,
            hint="Run the model with at least one sample",
            source=source,
        )
    if samples > policy.max_samples:
        raise errors.LimitError(
            f"len_sample is {samples}, above the limit of {policy.max_samples}",
            limit="max_samples",
            allowed=policy.max_samples,
            offset=TYPE_SIZE,
            hint="If the number is right, raise max_samples; else the header is damaged",
            source=source,
        )
    summary_set = None
    if kind is Kind.SUMMARY:
        summary_set = int.from_bytes(octets[ITEM_HEADER_SIZE:12], "little", signed=True)
    return StreamHeader(kind, aggregation, source_type, samples, summary_set, policy.float_width)


def saved_header(header: StreamHeader) -> list[Any]:
    """A header as JSON values; its float width is that of the policy."""
    samples, summary_set = header.len_sample, header.summary_set
    return [header.kind.value, header.aggregation, header.source, samples, summary_set]


def restored_header(  # noqa: PLR0913, PLR0917 - the values of a saved header
    policy: Policy, kind: str, aggregation: int, source: int, samples: int, summary_set: int | None
) -> StreamHeader:
    """The header of the values of :func:`saved_header`.

    Raises:
        ValueError: they are of no stream that the policy accepts.
    """
    if TYPES.get((source, aggregation)) is not Kind(kind):
        raise ValueError("its header is of no stream")
    whole(samples, 1, policy.max_samples)
    if Kind(kind) is Kind.SUMMARY:
        whole(summary_set, -ID_MAX - 1, ID_MAX)
    return StreamHeader(Kind(kind), aggregation, source, samples, summary_set, policy.float_width)


def whole(value: Any, least: int, most: int) -> int:  # noqa: ANN401 - of a state
    """Check a whole number of a state.

    Raises:
        ValueError: it is out of range.
        TypeError: it is not a whole number.
    """
    number = operator.index(value)
    if not least <= number <= most:
        raise ValueError(f"{value!r} is not {least} to {most}")
    return number


@contextmanager
def restoring(source: str | None = None) -> Iterator[None]:
    """Say of a state that it is malformed, whatever that leads to within the block.

    Raises:
        StateError: it is.
    """
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as e:
        raise errors.StateError(f"the state is malformed: {e}", source=source) from e


def check_same_header(
    header: StreamHeader, source: str | None, first: StreamHeader, first_source: str
) -> None:
    """Check that a partition belongs to the first one.

    Raises:
        MismatchError: they differ in kind, sample count or summary set.
    """
    if header != first:
        raise errors.MismatchError(
            f"it is a {header.describe()}, but {first_source} is a {first.describe()}",
            offset=0,
            hint="Partitions of one analysis have the same kind, sample count and set",
            source=source,
        )


class CommonHeader:
    """The header that the partitions of one analysis share: that of the first to have come.

    Args:
        names: of the partitions, for errors.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._first: tuple[StreamHeader, str] | None = None
        self._compared: set[int] = set()

    @property
    def known(self) -> StreamHeader | None:
        """The header, once that of one partition has come."""
        return None if self._first is None else self._first[0]

    def compare(self, index: int, header: StreamHeader | None) -> None:
        """Compare that of a partition, once it has come.

        Raises:
            MismatchError: as :func:`check_same_header`.
        """
        if header is None or index in self._compared:
            return
        self._first = self._first or (header, self._names[index])
        check_same_header(header, self._names[index], *self._first)
        self._compared.add(index)


def header_bytes(header: StreamHeader) -> bytes:
    """Encode a header."""
    octets = header.aggregation.to_bytes(3, "little") + bytes([header.source])
    octets += header.len_sample.to_bytes(4, "little", signed=True)
    if header.kind is Kind.SUMMARY:
        octets += (header.summary_set or 0).to_bytes(4, "little", signed=True)
    return octets
