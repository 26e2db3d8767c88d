"""Errors of pydantic, in our words."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from app.wording import wording


class Model(BaseModel):
    model_config = ConfigDict(extra="forbid")

    whole: int = 1
    number: float = Field(1.0, gt=0, le=5)
    choice: Literal["a", "b"] = "a"
    names: list[str] = Field([], max_length=2)
    flag: bool = False
    own: str = ""
    short: str = Field("", max_length=3, pattern="^[A-Z]{3}$")

    @field_validator("own")
    @classmethod
    def _refuse(cls, value: str) -> str:
        raise ValueError(f"it is {value}")


class Required(BaseModel):
    needed: int


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"whole": "x"}, " must be a whole number"),
        ({"whole": 1.5}, " must be a whole number"),
        ({"number": 0}, " must be above 0"),
        ({"number": 9}, " must be at most 5"),
        ({"number": "x"}, " must be a number"),
        ({"choice": "c"}, " must be 'a' or 'b'"),
        ({"names": ["a", "b", "c"]}, " must be a list of at most 2"),
        ({"names": 3}, " must be a list"),
        ({"flag": "maybe"}, " must be true or false"),
        ({"other": 1}, " is unknown"),
        ({"short": "aaaa"}, " must be at most 3 characters"),
        ({"short": "b"}, " must be three capital letters, such as EUR"),
        ({"short": 1}, " must be a text"),
        ({"own": "x"}, ": it is x"),
    ],
)
def test_no_sentence_of_the_library_is_left(values: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError) as e:
        Model.model_validate(values)
    assert wording(e.value.errors()[0]) == said


def test_what_is_missing() -> None:
    with pytest.raises(ValidationError) as e:
        Required.model_validate({})
    assert wording(e.value.errors()[0]) == " is missing"
