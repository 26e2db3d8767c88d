"""The IETF draft for resumable uploads, in its versions and without any."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import re
from pathlib import Path

import pytest
import xxhash

from tests.app.harness import Answer, Service, is_problem, wait_until
from tests.app.runs.requests import DRAFT, PART, Uploader, stream
from tests.app.runs.uploaded import Uploads

GOOD = stream()
MANY = stream(400)


@pytest.fixture(scope="module")
def up(service: Service) -> Uploader:
    return Uploader(service)


def headers_of(version: str | None) -> dict[str, str]:
    fields = {} if version is None else {"Upload-Draft-Interop-Version": version}
    return fields if version == "5" else {**fields, "Content-Type": "application/partial-upload"}


@pytest.mark.parametrize("version", ["5", "6", "8", "9", None])
def test_a_stream_in_parts(up: Uploader, version: str | None) -> None:
    fields = headers_of(version)
    answer = up.ask("POST", f"{up.path}/streams", **fields, Upload_Complete="?0")
    assert (answer.status, answer.getheader("Upload-Complete")) == (201, "?0")
    assert "max-size=" in str(answer.getheader("Upload-Limit"))
    address = str(answer.getheader("Location"))
    answer = up.ask("PATCH", address, GOOD[:500], **fields, Upload_Offset=0, Upload_Complete="?0")
    assert (answer.status, answer.getheader("Upload-Offset")) == (204, "500")
    assert answer.getheader("Upload-Complete") == "?0"
    for method in ("HEAD", "GET"):
        answer = up.ask(method, address, **fields)
        assert (answer.status, answer.getheader("Upload-Offset")) == (204, "500")
        assert answer.getheader("Upload-Complete") == "?0"
        assert answer.getheader("Cache-Control") == "no-store"
    answer = up.ask("PATCH", address, GOOD[500:], **fields, Upload_Offset=500, Upload_Complete="?1")
    assert (answer.status, answer.getheader("Upload-Complete")) == (200, "?1")
    assert answer.getheader("Upload-Offset") == str(len(GOOD))
    assert (answer.json()["state"], answer.json()["events"]) == ("complete", 50)
    answer = up.ask("HEAD", address, **fields)
    assert answer.getheader("Upload-Complete") == "?1"
    assert answer.getheader("Upload-Length") == str(len(GOOD))
    answer = up.ask("PATCH", address, b"x", **fields, Upload_Offset=1, Upload_Complete="?1")
    assert answer.json()["type"].endswith("#completed-upload")
    assert up.ask("DELETE", address, **fields).status == 204
    assert up.ask("HEAD", address, **fields).status == 404


def test_all_data_in_one_request(up: Uploader) -> None:
    # With a version an interim answer comes, which http.client takes for the final one.
    for fields in ({"Upload-Complete": "?1"}, {}):
        answer = up.ask("POST", f"{up.path}/streams", GOOD, **fields)
        assert (answer.status, answer.json()["state"]) == (201, "complete")
        assert answer.getheader("Upload-Complete") == "?1"
        assert up.ask("DELETE", str(answer.getheader("Location"))).status == 204
    is_problem(up.ask("POST", f"{up.path}/streams"), "stream-empty")


def test_interim_answers_come_where_the_version_matches(up: Uploader) -> None:
    for version, interim in (("8", True), ("5", True), ("4", False), (None, False)):
        fields = {} if version is None else {"Upload-Draft-Interop-Version": version}
        with up.service.connect() as client:
            lines = [f"POST {up.path}/streams HTTP/1.1", "Host: a", f"Content-Length: {len(GOOD)}"]
            lines += ["Connection: close", "Upload-Complete: ?1"]
            lines += [f"{name}: {value}" for name, value in fields.items()]
            client.sendall("\r\n".join([*lines, "", ""]).encode() + GOOD)
            answered = b"".join(iter(lambda: client.recv(1 << 16), b"")).lower()
        assert answered.startswith(b"http/1.1 104") == interim, answered
        assert b"http/1.1 201 created" in answered
        location = re.findall(rb"location: (\S+)", answered)
        assert len(location) == 1 + interim
        assert len(set(location)) == 1
        assert up.ask("DELETE", location[0].decode()).status == 204


def test_progress_is_told_while_bytes_come(up: Uploader) -> None:
    answer = up.ask("POST", f"{up.path}/streams", **DRAFT, Upload_Complete="?0")
    address = str(answer.getheader("Location"))
    lines = [f"PATCH {address} HTTP/1.1", "Host: a", "Upload-Offset: 0"]
    lines += [f"{name}: {value}" for name, value in PART.items()]
    lines.append("Upload-Complete: ?1")
    lines += [f"Content-Length: {len(MANY)}", "Connection: close"]
    with up.service.connect() as client:
        client.sendall("\r\n".join([*lines, "", ""]).encode() + MANY[:1000])
        interim = client.recv(1 << 16).lower()
        assert interim.startswith(b"http/1.1 104")
        assert b"upload-offset: 1000" in interim
        assert b"location" not in interim
        client.sendall(MANY[1000:])
        assert Answer(client, "PATCH").status == 200


def test_another_offset_or_length(up: Uploader) -> None:
    answer = up.ask("POST", f"{up.path}/streams", **DRAFT, Upload_Complete="?0", Upload_Length=900)
    address = str(answer.getheader("Location"))
    answer = up.ask("PATCH", address, b"x", **PART, Upload_Offset=7, Upload_Complete="?0")
    found = answer.json()
    assert (answer.status, answer.getheader("Upload-Offset")) == (409, "0")
    assert answer.getheader("Upload-Complete") == "?0"
    assert found["type"].endswith("http-problem-types#mismatching-upload-offset")
    assert (found["expected-offset"], found["provided-offset"]) == (0, 7)
    for fields in ({"Upload-Complete": "?1"}, {"Upload-Complete": "?0", "Upload-Length": "901"}):
        answer = up.ask("PATCH", address, GOOD[:100], **PART, Upload_Offset=0, **fields)
        assert answer.status == 400
        assert answer.json()["type"].endswith("#inconsistent-upload-length")
    answer = up.ask("PATCH", address, GOOD[:901], **PART, Upload_Offset=0, Upload_Complete="?0")
    is_problem(answer, "upload-excess", 413)
    assert up.ask("HEAD", address, **DRAFT).getheader("Upload-Offset") == "0"
    assert up.ask("DELETE", address, **DRAFT).status == 204


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({**DRAFT, "Upload-Offset": "0", "Upload-Complete": "?0"}, 415),
        ({**PART, "Upload-Offset": "0"}, 400),
        ({**PART, "Upload-Complete": "?0"}, 400),
        ({**PART, "Upload-Offset": "0", "Upload-Complete": "yes"}, 400),
        ({**PART, "Upload-Offset": "0", "Upload-Complete": "?0", "Content-Digest": "x"}, 400),
    ],
)
def test_an_append_that_is_refused(up: Uploader, headers: dict[str, str], status: int) -> None:
    address = up.create()
    assert up.ask("PATCH", address, GOOD, **headers).status == status
    assert up.offset(address) == 0


def test_digests_of_a_part_and_of_the_whole(up: Uploader) -> None:
    def digest(data: bytes) -> str:
        return f"sha-256=:{base64.b64encode(hashlib.sha256(data).digest()).decode()}:"

    for whole, state in ((GOOD, "complete"), (GOOD[1:], "failed")):
        fields = {**DRAFT, "Upload-Complete": "?0", "Repr-Digest": digest(whole)}
        answer = up.ask("POST", f"{up.path}/streams", **fields)
        address = str(answer.getheader("Location"))
        part = {**PART, "Upload-Offset": "0", "Upload-Complete": "?0"}
        wrong = {**part, "Content-Digest": digest(b"")}
        is_problem(up.ask("PATCH", address, GOOD[:300], **wrong), "digest-mismatch", 400)
        right = {**part, "Content-Digest": digest(GOOD[:300])}
        assert up.ask("PATCH", address, GOOD[:300], **right).status == 204
        rest = {**PART, "Upload-Offset": "300", "Upload-Complete": "?1"}
        answer = up.ask("PATCH", address, GOOD[300:], **rest)
        if state == "failed":
            is_problem(answer, "digest-mismatch", 400)
        assert {s["state"] for s in up.streams() if s["address"] == address} == {state}
        assert up.ask("DELETE", address, **DRAFT).status == 204


def test_options_have_a_limit(up: Uploader) -> None:
    answer = up.ask("OPTIONS", f"{up.path}/streams")
    assert "min-size=0" in str(answer.getheader("Upload-Limit"))
    wait_until(lambda: up.service.metric("thalweg_requests_running") == 1)


def test_uploads_without_a_version_can_be_refused(tmp_path: Path) -> None:
    service = Uploads(tmp_path, uploads_without_version=False)
    path = f"/v1/runs/{service.run(['melt']).id}/streams"
    refused = asyncio.run(service.post(path, content=GOOD))
    assert (refused.status_code, refused.json()["code"]) == (400, "bad-request")
    assert "Upload-Draft-Interop-Version" in refused.json()["hint"]
    headers = {"Upload-Draft-Interop-Version": "8", "Upload-Complete": "?0"}
    address = asyncio.run(service.post(path, headers=headers)).headers["Location"]
    headers = {"Content-Type": PART["Content-Type"], "Upload-Offset": "0", "Upload-Complete": "?1"}
    assert asyncio.run(service.patch(address, content=GOOD, headers=headers)).status_code == 400
    headers["Upload-Draft-Interop-Version"] = "8"
    assert asyncio.run(service.patch(address, content=GOOD, headers=headers)).status_code == 200
    tus = {"Tus-Resumable": "1.0.0", "Upload-Length": "5"}
    assert asyncio.run(service.post(path, headers=tus)).status_code == 201


def test_an_append_is_answered_with_its_rows_if_the_client_prefers_them(tmp_path: Path) -> None:
    service = Uploads(tmp_path)
    run = service.run(["melt"])
    stored = service.add(run)
    address = f"/v1/runs/{run.id}/streams/{stored.id}"
    headers = {"Content-Type": PART["Content-Type"], "Accept": "application/x-ndjson"}
    found: list[str] = []
    for start, stop, last in ((0, 500, "?0"), (500, 520, "?0"), (520, len(GOOD), "?1")):
        headers |= {"Upload-Offset": str(start), "Upload-Complete": last}
        headers["Prefer"] = "respond-async, return=representation"
        answer = asyncio.run(service.patch(address, content=GOOD[start:stop], headers=headers))
        assert answer.status_code == 200
        assert answer.headers["Preference-Applied"] == "return=representation"
        assert answer.headers["Upload-Offset"] == str(stop)
        *rows, end = answer.text.splitlines()
        assert json.loads(end)["end"]["reason"] == ("complete" if last == "?1" else "partial")
        found += [row for row in rows if "EventId" in row]
    path = f"/v1/runs/{run.id}/rows/melt?format=ndjson&stream={stored.id}"
    whole = asyncio.run(service.get(path)).text.splitlines()
    assert found == [row for row in whole if "EventId" in row]
    assert len(found) == 200


def test_an_append_without_rows_is_answered_as_usual(tmp_path: Path) -> None:
    service = Uploads(tmp_path)
    run = service.run(["aal"])
    address = f"/v1/runs/{run.id}/streams/{service.add(run).id}"
    headers = {"Content-Type": PART["Content-Type"], "Upload-Offset": "0", "Upload-Complete": "?1"}
    headers["Prefer"] = "return=representation"
    answer = asyncio.run(service.patch(address, content=GOOD, headers=headers))
    assert (answer.status_code, answer.json()["state"]) == (200, "complete")
    assert answer.json()["digest"] == xxhash.xxh3_128_hexdigest(bytes(16) + GOOD)
    assert "Preference-Applied" not in answer.headers
