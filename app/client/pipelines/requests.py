"""Requests about pipelines and their batches. No input or output."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

import numpy as np

from ..errors import ProtocolError, StateError, data_changed
from ..tiles.requests import JSON
from ..transport.requests import Reply, Request
from .batch import Layout

_TOKEN = re.compile(r"[!-~]{1,512}")
"""The contract has 100 characters."""


def is_token(value: Any) -> bool:  # noqa: ANN401 - anything
    """Whether something may be a token."""
    return isinstance(value, str) and _TOKEN.fullmatch(value) is not None


@dataclass(frozen=True, slots=True)
class Place:
    """Where batches go on.

    Attributes:
        token: behind which; None at the beginning of the pipeline.
        skip: batches to pass over from there.
    """

    token: str | None = None
    skip: int = 0

    def json(self) -> dict[str, Any]:
        """The same as a state: JSON values."""
        return {"token": self.token, **({"skip": self.skip} if self.skip else {})}

    @classmethod
    def parse(cls, state: Mapping[str, Any] | None) -> Place:
        """What a state says; None is the beginning.

        Raises:
            StateError: it is none.
        """
        if state is None:
            return cls()
        known: Any = state
        if not isinstance(known, Mapping) or not {"token"} <= set(known) <= {"token", "skip"}:
            raise StateError('a state of batches is {"token": ...}')
        token, skip = state["token"], state.get("skip", 0)
        if token is not None and not is_token(token):
            raise StateError("the token of the state is none")
        if not isinstance(skip, int) or isinstance(skip, bool) or skip < 0:
            raise StateError("the state passes over less than no batches")
        return cls(token, skip)


@dataclass(frozen=True, slots=True)
class Share:
    """Which rows of every batch are wanted.

    Attributes:
        rank: of the reader, from 0.
        world: number of readers.

    Raises:
        ValueError: there is no such rank.
    """

    rank: int = 0
    world: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.world:
            raise ValueError(f"rank {self.rank} is not one of 0 to {self.world - 1}")


@dataclass(frozen=True, slots=True)
class PipelineInfo:
    """What the service says of a pipeline.

    Attributes:
        id: of the pipeline.
        token: with which it begins.
        fingerprint: of the data.
        layout: of its batches.
        batch_size: rows of a global batch, None if they differ.
        batches: in all, None if endless or not known.
        batches_per_epoch: None if not known.
        content: everything that was said.
    """

    id: str
    token: str | None
    fingerprint: str
    layout: Layout
    batch_size: int | None
    batches: int | None
    batches_per_epoch: int | None
    content: Mapping[str, Any]

    @classmethod
    def parse(cls, reply: Reply) -> PipelineInfo:
        """What an answer says.

        Raises:
            ProtocolError: it does not.
        """
        content = reply.json()
        token = content.get("token")
        if token is not None and not is_token(token):
            raise ProtocolError("the token of the pipeline is none")
        return cls(
            reply.text("id"),
            token,
            str(content.get("fingerprint")),
            Layout.parse(content.get("schema")),
            _number(content, "batch_size"),
            _number(content, "batches"),
            _number(content, "batches_per_epoch"),
            content,
        )

    def check_same(self, other: PipelineInfo) -> None:
        """Compare with what is said later; tokens say whether the data is the same.

        Raises:
            ProblemError: the data has changed (code ``data-changed``).
        """
        if (self.id, self.layout) != (other.id, other.layout):
            raise data_changed("the pipeline is not the same any more")


def _number(content: Mapping[str, Any], name: str) -> int | None:
    value = content.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ProtocolError(f"the {name} of the pipeline cannot be {str(value)[:80]}")
    return value


def _plain(value: Any) -> Any:  # noqa: ANN401 - what json does not know
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, np.dtype):
        return value.str
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a pipeline cannot hold {value!r}")


def creation(spec: Mapping[str, Any]) -> Request:
    """A request that makes a pipeline, or finds the same one again.

    Raises:
        TypeError, ValueError: the spec cannot be written as JSON.
    """
    body = json.dumps(spec, default=_plain, allow_nan=False).encode()
    return Request("POST", "/v1/pipelines", JSON, body)


@dataclass(frozen=True, slots=True)
class BatchRequests:
    """Builds the requests for batches of one pipeline.

    Attributes:
        create: makes the pipeline again, should the service not know it any more.
        info: of the pipeline.
        share: which rows are wanted.
    """

    create: Request
    info: PipelineInfo
    share: Share

    def stream(self, token: str | None, most: int | None) -> Request:
        """All batches behind a token, or at most so many."""
        return self._request("batches", token, {} if most is None else {"max_batches": most})

    def one(self, token: str | None, offset: int) -> Request:
        """One batch, so many behind a token."""
        return self._request("batch", token, {"offset": offset})

    def _request(self, what: str, token: str | None, more: Mapping[str, int]) -> Request:
        query: dict[str, Any] = {} if token is None else {"after": token}
        query |= more
        query |= {"rank": self.share.rank, "world": self.share.world}
        path = f"/v1/pipelines/{quote(self.info.id, safe='')}/{what}"
        return Request("GET", f"{path}?{urlencode(query)}")

    def batches(self, token: str | None) -> int | None:
        """How many batches there are in all; None if it is not known.

        A token from elsewhere may be older than what the service says now, and the data
        shorter: such a token goes on to the end that was then.
        """
        return self.info.batches if token is None else None
