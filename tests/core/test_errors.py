from __future__ import annotations

import pickle
import re
from typing import Any

import pytest

from core import errors
from core.errors import CoreError, LimitError, StreamError

CLASSES = [
    value
    for value in vars(errors).values()
    if isinstance(value, type) and issubclass(value, CoreError)
]


def test_codes_are_unique_and_tell_nothing_but_letters() -> None:
    codes = [cls.code for cls in CLASSES]
    assert len(set(codes)) == len(codes)
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", code) for code in codes)
    assert all("code" in vars(cls) for cls in CLASSES)


def test_the_tree_in_the_documentation_is_the_tree() -> None:
    doc = errors.__doc__ or ""
    stack: list[str] = []
    documented = {}
    for line in doc.splitlines():
        match = re.match(r"^( *)\* (\w+)(?: ``([a-z-]+)``)?", line)
        if match:
            depth = len(match[1]) // 4
            del stack[depth:]
            documented[match[2]] = (stack[-1] if stack else "Exception", match[3])
            stack.append(match[2])
    assert set(documented) == {cls.__name__ for cls in CLASSES}
    for cls in CLASSES:
        parent, code = documented[cls.__name__]
        assert cls.__mro__[1].__name__ == parent
        assert code is None or code == cls.code
        assert code is not None or cls in {CoreError, StreamError}


@pytest.mark.parametrize("cls", CLASSES)
def test_an_error_says_all_it_knows(cls: type[CoreError]) -> None:
    needed: dict[str, Any] = {"limit": "size", "allowed": 1} if cls is LimitError else {}
    error = cls("it broke", **needed, offset=8, event=3, block=5, hint="Mend it", source="a.bin")
    assert str(error) == ("a.bin: it broke (at byte 8, event 3, item or summary 5). Mend it")
    assert error.message == "it broke"
    place = (error.offset, error.event, error.block, error.hint, error.source)
    assert place == (8, 3, 5, "Mend it", "a.bin")


def test_what_is_not_known_is_not_said() -> None:
    assert str(CoreError("it broke")) == "it broke"
    assert str(CoreError("it broke", offset=0)) == "it broke (at byte 0)"
    assert str(CoreError("it broke", event=3)) == "it broke (at event 3)"
    assert str(CoreError("it broke", hint="Mend it")) == "it broke. Mend it"
    assert str(CoreError("it broke", source="a.bin")) == "a.bin: it broke"


def test_a_name_in_another_case_is_near() -> None:
    assert errors.names_hint("Lob", ["Region", "LOB"]) == "Did you mean LOB? Use Region, LOB"
    assert errors.names_hint("loss_peril", ["Peril"]) == "Did you mean Peril? Use Peril"


def test_errors_can_cross_processes() -> None:
    for error in (
        errors.TruncatedError("it broke", offset=8, event=3, source="a.bin"),
        LimitError("it broke", limit="size", allowed=7, offset=8),
    ):
        again = pickle.loads(pickle.dumps(error))  # noqa: S301 - made here
        assert str(again) == str(error)
        assert type(again) is type(error)
        assert vars(again) == vars(error)
