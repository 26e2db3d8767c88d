"""Tokens of posts that are damaged, forged, foreign or of other data."""

from __future__ import annotations

import base64
import hmac
import http.client
import json
import struct
from dataclasses import dataclass, replace

import pytest

from app.tokens import Key, KeyRing, Token
from tests.app.conftest import TOKEN_KEYS
from tests.app.harness import (
    Answer,
    Contract,
    Post,
    Service,
    ask,
    check_problem,
    compress_whole,
    is_problem,
    with_query,
)
from tests.app.losses.posts import INPUTS, PARTIAL, WAYS, good, put_input
from tests.streams import Block

STREAM = good().with_blocks(
    [Block(event, ident, ((1, float(event)),)) for event in range(1, 9) for ident in (1, 2)]
)


def ring(use: str, *, ident: int | None = None) -> KeyRing:
    """A ring that signs with the key the service has for this use."""
    known, secret = TOKEN_KEYS[use]
    return KeyRing([Key(known if ident is None else ident, "sign", bytes.fromhex(secret))])


def resign(token: str, use: str, *, ident: int | None = None) -> str:
    verified = ring("sign").verify(token)
    return ring(use, ident=ident).sign(verified.token)


@dataclass(frozen=True)
class Cut:
    """A stream that was posted in part."""

    data: bytes
    token: str
    offset: int
    seen: int


@pytest.fixture(scope="module")
def cut(service: Service) -> Cut:
    data = STREAM.encode()
    seen = STREAM.boundaries()[9] + 10
    answer = ask(service, Post("/v1/losses/melt", [data[:seen]], [PARTIAL]))
    assert answer.status == 200
    token = str(answer.getheader("Thalweg-Token"))
    offset = int(str(answer.getheader("Thalweg-Offset")))
    assert offset < seen
    return Cut(data, token, offset, seen)


def go_on(service: Service, cut: Cut, token: str, *, body: bytes | None = None) -> Answer:
    path = with_query("/v1/losses/melt", {"after": token})
    return ask(service, Post(path, [cut.data[cut.offset :] if body is None else body]))


def inspect(service: Service, token: object, route: str = "inspect") -> Answer:
    body = json.dumps({"token": token}).encode()
    headers = [("Content-Type", "application/json")]
    return ask(service, Post(f"/v1/tokens/{route}", [body], headers))


def test_the_token_is_good(service: Service, cut: Cut) -> None:
    assert go_on(service, cut, cut.token).status == 200
    said = inspect(service, cut.token).json()
    assert (said["offset"], said["use"], said["key"]) == (cut.offset, "sign", 3)
    assert said["unfinished_bytes"] == cut.seen - cut.offset
    assert len(cut.token) <= 100


def encode(octets: bytes) -> str:
    return base64.urlsafe_b64encode(octets).rstrip(b"=").decode()


def decode(token: str) -> bytes:
    return base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))


def signed(octets: bytes) -> str:
    """A token of these bytes with a signature that is right."""
    secret = bytes.fromhex(TOKEN_KEYS["sign"][1])
    return encode(octets + hmac.digest(secret, octets, "sha256")[:16])


def test_malformed_tokens(service: Service, contract: Contract, cut: Cut) -> None:
    token, octets = cut.token, decode(cut.token)
    body = octets[:-16]
    malformed = [
        *("", "x", "nonsense", " ", "a b", "\0", "ü", "=" * 8, "A" * 600, token + "=", token + "A"),
        *(f" {token}", f"{token} ", f"{token}\n", token[:-1], f"{token}{token}", f"{token}==="),
        token.replace("-", "+").replace("_", "/") + "+",
        *(token[:size] for size in range(1, 45)),
        encode(octets[:30]),
        signed(b"\7" + body[1:]),
        signed(body[:2] + b"\2" + body[3:]),
        signed(body + b"\0"),
        signed(body + b"\x80"),
        signed(body[:-1]),
        signed(body[:20]),
        signed(body[:19] + b"\xff" * 12),
        signed(body[:19] + b"\x80\0" + body[20:]),
    ]
    for bad in malformed:
        path = with_query("/v1/losses/melt", {"after": bad})
        for answer in (go_on(service, cut, bad), inspect(service, bad)):
            contract.check("POST", path, answer)
            code = answer.json()["code"]
            # A token of another kind may be one of another request.
            assert code == "token-malformed" or (
                code in {"token-forged", "token-foreign"} and len(bad) > 45
            ), bad
    for text in (token + "=", token[:20]):
        is_problem(go_on(service, cut, text), "token-malformed", 400)


def test_a_token_that_is_not_canonical(service: Service, cut: Cut) -> None:
    octets = decode(cut.token)
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    same = [
        last
        for last in alphabet
        if last != cut.token[-1] and decode(cut.token[:-1] + last) == octets
    ]
    assert len(same) == {0: 0, 1: 15, 2: 3}[len(octets) % 3]
    for last in same:
        answer = go_on(service, cut, cut.token[:-1] + last)
        is_problem(answer, "token-malformed", 400)


