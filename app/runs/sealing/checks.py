"""What has to be true of the streams of a run before it is sealed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from app.run_errors import SealRefusedError

from ..describing import different
from ..records import RunRecord, StreamRecord

_SHOWN = 10
"""Partitions that a message names at the most."""


def check_sealable(run: RunRecord, streams: Sequence[StreamRecord], missing: Sequence[str]) -> None:
    """Check that a run can be sealed.

    Args:
        run: the run.
        streams: all of its streams.
        missing: names of inputs that its reports need and it does not have.

    Raises:
        SealRefusedError: naming each stream at fault, and what to do about it.
    """
    if missing:
        raise SealRefusedError(
            f"the run lacks the inputs {', '.join(missing)}",
            hint="PUT them to /v1/runs/{run}/inputs/{name}, then seal again",
            inputs=list(missing),
        )
    faults = [*_absent(run, streams), *map(_unfinished, streams), *_repeated(streams)]
    faults += [
        _fault(each.partition, each.id, text, "Delete the wrong one, then upload and seal again")
        for each, text in different(streams)
    ]
    found = [fault for fault in faults if fault is not None]
    if not found and streams:
        return
    if not found:
        raise SealRefusedError(
            "the run has no stream",
            hint="Upload the streams of all partitions, then seal again",
            streams=found,
        )
    named = "; ".join(f"partition {f['partition']} {f['reason']}" for f in found[:_SHOWN])
    more = f"; and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    raise SealRefusedError(named + more, hint=found[0]["remedy"], streams=found)


def _fault(partition: int, stream: str | None, reason: str, remedy: str) -> dict[str, Any]:
    return {"partition": partition, "stream": stream, "reason": reason, "remedy": remedy}


def _absent(run: RunRecord, streams: Sequence[StreamRecord]) -> list[dict[str, Any]]:
    """Partitions that are declared and have no stream."""
    declared = run.spec.get("options", {}).get("partitions") or 0
    present = {stream.partition for stream in streams}
    return [
        _fault(number, None, "was never created", "Upload it, then seal again")
        for number in range(1, declared + 1)
        if number not in present
    ]


def _unfinished(stream: StreamRecord) -> dict[str, Any] | None:
    if stream.fault is not None:
        reason = f"is faulty: {stream.fault.get('detail', 'its stream cannot be read')}"
        remedy = "Delete the stream, upload it again, then seal again"
        return _fault(stream.partition, stream.id, reason, remedy)
    if not stream.complete:
        suffix = "" if stream.length is None else f" of {stream.length}"
        reason = f"is not complete: it has {stream.offset}{suffix} bytes"
        remedy = "Continue its upload, then seal again"
        return _fault(stream.partition, stream.id, reason, remedy)
    return None


def _repeated(streams: Sequence[StreamRecord]) -> list[dict[str, Any]]:
    """Streams with the bytes of another, whose losses would count twice."""
    first: dict[tuple[int, str], StreamRecord] = {}
    found = []
    for stream in streams:
        if not stream.complete or not stream.events or stream.digest is None:
            continue
        known = first.setdefault((stream.offset, stream.digest.total), stream)
        if known is not stream:
            reason = f"has the same bytes as partition {known.partition}"
            remedy = "Delete one of the two streams, then seal again"
            found.append(_fault(stream.partition, stream.id, reason, remedy))
    return found
