"""The OpenAPI document: the parts that routes share, and corrections of the whole."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from app.errors import KINDS

MAX_NUMBER = 2**62
"""Largest number a query accepts."""
NOT_MODIFIED: dict[int | str, dict[str, Any]] = {
    304: {"description": "Not modified", "content": {}}
}
JSON_BODY: dict[str, Any] = {
    "requestBody": {"content": {"application/json": {"schema": {"type": "object"}}}}
}
_CODES: list[JsonValue] = [*sorted(KINDS)]


class ProblemDocument(BaseModel):
    """What went wrong (RFC 9457)."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(description="/problems/ and the code, where it is explained")
    title: str
    status: int
    detail: str
    code: str = Field(json_schema_extra={"enum": _CODES})
    offset: int | None = Field(None, description="Byte of the stream")
    event: int | None = None
    block: int | None = Field(None, description="Item or summary")
    hint: str | None = Field(None, description="What to do about it")
    option: str | None = Field(None, description="Which one it is about")
    stage: int | None = Field(None, description="Which stage of a pipeline, from 0")
    field: str | None = Field(None, description="What is wrong in that stage")
    position: int | None = Field(None, description="Item that a transform failed on")
    token: str | None = Field(None, description="Goes on behind the rows that were answered")
    resume_offset: int | None = Field(None, description="First byte to post with that token")
    request_id: str | None = None


def content_response(status: int, *media: str) -> dict[int | str, dict[str, Any]]:
    """A body of one of these media types, for the OpenAPI document."""
    schema: dict[str, Any] = {"type": "string", "format": "binary"}
    content = {each: {"schema": {} if "json" in each else schema} for each in media}
    return {status: {"description": HTTPStatus(status).phrase, "content": content}}


def problem_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Problem documents of these statuses, for the OpenAPI document."""
    return {status: _problem_response(status) for status in statuses}


def _problem_response(status: int) -> dict[str, Any]:
    schema = {"$ref": "#/components/schemas/ProblemDocument"}
    return {
        "description": HTTPStatus(status).phrase,
        "content": {"application/problem+json": {"schema": schema}},
        "headers": _HEADERS_OF.get(status, {}),
    }


_HEADERS_OF = {
    401: {"WWW-Authenticate": {"description": "Bearer", "schema": {"type": "string"}}},
    503: {
        "Retry-After": {
            "description": "Seconds after which to try again",
            "schema": {"type": "integer"},
        }
    },
}


def complete_document(document: dict[str, Any], *, keys: bool) -> None:
    """Add what FastAPI cannot know.

    Args:
        document: the OpenAPI document.
        keys: whether requests need a key.
    """
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    schemas["ProblemDocument"] = ProblemDocument.model_json_schema()
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    _correct_answers(document)
    if keys:
        _declare_keys(document)


def _correct_answers(document: dict[str, Any]) -> None:
    """Every answer has an id, and every error is a problem."""
    ident = {"description": "As the request had it, or a new one", "schema": {"type": "string"}}
    for operations in document["paths"].values():
        for operation in operations.values():
            answers = operation["responses"]
            if "HTTPValidationError" in str(answers.get("422")):
                del answers["422"]
            for answer in answers.values():
                answer.setdefault("headers", {})["X-Request-Id"] = ident


def _declare_keys(document: dict[str, Any]) -> None:
    schemes = {"key": {"type": "http", "scheme": "bearer"}}
    document["components"]["securitySchemes"] = schemes
    for path, operations in document["paths"].items():
        if path.startswith("/v1/"):
            for operation in operations.values():
                operation["security"] = [{"key": []}]
