"""Requirements of the IETF's resumable uploads, interop version 8, and of 6 and 5 before it."""

from __future__ import annotations

import base64
import hashlib
import json
import time
from collections.abc import Callable, Mapping

from tests.interop.suite import (
    Absent,
    Requirement,
    Server,
    broken,
    expect_header,
    expect_none,
    expect_refusal,
    expect_status,
    expect_success,
)
from tests.interop.wire import Answer, Connection

VERSION = {"Upload-Draft-Interop-Version": "8"}
PARTIAL = {"Content-Type": "application/partial-upload"}
WHOLE = {"Content-Type": "application/octet-stream"}
GONE = (404, 410)
PROBLEMS = "https://iana.org/assignments/http-problem-types#"
_PATIENCE = 5.0
_SOON = 2.0
"""Seconds within which an interim answer comes, if it comes."""


def create(server: Server, body: bytes, *, complete: bool = False, **more: str) -> Answer:
    extra = {name.replace("_", "-"): value for name, value in more.items()}
    headers = {**VERSION, **WHOLE, "Upload-Complete": _bool(complete), **extra}
    return server.ask("POST", server.creation_url(), headers, body)


def begin(server: Server, body: bytes = b"", **more: str) -> str:
    """Create an upload of which more follows; its URL."""
    return server.located(expect_status(create(server, body, complete=False, **more), 201))


def append(
    server: Server, url: str, offset: int, body: bytes, *, complete: bool = False, **more: str
) -> Answer:
    extra = {name.replace("_", "-"): value for name, value in more.items()}
    headers = {"Upload-Offset": str(offset), "Upload-Complete": _bool(complete), **extra}
    return server.ask("PATCH", url, {**VERSION, **PARTIAL, **headers}, body)


def _bool(value: bool) -> str:
    return "?1" if value else "?0"


def retrieve(server: Server, url: str, method: str = "HEAD") -> Answer:
    return server.ask(method, url, VERSION)


def expect_offset(server: Server, url: str, offset: int) -> None:
    expect_header(expect_success(retrieve(server, url)), "Upload-Offset", str(offset))


def unknown(server: Server) -> str:
    """The URL of an upload that there never was."""
    start, _, ident = begin(server).rpartition("/")
    name, question, query = ident.partition("?")
    changed = name.translate(str.maketrans("0123456789abcdef", "fedcba9876543210"))
    return f"{start}/{changed}{question}{query}"


def limits(text: str) -> dict[str, int]:
    """The members of an Upload-Limit.

    Raises:
        ValueError: it is not a dictionary of integers.
    """
    members = [member.strip().partition("=") for member in text.split(",") if member.strip()]
    return {name: int(value.partition(";")[0]) for name, _, value in members}


# -- creation --------------------------------------------------------------------------------


def at_once(server: Server) -> None:
    """Creation with all bytes (?1) is answered by the resource itself, with Upload-Complete: ?1."""
    answer = expect_success(create(server, server.content, complete=True))
    expect_header(answer, "Upload-Complete", "?1")


def in_parts(server: Server) -> None:
    """Creation of which more follows (?0) is answered with 201, Location, Upload-Complete: ?0."""
    answer = expect_status(create(server, server.content[:500]), 201)
    expect_header(answer, "Location")
    expect_header(answer, "Upload-Complete", "?0")
    expect_offset(server, server.located(answer), 500)


def creation_limit(server: Server) -> None:
    """The answer to such a creation has Upload-Limit."""
    limits(expect_header(create(server, b""), "Upload-Limit"))


def inconsistent_creation(server: Server) -> None:
    """Creation with all bytes, but of another length than declared, is refused with 400."""
    answer = create(server, server.content[:500], complete=True, Upload_Length="600")
    expect_problem(expect_status(answer, 400), "inconsistent-upload-length")


def bad_boolean(server: Server) -> None:
    """Upload-Complete that is not a boolean of structured fields is refused, or ignored."""
    headers = {**VERSION, **WHOLE, "Upload-Complete": "false"}
    answer = server.ask("POST", server.creation_url(), headers, server.content[:100])
    if answer.header("Upload-Complete") is not None and answer.status < 400:
        broken("it was understood", answer)


