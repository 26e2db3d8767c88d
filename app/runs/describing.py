"""Runs and streams as clients see them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from core.units import in_units

from .records import OWN, RunRecord, StreamRecord
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
        "label": run.spec.get("label"),
        "perspective": run.spec["perspective"],
        "reports": list(run.spec["reports"]),
        "state": run.state,
        "created": when(run.created),
        "expires": None if run.expires is None else when(run.expires),
        "streams": streams,
    }


def describe_run(
    run: RunRecord,
    streams: Sequence[StreamRecord],
    has: Callable[[str, str, str], bool],
    share: int,
    computing: Sequence[tuple[str, Sequence[str]]] = (),
) -> dict[str, Any]:
    """Describe a run and how far its streams have come.

    Args:
        run: the run.
        streams: all of its streams.
        has: whether an owner has the input of a name and digest: the run may have outlived it.
        share: bytes of memory that an owner may hold.
        computing: variants and reports of them that are being computed.
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
        "notes": [
            *_large(run, streams, share),
            *_remarks(run),
            *(f"partition {stream.partition} {text}" for stream, text in different(streams)),
        ],
        "missing_inputs": [*RunSpec.of(run).missing, *gone],
        "problem": run.problem,
        "results": dict(run.results),
        "computing": [{"variant": variant, "reports": [*names]} for variant, names in computing],
        "links": {
            "self": path,
            "streams": f"{path}/streams",
            "seal": f"{path}/seal",
            "rows": f"{path}/rows/{{report}}",
            "reports": f"{path}/reports/{{report}}",
            "progress": f"{path}/progress",
        },
    }


def different(streams: Sequence[StreamRecord]) -> Iterator[tuple[StreamRecord, str]]:
    """Yield the streams that do not go with the first, and how they differ, by their headers."""
    known = [(s, s.cursor.header) for s in streams if s.cursor.header is not None]
    for stream, header in known[1:]:
        first, common = known[0]
        if header != common:
            other = f"partition {first.partition} is a {common.describe()}"
            yield stream, f"is a {header.describe()}, but {other}: they cannot be of one run"


_EVERY_POINT_BYTES = 600
"""Memory that curves with every point take for each loss of their summary, about."""


def _large(run: RunRecord, streams: Sequence[StreamRecord], share: int) -> list[str]:
    """Say whether curves with every point may not fit, as far as the streams tell by now."""
    spec = RunSpec.of(run)
    at_points = "return_periods" in run.inputs or spec.options.return_periods is not None
    headers = [s.cursor.header for s in streams if s.cursor.header is not None]
    if not run.is_open or at_points or not headers or not {"ept", "psept"} & {*spec.reports}:
        return []
    # A summary has at most one loss of each event and sample; they may be of many summaries.
    cells = headers[0].len_sample * sum(stream.events for stream in streams)
    losses = min(cells, sum(stream.offset for stream in streams) // (4 + spec.options.float_width))
    need = _EVERY_POINT_BYTES * losses
    text = (
        f"every point of a curve may take {in_units(need)} of memory, and the run may have"
        f" {in_units(share)}: seal it with return_periods, such as 250,100,50"
    )
    return [text] if need > share else []


def _remarks(run: RunRecord) -> list[str]:
    """Say what the rows of reports do not."""
    notes = []
    for name, result in run.results.items():
        remarks, suffix = result.get("told", {}), "" if name == OWN else f" (variant {name})"
        for member, text in _REMARKS.items():
            if member in remarks:
                count = remarks[member]
                number = f"{count:,}" if isinstance(count, int) else count
                notes.append(text.format(number) + suffix)
    return notes


_REMARKS = {
    "events_without_occurrence": "{} events of the streams never occur, so they have no rows by"
    " period: are the occurrences those of this model?",
    "events_only_in_occurrence": "{} events of the occurrences are in no stream: is a partition"
    " missing?",
    "blocks_without_exposure": "{} blocks with losses have exposure 0, so they have no rows in MELT"
    " and QELT",
    "missing_summary_ids": "no row has these of summary_ids: {}",
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
