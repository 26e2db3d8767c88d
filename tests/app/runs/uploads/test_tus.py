"""tus 1.0, requirement by requirement."""

from __future__ import annotations

from email.utils import parsedate_to_datetime

import pytest

from tests.app.harness import Service, is_problem
from tests.app.runs.requests import BYTES, TUS, Uploader, stream

GOOD = stream()


@pytest.fixture(scope="module")
def up(service: Service) -> Uploader:
    return Uploader(service)


def test_options_describe_the_server(up: Uploader) -> None:
    for path in (f"{up.path}/streams", f"{up.path}/streams/any"):
        answer = up.ask("OPTIONS", path)
        assert answer.status == 204
        assert answer.getheader("Tus-Version") == "1.0.0"
        extensions = str(answer.getheader("Tus-Extension")).split(",")
        assert {"creation", "creation-with-upload", "creation-defer-length"} < set(extensions)
        assert {"checksum", "expiration", "termination"} < set(extensions)
        assert answer.getheader("Tus-Checksum-Algorithm") == "sha1,sha256,crc32"
        assert int(answer.getheader("Tus-Max-Size") or "") > 0


@pytest.mark.parametrize("method", ["POST", "HEAD", "PATCH", "DELETE"])
def test_another_version_is_refused_and_changes_nothing(up: Uploader, method: str) -> None:
    address = up.create(len(GOOD))
    path = f"{up.path}/streams" if method == "POST" else address
    headers = {**BYTES, "Tus-Resumable": "0.2.2", "Upload-Offset": "0", "Upload-Length": "9"}
    count = len(up.streams())
    answer = up.ask(method, path, b"" if method == "HEAD" else GOOD, **headers)
    assert (answer.status, answer.getheader("Tus-Version")) == (412, "1.0.0")
    assert len(up.streams()) == count
    assert up.offset(address) == 0


def test_a_creation_with_bytes(up: Uploader) -> None:
    answer = up.ask("POST", f"{up.path}/streams", GOOD[:99], **BYTES, Upload_Length=len(GOOD))
    assert (answer.status, answer.getheader("Upload-Offset")) == (201, "99")
    address = str(answer.getheader("Location"))
    assert up.patch(address, 99, GOOD[99:]).status == 204
    answer = up.ask("POST", f"{up.path}/streams", GOOD[:-1], **BYTES, Upload_Length=len(GOOD) - 1)
    is_problem(answer, "stream-truncated")
    assert answer.getheader("Tus-Resumable") == "1.0.0"
    assert up.ask("DELETE", str(answer.getheader("Location")), **TUS).status == 204


def test_a_head_says_all_there_is_to_know(up: Uploader) -> None:
    address = up.create(len(GOOD), Upload_Metadata="filename YQ==,partition NzE=")
    for method in ("HEAD", "GET"):
        answer = up.ask(method, address, **TUS)
        assert (answer.status, answer.body) == (200, b"")
        found = {name: answer.getheader(name) for name in ("Upload-Offset", "Upload-Length")}
        assert found == {"Upload-Offset": "0", "Upload-Length": str(len(GOOD))}
        assert answer.getheader("Upload-Metadata") == "filename YQ==,partition NzE="
        assert answer.getheader("Cache-Control") == "no-store"
        assert answer.getheader("Tus-Resumable") == "1.0.0"
        assert parsedate_to_datetime(str(answer.getheader("Upload-Expires"))).year > 2000
    answer = up.ask("HEAD", f"{up.path}/streams/000001-none", **TUS)
    assert (answer.status, answer.getheader("Upload-Offset")) == (404, None)


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({}, "bad-request"),
        ({"Upload-Length": "5", "Upload-Defer-Length": "1"}, "bad-request"),
        ({"Upload-Defer-Length": "2"}, "bad-request"),
        ({"Upload-Length": "-5"}, "bad-request"),
        ({"Upload-Length": "five"}, "bad-request"),
        ({"Upload-Length": "5", "Upload-Concat": "partial"}, "bad-request"),
        ({"Upload-Length": "5", "Upload-Metadata": "a b c"}, "bad-request"),
        ({"Upload-Length": "5", "Upload-Metadata": "a YQ==,a YQ=="}, "bad-request"),
        ({"Upload-Length": "5", "Upload-Metadata": "partition YQ=="}, "bad-request"),
        ({"Upload-Length": "5", "Upload-Metadata": "partition ICsy"}, "bad-request"),
        ({"Upload-Length": "5", "Content-Encoding": "gzip"}, "bad-request"),
    ],
)
def test_a_creation_that_is_refused(up: Uploader, headers: dict[str, str], code: str) -> None:
    is_problem(up.ask("POST", f"{up.path}/streams", **TUS, **headers), code)


def test_a_partition_has_one_number(up: Uploader) -> None:
    metadata = {"Upload-Length": "5", "Upload-Metadata": "partition ODg="}
    answer = up.ask("POST", f"{up.path}/streams?partition=87", **TUS, **metadata)
    assert is_problem(answer, "option")["option"] == "partition"
    answer = up.ask("POST", f"{up.path}/streams?partition=88", **TUS, **metadata)
    assert answer.status == 201


def test_an_append_that_is_refused(up: Uploader) -> None:
    address = up.create(len(GOOD))
    wrong = {**TUS, "Content-Type": "text/plain", "Upload-Offset": "0"}
    is_problem(up.ask("PATCH", address, GOOD, **wrong), "media-type", 415)
    is_problem(up.ask("PATCH", address, GOOD, **BYTES), "bad-request")
    is_problem(up.ask("PATCH", address, GOOD, **BYTES, Upload_Offset="x"), "bad-request")
    assert up.offset(address) == 0


def test_methods_by_override(up: Uploader) -> None:
    address = up.create(len(GOOD))
    fields = {**BYTES, "Upload-Offset": "0"}
    answer = up.ask("POST", address, GOOD, **fields, X_HTTP_Method_Override="PATCH")
    assert (answer.status, answer.getheader("Upload-Offset")) == (204, str(len(GOOD)))
    answer = up.ask("POST", address, **TUS, X_HTTP_Method_Override="HEAD")
    assert answer.getheader("Upload-Offset") == str(len(GOOD))
    is_problem(up.ask("POST", address, **TUS), "bad-request")
    assert up.ask("POST", address, **TUS, X_HTTP_Method_Override="DELETE").status == 204
    assert up.ask("HEAD", address, **TUS).status == 404
