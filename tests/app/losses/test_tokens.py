"""Positions in loss streams as tokens: frozen, read back, and refused when they cannot be."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from app.errors import TokenForeignError, TokenMalformedError
from app.losses.request import ALGORITHM
from app.losses.spool import Mark
from app.losses.tokens import Checkpoints, read_mark
from app.tokens import KIND_BATCHES, KIND_LOSSES, KIND_TILES, Key, KeyRing, Token
from core.losses.events import Position, StreamHeader
from core.losses.format import ID_MAX, Kind
from core.losses.reports import REPORTS

RING = KeyRing([Key(1, "sign", b"s" * 32)])
CHECKPOINTS = Checkpoints(RING, b"identity")
GUL = StreamHeader(Kind.GUL, 1, 1, 10, None, 4)
COVERAGE = StreamHeader(Kind.GUL, 2, 1, 10, None, 8)
LOSS = StreamHeader(Kind.LOSS, 1, 2, 1, None, 4)
SUMMARY = StreamHeader(Kind.SUMMARY, 1, 3, 100, 7, 8)
NEGATIVE = StreamHeader(Kind.SUMMARY, 1, 3, 100, -1, 4)
LOWEST = StreamHeader(Kind.SUMMARY, 1, 3, 100, -(2**31), 4)


@pytest.mark.parametrize(
    ("position", "state"),
    [
        (Position(), (0, 0, 0, 0, 0, 0, 0, 1, 0)),
        (Position(GUL, 8, 0, True, 0), (1, 1, 4, 10, 0, 8, 0, 1, 0)),
        (Position(COVERAGE, 99, ID_MAX, False, 3), (1, 2, 8, 10, 0, 99, ID_MAX, 0, 3)),
        (Position(LOSS, 99, 5, True, 1), (2, 1, 4, 1, 0, 99, 5, 1, 1)),
        (Position(SUMMARY, 99, 5, True, 1), (3, 1, 8, 100, 7, 99, 5, 1, 1)),
        (Position(NEGATIVE, 99, 5, True, 1), (3, 1, 4, 100, 2**32 - 1, 99, 5, 1, 1)),
        (Position(LOWEST, 99, 5, True, 1), (3, 1, 4, 100, 2**31, 99, 5, 1, 1)),
    ],
)
def test_the_numbers_of_a_position_are_frozen(position: Position, state: tuple[int, ...]) -> None:
    mark = Mark(position, 77, 2**64 - 2)
    text = CHECKPOINTS.token(mark)
    token = RING.verify(text).token
    assert token == Token(KIND_LOSSES, b"identity", b"\xfe" + b"\xff" * 7, (*state, 77))
    assert CHECKPOINTS.read(text) == read_mark(token) == mark


def signed(state: tuple[int, ...], **more: Any) -> str:  # noqa: ANN401
    kind, identity = more.get("kind", KIND_LOSSES), more.get("identity", b"identity")
    return RING.sign(Token(kind, identity, bytes(8), state))


GOOD = (3, 1, 4, 100, 7, 99, 5, 1, 1, 0)
BEYOND = (2**62 + 1, 2**63 - 1, 2**63, 2**64, 2**69)


@pytest.mark.parametrize(
    ("at", "number", "words"),
    [
        (0, 0, "an impossible position"),
        (0, 4, "an impossible stream header"),
        (1, 2, "an impossible stream header"),
        (2, 5, "an impossible stream header"),
        (3, 0, "an impossible stream header"),
        (6, ID_MAX + 1, "an impossible position"),
        (7, 2, "an impossible position"),
        *((at, number, "an impossible position") for at in (5, 8, 9) for number in BEYOND),
        *((at, number, "an impossible") for at in (0, 1, 2, 3, 4, 6, 7) for number in BEYOND),
    ],
)
def test_positions_that_cannot_be(at: int, number: int, words: str) -> None:
    assert CHECKPOINTS.read(signed(GOOD)).position.header == SUMMARY_F4
    state = list(GOOD)
    state[at] = number
    with pytest.raises(TokenMalformedError, match=words):
        CHECKPOINTS.read(signed(tuple(state)))


SUMMARY_F4 = StreamHeader(Kind.SUMMARY, 1, 3, 100, 7, 4)


@pytest.mark.parametrize("state", [(), GOOD[:-1], (*GOOD, 0)])
def test_other_counts_of_numbers_are_no_position(state: tuple[int, ...]) -> None:
    with pytest.raises(TokenMalformedError, match="does not hold a position"):
        CHECKPOINTS.read(signed(state))


def test_tokens_of_something_else() -> None:
    with pytest.raises(TokenForeignError, match="other reports"):
        CHECKPOINTS.read(signed(GOOD, identity=b"identitY"))
    for kind in (KIND_TILES, KIND_BATCHES):
        with pytest.raises(TokenForeignError, match="not of a loss stream"):
            CHECKPOINTS.read(signed(GOOD, kind=kind))


def test_other_columns_are_another_algorithm() -> None:
    """A post that goes on after an upgrade must not join rows of different columns."""
    columns = [
        (name, report.dtype(width).descr) for width in (4, 8) for name, report in REPORTS.items()
    ]
    frozen = {b"losses 1": "1926f918a87dc943"}
    digest = hashlib.sha256(repr(columns).encode()).hexdigest()[:16]
    said = f"other columns need another ALGORITHM, and here its digest, {digest}"
    assert frozen.get(ALGORITHM) == digest, said
