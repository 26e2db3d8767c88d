"""What scopes permit."""

from __future__ import annotations

import pytest

from app.errors import ForbiddenError
from app.http.identity import (
    SINGLE_USER,
    USER_SCOPES,
    Identity,
    check_scopes,
    identify,
    identity_of,
    require,
)


def identity(*scopes: str) -> Identity:
    return Identity("alice", frozenset(scopes), "0" * 12)


def test_reading_takes_a_pattern_that_matches() -> None:
    who = identity("read:public-*", "read:one")
    assert who.may_read("public-a")
    assert who.may_read("one")
    for dataset in ("public", "one-more", "PUBLIC-a", "secret", ""):
        assert not who.may_read(dataset)
    assert not identity("register:*", "losses").may_read("one")
    assert identity("admin").may_read("anything")


def test_registering_takes_a_pattern_that_matches_one_name() -> None:
    who = identity("register:alice/*")
    assert who.may_register("/data/alice/a.raw", "alice/a.raw")
    assert who.may_register("alice/deep/a.raw")
    assert not who.may_register("/data/bob/a.raw", "bob/a.raw")
    assert not who.may_register("/data/alice2/a.raw", "alice2/a.raw")
    assert not identity("admin", "read:*").may_register("alice/a.raw")


def test_scopes_of_a_family() -> None:
    assert identity("register:a").has("register:")
    assert not identity("losses").has("register:")
    require(identity("runs"), "losses", "runs")
    with pytest.raises(ForbiddenError, match="losses or register:PATTERN"):
        require(identity("admin"), "losses", "register:")


def test_admin_implies_no_other_scope() -> None:
    who = identity("admin")
    assert who.is_admin
    assert not any(who.has(scope) for scope in USER_SCOPES)
    assert not Identity("admin", USER_SCOPES).is_admin
    assert SINGLE_USER.scopes == USER_SCOPES | {"admin"}


def test_acting_for_another_keeps_the_scopes() -> None:
    who = identity("admin")
    other = who.acting_for("bob")
    assert (other.owner, other.scopes, other.key_id) == ("bob", who.scopes, who.key_id)
    assert who.acting_for("alice") is who


@pytest.mark.parametrize(
    "scopes", [[], ["everything"], ["read:"], ["read"], ["register"], ["losses:x"], ["a:b"], [""]]
)
def test_scopes_that_do_not_exist(scopes: list[str]) -> None:
    with pytest.raises(ValueError, match="scope"):
        check_scopes(scopes)


def test_scopes_that_exist() -> None:
    scopes = {"losses", "pipelines", "runs", "admin", "read:a*", "register:/data/*"}
    assert check_scopes(scopes) == scopes


def test_a_request_that_passed_no_guard_has_no_identity() -> None:
    scope: dict[str, object] = {}
    with pytest.raises(RuntimeError, match="without passing the guard"):
        identity_of(scope)
    identify(scope, SINGLE_USER)
    assert identity_of(scope) is SINGLE_USER
