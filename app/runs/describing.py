"""Runs and streams as clients see them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from .records import RunRecord, StreamRecord
from .spec import RunSpec


def run_path(run: str) -> str:
    """Return the path of a run."""
    return f"/v1/runs/{run}"


def stream_path(run: str, stream: str) -> str:
    """Return the path of a stream, to which its bytes are uploaded."""
    return f"/v1/runs/{run}/streams/{stream}"


def when(seconds: float) -> str:
    """Return a time in seconds since 1970 as ISO 8601."""
    return datetime.fromtimestamp(int(seconds), UTC).isoformat()


def describe_briefly(run: RunRecord, streams: int) -> dict[str, Any]:
    """Describe a run in a list, with the number of its streams."""
    return {
        "id": run.id,
        "perspective": run.spec["perspective"],
        "reports": list(run.spec["reports"]),
        "state": run.state,
        "created": when(run.created),
        "expires": None if run.expires is None else when(run.expires),
        "streams": streams,
    }


def describe_run(
    run: RunRecord, streams: Sequence[StreamRecord], has: Callable[[str, str, str], bool]
) -> dict[str, Any]:
    """Describe a run and how far its streams have come.

    Args:
        run: the run.
        streams: all of its streams.
        has: whether an owner has the input of a name and digest: the run may have outlived it.
    """
    gone = [name for name, digest in run.inputs.items() if not has(run.owner, name, digest)]
    states: Counter[str] = Counter(stream.state for stream in streams)
    path = run_path(run.id)
    names: tuple[str, ...] = ("created", "uploading", "complete", "failed")
    counts = {name: states[name] for name in names}
    return {
        **describe_briefly(run, len(streams)),
        "inputs": dict(run.inputs),
        "options": dict(run.spec["options"]),
        "streams": counts,
        "bytes": sum(stream.offset for stream in streams),
        "events": sum(stream.events for stream in streams),
        "missing_inputs": [*RunSpec.of(run).missing, *gone],
        "problem": run.problem,
        "results": dict(run.results),
        "links": {
            "self": path,
            "streams": f"{path}/streams",
            "seal": f"{path}/seal",
            "rows": f"{path}/rows/{{report}}",
            "reports": f"{path}/reports/{{report}}",
            "progress": f"{path}/progress",
        },
    }


def describe_stream(stream: StreamRecord) -> dict[str, Any]:
    """Describe a stream."""
    return {
        "id": stream.id,
        "partition": stream.partition,
        "state": stream.state,
        "offset": stream.offset,
        "length": stream.length,
        "events": stream.events,
        "digest": stream.digest.total if stream.complete and stream.digest else None,
        "created": when(stream.created),
        "changed": when(stream.touched),
        "fault": None if stream.fault is None else dict(stream.fault),
        "address": stream_path(stream.run, stream.id),
    }