# -- interim answers -------------------------------------------------------------------------


def slow_creation(server: Server, version: Mapping[str, str]) -> Answer | None:
    """The first interim answer to a creation whose body stalls."""
    size = str(len(server.content))
    headers = {**version, **WHOLE, "Upload-Complete": "?1", "Content-Length": size}
    with server.begin("POST", server.creation_url(), headers) as connection:
        connection.send(server.content[:500])
        return connection.interim(_SOON)


def interim_location(server: Server) -> None:
    """A creation under way is announced by 104 with Location."""
    answer = slow_creation(server, VERSION)
    if answer is None:
        broken("nothing came before the end of the body")
    expect_header(expect_status(answer, 104), "Location")


def interim_version(server: Server) -> None:
    """104 names the interop version of the request."""
    answer = slow_creation(server, VERSION)
    if answer is None:
        raise Absent("no 104")
    expect_header(answer, "Upload-Draft-Interop-Version", "8")


def no_interim_without_version(server: Server) -> None:
    """Without an interop version there is no 104."""
    if slow_creation(server, {}) is not None:
        broken("104 came")


def no_interim_of_other_version(server: Server) -> None:
    """To another interop version there is no 104."""
    if slow_creation(server, {"Upload-Draft-Interop-Version": "99"}) is not None:
        broken("104 came")


def interim_append(server: Server) -> None:
    """104 to an append has no Location."""
    url = begin(server)
    with stalled(server, url, 0, server.content[:500]) as connection:
        answer = connection.interim(_SOON)
    if answer is None:
        raise Absent("no 104")
    expect_none(expect_status(answer, 104), "Location")


