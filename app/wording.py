"""What pydantic finds wrong with a value, in our words rather than those of the library."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_MUST_BE = {
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "date_parsing": "a date",
    "dict_type": "an object",
    "enum": "{expected}",
    "finite_number": "finite",
    "float_parsing": "a number",
    "float_type": "a number",
    "greater_than": "above {gt}",
    "greater_than_equal": "at least {ge}",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a smaller number",
    "int_type": "a whole number",
    "less_than": "below {lt}",
    "less_than_equal": "at most {le}",
    "list_type": "a list",
    "literal_error": "{expected}",
    "model_attributes_type": "an object",
    "model_type": "an object",
    "string_pattern_mismatch": "{form}",
    "string_too_long": "at most {max_length} characters",
    "string_too_short": "at least {min_length} characters",
    "string_type": "a text",
    "too_long": "a list of at most {max_length}",
    "too_short": "a list of at least {min_length}",
    "tuple_type": "a list",
}
"""By the type of an error; with the values of its context."""
FORMS = {
    "^[FfSsMmWw]+$": "letters of F (full uncertainty), S (sample mean), M (per-sample mean) and W"
    " (per sample), capital for AEP, small for OEP",
    "^[A-Z]{3}$": "three capital letters, such as EUR",
    "^[0-9a-z]{1,16}$": "what the request for further reports was answered with",
}
"""What texts of a pattern are: nobody is to read a pattern."""


def wording(error: Mapping[str, Any]) -> str:
    """Say what is wrong with a value, after its name: `` must be at least 1``.

    Args:
        error: one of pydantic's errors, with its context.
    """
    kind = str(error["type"])
    if kind == "missing":
        return " is missing"
    if kind == "extra_forbidden":
        return " is unknown"
    if kind in _MUST_BE:
        context = {
            name: f"{value:g}" if isinstance(value, float) else value
            for name, value in error.get("ctx", {}).items()
        }
        context["form"] = FORMS.get(context.get("pattern", ""), "of another form")
        return f" must be {_MUST_BE[kind].format(**context)}"
    return f": {str(error['msg']).removeprefix('Value error, ')}"