def test_no_bit_of_a_token_can_be_changed(service: Service, cut: Cut) -> None:
    octets = decode(cut.token)
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=20)
    for bit in range(8 * len(octets)):
        forged = bytearray(octets)
        forged[bit // 8] ^= 1 << bit % 8
        path = with_query("/v1/losses/melt", {"after": encode(bytes(forged))})
        connection.request("POST", path, cut.data[cut.offset :])
        answer = connection.getresponse()
        found = json.loads(answer.read())
        check_problem(found)
        assert (answer.status, found["code"]) == (403, "token-forged")
    connection.close()


def test_a_signature_that_is_cut_or_of_nothing(service: Service, cut: Cut) -> None:
    octets = decode(cut.token)
    for forged in (octets[:-16] + bytes(16), octets[:-1], octets + b"\1", octets[:-16] + octets):
        answer = go_on(service, cut, encode(forged))
        is_problem(answer, "token-forged", 403)


def test_tokens_of_other_requests(service: Service, contract: Contract, cut: Cut) -> None:
    rates = put_input(service, "event_rates", INPUTS["event_rates.csv"]).json()["digest"]
    for path in (
        "/v1/losses/selt?",
        "/v1/losses/events?",
        "/v1/losses/qelt?quantiles=0.5&",
        "/v1/losses?reports=melt,selt&",
        "/v1/losses/melt?float_width=8&",
        "/v1/losses/melt?nan=drop&",
        "/v1/losses/melt?negative=keep&",
        "/v1/losses/melt?sample_order=any&",
        "/v1/losses/melt?order=event&",
        "/v1/losses/melt?summary_ids=1&",
        f"/v1/losses/melt?event_rates={rates}&",
    ):
        answer = ask(service, Post(f"{path}after={cut.token}", [cut.data[cut.offset :]]))
        is_problem(contract.check("POST", path, answer), "token-foreign", 409)
    for path in ("/v1/losses/melt?format=frames", "/v1/losses/melt?duplex=true"):
        answer = ask(service, Post(f"{path}&after={cut.token}", [cut.data[cut.offset :]]))
        assert answer.status == 200
    other = Token(1, bytes(8), bytes(8), (0,) * 10)
    is_problem(go_on(service, cut, ring("sign").sign(other)), "token-foreign", 409)


def test_tokens_that_hold_what_cannot_be(service: Service, cut: Cut) -> None:
    token = ring("sign").verify(cut.token).token
    for at, value in ((0, 9), (1, 200), (2, 5), (3, 0), (6, 2**31), (7, 2)):
        state = (*token.state[:at], value, *token.state[at + 1 :])
        bad = ring("sign").sign(replace(token, state=state))
        is_problem(go_on(service, cut, bad), "token-malformed", 400)
        is_problem(inspect(service, bad), "token-malformed", 400)
    for state in ((), token.state[:-1], (*token.state, 0)):
        bad = ring("sign").sign(replace(token, state=state))
        is_problem(go_on(service, cut, bad), "token-malformed", 400)
    # A header that was never whole cannot have an offset after it.
    bad = ring("sign").sign(replace(token, state=(0,) * 5 + token.state[5:]))
    is_problem(go_on(service, cut, bad), "token-malformed", 400)


def test_keys_that_are_old_or_unknown(service: Service, contract: Contract, cut: Cut) -> None:
    assert go_on(service, cut, resign(cut.token, "accept")).status == 200
    old = resign(cut.token, "refresh-only")
    answer = go_on(service, cut, old)
    contract.check("POST", "/v1/losses/melt", answer)
    assert "/v1/tokens/refresh" in is_problem(answer, "token-retired", 410)["hint"]
    assert inspect(service, old).json()["use"] == "refresh-only"
    fresh = inspect(service, old, "refresh").json()["token"]
    assert inspect(service, fresh).json()["key"] == 3
    assert go_on(service, cut, fresh).status == 200
    for stranger in (resign(cut.token, "sign", ident=77), resign(cut.token, "accept", ident=3)):
        for answer in (go_on(service, cut, stranger), inspect(service, stranger, "refresh")):
            is_problem(answer, "token-forged", 403)


def test_data_that_is_not_what_the_token_stands_for(service: Service, cut: Cut) -> None:
    rest = cut.data[cut.offset :]
    tail = cut.seen - cut.offset
    changed = bytearray(rest)
    changed[tail - 1] ^= 1
    first = bytearray(rest)
    first[0] ^= 1
    later = bytearray(rest)
    later[12:16] = struct.pack("<i", 99)
    bodies = [bytes(changed), bytes(first), bytes(later), cut.data, rest[8:], rest[: tail - 1]]
    bodies += [b"", rest[:1], b"\0" + rest, cut.data[cut.offset - 40 :]]
    for body in bodies:
        for sized, coding in WAYS:
            sent = body if coding is None else compress_whole(coding, body)
            headers = [] if coding is None else [("Content-Encoding", coding)]
            for query in ({}, {"duplex": "true", "format": "frames"}):
                path = with_query("/v1/losses/melt", {"after": cut.token, **query})
                answer = ask(service, Post(path, [sent], headers, sized))
                found = is_problem(answer, "data-changed", 412)
                assert found["resume_offset"] == cut.offset
    for body in (b"", rest[: tail - 1], bytes(first)):
        path = with_query("/v1/losses/melt", {"after": cut.token})
        answer = ask(service, Post(path, [body], [PARTIAL]))
        found = is_problem(answer, "data-changed", 412)
        assert go_on(service, cut, found["token"]).status == 200


@pytest.mark.parametrize("number", [2**31, 2**32, 2**62, 2**63 - 1, 2**63, 2**64, 2**69])
def test_our_own_tokens_with_numbers_that_are_too_large(
    service: Service, contract: Contract, cut: Cut, number: int
) -> None:
    """Such a token takes our key: it is refused all the same, and never a failure."""
    token = ring("sign").verify(cut.token).token
    for at in range(len(token.state)):
        state = [*token.state[:at], number, *token.state[at + 1 :]]
        large = ring("sign").sign(replace(token, state=tuple(state)))
        path = with_query("/v1/losses/melt", {"after": large})
        for body in (None, b"x" * 100):
            contract.check("POST", path, go_on(service, cut, large, body=body))
        assert inspect(service, large).status in {200, 400}, at