def resumes_from_interim(server: Server) -> None:
    """An upload whose creation was cut resumes at the Location of its 104."""
    content = server.content
    headers = {**VERSION, **WHOLE, "Upload-Complete": "?1", "Content-Length": str(len(content))}
    with server.begin("POST", server.creation_url(), headers) as connection:
        connection.send(content[: len(content) // 2])
        interim = connection.interim(_SOON)
        if interim is None:
            raise Absent("no 104")
        time.sleep(0.3)
        connection.reset()
    url = server.located(interim)
    offset = settled(server, url, len(content) // 2)
    answer = expect_success(append(server, url, offset, content[offset:], complete=True))
    expect_header(answer, "Upload-Complete", "?1")


# -- the offset ------------------------------------------------------------------------------


def offset(server: Server) -> None:
    """HEAD is answered with 2xx, Upload-Offset and Upload-Complete."""
    answer = expect_success(retrieve(server, begin(server, server.content[:500])))
    expect_header(answer, "Upload-Offset", "500")
    expect_header(answer, "Upload-Complete", "?0")


def offset_length(server: Server) -> None:
    """HEAD gives a length that is known."""
    answer = retrieve(server, begin(server, b"", Upload_Length="700"))
    expect_header(answer, "Upload-Length", "700")


def offset_limit(server: Server) -> None:
    """HEAD is answered with Upload-Limit."""
    limits(expect_header(retrieve(server, begin(server)), "Upload-Limit"))


def offset_not_stored(server: Server) -> None:
    """HEAD is answered with Cache-Control: no-store."""
    cache = expect_header(retrieve(server, begin(server)), "Cache-Control")
    if "no-store" not in cache:
        broken(f"Cache-Control: {cache}")


def offset_by_get(server: Server) -> None:
    """GET of an upload answers as HEAD does."""
    url = begin(server, server.content[:500])
    expect_header(expect_success(retrieve(server, url, "GET")), "Upload-Offset", "500")


def offset_complete(server: Server) -> None:
    """HEAD of a complete upload says so, if it is still there."""
    url = begin(server, server.content[:500])
    append(server, url, 500, server.content[500:], complete=True)
    answer = retrieve(server, url)
    if answer.status not in GONE:
        expect_header(expect_success(answer), "Upload-Complete", "?1")
        expect_header(answer, "Upload-Offset", str(len(server.content)))


def offset_unknown(server: Server) -> None:
    """HEAD of an unknown upload is 404 or 410, without Upload-Offset."""
    answer = expect_status(retrieve(server, unknown(server)), *GONE)
    expect_none(answer, "Upload-Offset")


# -- appends ---------------------------------------------------------------------------------


def more(server: Server) -> None:
    """An append of which more follows is answered with 2xx and Upload-Complete: ?0."""
    url = begin(server)
    answer = expect_success(append(server, url, 0, server.content[:333]))
    expect_header(answer, "Upload-Complete", "?0")
    expect_success(append(server, url, 333, server.content[333:700]))
    expect_offset(server, url, 700)


def last(server: Server) -> None:
    """The last append is answered by the resource itself, with Upload-Complete: ?1."""
    url = begin(server, server.content[:500])
    answer = expect_success(append(server, url, 500, server.content[500:], complete=True))
    expect_header(answer, "Upload-Complete", "?1")


def empty_last(server: Server) -> None:
    """An append without bytes can complete an upload."""
    url = begin(server, server.content)
    size = len(server.content)
    answer = expect_success(append(server, url, size, b"", complete=True))
    expect_header(answer, "Upload-Complete", "?1")


def media_type(server: Server) -> None:
    """An append of another media type is refused with 415."""
    url = begin(server)
    headers = {**VERSION, "Content-Type": "text/plain", "Upload-Offset": "0"}
    headers["Upload-Complete"] = "?0"
    expect_status(server.ask("PATCH", url, headers, server.content[:10]), 415)
    expect_offset(server, url, 0)


def incomplete_head(server: Server) -> None:
    """An append without offset or Upload-Complete is refused, and changes nothing."""
    url = begin(server)
    for headers in ({"Upload-Offset": "0"}, {"Upload-Complete": "?0"}):
        given = {**VERSION, **PARTIAL, **headers}
        expect_refusal(server.ask("PATCH", url, given, server.content[:10]))
    expect_offset(server, url, 0)


def mismatch(server: Server) -> None:
    """An append at another offset is refused with 409, the right offset, Upload-Complete: ?0."""
    url = begin(server, server.content[:500])
    answer = expect_status(append(server, url, 400, server.content[400:]), 409)
    expect_header(answer, "Upload-Offset", "500")
    expect_header(answer, "Upload-Complete", "?0")
    expect_offset(server, url, 500)


def mismatch_problem(server: Server) -> None:
    """That refusal is a problem document with both offsets."""
    url = begin(server, server.content[:500])
    answer = append(server, url, 400, server.content[400:])
    problem = expect_problem(answer, "mismatching-upload-offset")
    if (problem.get("expected-offset"), problem.get("provided-offset")) != (500, 400):
        broken("it names other offsets", answer)


def expect_problem(answer: Answer, name: str) -> dict[str, object]:
    try:
        problem = json.loads(answer.body)
    except ValueError:
        broken("the answer is no problem document", answer)
    if not isinstance(problem, dict) or problem.get("type") != PROBLEMS + name:
        broken(f"the problem is not {name}", answer)
    return problem


def inconsistent_append(server: Server) -> None:
    """An append that completes an upload elsewhere than declared is refused with 400."""
    url = begin(server, b"", Upload_Length="700")
    answer = append(server, url, 0, server.content[:500], complete=True)
    expect_problem(expect_status(answer, 400), "inconsistent-upload-length")


def another_length(server: Server) -> None:
    """A length that differs from the one declared before is refused with 400."""
    url = begin(server, b"", Upload_Length="700")
    answer = append(server, url, 0, server.content[:500], Upload_Length="800")
    expect_problem(expect_status(answer, 400), "inconsistent-upload-length")


def beyond(server: Server) -> None:
    """Bytes beyond the declared length are refused."""
    url = begin(server, b"", Upload_Length="100")
    expect_refusal(append(server, url, 0, server.content[:200]))
    answer = retrieve(server, url)
    if answer.status < 300 and int(answer.header("Upload-Offset") or "0") > 100:
        broken("the offset is beyond the length", answer)


def after_the_end(server: Server) -> None:
    """An append to a complete upload is refused."""
    url, size = begin(server), len(server.content)
    append(server, url, 0, server.content, complete=True)
    expect_refusal(append(server, url, size, server.content[:10]))


def append_unknown(server: Server) -> None:
    """An append to an unknown upload is 404 or 410."""
    expect_status(append(server, unknown(server), 0, server.content[:10]), *GONE)


# -- cuts and races --------------------------------------------------------------------------


def stalled(server: Server, url: str, at: int, sent: bytes) -> Connection:
    """An append that has sent less than it announced."""
    headers = {"Upload-Offset": str(at), "Upload-Complete": "?0"}
    size = {"Content-Length": str(len(sent) + 1000)}
    connection = server.begin("PATCH", url, {**VERSION, **PARTIAL, **headers, **size})
    connection.send(sent)
    return connection


def settled(server: Server, url: str, most: int) -> int:
    """The offset after a cut, once it no longer moves."""
    # As clients do before they come back: a server may be storing what it has.
    time.sleep(0.5)
    deadline, seen = time.monotonic() + _PATIENCE, -1
    while True:
        answer = expect_success(retrieve(server, url))
        at = int(expect_header(answer, "Upload-Offset"))
        if at < seen or at > most:
            broken(f"the offset went from {seen} to {at}, {most} bytes were sent")
        if at == seen or time.monotonic() > deadline:
            return at
        seen = at
        time.sleep(0.3)


def cut(server: Server) -> None:
    """What was received before a cut is kept, at least in part."""
    url, half = begin(server), len(server.content) // 2
    with stalled(server, url, 0, server.content[:half]) as connection:
        time.sleep(0.3)
        connection.reset()
    if not settled(server, url, half):
        broken("nothing was kept")


def resumes_after_cut(server: Server) -> None:
    """After a cut, an upload resumes at the offset that HEAD gives."""
    url, half = begin(server), len(server.content) // 2
    with stalled(server, url, 0, server.content[:half]) as connection:
        time.sleep(0.3)
        connection.reset()
    at = settled(server, url, half)
    answer = expect_success(append(server, url, at, server.content[at:], complete=True))
    expect_header(answer, "Upload-Complete", "?1")


def takes_over(server: Server) -> None:
    """While an append stalls, HEAD is answered and an append at its offset is taken."""
    url, content = begin(server), server.content
    with stalled(server, url, 0, content[:500]) as connection:
        time.sleep(0.3)
        at = int(expect_header(expect_success(retrieve(server, url)), "Upload-Offset"))
        expect_success(append(server, url, at, content[at:700]))
        expect_offset(server, url, 700)
        connection.reset()


def late_bytes(server: Server) -> None:
    """Bytes that an append sends after another one has taken over never count."""
    url, content = begin(server), server.content
    with stalled(server, url, 0, content[:500]) as connection:
        time.sleep(0.3)
        at = int(expect_header(expect_success(retrieve(server, url)), "Upload-Offset"))
        expect_success(append(server, url, at, content[at:700]))
        try:
            connection.send(b"\xff" * 1000)
            time.sleep(0.3)
        except OSError:
            pass  # the server has closed it
        connection.close()
    time.sleep(0.3)
    expect_offset(server, url, 700)
    expect_success(append(server, url, 700, content[700:], complete=True))


# -- the rest --------------------------------------------------------------------------------


def delete(server: Server) -> None:
    """DELETE is answered with 204; then the upload is 404 or 410."""
    url = begin(server, server.content[:100])
    expect_status(server.ask("DELETE", url, VERSION), 204)
    expect_status(retrieve(server, url), *GONE)
    expect_status(append(server, url, 100, server.content[100:200]), *GONE)


def options(server: Server) -> None:
    """OPTIONS is answered with 2xx and Upload-Limit."""
    url = server.creation_url()
    limits(expect_header(expect_success(server.ask("OPTIONS", url, VERSION)), "Upload-Limit"))


def content_digest(server: Server) -> None:
    """An append with the right Content-Digest is taken."""
    url, piece = begin(server), server.content[:500]
    expect_success(append(server, url, 0, piece, Content_Digest=sha256(piece)))
    expect_offset(server, url, 500)


def wrong_content_digest(server: Server) -> None:
    """An append with a wrong Content-Digest is refused, and its bytes do not count."""
    url = begin(server)
    expect_refusal(append(server, url, 0, server.content[:500], Content_Digest=sha256(b"other")))
    expect_offset(server, url, 0)


def sha256(data: bytes) -> str:
    return f"sha-256=:{base64.b64encode(hashlib.sha256(data).digest()).decode()}:"


def repr_digest(server: Server) -> None:
    """A Repr-Digest given at creation is verified: the right one is taken."""
    content = server.content
    url = begin(server, b"", Repr_Digest=sha256(content))
    expect_success(append(server, url, 0, content[:500]))
    answer = expect_success(append(server, url, 500, content[500:], complete=True))
    expect_header(answer, "Upload-Complete", "?1")


def wrong_repr_digest(server: Server) -> None:
    """A Repr-Digest given at creation is verified: a wrong one is refused at the end."""
    url = begin(server, b"", Repr_Digest=sha256(b"other"))
    expect_refusal(append(server, url, 0, server.content, complete=True))


# -- earlier versions ------------------------------------------------------------------------


def _earlier(version: str, server: Server) -> None:
    content, size = server.content, len(server.content)
    dialect = {"Upload-Draft-Interop-Version": version}
    media = PARTIAL if version == "6" else {}
    headers = {**dialect, **WHOLE, "Upload-Complete": "?0"}
    answer = server.ask("POST", server.creation_url(), headers, content[:500])
    url = server.located(expect_status(answer, 201))
    answer = expect_success(server.ask("HEAD", url, dialect))
    expect_header(answer, "Upload-Offset", "500")
    expect_header(answer, "Upload-Complete", "?0")
    for start, stop in ((500, 900), (900, size)):
        given = {"Upload-Offset": str(start), "Upload-Complete": _bool(stop == size)}
        answer = server.ask("PATCH", url, {**dialect, **media, **given}, content[start:stop])
        expect_header(expect_success(answer), "Upload-Offset", str(stop))


def version_6(server: Server) -> None:
    """A client of interop version 6 uploads in parts; each answer has Upload-Offset."""
    _earlier("6", server)


def version_5(server: Server) -> None:
    """A client of interop version 5 uploads in parts; each answer has Upload-Offset."""
    _earlier("5", server)


def _part(part: str, *checks: Callable[[Server], None]) -> list[Requirement]:
    return [Requirement("ietf", part, "MUST", check) for check in checks]


IETF: tuple[Requirement, ...] = (
    *_part("creation", at_once, in_parts),
    Requirement("ietf", "creation", "SHOULD", creation_limit),
    *_part("creation", inconsistent_creation, bad_boolean),
    Requirement("ietf", "interim", "MAY", interim_location),
    *_part("interim", interim_version, no_interim_without_version, no_interim_of_other_version),
    *_part("interim", interim_append, resumes_from_interim),
    *_part("offset", offset, offset_length),
    Requirement("ietf", "offset", "SHOULD", offset_limit),
    *_part("offset", offset_not_stored, offset_by_get, offset_complete, offset_unknown),
    *_part("append", more, last, empty_last, media_type, incomplete_head, mismatch),
    Requirement("ietf", "append", "SHOULD", mismatch_problem),
    *_part("append", inconsistent_append, another_length, beyond, after_the_end, append_unknown),
    Requirement("ietf", "cuts", "SHOULD", cut),
    *_part("cuts", resumes_after_cut),
    Requirement("ietf", "cuts", "SHOULD", takes_over),
    *_part("cuts", late_bytes),
    *_part("cancellation", delete),
    *_part("limits", options),
    Requirement("ietf", "digests", "SHOULD", content_digest),
    *_part("digests", wrong_content_digest),
    Requirement("ietf", "digests", "SHOULD", repr_digest),
    Requirement("ietf", "digests", "SHOULD", wrong_repr_digest),
    Requirement("ietf", "earlier versions", "MAY", version_6),
    Requirement("ietf", "earlier versions", "MAY", version_5),
)
