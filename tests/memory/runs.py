"""Runs: uploads, seals, reports and rows."""

from __future__ import annotations

import struct
from collections.abc import Mapping

import numpy as np

from core.losses.reports import REPORTS
from tests.app.harness import with_query
from tests.e2e.samples import large_stream
from tests.memory.desk import Action, Desk, Prepare, Request, Table
from tests.memory.losses import INT_MAX, occurrence, options_of, stream_of, xref

TABLE = Table("runs")
TUS = {"Tus-Resumable": "1.0.0"}
BYTES = {**TUS, "Content-Type": "application/offset+octet-stream"}
SPEC = {"perspective": "gul", "reports": ["melt"]}


def sealed(desk: Desk) -> str:
    """A run of a small stream whose reports are there."""
    path = desk.run(stream_of(3))
    assert desk.sealed(path) == 200
    return path


@TABLE.case("POST /v1/runs")
def creating(desk: Desk) -> Request:
    desk.ask("POST", "/v1/runs", SPEC)
    return Request.of("POST", "/v1/runs", SPEC)


@TABLE.case("POST /v1/runs", hostile=True)
def creating_with_everything_at_its_largest(desk: Desk) -> Request:
    desk.ask("POST", "/v1/runs", SPEC)
    options = {
        "partitions": 999_999,
        "quantiles": [n / 100_000 for n in range(100_000)],
        "return_periods": [*range(20_000, 0, -1)],
        "no_of_periods": INT_MAX,
    }
    spec = {"perspective": "gul", "reports": [*REPORTS], "days": 36_525, "options": options}
    return Request.of("POST", "/v1/runs", spec)


@TABLE.case("POST /v1/runs", hostile=True)
def creating_with_a_list_of_short_texts(desk: Desk) -> Request:
    desk.ask("POST", "/v1/runs", SPEC)
    return Request.of("POST", "/v1/runs", {**SPEC, "reports": ["a"] * 250_000})


@TABLE.case("POST /v1/runs", hostile=True)
def creating_with_deep_json(desk: Desk) -> Request:
    desk.ask("POST", "/v1/runs", SPEC)
    return Request.of("POST", "/v1/runs", b"[" * 500_000 + b"]" * 500_000)


@TABLE.case("GET /v1/runs")
def listing(desk: Desk) -> Request:
    for _ in range(20):
        desk.ask("POST", "/v1/runs", SPEC)
    desk.ask("GET", "/v1/runs")
    return Request("GET", "/v1/runs?limit=1000")


@TABLE.case("GET /v1/runs/{run}")
def describing(desk: Desk) -> Request:
    path = desk.run(stream_of(3))
    desk.ask("GET", path)
    return Request("GET", path)


@TABLE.case("PATCH /v1/runs/{run}")
def labelling(desk: Desk) -> Request:
    path = desk.run(stream_of(3))
    desk.ask("PATCH", path, b'{"label": "a"}')
    return Request.of("PATCH", path, b'{"label": "' + b"a" * 1_000_000 + b'"}')


@TABLE.case("DELETE /v1/runs/{run}")
def deleting(desk: Desk) -> Request:
    desk.send(Request("DELETE", desk.run(stream_of(3))))
    return Request("DELETE", desk.run(stream_of(3000), stream_of(3000, first=5000)))


@TABLE.case("PUT /v1/runs/{run}/inputs/{name}")
def binding(desk: Desk) -> Request:
    path = f"{desk.run(reports=['aal'])}/inputs/occurrence"
    desk.ask("PUT", path, occurrence(3))
    return Request.of("PUT", path, occurrence(100_000))


@TABLE.case("GET /v1/runs/{run}/streams")
def streams(desk: Desk) -> Request:
    path = desk.run(*(stream_of(3, first=1 + 3 * n) for n in range(8)))
    desk.ask("GET", f"{path}/streams")
    return Request("GET", f"{path}/streams?limit=1000")


def upload(desk: Desk, path: str, length: int) -> str:
    """Create an upload by tus; return its address."""
    headers = {**TUS, "Upload-Length": length}
    answer = desk.send(Request.of("POST", f"{path}/streams", b"", headers))
    return str(answer.getheader("Location"))


@TABLE.case("POST /v1/runs/{run}/streams")
def uploading_at_once(desk: Desk) -> Request:
    path = desk.run(stream_of(3))
    return Request.of("POST", f"{path}/streams", large_stream(64))


@TABLE.case("PATCH /v1/runs/{run}/streams/{stream}")
def appending(desk: Desk) -> Request:
    path = desk.run(stream_of(3))
    data = large_stream(64)
    address = upload(desk, path, len(data))
    desk.send(Request.of("PATCH", address, data[:20_000], {**BYTES, "Upload-Offset": 0}))
    return Request.of("PATCH", address, data[20_000:], {**BYTES, "Upload-Offset": 20_000})


