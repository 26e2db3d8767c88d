"""Runs: appends, seals, reports and rows."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping
from functools import partial
from http import HTTPStatus

from tests.cancellation.inputs import occurrence_csv
from tests.cancellation.leaving import Work
from tests.cancellation.losses import LONG, MANY, WIDE, Size, occurrences
from tests.cancellation.place import Place, Prepare, Table

TABLE = Table()
TUS = ("Tus-Resumable: 1.0.0",)
BYTES = (*TUS, "Content-Type: application/offset+octet-stream", "Upload-Offset: 0")
PART = ("Content-Type: application/partial-upload", "Upload-Offset: 0", "Upload-Complete: ?1")
CHECKED_BYTES = 64 << 20
"""The most that may be appended with a checksum."""
STREAM = "/v1/runs/{run}/streams/{stream}"


def create(place: Place, *reports: str, inputs: Mapping[str, str] | None = None) -> str:
    """A run; its path."""
    values = {"perspective": "gul", "reports": reports or ["melt"], "inputs": inputs or {}}
    return f"/v1/runs/{place.send('/v1/runs', values)['id']}"


def upload(place: Place, length: int) -> str:
    """An upload by tus to a new run; its address."""
    with place.server.connect() as connection:
        head = (*TUS, f"Upload-Length: {length}")
        answer = connection.request("POST", f"{create(place)}/streams", b"", *head)
    assert answer.status == 201, answer.body
    return answer.headers["location"]


def whole_stream(place: Place, part: float) -> Callable[[], Work]:
    """A stream that is there as soon as it is created."""
    body = MANY.stream(part)
    return lambda: Work("POST", f"{create(place)}/streams", body, ("Upload-Complete: ?1",))


def appending(method: str = "PATCH", *head: str) -> Prepare:
    """All bytes of a stream, by tus."""

    def prepare(place: Place, part: float) -> Callable[[], Work]:
        body = MANY.stream(part)
        return lambda: Work(method, upload(place, len(body)), body, (*BYTES, *head))

    return prepare


def checked(algorithm: str) -> Prepare:
    """As many bytes as may have a checksum."""

    def prepare(place: Place, part: float) -> Callable[[], Work]:
        stream = MANY.stream(part)
        body = stream[: int(CHECKED_BYTES * part)]
        digest = base64.b64encode(hashlib.new(algorithm, body).digest()).decode()
        head = (*BYTES, f"Upload-Checksum: {algorithm} {digest}")
        return lambda: Work("PATCH", upload(place, len(stream)), body, head)

    return prepare


def appending_with_rows(place: Place, part: float) -> Callable[[], Work]:
    """A stream whose rows are sent while it comes."""
    body = MANY.stream(part)

    def make() -> Work:
        streams = f"{create(place, 'selt')}/streams"
        address = place.ask("POST", streams, b"", "Upload-Complete: ?0")["address"]
        return Work("PATCH", address, body, (*PART, "Prefer: return=representation"))

    return make


def binding(place: Place, part: float) -> Callable[[], Work]:
    """The largest csv, as an input of a run."""
    csv = occurrence_csv(place, part)
    assert isinstance(csv, Work)
    _, _, query = csv.target.partition("?")
    return lambda: Work("PUT", f"{create(place, 'aal')}/inputs/occurrence?{query}", csv.body)


def sealing(*reports: str, drained: bool = False) -> Prepare:
    """The reports of a sealed run, until it is deleted or the server is stopped."""

    def prepare(place: Place, part: float) -> Callable[[], Work]:
        body = LONG.stream(part)
        data = occurrences(LONG.events, int(LONG.occurrences * part))
        inputs = {"occurrence": place.store("occurrence", data)}

        def make() -> Work:
            path = create(place, *reports, inputs=inputs)
            place.ask("POST", f"{path}/streams", body)
            place.ask("POST", f"{path}/seal")

            def delete() -> None:
                place.ask("DELETE", path)

            def restart() -> None:
                assert place.server.end() == 0
                place.server.start()
                delete()

            ends = (place.server.term, restart) if drained else (delete, None)
            return Work("GET", f"{path}/progress?follow=true", b"", (), *ends)

        return make

    return prepare


def further(place: Place, part: float) -> Callable[[], Work]:
    """Reports of a run that is done, until it is deleted."""
    body = MANY.stream(part)

    def make() -> Work:
        path = done(place, body)
        quantiles = [n / 9_999 for n in range(10_000)]
        options = {"reports": ["qelt"], "options": {"quantiles": quantiles}}
        report = place.send(f"{path}/reports", options)["reports"]["qelt"]

        def computing() -> bool:
            with place.server.connect() as connection:
                connection.begin("HEAD", report)
                return connection.read_head().status == HTTPStatus.ACCEPTED

        delete = partial(place.ask, "DELETE", path)
        return Work("GET", f"{path}/progress", end=delete, goes_on=computing)

    return make


def done(place: Place, body: bytes, *reports: str, **inputs: str) -> str:
    """A run of a stream, whose reports are there; its path."""
    path = create(place, *reports, inputs=inputs)
    place.ask("POST", f"{path}/streams", body)
    place.ask("POST", f"{path}/seal")
    with place.server.connect(timeout=600) as connection:
        connection.request("GET", f"{path}/progress?follow=true")
    assert place.ask("GET", path)["state"] == "done"
    return path


def reading(where: str, *reports: str, size: Size = MANY) -> Prepare:
    """Answers from what a run has."""

    def prepare(place: Place, part: float) -> Work:
        inputs = {}
        if size.occurrences:
            data = occurrences(size.events, size.occurrences)
            inputs["occurrence"] = place.store("occurrence", data)
        body = size.stream(part)
        return Work("GET", done(place, body, *reports, **inputs) + where)

    return prepare


TABLE.add("POST /v1/runs/{run}/streams", "a stream at once", whole_stream)
TABLE.add(f"PATCH {STREAM}", "an append", appending())
TABLE.add(f"POST {STREAM}", "an append by POST", appending("POST", "X-HTTP-Method-Override: PATCH"))
for _algorithm in ("sha1", "sha256"):
    TABLE.add(
        f"PATCH {STREAM}",
        f"an append with a {_algorithm}",
        checked(_algorithm),
    )
TABLE.add(f"PATCH {STREAM}", "an append with rows", appending_with_rows)
TABLE.add("PUT /v1/runs/{run}/inputs/{name}", "an input of a run", binding)
SEAL = "POST /v1/runs/{run}/seal"
TABLE.add(SEAL, "a seal, deleted: splt", sealing("splt"))
TABLE.add(SEAL, "a seal, deleted: aal", sealing("aal"))
TABLE.add(
    "GET /v1/runs/{run}/progress",
    "a seal, drained: aal",
    sealing("aal", drained=True),
)
TABLE.add("POST /v1/runs/{run}/reports", "further reports", further)
REPORT = "GET /v1/runs/{run}/reports/{report}"
for _form in ("csv", "parquet", "ndjson"):
    TABLE.add(REPORT, f"a report in {_form}", reading(f"/reports/selt?format={_form}", "selt"))
TABLE.add(REPORT, "some rows of a report", reading("/reports/selt?summary_ids=1-5", "selt"))
TABLE.add(REPORT, "a picture of a report", reading("/reports/ept?format=svg", "ept", size=WIDE))
for _form in ("frames", "ndjson"):
    TABLE.add(
        "GET /v1/runs/{run}/rows/{report}",
        f"rows in {_form}",
        reading(f"/rows/selt?format={_form}", "selt"),
    )
