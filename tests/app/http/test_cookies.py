"""Sign-in with a browser."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlencode

import pytest

from app.errors import TokenMalformedError
from app.http.cookies import SECONDS, Cookies
from app.http.origins import Origins
from app.http.routes_tokens import TokenInspection
from app.state.api_keys import ApiKeys, digest_key
from app.state.sqlite import SqliteStateStore
from app.tokens import KeyRing, Token, new_key
from tests.app.conftest import KEY
from tests.app.harness import Answer, Post, Service, ask, is_problem, wait_until
from tests.server_process import HOST

RING = KeyRing([new_key()])
DIGEST = digest_key(KEY)
HTML = ("Accept", "text/html")
PAGE = ("Sec-Fetch-Site", "same-origin")


class Clock:
    now = 1.8e9

    def __call__(self) -> float:
        return self.now


def cookie_of(cookies: Cookies, scheme: str = "http") -> str:
    return cookies.issue(DIGEST, scheme).partition(";")[0]


def test_a_cookie_carries_the_digest_and_not_the_key() -> None:
    cookies = Cookies(RING, Origins())
    for scheme, name in (("http", "thalweg"), ("https", "__Host-thalweg")):
        text = cookies.issue(DIGEST, scheme)
        value, *attributes = text.split("; ")
        assert value.startswith(f"{name}=")
        assert KEY not in text
        assert {"HttpOnly", "SameSite=Strict", "Path=/", f"Max-Age={SECONDS}"} <= {*attributes}
        assert ("Secure" in attributes) == (scheme == "https")
        assert not any(each.startswith("Domain") for each in attributes)
        assert cookies.digest("GET", scheme, {"cookie": value}) == DIGEST
        other = "http" if scheme == "https" else "https"
        assert cookies.digest("GET", other, {"cookie": value}) is None


@pytest.mark.parametrize("digest", ["0" * 64, "f" * 64, "0123456789abcdef" * 4])
def test_every_digest_survives(digest: str) -> None:
    cookies = Cookies(RING, Origins())
    value = cookies.issue(digest, "http").partition(";")[0]
    assert cookies.digest("GET", "http", {"cookie": f'a="; b={{; {value}; c'}) == digest


def test_what_is_not_ours_is_no_sign_in() -> None:
    cookies = Cookies(RING, Origins())
    value = cookie_of(cookies)
    position = RING.sign(Token(2, bytes(8), bytes(8), (1, 2)))
    stranger = Cookies(KeyRing([new_key()]), Origins())
    for text in ("", "x", "thalweg=", f"thalweg={position}", value[:-1], cookie_of(stranger)):
        assert cookies.digest("GET", "http", {"cookie": text}) is None
    # Another replica has the same keys.
    assert Cookies(RING, Origins()).digest("GET", "http", {"cookie": value}) == DIGEST


def test_a_sign_in_ends_after_twelve_hours_and_cannot_be_refreshed() -> None:
    clock = Clock()
    cookies = Cookies(RING, Origins(), clock)
    value = cookie_of(Cookies(RING, Origins()))
    issued = RING.verify(value.partition("=")[2]).issued.timestamp()
    for seconds, valid in ((0, True), (SECONDS - 1, True), (SECONDS, False), (-3600, False)):
        clock.now = issued + seconds
        assert (cookies.digest("GET", "http", {"cookie": value}) == DIGEST) == valid
    inspection = TokenInspection(RING, {})
    for act in (inspection.refresh, inspection.describe):
        with pytest.raises(TokenMalformedError):
            act(value.partition("=")[2])


@pytest.mark.parametrize(
    ("method", "headers", "counts"),
    [
        ("GET", {}, True),
        ("HEAD", {}, True),
        ("POST", {}, False),
        ("POST", {"origin": "http://here"}, True),
        ("POST", {"sec-fetch-site": "same-origin"}, True),
        ("GET", {"sec-fetch-site": "none"}, True),
        ("GET", {"sec-fetch-site": "cross-site"}, False),
        ("GET", {"sec-fetch-site": "same-site"}, False),
        ("GET", {"origin": "http://evil.example"}, False),
        ("POST", {"origin": "null"}, False),
    ],
)
def test_a_cookie_counts_only_for_pages_of_the_service(
    method: str, headers: dict[str, str], counts: bool
) -> None:
    cookies = Cookies(RING, Origins())
    given = {"host": "here", "cookie": cookie_of(cookies), **headers}
    assert (cookies.digest(method, "http", given) == DIGEST) == counts


# -- a service ------------------------------------------------------------------------


def sign_in(service: Service, key: str, *headers: tuple[str, str], place: str = "/") -> Answer:
    form = urlencode({"key": key, "place": place}).encode()
    return ask(service, Post("/console/sign-in", [form], [PAGE, *headers]))


def cookie(answer: Answer) -> tuple[str, str]:
    return "Cookie", str(answer.getheader("Set-Cookie")).partition(";")[0]


def test_signing_in_and_out(guarded: Service) -> None:
    asked = guarded.get("/console/runs?after=x", [HTML, PAGE])
    assert asked.status == 401
    assert 'name="place" value="/console/runs?after=x"' in asked.body.decode()
    answer = sign_in(guarded, KEY, place="/console/runs?after=x")
    assert (answer.status, answer.getheader("Location")) == (303, "/console/runs?after=x")
    signed = cookie(answer)
    assert guarded.get("/console/runs", [HTML, PAGE, signed]).status == 200
    assert guarded.get("/v1/runs", [PAGE, signed]).status == 200
    refused = guarded.get("/v1/runs", [("Sec-Fetch-Site", "cross-site"), signed])
    is_problem(refused, "unauthorized", 401)
    wrong = guarded.get("/v1/runs", [PAGE, signed, ("Authorization", "Bearer wrong")])
    is_problem(wrong, "unauthorized", 401)
    # What changes something, too.
    run = ask(
        guarded, Post("/v1/runs", [b'{"perspective":"gul","reports":["melt"]}'], [PAGE, signed])
    )
    assert run.status == 201
    out = ask(guarded, Post("/console/sign-out", [b""], [PAGE, signed]))
    assert out.status == 303
    assert re.match(r"thalweg=; Max-Age=0; ", str(out.getheader("Set-Cookie")))


@pytest.mark.parametrize(
    "place", ["//evil.example", "/\\evil.example", "http://evil.example", "", "/a\nb"]
)
def test_a_sign_in_leads_nowhere_else(guarded: Service, place: str) -> None:
    answer = sign_in(guarded, KEY, place=place)
    assert (answer.status, answer.getheader("Location")) == (303, "/")


def test_wrong_keys_and_forms_are_refused(guarded: Service) -> None:
    for key in ("wrong", "", KEY + "x", "\ud83d".encode("utf-8", "replace").decode()):
        is_problem(sign_in(guarded, key), "unauthorized", 401)
    shown = sign_in(guarded, "wrong", HTML, place="/console/runs/7?types=1")
    assert b'name="place" value="/console/runs/7?types=1"' in shown.body
    foreign_place = sign_in(guarded, "wrong", HTML, place="//elsewhere/x")
    assert b'name="place" value="/"' in foreign_place.body
    shown = sign_in(guarded, "wrong", HTML)
    assert (shown.status, shown.media_type) == (401, "text/html")
    assert b'type="password"' in shown.body
    assert shown.getheader("Set-Cookie") is None
    is_problem(sign_in(guarded, "x" * 5000), "bad-request", 400)
    # Nobody is signed in by another site.
    form = urlencode({"key": KEY}).encode()
    foreign = [("Sec-Fetch-Site", "cross-site"), ("Origin", "http://evil.example")]
    is_problem(ask(guarded, Post("/console/sign-in", [form], foreign)), "origin-refused", 403)
    plain = ask(guarded, Post("/console/sign-in", [form], [("Origin", f"http://{HOST}")]))
    assert plain.status == 303


def test_a_sign_in_ends_with_its_key(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    store = SqliteStateStore(tmp_path / "data" / "state.sqlite")
    keys = ApiKeys(store)
    secret, record = keys.add("carol", {"runs"}, now=0)
    audit = tmp_path / "audit"
    service = Service(tmp_path, audit_log=audit)
    try:
        signed = cookie(sign_in(service, secret))
        assert service.get("/v1/runs", [PAGE, signed]).status == 200
        is_problem(sign_in(service, "wrong"), "unauthorized", 401)
        assert '"/console/sign-in"' in audit.read_text()
        keys.revoke(record.ident, now=1)
        wait_until(lambda: service.get("/v1/runs", [PAGE, signed]).status == 401)
    finally:
        service.kill()
        store.close()