@TABLE.case("PATCH /v1/runs/{run}/streams/{stream}")
def appending_with_rows(desk: Desk) -> Request:
    path = desk.run(stream_of(3))
    data = large_stream(8)
    answer = desk.send(Request.of("POST", f"{path}/streams", b"", {"Upload-Complete": "?0"}))
    address = answer.json()["address"]
    headers = {"Content-Type": "application/partial-upload", "Prefer": "return=representation"}
    first = {**headers, "Upload-Offset": 0, "Upload-Complete": "?0"}
    desk.send(Request.of("PATCH", address, data[:20_000], first))
    rest = {**headers, "Upload-Offset": 20_000, "Upload-Complete": "?1"}
    return Request.of("PATCH", address, data[20_000:], rest)


@TABLE.case("PATCH /v1/runs/{run}/streams/{stream}")
def appending_with_a_checksum(desk: Desk) -> Request:
    import hashlib
    from base64 import b64encode

    def summed(data: bytes) -> str:
        return f"sha1 {b64encode(hashlib.sha1(data, usedforsecurity=False).digest()).decode()}"

    path = desk.run(stream_of(3))
    data = large_stream(32)
    address = upload(desk, path, len(data))
    for start, end in ((0, 20_000), (20_000, len(data))):
        headers = {**BYTES, "Upload-Offset": start, "Upload-Checksum": summed(data[start:end])}
        request = Request.of("PATCH", address, data[start:end], headers)
        if not start:
            desk.send(request)
    return request


@TABLE.case("POST /v1/runs/{run}/streams/{stream}")
def appending_by_another_method(desk: Desk) -> Request:
    path = desk.run(stream_of(3))
    data = large_stream(8)
    address = upload(desk, path, len(data))
    headers = {**BYTES, "X-HTTP-Method-Override": "PATCH"}
    desk.send(Request.of("POST", address, data[:20_000], {**headers, "Upload-Offset": 0}))
    return Request.of("POST", address, data[20_000:], {**headers, "Upload-Offset": 20_000})


@TABLE.case("GET /v1/runs/{run}/streams/{stream}")
def asking_for_an_offset(desk: Desk) -> Request:
    address = upload(desk, desk.run(stream_of(3)), 1000)
    desk.send(Request("GET", address, headers=TUS))
    return Request("GET", address, headers=TUS)


@TABLE.case("DELETE /v1/runs/{run}/streams/{stream}")
def deleting_a_stream(desk: Desk) -> Request:
    path = desk.run(stream_of(3))
    desk.send(Request("DELETE", upload(desk, path, 1000), headers=TUS))
    return Request("DELETE", upload(desk, path, 1000), headers=TUS)


@TABLE.case("PATCH /v1/runs/{run}/streams/{stream}", hostile=True)
def an_event_of_a_million_blocks(desk: Desk) -> Request:
    path = desk.run(stream_of(3))
    return Request.of("POST", f"{path}/streams", stream_of(1, samples=1, blocks=1_000_000))


@TABLE.case("POST /v1/runs/{run}/streams", hostile=True)
def the_largest_number_of_samples(desk: Desk) -> Request:
    path = desk.run(stream_of(3))
    return Request.of("POST", f"{path}/streams", stream_of(4, samples=200_000, blocks=2))


# -- seals ---------------------------------------------------------------------------


def sealing(
    *reports: str,
    streams: Mapping[str, int] | None = None,
    occurrences: tuple[int, ...] = (4000,),
    **options: object,
) -> Prepare:
    """A seal, and the wait for its reports."""

    def prepare(desk: Desk) -> Action:
        inputs = {}
        known = options_of(desk, *reports)
        if "occurrence" in known:
            inputs["occurrence"] = known["occurrence"]
        spec: dict[str, object] = {"reports": reports, "options": options}
        assert desk.sealed(desk.run(stream_of(3), inputs=inputs, **spec)) == 200
        if inputs:
            inputs["occurrence"] = desk.input("occurrence", occurrence(*occurrences))
        sizes = {"events": 4000, "samples": 10, "blocks": 2, **(streams or {})}
        data = stream_of(sizes["events"], samples=sizes["samples"], blocks=sizes["blocks"])
        path = desk.run(data, inputs=inputs, **spec)
        return lambda: desk.sealed(path)

    return prepare


SEAL = "POST /v1/runs/{run}/seal"
TABLE.add(SEAL, "sealing melt", sealing("melt"))
TABLE.add(SEAL, "sealing selt", sealing("selt"))
TABLE.add(SEAL, "sealing splt", sealing("splt"))
TABLE.add(SEAL, "sealing qelt", sealing("qelt", quantiles=[0.1, 0.5]))
TABLE.add(SEAL, "sealing aal and ept", sealing("aal", "ept", return_periods=[250, 100, 50]))
TABLE.add(
    SEAL,
    "sealing ept by every point",
    sealing("ept", streams={"events": 20_000}, occurrences=(20_000, 1_000_000, 50)),
    hostile=True,
)
TABLE.add(
    SEAL,
    "sealing psept of the most samples",
    sealing("psept", streams={"events": 4, "samples": 200_000, "blocks": 1}),
    hostile=True,
)
TABLE.add(
    SEAL,
    "sealing an event of a million blocks",
    sealing("melt", streams={"events": 1, "samples": 1, "blocks": 1_000_000}),
    hostile=True,
)
TABLE.add(
    SEAL,
    "sealing many quantiles",
    sealing("qelt", streams={"events": 400}, quantiles=[n / 9999 for n in range(10_000)]),
    hostile=True,
)


