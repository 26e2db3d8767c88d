"""The OpenAPI document: parts that routes share, and corrections of the whole."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter

from app.errors import KINDS

from .identity import is_open

MAX_NUMBER = 2**62
"""Largest number that a query option accepts."""
NOT_MODIFIED: dict[int | str, dict[str, Any]] = {
    304: {"description": "Not modified", "content": {}}
}
NO_CONTENT: dict[int | str, dict[str, Any]] = {204: {"description": "Deleted", "content": {}}}
_CODES: list[JsonValue] = [*sorted(KINDS)]


class ProblemDocument(BaseModel):
    """A problem (RFC 9457)."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(description="URL of the explanation, /problems/ and the code")
    title: str
    status: int
    detail: str
    code: str = Field(json_schema_extra={"enum": _CODES})
    source: str | None = Field(None, description="Name of the faulty file or stream")
    offset: int | None = Field(None, description="Offset of its first faulty byte")
    event: int | None = None
    block: int | None = Field(None, description="Item or summary id")
    hint: str | None = Field(None, description="How to fix it")
    option: str | None = Field(None, description="Name of the faulty option")
    stage: int | None = Field(None, description="Index of the faulty stage of a pipeline, from 0")
    field: str | None = Field(None, description="Faulty field of that stage")
    position: int | None = Field(None, description="Item on which a transform failed")
    stage_name: str | None = Field(None, description="Stage of the work that exceeded a budget")
    budget: str | None = Field(None, description="The budget: memory, cpu or items")
    limit: str | float | None = Field(
        None, description="Name of the limit; of a budget, its bound in bytes, seconds or items"
    )
    allowed: float | None = Field(None, description="The largest value within the limit")
    setting: str | None = Field(
        None, description="Variable with which an operator changes the limit; null if it is fixed"
    )
    token: str | None = Field(None, description="Token that resumes after the rows answered")
    resume_offset: int | None = Field(None, description="First byte to post with that token")
    request_id: str | None = None


def json_body(
    model: type | Iterable[str],
    example: Mapping[str, Any],
    *,
    without: Iterable[str] = (),
    optional: Iterable[str] = (),
    required: bool = True,
) -> dict[str, Any]:
    """Describe a JSON body.

    Args:
        model: what it is parsed into, a model or a dataclass, or else the names of its members,
            which a mapping gives schemas.
        example: one that is accepted.
        without: members of ``model`` that a body cannot have.
        optional: members of ``model`` that a body need not have.
        required: whether there must be one.
    """
    if isinstance(model, type):
        whole = TypeAdapter(model).json_schema()
    else:
        schemas = model if isinstance(model, Mapping) else {}
        whole = {"properties": {name: schemas.get(name, {}) for name in sorted(model)}}
    members = whole["properties"]
    known = {name: members[name] for name in members if name not in set(without)}
    schema = {"type": "object", "properties": known, "additionalProperties": False}
    schema["required"] = [name for name in whole.get("required", ()) if name not in set(optional)]
    media = {"schema": _inlined(schema, whole.get("$defs", {})), "example": example}
    return {"requestBody": {"content": {"application/json": media}, "required": required}}


def _inlined(schema: Any, definitions: Mapping[str, Any]) -> Any:  # noqa: ANN401 - JSON
    """Put definitions where a schema refers to them, as those of a body have no place of theirs."""
    if isinstance(schema, list):
        return [_inlined(each, definitions) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _inlined(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    return {name: _inlined(value, definitions) for name, value in schema.items()}


def content_response(status: int, *media_types: str) -> dict[int | str, dict[str, Any]]:
    """Describe a response with a body of one of these media types."""
    binary: dict[str, Any] = {"type": "string", "format": "binary"}
    content = {name: {"schema": {} if "json" in name else binary} for name in media_types}
    return {status: {"description": HTTPStatus(status).phrase, "content": content}}


def problem_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Describe problem documents of these statuses."""
    return {status: _problem_response(status) for status in statuses}


def _problem_response(status: int) -> dict[str, Any]:
    schema = {"$ref": "#/components/schemas/ProblemDocument"}
    return {
        "description": _CHECKSUM if status == _OF_TUS else HTTPStatus(status).phrase,
        "content": {"application/problem+json": {"schema": schema}},
        "headers": _HEADERS_OF.get(status, {}),
    }


_OF_TUS, _CHECKSUM = 460, "Checksum Mismatch"
"""A status that tus has, and no registry."""
_RETRY = {
    "Retry-After": {"description": "Seconds to wait before a retry", "schema": {"type": "integer"}}
}
_RATE = {
    name: {"description": description, "schema": {"type": "string"}}
    for name, description in (
        ("RateLimit-Policy", "Requests of an owner (q) in a window of seconds (w), if limited"),
        ("RateLimit", "Requests that are left (r), and seconds until all are again (t)"),
    )
}
_HEADERS_OF = {
    401: {"WWW-Authenticate": {"description": "Bearer", "schema": {"type": "string"}}},
    429: _RETRY | _RATE,
    503: _RETRY,
}


def complete_document(document: dict[str, Any], *, keys: bool, open_metrics: bool = False) -> None:
    """Add to an OpenAPI document what FastAPI cannot derive.

    Args:
        document: the document, changed in place.
        keys: whether requests need an API key.
        open_metrics: whether those of ``/metrics`` need none.
    """
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    schemas["ProblemDocument"] = ProblemDocument.model_json_schema()
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    for operations in document["paths"].values():
        operations.pop("head", None)
    # Routes are matched in another order than people look for them.
    paths = sorted(document["paths"].items(), key=lambda item: ("/v1/" not in item[0], item[0]))
    document["paths"] = dict(paths)
    _correct_answers(document)
    if keys:
        _declare_keys(document, open_metrics=open_metrics)


def _correct_answers(document: dict[str, Any]) -> None:
    """Give every answer its request id, and drop FastAPI's own validation errors.

    Every request that needs an identity may be refused because its owner has too many.
    """
    ident = {"description": "Id from the request, or a new one", "schema": {"type": "string"}}
    for path, operations in document["paths"].items():
        for operation in operations.values():
            answers = operation["responses"]
            if "HTTPValidationError" in str(answers.get("422")):
                del answers["422"]
            # Of options that there are not.
            statuses = (422,) if is_open(path, open_metrics=True) else (403, 422, 429, 503)
            for status in statuses:
                answers.setdefault(str(status), _problem_response(status))
            for answer in answers.values():
                answer.setdefault("headers", {})["X-Request-Id"] = ident


def _declare_keys(document: dict[str, Any], *, open_metrics: bool) -> None:
    schemes = {"key": {"type": "http", "scheme": "bearer"}}
    document["components"]["securitySchemes"] = schemes
    for path, operations in document["paths"].items():
        if not is_open(path, open_metrics=open_metrics):
            for operation in operations.values():
                operation["security"] = [{"key": []}]
