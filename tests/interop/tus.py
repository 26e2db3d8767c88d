"""Requirements of tus 1.0.0: its core, and the extensions that a server announces."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import time
import zlib
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime

from tests.interop.suite import (
    Absent,
    Broken,
    Requirement,
    Server,
    broken,
    digest_header,
    expect_header,
    expect_none,
    expect_refusal,
    expect_status,
)
from tests.interop.wire import Answer

VERSION = {"Tus-Resumable": "1.0.0"}
OCTETS = {"Content-Type": "application/offset+octet-stream"}
GONE = (404, 410, 403)
_MISMATCH = 460
NAMED = {
    "Upload-Metadata": f"filename {base64.b64encode(b'part.bin').decode()},"
    f"filetype {base64.b64encode(b'application/octet-stream').decode()}"
}
"""Sent with every creation: some servers ask for both."""
_PATIENCE = 5.0
"""Seconds for a server to notice that a connection has broken."""


def ask(
    server: Server,
    method: str,
    url: str,
    headers: Mapping[str, str] | None = None,
    body: bytes | None = None,
) -> Answer:
    named = NAMED if method == "POST" else {}
    return server.ask(method, url, {**VERSION, **named, **(headers or {})}, body)


def create(server: Server, size: int | None = None, **more: str) -> str:
    """Create an upload; its URL."""
    length = {"Upload-Length": str(len(server.content) if size is None else size)}
    headers = {**length, **{name.replace("_", "-"): value for name, value in more.items()}}
    answer = ask(server, "POST", server.creation_url(), headers)
    return server.located(expect_status(answer, 201))


def patch(server: Server, url: str, offset: int, body: bytes, **more: str) -> Answer:
    extra = {name.replace("_", "-"): value for name, value in more.items()}
    return ask(server, "PATCH", url, {**OCTETS, "Upload-Offset": str(offset), **extra}, body)


def offset_of(server: Server, url: str) -> int:
    return int(expect_header(expect_status(ask(server, "HEAD", url), 200, 204), "Upload-Offset"))


def expect_offset(server: Server, url: str, offset: int) -> None:
    found = offset_of(server, url)
    if found != offset:
        broken(f"the offset is {found} instead of {offset}")


def need(server: Server, extension: str) -> Answer:
    """The answer to OPTIONS, if the server has an extension.

    Raises:
        Absent: it has not.
    """
    answer = server.ask("OPTIONS", server.creation_url(), {})
    names = (answer.header("Tus-Extension") or "").split(",")
    if extension not in {name.strip() for name in names}:
        raise Absent(f"{extension} is not announced")
    return answer


# -- core ----------------------------------------------------------------------------------


def options(server: Server) -> None:
    """OPTIONS is answered with 200 or 204 and Tus-Version."""
    answer = expect_status(server.ask("OPTIONS", server.creation_url(), {}), 200, 204)
    versions = expect_header(answer, "Tus-Version").split(",")
    if "1.0.0" not in {version.strip() for version in versions}:
        broken("Tus-Version lacks 1.0.0", answer)


def maximum(server: Server) -> None:
    """Tus-Max-Size is a number that is not negative."""
    answer = server.ask("OPTIONS", server.creation_url(), {})
    if int(answer.header("Tus-Max-Size") or "0") < 0:
        broken("Tus-Max-Size is negative", answer)


def version_everywhere(server: Server) -> None:
    """Every answer but that to OPTIONS has Tus-Resumable."""
    url = create(server)
    answers = [
        ask(server, "POST", server.creation_url(), {"Upload-Length": "5"}),
        ask(server, "HEAD", url),
        patch(server, url, 0, server.content[:10]),
        patch(server, url, 3, server.content[:10]),
    ]
    for answer in answers:
        expect_header(answer, "Tus-Resumable", "1.0.0")


def other_version(server: Server) -> None:
    """A version that is not spoken is refused with 412 and Tus-Version."""
    url = create(server)
    headers = {"Tus-Resumable": "0.2.2", **OCTETS, "Upload-Offset": "0"}
    answer = expect_status(server.ask("PATCH", url, headers, server.content[:10]), 412)
    expect_header(answer, "Tus-Version")


def other_version_changes_nothing(server: Server) -> None:
    """A request of a version that is not spoken is not processed."""
    url = create(server)
    headers = {"Tus-Resumable": "0.2.2", **OCTETS, "Upload-Offset": "0"}
    server.ask("PATCH", url, headers, server.content[:10])
    expect_offset(server, url, 0)


def head(server: Server) -> None:
    """HEAD is answered with 200 or 204, Upload-Offset and Upload-Length."""
    url = create(server)
    answer = expect_status(ask(server, "HEAD", url), 200, 204)
    expect_header(answer, "Upload-Offset", "0")
    expect_header(answer, "Upload-Length", str(len(server.content)))


def head_not_stored(server: Server) -> None:
    """Answers to HEAD must not be cached: Cache-Control: no-store."""
    cache = expect_header(ask(server, "HEAD", create(server)), "Cache-Control")
    if "no-store" not in cache:
        broken(f"Cache-Control: {cache}")


def head_unknown(server: Server) -> None:
    """HEAD of an unknown upload is 404, 410 or 403."""
    expect_status(ask(server, "HEAD", unknown(server)), *GONE)


def head_unknown_offset(server: Server) -> None:
    """The refusal of a HEAD has no Upload-Offset."""
    expect_none(ask(server, "HEAD", unknown(server)), "Upload-Offset")


def unknown(server: Server) -> str:
    """The URL of an upload that there never was."""
    start, _, ident = create(server).rpartition("/")
    name, question, query = ident.partition("?")
    changed = name.translate(str.maketrans("0123456789abcdef", "fedcba9876543210"))
    return f"{start}/{changed}{question}{query}"


def append(server: Server) -> None:
    """PATCH at the offset is answered with 204 and the new Upload-Offset."""
    url = create(server)
    for start in (0, 333):
        piece = server.content[start : start + 333]
        answer = expect_status(patch(server, url, start, piece), 204)
        expect_header(answer, "Upload-Offset", str(start + 333))
    expect_offset(server, url, 666)


def whole(server: Server) -> None:
    """An upload in pieces ends at its length."""
    url, content = create(server), server.content
    for start in range(0, len(content), 7_001):
        expect_status(patch(server, url, start, content[start : start + 7_001]), 204)
    answer = ask(server, "HEAD", url)
    if answer.status in {200, 204}:
        expect_header(answer, "Upload-Offset", str(len(content)))
    elif answer.status not in GONE:  # some servers move what is complete
        broken(f"{answer.status} for a complete upload", answer)


def chunked(server: Server) -> None:
    """A PATCH whose length is not known in advance is taken."""
    url, content = create(server), server.content
    headers = {**VERSION, **OCTETS, "Upload-Offset": "0", "Transfer-Encoding": "chunked"}
    with server.begin("PATCH", url, headers) as connection:
        for piece in (content[:100], content[100:400]):
            connection.send(b"%x\r\n%s\r\n" % (len(piece), piece))
        connection.send(b"0\r\n\r\n")
        expect_header(expect_status(connection.answer(), 204), "Upload-Offset", "400")


def media_type(server: Server) -> None:
    """PATCH with another media type is refused with 415."""
    url = create(server)
    headers = {"Content-Type": "application/octet-stream", "Upload-Offset": "0"}
    expect_status(ask(server, "PATCH", url, headers, server.content[:10]), 415)


def mismatch(server: Server) -> None:
    """PATCH at another offset is refused with 409."""
    url = create(server)
    patch(server, url, 0, server.content[:100])
    for offset in (0, 99, 101):
        expect_status(patch(server, url, offset, server.content[offset : offset + 10]), 409)


def mismatch_changes_nothing(server: Server) -> None:
    """A PATCH at another offset changes nothing."""
    url = create(server)
    patch(server, url, 0, server.content[:100])
    patch(server, url, 50, server.content[50:90])
    expect_offset(server, url, 100)


def no_offset(server: Server) -> None:
    """PATCH without, or with a senseless, Upload-Offset is refused."""
    url = create(server)
    expect_refusal(ask(server, "PATCH", url, OCTETS, server.content[:10]))
    for text in ("-1", "x", "1.0", ""):
        headers = {**OCTETS, "Upload-Offset": text}
        expect_refusal(ask(server, "PATCH", url, headers, server.content[:10]))
    expect_offset(server, url, 0)


def append_unknown(server: Server) -> None:
    """PATCH of an unknown upload is 404, 410 or 403."""
    expect_status(patch(server, unknown(server), 0, server.content[:10]), *GONE)


def beyond(server: Server) -> None:
    """Bytes beyond the declared length never count."""
    url = create(server, 100)
    patch(server, url, 0, server.content[:200])
    answer = ask(server, "HEAD", url)
    if answer.status in {200, 204} and int(answer.header("Upload-Offset") or "0") > 100:
        broken("the offset is beyond the length", answer)


def cut(server: Server) -> None:
    """What was received before a cut is kept, at least in part."""
    if settled_after_cut(server)[1] == 0:
        broken("nothing was kept")


def resumes_after_cut(server: Server) -> None:
    """After a cut, an upload resumes at the offset that HEAD gives."""
    url, offset = settled_after_cut(server)
    content = server.content
    answer = expect_status(patch(server, url, offset, content[offset:]), 204)
    expect_header(answer, "Upload-Offset", str(len(content)))


def settled_after_cut(server: Server) -> tuple[str, int]:
    """An upload whose first PATCH was cut after half of it, and its offset."""
    url, content = create(server), server.content
    size = len(content)
    headers = {**VERSION, **OCTETS, "Upload-Offset": "0", "Content-Length": str(size)}
    with server.begin("PATCH", url, headers) as connection:
        connection.send(content[: size // 2])
        time.sleep(0.3)
        connection.reset()
    # As clients do before they come back: a server may be storing what it has.
    time.sleep(0.5)
    deadline = time.monotonic() + _PATIENCE
    last = -1
    while time.monotonic() < deadline:
        offset = offset_of(server, url)
        if offset < last or offset > size // 2:
            broken(f"the offset went from {last} to {offset}, {size // 2} bytes were sent")
        if offset == last:
            return url, offset
        last = offset
        time.sleep(0.3)
    return url, last


def method_override(server: Server) -> None:
    """X-HTTP-Method-Override names the method."""
    url = create(server)
    headers = {"X-HTTP-Method-Override": "PATCH", **OCTETS, "Upload-Offset": "0"}
    answer = expect_status(ask(server, "POST", url, headers, server.content[:10]), 204)
    expect_header(answer, "Upload-Offset", "10")


# -- extensions ----------------------------------------------------------------------------


def creation(server: Server) -> None:
    """POST is answered with 201 and Location."""
    need(server, "creation")
    headers = {"Upload-Length": str(len(server.content))}
    answer = expect_status(ask(server, "POST", server.creation_url(), headers), 201)
    expect_header(answer, "Location")


def absolute_location(server: Server) -> None:
    """Location is absolute: a widespread client takes no other."""
    need(server, "creation")
    headers = {"Upload-Length": "100"}
    location = expect_header(ask(server, "POST", server.creation_url(), headers), "Location")
    if not location.startswith("http"):
        broken(f"Location: {location}")


def metadata(server: Server) -> None:
    """HEAD gives Upload-Metadata back."""
    need(server, "creation")
    found = expect_header(ask(server, "HEAD", create(server)), "Upload-Metadata")
    pairs = {pair.strip() for pair in found.split(",")}
    if pairs != set(NAMED["Upload-Metadata"].split(",")):
        broken(f"Upload-Metadata: {found}")


def creation_without_length(server: Server) -> None:
    """POST with neither a length nor its deferral is refused with 400."""
    need(server, "creation")
    expect_status(ask(server, "POST", server.creation_url()), 400)


def creation_bad_length(server: Server) -> None:
    """POST with a senseless length is refused."""
    need(server, "creation")
    for text in ("-5", "x", "1e3"):
        expect_refusal(ask(server, "POST", server.creation_url(), {"Upload-Length": text}))


def creation_too_large(server: Server) -> None:
    """POST with more than Tus-Max-Size is refused with 413."""
    most = need(server, "creation").header("Tus-Max-Size")
    if most is None:
        raise Absent("Tus-Max-Size is not announced")
    headers = {"Upload-Length": str(int(most) + 1)}
    expect_status(ask(server, "POST", server.creation_url(), headers), 413)


def deferred(server: Server) -> None:
    """HEAD has Upload-Defer-Length: 1 until the length is known, then Upload-Length."""
    url = defer(server)
    answer = ask(server, "HEAD", url)
    expect_header(answer, "Upload-Defer-Length", "1")
    expect_none(answer, "Upload-Length")
    expect_status(patch(server, url, 0, server.content[:100]), 204)
    size = str(len(server.content))
    expect_status(patch(server, url, 100, server.content[100:200], Upload_Length=size), 204)
    answer = ask(server, "HEAD", url)
    expect_header(answer, "Upload-Length", size)
    expect_none(answer, "Upload-Defer-Length")


def defer(server: Server) -> str:
    need(server, "creation-defer-length")
    headers = {"Upload-Defer-Length": "1"}
    answer = ask(server, "POST", server.creation_url(), headers)
    return server.located(expect_status(answer, 201))


def deferred_value(server: Server) -> None:
    """POST with Upload-Defer-Length other than 1 is refused with 400."""
    need(server, "creation-defer-length")
    headers = {"Upload-Defer-Length": "2"}
    expect_status(ask(server, "POST", server.creation_url(), headers), 400)


def deferred_once(server: Server) -> None:
    """The length of an upload does not change once it is set."""
    url, size = defer(server), len(server.content)
    patch(server, url, 0, server.content[:100], Upload_Length=str(size))
    patch(server, url, 100, server.content[100:200], Upload_Length=str(size + 5))
    expect_header(ask(server, "HEAD", url), "Upload-Length", str(size))


def creation_with_upload(server: Server) -> None:
    """POST with a body is answered with 201 and the Upload-Offset after it."""
    need(server, "creation-with-upload")
    headers = {**OCTETS, "Upload-Length": str(len(server.content))}
    answer = ask(server, "POST", server.creation_url(), headers, server.content[:500])
    expect_header(expect_status(answer, 201), "Upload-Offset", "500")
    expect_offset(server, server.located(answer), 500)


ALGORITHMS: Mapping[str, Callable[[bytes], bytes]] = {
    "sha1": lambda data: hashlib.sha1(data, usedforsecurity=False).digest(),
    "sha256": lambda data: hashlib.sha256(data).digest(),
    "md5": lambda data: hashlib.md5(data, usedforsecurity=False).digest(),
    "crc32": lambda data: zlib.crc32(data).to_bytes(4, "big"),
}


def algorithms(server: Server) -> list[str]:
    found = expect_header(need(server, "checksum"), "Tus-Checksum-Algorithm")
    return [name.strip() for name in found.split(",")]


def checksum_algorithms(server: Server) -> None:
    """Tus-Checksum-Algorithm has sha1."""
    if "sha1" not in algorithms(server):
        broken("sha1 is not announced")


def checksum_right(server: Server) -> None:
    """PATCH with the right checksum is taken, by every algorithm announced."""
    for name in sorted(set(algorithms(server)) & set(ALGORITHMS)):
        url, piece = create(server), server.content[:300]
        value = digest_header(name, ALGORITHMS[name](piece))
        answer = expect_status(patch(server, url, 0, piece, Upload_Checksum=value), 204)
        expect_header(answer, "Upload-Offset", "300")


def checksum_wrong(server: Server) -> None:
    """PATCH with a wrong checksum is refused with 460."""
    algorithms(server)
    url, piece = create(server), server.content[:300]
    value = digest_header("sha1", ALGORITHMS["sha1"](b"other"))
    expect_status(patch(server, url, 0, piece, Upload_Checksum=value), _MISMATCH)


def checksum_discards(server: Server) -> None:
    """The bytes of a PATCH with a wrong checksum are discarded."""
    algorithms(server)
    url, piece = create(server), server.content[:300]
    value = digest_header("sha1", ALGORITHMS["sha1"](b"other"))
    patch(server, url, 0, piece, Upload_Checksum=value)
    expect_offset(server, url, 0)


def checksum_unknown(server: Server) -> None:
    """PATCH with an algorithm that is not supported is refused with 400."""
    algorithms(server)
    url = create(server)
    value = digest_header("rot13", b"x")
    expect_status(patch(server, url, 0, server.content[:300], Upload_Checksum=value), 400)
    expect_offset(server, url, 0)


def expires(server: Server) -> None:
    """Every answer to PATCH of an unfinished upload has Upload-Expires, a date of HTTP."""
    need(server, "expiration")
    url = create(server)
    value = expect_header(patch(server, url, 0, server.content[:100]), "Upload-Expires")
    with contextlib.suppress(ValueError):
        parsedate_to_datetime(value)
        if value.endswith("GMT"):
            return
    raise Broken(f"Upload-Expires: {value}")


def terminate(server: Server) -> None:
    """DELETE is answered with 204."""
    need(server, "termination")
    expect_status(ask(server, "DELETE", create(server)), 204)


def terminated(server: Server) -> None:
    """After DELETE, further requests are answered with 404 or 410."""
    need(server, "termination")
    url = create(server)
    ask(server, "DELETE", url)
    expect_status(ask(server, "HEAD", url), 404, 410)
    expect_status(patch(server, url, 0, server.content[:10]), 404, 410)


def concatenation(server: Server) -> None:
    """Partial uploads are joined, and PATCH of the result is refused with 403."""
    need(server, "concatenation")
    content, halves = server.content, []
    for piece in (content[:300], content[300:700]):
        url = create(server, len(piece), Upload_Concat="partial")
        expect_status(patch(server, url, 0, piece), 204)
        halves.append(url)
    headers = {"Upload-Concat": f"final;{' '.join(halves)}"}
    answer = ask(server, "POST", server.creation_url(), headers)
    url = server.located(expect_status(answer, 201))
    expect_header(ask(server, "HEAD", url), "Upload-Length", "700")
    expect_status(patch(server, url, 0, content[:10]), 403)


def _part(part: str, *checks: Callable[[Server], None]) -> list[Requirement]:
    return [Requirement("tus", part, "MUST", check) for check in checks]


TUS: tuple[Requirement, ...] = (
    *_part("core", options, maximum, version_everywhere, other_version),
    *_part("core", other_version_changes_nothing, head, head_not_stored, head_unknown),
    *_part("core", head_unknown_offset, append, whole),
    Requirement("tus", "core", "SHOULD", chunked),
    *_part("core", media_type, mismatch, mismatch_changes_nothing, no_offset),
    Requirement("tus", "core", "SHOULD", append_unknown),
    *_part("core", beyond),
    Requirement("tus", "core", "SHOULD", cut),
    *_part("core", resumes_after_cut, method_override),
    *_part("creation", creation),
    Requirement("tus", "creation", "SHOULD", absolute_location),
    *_part("creation", metadata, creation_without_length),
    Requirement("tus", "creation", "SHOULD", creation_bad_length),
    *_part("creation", creation_too_large),
    *_part("creation-defer-length", deferred, deferred_value, deferred_once),
    *_part("creation-with-upload", creation_with_upload),
    *_part("checksum", checksum_algorithms, checksum_right, checksum_wrong),
    *_part("checksum", checksum_discards, checksum_unknown),
    *_part("expiration", expires),
    *_part("termination", terminate, terminated),
    *_part("concatenation", concatenation),
)