def declared(report: str) -> Prepare:
    """A sealed run whose occurrences declare the largest number of periods."""

    def prepare(desk: Desk) -> Action:
        quick = {"occurrence": desk.input("occurrence", occurrence(3))}
        options = {"quantiles": [0.5]} if report == "qplt" else {}
        spec: dict[str, object] = {"reports": [report], "options": options}
        assert desk.sealed(desk.run(stream_of(3), inputs=quick, **spec)) == 200
        digest = desk.input("occurrence", struct.pack("<5i", 1, INT_MAX, 1, INT_MAX, 1))
        path = desk.run(stream_of(2), inputs={"occurrence": digest}, **spec)
        return lambda: desk.sealed(path)

    return prepare


for _report, _row in REPORTS.items():
    if any(need.name == "occurrence" for need in _row.needs):
        TABLE.add(SEAL, f"sealing {_report} of the most periods", declared(_report), hostile=True)


@TABLE.case(SEAL, hostile=True)
def sealing_a_hundred_sets(desk: Desk) -> Action:
    spec: dict[str, object] = {"reports": ["melt"], "options": {}}
    small = {"summary_xref": desk.input("summary_xref", xref(4, 2))}
    assert desk.sealed(desk.run(stream_of(3, kind="gul"), inputs=small, **spec)) == 200
    many = {"summary_xref": desk.input("summary_xref", xref(2000, 100))}
    path = desk.run(stream_of(40, kind="gul", blocks=40), inputs=many, **spec)
    return lambda: desk.sealed(path)


# -- answers -------------------------------------------------------------------------


@TABLE.case("GET /v1/runs/{run}/progress")
def progress(desk: Desk) -> Request:
    path = sealed(desk)
    desk.send(Request("GET", f"{path}/progress?follow=false"))
    return Request("GET", f"{path}/progress?follow=true")


def reading(where: str, **options: str) -> Prepare:
    """Rows or a report of a larger run, after those of a small one."""

    def prepare(desk: Desk) -> Request:
        desk.send(Request("GET", with_query(sealed(desk) + where, options)))
        path = desk.run(stream_of(20_000))
        assert desk.sealed(path) == 200
        return Request("GET", with_query(path + where, options))

    return prepare


for _form in ("csv", "parquet", "arrow", "ndjson", "bin"):
    TABLE.add(
        "GET /v1/runs/{run}/reports/{report}",
        f"a report in {_form}",
        reading("/reports/melt", format=_form),
    )
TABLE.add(
    "GET /v1/runs/{run}/reports/{report}",
    "rows of a report",
    reading("/reports/melt", summary_ids="1", event_ids="7"),
)
for _form in ("csv", "frames", "ndjson", "sse"):
    TABLE.add(
        "GET /v1/runs/{run}/rows/{report}", f"rows in {_form}", reading("/rows/selt", format=_form)
    )


@TABLE.case("GET /v1/runs/{run}/rows/{report}", hostile=True)
def rows_of_the_largest_number_of_samples(desk: Desk) -> Request:
    desk.send(Request("GET", f"{sealed(desk)}/rows/selt?format=ndjson"))
    path = desk.run(stream_of(2, samples=200_000, blocks=1))
    assert desk.sealed(path) == 200
    return Request("GET", f"{path}/rows/selt?format=ndjson")


@TABLE.case("POST /v1/runs/{run}/reports")
def further_reports(desk: Desk) -> Request:
    path = sealed(desk)
    desk.ask("POST", f"{path}/reports", {"reports": ["qelt"], "options": {"quantiles": [0.5]}})
    body = {"reports": ["qelt"], "options": {"quantiles": [0.1, 0.9]}}
    return Request.of("POST", f"{path}/reports", body)


@TABLE.case("POST /v1/runs/{run}/reports", hostile=True)
def further_reports_of_many_numbers(desk: Desk) -> Request:
    path = sealed(desk)
    desk.ask("POST", f"{path}/reports", {"reports": ["qelt"], "options": {"quantiles": [0.5]}})
    numbers = np.linspace(0, 1, 80_000).round(6).tolist()
    return Request.of(
        "POST", f"{path}/reports", {"reports": ["qelt"], "options": {"quantiles": numbers}}
    )


@TABLE.case("GET /v1/runs/{run}/reports/{report}")
def a_picture(desk: Desk) -> Request:
    inputs = {"occurrence": desk.input("occurrence", occurrence(4000))}
    path = desk.run(stream_of(4000), inputs=inputs, reports=["aal", "alct"])
    assert desk.sealed(path) == 200
    desk.send(Request("GET", f"{path}/reports/aal?format=svg&theme=dark"))
    return Request("GET", f"{path}/reports/aal?format=png&theme=light")
