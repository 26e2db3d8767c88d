"""Bodies that hold no token."""

from __future__ import annotations

import itertools

import pytest

from app.errors import TokenMalformedError
from app.http.routes_tokens import TokenInspection
from app.losses import tokens as loss_tokens
from app.losses.spool import Mark
from app.losses.tokens import Checkpoints
from app.pipelines import tokens as batch_tokens
from app.tiles.encoding import describe_token
from app.tokens import KIND_BATCHES, KIND_LOSSES, KIND_TILES, Key, KeyRing, Token
from core.losses.events import Position, StreamHeader
from core.losses.format import Kind
from tests.app.harness import MIB, Contract, Post, Service, ask, is_problem


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"AQECtoken", 400),
        (b"null", 422),
        (b"[]", 422),
        (b"{}", 422),
        (b"{", 400),
        (b'"x"', 422),
        (b'{"token": 5}', 422),
        (b'{"token": null}', 422),
        (b'{"token": "\\ud800"}', 422),
        (b'{"token": "x", "more": 1}', 422),
        (b'{"token": "' + b"A" * 5000 + b'"}', 422),
        (b'{"token": "\xff"}', 400),
        (b"[" * 20_000, 400),
        (b'{"token": "' + b"A" * 40_000 + b'"}', 413),
        (b" " * MIB, 413),
    ],
)
def test_bodies_that_hold_no_token(
    service: Service, contract: Contract, body: bytes, status: int
) -> None:
    for route, sized in itertools.product(("inspect", "refresh"), (True, False)):
        path = f"/v1/tokens/{route}"
        answer = ask(service, Post(path, [body], [("Content-Type", "application/json")], sized))
        assert contract.check("POST", path, answer).status == status
        assert "option" not in answer.json()
        for declared in ([], [("Content-Type", "text/plain")]):
            undeclared = ask(service, Post(path, [body], declared, sized))
            assert (undeclared.status, undeclared.json()["code"]) == (status, answer.json()["code"])
        if status == 422:
            assert answer.json()["hint"] == 'Send {"token": "…"}'
            assert "valid dictionary" not in answer.json()["detail"]


def test_chunks_that_are_none_are_told(service: Service) -> None:
    head = b"POST /v1/tokens/inspect HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n"
    with service.connect() as client:
        client.sendall(head + b"zz\r\n")
        answer = client.recv(1 << 16)
    assert answer.startswith(b"HTTP/1.1 400")
    assert b"the size of a chunk is malformed" in answer


def test_a_large_body_for_tokens_takes_no_memory(service: Service) -> None:
    service.reset_peak()
    before = service.memory()
    headers = [("Content-Type", "application/json")]
    answer = ask(service, Post("/v1/tokens/inspect", [bytes(24 * MIB)], headers))
    is_problem(answer, "too-large")
    assert service.memory("VmHWM") - before < 16 * MIB


RING = KeyRing([Key(2, "sign", b"n" * 32), Key(1, "refresh-only", b"s" * 32)])
OLD = KeyRing([Key(1, "sign", b"s" * 32)])
TOKENS = TokenInspection(
    RING,
    {
        KIND_LOSSES: loss_tokens.describe,
        KIND_TILES: describe_token,
        KIND_BATCHES: batch_tokens.describe,
    },
)
SUMMARY = StreamHeader(Kind.SUMMARY, 1, 3, 100, 7, 8)


def signed(kind: int, state: tuple[int, ...]) -> str:
    return RING.sign(Token(kind, b"identity", bytes(8), state))


def test_a_position_in_a_loss_stream() -> None:
    checkpoints = Checkpoints(RING, b"identity")
    description = TOKENS.describe(checkpoints.token(Mark(Position(SUMMARY, 99, 5, False, 2), 8, 1)))
    assert description == {
        "kind": "losses",
        "key": 2,
        "use": "sign",
        "issued": description["issued"],
        "identity": b"identity".hex(),
        "fingerprint": "0100000000000000",
        "stream": "summary stream, 100 samples, f8 losses, summary set 7",
        "offset": 99,
        "last_event": 5,
        "ascending": False,
        "events": 2,
        "unfinished_bytes": 8,
    }
    first = TOKENS.describe(checkpoints.token(Mark(Position())))
    assert (first["stream"], first["last_event"]) == (None, None)


def test_positions_in_tiles_and_batches() -> None:
    tiles = TOKENS.describe(signed(KIND_TILES, (4,)))
    assert (tiles["kind"], tiles["tile"], "frames" in tiles) == ("tiles", 4, False)
    growing = TOKENS.describe(signed(KIND_TILES, (4, 90)))
    assert (growing["tile"], growing["frames"]) == (4, 90)
    batches = TOKENS.describe(signed(KIND_BATCHES, (4, 5)))
    assert (batches["kind"], batches["batch"], batches["state"]) == ("batches", 4, [4, 5])


@pytest.mark.parametrize(
    ("kind", "state"), [(KIND_TILES, (1, 2, 3)), (KIND_TILES, ()), (KIND_BATCHES, ()), (9, (1,))]
)
def test_what_no_product_issues_is_malformed(kind: int, state: tuple[int, ...]) -> None:
    with pytest.raises(TokenMalformedError):
        TOKENS.describe(signed(kind, state))


def test_a_token_of_a_retired_key_is_signed_anew() -> None:
    token = Token(KIND_TILES, b"identity", bytes(8), (4,))
    fresh = RING.verify(TOKENS.refresh(OLD.sign(token)))
    assert (fresh.key.ident, fresh.token) == (2, token)
