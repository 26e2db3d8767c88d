"""Requests for pipelines and their batches, and the description of a pipeline."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import ProtocolError, data_changed
from ..transport.requests import Reply, Request, path_of, query_of
from .layout import Layout
from .selection import BatchSelection, is_token

_READING = frozenset({"filter", "select_many", "scan", "bucket_batch"})
"""Stages whose number of results is known only once they have been read."""


@dataclass(frozen=True, slots=True)
class PipelineInfo:
    """The service's description of a pipeline.

    Attributes:
        id: of the pipeline.
        token: at its beginning.
        fingerprint: of the data.
        layout: of its batches.
        batch_size: rows of a global batch, None if it varies.
        batches: number of all batches, None if endless or unknown.
        batches_per_epoch: None if unknown.
        notes: what people should know.
        content: the whole description.
    """

    id: str
    token: str | None
    fingerprint: str
    layout: Layout
    batch_size: int | None
    batches: int | None
    batches_per_epoch: int | None
    notes: tuple[str, ...]
    content: Mapping[str, Any]

    @classmethod
    def parse(cls, reply: Reply) -> PipelineInfo:
        """The description that an answer holds.

        Raises:
            ProtocolError: it holds none.
        """
        content = reply.json()
        token = content.get("token")
        if token is not None and not is_token(token):
            raise ProtocolError("the token of the pipeline is malformed")
        return cls(
            reply.text("id"),
            token,
            str(content.get("fingerprint")),
            Layout.parse(content.get("schema")),
            _number(content, "batch_size"),
            _number(content, "batches"),
            _number(content, "batches_per_epoch"),
            tuple(map(str, content.get("notes") or ())),
            content,
        )

    def check_same(self, other: PipelineInfo) -> None:
        """Compare with a later description; tokens tell whether the data is the same.

        Raises:
            ProblemError: the data has changed (code ``data-changed``).
        """
        if (self.id, self.layout) != (other.id, other.layout):
            raise data_changed(
                "the pipeline is not the same any more", "Begin anew, without the token"
            )


def undecided(stages: Sequence[Mapping[str, Any]]) -> list[str]:
    """The stages after which the number of items has no end, or is not known before reading."""
    found: list[str] = []
    for stage in stages:
        found += [name for inputs in stage.get("inputs") or () for name in undecided(inputs)]
        choices = {stage.get(name) for name in ("kind", "order", "stop")}
        endless = None in (stage.get("epochs", 1), stage.get("times", 1))
        if stage["op"] in _READING or endless or choices & {"reservoir", "random", "cycle"}:
            found.append(stage["op"])
    return found


def _number(content: Mapping[str, Any], name: str) -> int | None:
    value = content.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ProtocolError(f"the {name} of the pipeline cannot be {str(value)[:80]}")
    return value


_DEEPEST = 64
"""Levels of a spec that the service takes."""


def _plain(value: Any) -> Any:  # noqa: ANN401 - what json does not know
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, np.dtype):
        return value.str
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"JSON has no {value!r}")


def _encoded(value: Any) -> bytes:  # noqa: ANN401 - of a spec
    return json.dumps(value, default=_plain, allow_nan=False).encode()


def _fault(value: Any, place: str = "") -> str:  # noqa: ANN401 - as above
    """Which member of a spec JSON cannot hold, and why."""
    if place.count("[") + place.count(".") > _DEEPEST:
        return f"{place[:40]} is nested more than {_DEEPEST} levels deep, or holds itself"
    is_list = isinstance(value, list | tuple)
    parts = enumerate(value) if is_list else value.items() if isinstance(value, Mapping) else ()
    for name, part in parts:
        try:
            _encoded(part)
        except (TypeError, ValueError, RecursionError):
            return _fault(part, f"{place}[{name}]" if is_list else f"{place}.{name}".lstrip("."))
    return f"{place or 'a pipeline'} cannot be {value!r}: JSON has no such value"


def creation(spec: Mapping[str, Any]) -> Request:
    """Create a pipeline, or find the same one again.

    Raises:
        TypeError, ValueError: the spec is not a dict, or cannot be written as JSON.
    """
    if not isinstance(spec, Mapping):
        raise TypeError(
            f"a pipeline is a dict such as {{'stages': [...]}}, not a {type(spec).__name__}: of a"
            " file json.loads(Path(…).read_text()), of a registered one"
            " client.pipeline_info(id)['spec']"
        )
    try:
        body = _encoded(spec)
    except RecursionError:
        raise ValueError(_fault(spec)) from None
    except (TypeError, ValueError) as e:
        raise type(e)(_fault(spec)) from e
    return Request("POST", "/v1/pipelines", {"Content-Type": "application/json"}, body)


@dataclass(frozen=True, slots=True)
class BatchRequests:
    """Builds the requests for batches of one pipeline.

    Attributes:
        create: creates the pipeline again, in case the service has forgotten it.
        info: its description.
        selection: which batches, and which rows of each.
    """

    create: Request
    info: PipelineInfo
    selection: BatchSelection

    def stream(self, token: str | None, offset: int, every: int, limit: int | None) -> Request:
        """Ask for batches after a token, one of ``every``: all of them, or a number."""
        some = {"offset": offset, "every": every} if offset or every > 1 else {}
        share = {"rank": self.selection.rank, "world": self.selection.world}
        query = query_of(after=token, max_batches=limit, **some, **share)
        return Request("GET", path_of("pipelines", self.info.id, "batches") + query)

    @property
    def batch_bytes(self) -> int:
        """Size of the rows of a batch; less than that if it varies."""
        items = (
            abs(math.prod(each.shape)) * each.dtype.itemsize for each in self.info.layout.fields
        )
        return sum(items) * (self.info.batch_size or 0) // self.selection.world

    def batches(self, token: str | None) -> int | None:
        """Number of all batches, for a reader that begins at a token; None if unknown.

        A token from elsewhere may be older than the description and its data shorter: it
        leads to the end of its own time.
        """
        return self.info.batches if token is None else None
