"""Reads on a condition, stores that ignore it, and what a failing store makes of a request."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import obstore
import pytest
from obstore.exceptions import PermissionDeniedError
from obstore.store import MemoryStore, S3Store

from app.datasets.files import objects
from app.datasets.files.file_set import ReadFailedError
from app.datasets.files.objects import Found, Objects
from app.datasets.files.roots import FileMissingError
from app.errors import DataChangedError
from tests.app.datasets.files.bucket import ADDRESS

CONTENT = bytes(range(200))


@pytest.fixture
def store() -> MemoryStore:
    made = MemoryStore()
    obstore.put(made, "d/a.raw", CONTENT)
    return made


def test_bytes_are_of_the_state_that_was_looked_at(store: MemoryStore) -> None:
    read = Objects(ADDRESS, store)
    found = read.look("d/a.raw")
    assert (found.key, found.size) == ("d/a.raw", 200)
    assert read.get(found, 3, 9).tobytes() == CONTENT[3:9]
    obstore.put(store, "d/a.raw", CONTENT[::-1])
    with pytest.raises(DataChangedError, match=r"'a.raw' was modified") as caught:
        read.get(found, 3, 9)
    assert caught.value.members == {"file": "a.raw", "change": "was modified"}
    obstore.delete(store, "d/a.raw")
    with pytest.raises(DataChangedError, match=r"'a.raw' was removed"):
        read.get(found, 3, 9)
    with pytest.raises(FileMissingError):
        read.look("d/a.raw")


@dataclass
class Server:
    """An S3 server with one object that does whatever a test wants."""

    status: int = 200
    code: str = "InternalError"
    heeds_match: bool = True
    heeds_range: bool = True
    e_tag: str | None = '"one"'
    short: bool = False
    version: str | None = None
    gives_versions: bool = True
    pinned: int = 0
    seen: list[tuple[str, str | None]] = field(default_factory=list)

    def store(self, port: int) -> S3Store:
        return S3Store(
            "scans",
            endpoint=f"http://127.0.0.1:{port}",
            access_key_id="an-identity",
            secret_access_key="a-secret",  # noqa: S106 - of nobody
            region="us-east-1",
            client_options={"allow_http": True, "timeout": "2s"},
            retry_config={"max_retries": 1},
        )

    def answer(self, handler: http.server.BaseHTTPRequestHandler, *, body: bool) -> None:
        match, span = handler.headers["If-Match"], handler.headers["Range"]
        self.seen.append((handler.command, match))
        content, status = CONTENT, self.status
        self.pinned += handler.path.endswith(f"/a.raw?versionId={self.version}")
        if "versionId=" in handler.path and not self.gives_versions:
            status = 403
        elif match is not None and self.heeds_match and match != self.e_tag:
            status, self.code = 412, "PreconditionFailed"
        if status >= 300:
            content = f"<Error><Code>{self.code}</Code></Error>".encode()
        elif span is not None:
            first, last = (int(each) for each in span.removeprefix("bytes=").split("-"))
            size = last + 1 - first
            begin = first if self.heeds_range else 0
            content, status = CONTENT[begin : begin + size], 206
        handler.send_response(status)
        if status == 206:
            handler.send_header("Content-Range", f"bytes {first}-{last}/{len(CONTENT)}")
        if self.e_tag is not None:
            handler.send_header("ETag", self.e_tag)
        if self.version is not None:
            handler.send_header("x-amz-version-id", self.version)
        handler.send_header("Last-Modified", "Mon, 02 Mar 2026 12:00:00 GMT")
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        if body:
            handler.wfile.write(content[: len(content) // 2] if self.short else content)
        if self.short:
            handler.close_connection = True


@pytest.fixture
def server() -> Iterator[tuple[Server, Objects]]:
    made = Server()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            made.answer(self, body=True)

        def do_HEAD(self) -> None:
            made.answer(self, body=False)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        threading.Thread(target=running.serve_forever, args=(0.05,)).start()
        yield made, Objects("s3://scans", made.store(running.server_port))
        running.shutdown()


def test_every_read_is_conditional_and_the_store_is_tried_once(
    server: tuple[Server, Objects],
) -> None:
    made, read = server
    found = read.look("a.raw")
    assert read.look("a.raw") == found
    assert read.get(found, 5, 7).tobytes() == CONTENT[5:7]
    gets = [match for method, match in made.seen if method == "GET"]
    assert gets[0] == objects._STALE
    assert gets[1:] == ['"one"'] * 3


def test_reads_name_the_version_that_was_looked_at(server: tuple[Server, Objects]) -> None:
    made, read = server
    made.version = "v1"
    found = read.look("a.raw")
    assert found.version == "v1"
    pinned = made.pinned
    assert read.get(found, 5, 7).tobytes() == CONTENT[5:7]
    assert made.pinned == pinned + 1
    made.version = "null"
    assert read.look("a.raw").version is None


def test_where_versions_may_not_be_read_none_is_named(server: tuple[Server, Objects]) -> None:
    """S3 has a permission of its own for it."""
    made, read = server
    made.version, made.gives_versions = "v1", False
    found = read.look("a.raw")
    pinned = made.pinned
    assert read.get(found, 5, 7).tobytes() == CONTENT[5:7]
    assert made.pinned == pinned
    made.e_tag = '"two"'
    with pytest.raises(DataChangedError):
        read.get(found, 5, 7)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"heeds_match": False}, "ignores If-Match: it gives bytes of an object that has changed"),
        ({"heeds_range": False}, "ignores Range: it gives other bytes than those asked for"),
        ({"e_tag": None}, "no ETag"),
        ({"e_tag": 'W/"one"'}, "no ETag"),
    ],
)
def test_stores_that_cannot_be_relied_upon_are_refused(
    server: tuple[Server, Objects], change: dict[str, object], words: str
) -> None:
    made, read = server
    vars(made).update(change)
    for _ in range(2):
        with pytest.raises(ReadFailedError, match=words) as caught:
            read.look("a.raw")
        assert "copy the files to a directory" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"status": 503, "code": "SlowDown"}, r"is too busy \(503\)"),
        ({"status": 500}, "answers 500"),
        ({"status": 403, "code": "AccessDenied"}, "refuses the credentials of the service"),
        ({"status": 401, "code": "InvalidAccessKeyId"}, "refuses the credentials"),
        ({"short": True}, "cannot be reached, or cuts its answers"),
    ],
)
def test_a_store_that_fails_is_a_problem_that_says_how(
    server: tuple[Server, Objects], change: dict[str, object], words: str
) -> None:
    made, read = server
    found = read.look("d/a.raw")
    vars(made).update(change)
    with pytest.raises(ReadFailedError, match=words) as caught:
        read.get(found, 3, 100)
    shown = f"{caught.value} {caught.value.hint} {caught.value.members}"
    assert "'d/a.raw' cannot be read" in shown
    assert not any(word in shown for word in ("secret", "an-identity", "127.0.0.1", "scans"))
    assert caught.value.retry_after


def test_a_store_that_is_not_there() -> None:
    read = Objects("s3://scans", Server().store(1))
    with pytest.raises(ReadFailedError, match="cannot be reached"):
        read.look("a.raw")
    assert "cannot be reached" in str(read.check())


def test_a_bucket_that_is_missing_is_said(server: tuple[Server, Objects]) -> None:
    made, read = server
    made.status, made.code = 404, "NoSuchBucket"
    assert "has no such bucket, or is another. The operator must" in str(read.check())
    made.status, made.code = 403, "AccessDenied"
    assert "credentials that may list and read" in str(read.check())


def test_an_empty_root_is_fine(store: MemoryStore) -> None:
    assert Objects(ADDRESS, store).check() is None
    assert Objects(ADDRESS, MemoryStore()).check() is None


def test_what_a_library_says_is_not_shown() -> None:
    error = objects._failed("a.raw", PermissionDeniedError("https://host/?signature=abc"))
    assert "signature" not in f"{error} {error.hint}"


def test_answers_of_another_length_are_refused(store: MemoryStore) -> None:
    read = Objects(ADDRESS, store)
    found = read.look("d/a.raw")
    with pytest.raises(ReadFailedError, match="answers 20 bytes with 10"):
        read.get(Found(found.key, 300, found.e_tag), 190, 210)
