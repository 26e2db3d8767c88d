"""Auxiliary files: checked on upload, found by digest, parsed once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from app.decoding.base import Decoders
from app.engine.ledger import Kept, Ledger
from app.errors import InputGoneError, InvalidOptionError, NotFoundError
from app.http.identity import Identity
from app.state.base import RecordMissingError, StateStore
from app.state.shares import Shares
from app.state.turns import Turn
from core.errors import InputError
from core.losses.inputs import Data, Occurrence, quantiles_from_text, return_periods_from_text
from core.losses.summaries import SummarySets

from .input_parsers import PARSERS, parse_input
from .input_store import DIGEST_SIZE, InputStore, Receipt, digest_of, gone, input_id
from .parquet import MAGIC, read_parquet, room_for
from .selection import choose_sets

KIND = "input"
PURPOSE = "inputs"
UNUSED = ("ensemble", "items", "coverages")
"""Files of a model that no report is computed from."""

_ANY_PERIODS = 2**31 - 1
_CACHED = 16
_CACHED_BYTES = 128 << 20
"""Bytes of parsed files that stay in memory; the last one does whatever its size. They are in the
ledger, which has them given up where it has no room."""
_PARSED = 8
"""Bytes that parsing takes for each byte of a file of numbers."""
_PARSED_PACKED = 6
"""The same for each byte of packed records."""
_PARSED_SHORT = 10
"""The same for each byte of files whose packed records are single numbers of four bytes."""
_FIRST = 64
"""Bytes by which packed records are told."""
_PARSED_TEXT = 32
"""The same for each byte of a file of texts, each of which is an object."""
_KEPT_TEXT = 16
"""Bytes that stay for each byte of it."""
_PARSED_COLUMNS = 4
"""The same for each byte of decoded columns."""
_SETS_BYTES = 110
"""Bytes that choosing sets takes for each row of their xref."""
_OBJECT_BYTES = 64
"""Bytes of a short text."""


KINDS = tuple(PARSERS)
"""Names of the files that can be stored."""
_LISTS: Mapping[str, Callable[[str], Any]] = {
    "quantiles": quantiles_from_text,
    "return_periods": return_periods_from_text,
}
"""What a request may list rather than name a file; such files are short."""
_TEXTS = frozenset({"summary_map", "summary_info"})


def memory_to_parse(kind: str, content: Data) -> int:
    """Return about how much memory it takes to parse a file of this kind."""
    if isinstance(content, bytes):
        if kind in _TEXTS:
            return _PARSED_TEXT * len(content)
        # No text has such a byte, and few records have none.
        packed = 0 in content[:_FIRST]
        factor = _PARSED_PACKED if packed else _PARSED
        return (_PARSED_SHORT if kind in _LISTS else factor) * len(content)
    sizes = [_OBJECT_BYTES if column.dtype == object else 8 for column in content.values()]
    return _PARSED_COLUMNS * sum(sizes) * max(map(len, content.values()), default=0)


class Inputs:
    """The auxiliary files of a service, the last few of them parsed in memory.

    A file is stored once, however many owners have it; each has put it, and may use it.

    Args:
        store: holds the files.
        records: holds the owners of each.
        turn: a turn among all that change the files or their owners.
        ledger: charged while a file is parsed.
        decoders: decode parquet; None refuses it.
    """

    def __init__(
        self,
        store: InputStore,
        records: StateStore,
        turn: Turn,
        ledger: Ledger,
        decoders: Decoders | None = None,
    ) -> None:
        self._store = store
        self._ledger = ledger
        self._decoders = decoders
        self._owners = Shares(records, KIND, turn)
        self._parsed: Kept[Any] = Kept(ledger, _CACHED_BYTES, _CACHED)
        self._parsing = threading.Lock()

    def put(self, caller: Identity, kind: str, data: bytes, periods: int | None = None) -> Receipt:
        """Check a file and store it for the caller.

        Args:
            caller: the caller.
            kind: one of KINDS.
            data: content of the file, which the caller is charged for.
            periods: number of periods, for an occurrence csv.

        Raises:
            InputError: the content is not valid for this kind.
            BusyError: there is no memory or decoder left.
            QuotaExceededError: too much is stored already.
            StorageFullError: the file cannot be stored.
        """
        # One at a time, because parsing takes several times the memory of the file.
        with self._content(caller, kind, data) as content, self._parsing:
            _check(kind, content, periods)
        del content
        digest = digest_of(data)
        ident = input_id(kind, digest)
        receipt, new = self._owners.put(
            caller.owner,
            ident,
            len(data),
            store=partial(self._store.put, kind, digest, data),
            is_stored=partial(self._store.has, kind, digest),
            remove=partial(self._store.remove, kind, digest),
        )
        # Whether others have the file too is not for the caller to know.
        return replace(receipt, created=new or receipt.created)

    def delete(self, caller: Identity, kind: str, digest: str) -> None:
        """Remove the caller from the owners of a file, and the file with the last of them.

        Raises:
            NotFoundError: the caller has no such file.
        """
        try:
            self._owners.delete(
                caller.owner,
                input_id(kind, digest),
                partial(self._store.remove, kind, digest),
                everyone=caller.is_admin,
            )
        except RecordMissingError as e:
            raise NotFoundError(f"there is no {kind} input {digest[:80]!r}") from e

    def has(self, owner: str, kind: str, digest: str) -> bool:
        """Whether an owner has a file that is stored."""
        return self._owners.has(owner, input_id(kind, digest)) and self._store.has(kind, digest)

    def parsed(self, caller: Identity, kind: str, text: str) -> Any:  # noqa: ANN401 - of its parser
        """Return what the file with this digest says, or a list where the kind has lists.

        Args:
            caller: the caller.
            kind: one of ``KINDS`` but occurrences.
            text: a digest; or the list.

        Raises:
            InvalidOptionError: ``text`` is not a digest, nor a list of the values of this kind.
            InputGoneError: there is no such file.
        """
        if kind in _LISTS and not _is_digest(text):
            try:
                return _LISTS[kind](text)
            except InputError as e:
                raise InvalidOptionError(f"{kind}: {e.message}", hint=e.hint, option=kind) from e

        def parse(content: Data) -> Any:  # noqa: ANN401 - as above
            return parse_input(kind, content)

        return self._parsed_file(caller, kind, _digest(text, kind), None, parse)

    def occurrence(self, caller: Identity, text: str, periods: int | None) -> Occurrence:
        """Return the occurrences in the file with this digest.

        Raises:
            InvalidOptionError: ``text`` is not a digest, or the number of periods is
                missing or does not match the file.
            InputGoneError: there is no such file.
        """
        digest = _digest(text, "occurrence")

        def parse(content: Data) -> Occurrence:
            try:
                return _parse_occurrence(content, periods)
            except InputError as e:
                # The file was valid on upload, so the number of periods must be wrong.
                raise InvalidOptionError(
                    e.message, hint="Correct no_of_periods", option="no_of_periods"
                ) from e

        occurrence: Occurrence = self._parsed_file(caller, "occurrence", digest, periods, parse)
        return occurrence

    def summary_sets(
        self, caller: Identity, xref: str, risks: str | None, requested: tuple[int, ...] | None
    ) -> SummarySets:
        """Return the summary sets of the xref with this digest.

        Args:
            caller: the caller.
            xref: digest of a summary xref.
            risks: digest of a summary map, None for none.
            requested: ids of sets, None for all.

        Raises:
            InvalidOptionError, TooLargeError: a text is not a digest; or as ``choose_sets``.
            InputGoneError: there is no such file.
        """
        parsed_xref = self.parsed(caller, "summary_xref", xref)
        parsed_map = None if risks is None else self.parsed(caller, "summary_map", risks)

        def build() -> tuple[SummarySets, int]:
            with self._ledger.hold(caller.payer, _SETS_BYTES * len(parsed_xref.ids), PURPOSE):
                sets = choose_sets(parsed_xref, requested, parsed_map)
            return sets, sum(array.nbytes for array in sets.places)

        # Each part of a stream would look for the places of all items anew.
        sets: SummarySets = self._parsed.get(("summary_sets", xref, risks, requested), build)
        return sets

    def _parsed_file(
        self,
        caller: Identity,
        kind: str,
        digest: str,
        extra: int | None,
        parse: Callable[[Data], Any],
    ) -> Any:  # noqa: ANN401 - the result of parse
        if not self._owners.has(caller.owner, input_id(kind, digest)):
            self._check_kind(caller, kind, digest)
            if not caller.is_admin:
                raise gone(kind, digest)
        read = False

        def load() -> tuple[Any, int]:
            nonlocal read
            read = True
            data = self._store.read(kind, digest)
            with (
                self._ledger.hold(caller.payer, len(data), PURPOSE),
                self._content(caller, kind, data) as content,
            ):
                parsed = parse(content)
            texts = _KEPT_TEXT if kind in _TEXTS else 1
            return parsed, max(texts * len(data), _nbytes(parsed))

        parsed = self._parsed.get((kind, digest, extra), load)
        if not read:
            self._store.touch(kind, digest)
        return parsed

    def _check_kind(self, caller: Identity, kind: str, digest: str) -> None:
        """Raise ``InputGoneError`` if the caller has a file as another input than this one."""
        for name in KINDS:
            if self._owners.has(caller.owner, input_id(name, digest)):
                hint = f"Give it as {name}, or the digest of a file that was stored as {kind}"
                raise InputGoneError(f"{digest} is of the input {name}, not {kind}", hint=hint)

    @contextmanager
    def _content(self, caller: Identity, kind: str, data: bytes) -> Iterator[Data]:
        """The content of a file, with memory for it and what is parsed of it until the end.

        Raises:
            InputError: the content is not valid; its source is the kind.
            BusyError, ShareExceededError, TooLargeError: there is no memory or decoder left.
        """
        with self._ledger.hold(caller.payer, 0, PURPOSE) as hold, _named(kind):
            content: Data = data
            if data.startswith(MAGIC):
                if self._decoders is None:
                    raise InputError("it is a parquet file", hint="Send csv or packed records")
                hold.grow(room_for(len(data)))
                content = read_parquet(data, self._decoders)
            hold.grow(memory_to_parse(kind, content))
            yield content


@contextmanager
def _named(kind: str) -> Iterator[None]:
    """Name the kind of a file in what is wrong with it."""
    try:
        yield
    except InputError as e:
        e.source = kind
        raise


def _nbytes(parsed: object) -> int:
    """Bytes of the arrays of a parsed file."""
    values = [parsed, *(getattr(parsed, name, None) for name in getattr(parsed, "__slots__", ()))]
    return sum(value.nbytes for value in values if isinstance(value, np.ndarray))


def _check(kind: str, content: Data, periods: int | None) -> None:
    """Parse a file that is to be stored.

    Raises:
        InputError, InvalidOptionError: it is not valid.
    """
    if kind == "occurrence":
        _parse_occurrence(content, periods, default=_ANY_PERIODS)
    else:
        parse_input(kind, content)


def _is_digest(text: str) -> bool:
    return len(text) == 2 * DIGEST_SIZE and set(text) <= set("0123456789abcdef")


def _digest(text: str, option: str) -> str:
    if not _is_digest(text):
        raise InvalidOptionError(
            f"{option} is {text!r}, not the digest of an input",
            hint=f"PUT the file to /v1/inputs/{option}, and use the digest in the answer",
            option=option,
        )
    return text


def _parse_occurrence(data: Data, periods: int | None, default: int | None = None) -> Occurrence:
    occurrence: Occurrence
    try:
        occurrence = parse_input("occurrence", data, periods)
    except InputError as e:
        if e.parameter != "periods":
            raise
        if periods is not None or default is None:
            raise InvalidOptionError(
                e.message, hint="Set the option no_of_periods", option="no_of_periods"
            ) from e
        occurrence = parse_input("occurrence", data, default)
    return occurrence
