"""Sends what nobody should to a running service, for as long as it is told to.

``python -m tests.fuzz.fuzz_http --seconds 600``. Damaged streams, odd queries and
headers, parts cut anywhere, forged tokens, broken framing, clients that leave. Whatever
is sent, an answer comes in bounded time and is one that is documented; it is rows only if
the same bytes give the same rows in process; and nothing of it stays in the server. What
breaks this is printed with the command that repeats it; the exit code is 1 then.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import http.client
import io
import json
import socket
import sys
import tempfile
import time
import traceback
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from backports.zstd import ZstdError
from backports.zstd import compress as zstd_compress
from backports.zstd import decompress as zstd_decompress

from app.losses.tables import table_encoder
from core.errors import CoreError
from core.losses.inputs import parse_event_rates, parse_occurrence, parse_quantiles
from core.losses.policy import Policy
from core.losses.reports import REPORTS
from core.losses.samples import SampleSpec, generate_inputs
from tests.app.harness import (
    PATIENCE,
    PROBLEM,
    Answer,
    Contract,
    Headers,
    Post,
    Service,
    ask,
    check_problem,
    head,
    wait_until,
    with_query,
)
from tests.frames import read_frames, rows_of_frames
from tests.fuzz.fuzz_losses import damage
from tests.streams import ALL_REPORTS, Outcome, feed, random_cuts, random_stream

Rng = np.random.Generator
Rows = npt.NDArray[np.void]

FORMATS = ("csv", "ndjson", "arrow", "parquet", "bin", "frames")
QUANTILES = "0.1,0.5,0.9"
INPUTS = generate_inputs(SampleSpec(events=8, summaries=2, samples=4))
BATCH = 100
"""Cases between two looks at the health of the server."""
MIB = 1 << 20

ODD = ["", "0", "-1", "nan", "1e9", "\0", "é", "%00", "'", "a" * 3000, "?0", "[]", "null", "TRUE"]
OPTIONS = {
    "format": FORMATS,
    "nan": ("error", "zero", "drop"),
    "negative": ("error", "keep"),
    "sample_order": ("ascending", "any"),
    "order": ("received", "event"),
    "duplex": ("true", "false"),
    "summary_ids": ("1", "1-1000000", "1-9,4090-4100"),
    "expect_events": ("0", "1", "5"),
    "expect_bytes": ("12", "500"),
}
HEADERS = {
    "Upload-Complete": ("?0", "?1"),
    "Accept": ("*/*", "text/csv", "application/vnd.thalweg.frames, text/csv;q=0.1", "image/png"),
    "Accept-Encoding": ("gzip", "zstd", "identity", "*;q=0", "gzip;q=x, zstd;q=nan"),
    "Content-Encoding": ("gzip", "zstd", "identity", "br"),
    "Expect": ("100-continue",),
    "X-Request-Id": ("fuzz",),
    "Upload-Length": ("5", "100000"),
    "Connection": ("close", "keep-alive"),
}


def pick(rng: Rng, values: Sequence[str]) -> str:
    return str(values[int(rng.integers(0, len(values)))])


# -- requests ------------------------------------------------------------------------


@dataclass
class Request:
    """What is asked for, and whether all of it is sound but for the stream."""

    reports: tuple[str, ...]
    width: int
    options: dict[str, str] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    sound: bool = True

    @property
    def path(self) -> str:
        width = {"float_width": "8"} if self.width == 8 else {}
        if len(self.reports) > 1:
            known = {"reports": ",".join(self.reports), **width, **self.options}
            return with_query("/v1/losses", known)
        return with_query(f"/v1/losses/{self.reports[0]}", {**width, **self.options})

    @property
    def form(self) -> str:
        return "frames" if len(self.reports) > 1 else self.options.get("format", "csv")

    @property
    def duplex(self) -> bool:
        # Odd ones among the values mean the same.
        return self.options.get("duplex", "").lower() in {"true", "1"}

    def outcome(self, data: bytes) -> Outcome:
        """What the same bytes give in process."""
        known: Any = {
            n: self.options[n] for n in ("nan", "negative", "sample_order") if n in self.options
        }
        order: Any = "ascending" if self.options.get("order") == "event" else "any"
        policy = Policy(self.width, event_order=order, max_samples=200_000, **known)
        ends: dict[str, Any] = {
            n: int(self.options[n]) for n in ("expect_events", "expect_bytes") if n in self.options
        }
        if self.headers.get("Upload-Length", "").isdecimal():
            ends["expect_bytes"] = int(self.headers["Upload-Length"])
        given: dict[str, Any] = {"policy": policy, **ends}
        if "qelt" in self.reports:
            given["quantiles"] = np.array([float(q) for q in QUANTILES.split(",")], np.float32)
        return self._kept(feed([data], self.reports, **given))

    def _kept(self, outcome: Outcome) -> Outcome:
        """Rows of the wanted summaries alone."""
        if "summary_ids" not in self.options:
            return outcome
        ranges = [part.split("-") for part in self.options["summary_ids"].split(",")]
        kept = {}
        for report, octets in outcome.rows.items():
            rows = np.frombuffer(octets, REPORTS[report].dtype(self.width))
            ids = rows["SummaryId"]
            wanted = np.logical_or.reduce(
                [(ids >= int(r[0])) & (ids <= int(r[-1])) for r in ranges]
            )
            kept[report] = rows[wanted].tobytes()
        return outcome._replace(rows=kept)


def random_request(rng: Rng, kind: str, width: int) -> Request:
    """Mostly sound; sometimes with an option or a header that is not."""
    reports: Sequence[str] = ALL_REPORTS if kind == "summary" else ("events",)
    if rng.random() < 0.05:
        reports = ALL_REPORTS
    count = int(rng.integers(1, len(reports), endpoint=True)) if rng.random() < 0.2 else 1
    chosen = tuple(str(r) for r in rng.permutation(np.array(reports))[:count])
    request = Request(chosen, width)
    if "qelt" in chosen:
        request.options["quantiles"] = QUANTILES
    for name, values in OPTIONS.items():
        if rng.random() < (0.6 if name == "format" else 0.12):
            request.options[name] = pick(rng, values)
    if count > 1 or rng.random() < 0.1:
        request.options.pop("format", None)
    if "events" in chosen:
        request.options.pop("summary_ids", None)
    if rng.random() < 0.05:
        request.headers["X-Request-Id"] = "fuzz"
    if rng.random() < 0.12:
        make_odd(rng, request)
    return request


def make_odd(rng: Rng, request: Request) -> None:
    request.sound = False
    match rng.integers(0, 6):
        case 0:
            name = pick(rng, [*OPTIONS, "after", "quantiles", "event_rates", "occurrence"])
            request.options[name] = pick(rng, ODD)
        case 1:
            request.options[pick(rng, ODD)] = pick(rng, ODD)
        case 2:
            request.headers["Accept"] = pick(rng, HEADERS["Accept"])
        case 3:
            name = pick(rng, [*HEADERS, "Authorization", "traceparent", "Cookie"])
            request.headers[name] = pick(rng, ["", "0", "?2", "x" * 2000, "\xff\xfe", "gzip, gzip"])
        case 4:
            name = pick(rng, list(HEADERS))
            request.headers[name] = pick(rng, HEADERS[name])
        case _:
            request.options["no_of_periods"] = pick(rng, ODD)


def encode_body(rng: Rng, request: Request, data: bytes) -> tuple[bytes, bool]:
    """The body as sent, perhaps compressed; perhaps damaged after that: then with False."""
    if "Content-Encoding" in request.headers or rng.random() < 0.7:
        return data, True
    coding = pick(rng, ["gzip", "zstd"])
    request.headers["Content-Encoding"] = coding
    pack: Callable[[bytes], bytes] = gzip.compress if coding == "gzip" else zstd_compress
    pieces = random_cuts(rng, data, int(rng.integers(0, 3)))
    body = b"".join(pack(piece) for piece in pieces)
    if rng.random() < 0.15:
        return damage(rng, body), False
    return body, True


def decode_body(request: Request, body: bytes) -> bytes | None:
    """The stream that was posted, None if it is cut or damaged."""
    coding = request.headers.get("Content-Encoding", "identity")
    try:
        if coding == "gzip":
            return gzip.decompress(body)
        return zstd_decompress(body) if coding == "zstd" else body
    except (EOFError, OSError, zlib.error, ZstdError):
        return None


def frame_body(rng: Rng, body: bytes) -> tuple[Headers, list[bytes]]:
    """The body framed, in pieces that are sent one by one."""
    pieces = [p for p in random_cuts(rng, body, int(rng.integers(0, 6))) if p]
    if rng.random() < 0.5:
        return [("Content-Length", str(len(body)))], pieces
    ends = [b"0\r\n\r\n", b"000;last\r\n\r\n", b"0\r\nUpload-Complete: ?0\r\nA: b\r\n\r\n"]
    wire = [b"%X%b\r\n%b\r\n" % (len(p), rng.choice([b"", b";a=b"]), p) for p in pieces]
    return [("Transfer-Encoding", "chunked")], [*wire, ends[int(rng.integers(0, 3))]]


def send(service: Service, rng: Rng, request: Request, body: bytes) -> Answer:
    """Send a request piece by piece; in duplex the client may read meanwhile."""
    framing, pieces = frame_body(rng, body)
    headers = [*framing, *request.headers.items()]
    method = "PUT" if len(request.reports) == 1 and rng.random() < 0.2 else "POST"
    with service.connect() as client:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            client.sendall(head(method, request.path, headers))
            for piece in pieces:
                client.sendall(piece)
                if rng.random() < 0.1:
                    time.sleep(0.001)
        return Answer(client, method)


# -- answers -------------------------------------------------------------------------


def decoded(answer: Answer) -> bytes:
    match answer.getheader("Content-Encoding"):
        case None:
            return answer.body
        case "gzip":
            # What was broken off has no end.
            return zlib.decompressobj(31).decompress(answer.body)
        case _:
            return zstd_decompress(answer.body)


def read_rows(request: Request, body: bytes) -> dict[str, bytes]:
    """Rows of an answer; text formats as the text of their rows."""
    (report, *_) = request.reports
    match request.form:
        case "frames":
            return rows_of_frames(read_frames(body))
        case "ndjson":
            lines = [line for line in body.splitlines(keepends=True) if b'"EventId"' in line]
            return {report: b"".join(lines)}
        case "arrow":
            return {report: _packed(pa.ipc.open_stream(body).read_all(), request, report)}
        case "parquet":
            return {report: _packed(pq.read_table(io.BytesIO(body)), request, report)}
        case _:
            return {report: body}


def _packed(table: pa.Table, request: Request, report: str) -> bytes:
    rows = np.zeros(table.num_rows, REPORTS[report].dtype(request.width))
    for name in rows.dtype.names or ():
        rows[name] = table[name].to_numpy()
    return rows.tobytes()


def expected_rows(request: Request, outcome: Outcome, *, titled: bool = True) -> dict[str, bytes]:
    """The same of what was analysed in process."""
    if request.form not in {"csv", "ndjson"}:
        return {name: octets for name, octets in outcome.rows.items() if octets}
    (report,) = request.reports
    kind = REPORTS[report]
    encoder = table_encoder(request.form, kind, request.width)
    rows = np.frombuffer(outcome.rows.get(report, b""), kind.dtype(request.width))
    start = bytes(encoder.begin()) if titled else b""
    return {report: start + bytes(encoder.encode(rows))}


def check_rows(request: Request, outcome: Outcome, body: bytes) -> None:
    found = {name: octets for name, octets in read_rows(request, body).items() if octets}
    expected = {name: octets for name, octets in expected_rows(request, outcome).items() if octets}
    assert outcome.error is None, f"answered 200, but in process: {outcome.error}"
    assert found == expected, "the rows are not those of the analysis in process"


def check_fault(found: Mapping[str, Any], outcome: Outcome) -> None:
    """A problem document tells what is found in process."""
    assert outcome.error is not None, f"refused, but fine in process: {found}"
    _, code, message, *place = outcome.error
    told = [found.get(name) for name in ("code", "detail", "offset", "event", "block")]
    assert told == [code, message, *place], f"{told} instead of {outcome.error}"


def check_duplex(request: Request, outcome: Outcome, answer: Answer) -> str:
    """An answer that may have ended with a fault."""
    if request.form in {"frames", "ndjson"}:
        assert answer.whole
        body = decoded(answer)
        if request.form == "frames":
            last = read_frames(body)[-1]
            kind, problem = last.kind, last.header.get("problem")
        else:
            line = json.loads(body.splitlines()[-1])
            kind, problem = ("ERROR" if "error" in line else "END"), line.get("error")
        if kind == "ERROR":
            assert problem is not None
            check_problem(problem)
            check_fault(problem, outcome)
            return f"fault behind rows: {problem['code']}"
    elif not answer.whole:
        assert outcome.error is not None, "broken off, but fine in process"
        return "broken off"
    check_rows(request, outcome, decoded(answer))
    return "rows in duplex"


# -- cases ---------------------------------------------------------------------------


@dataclass
class Fuzzer:
    """Makes cases, each of random numbers of its own."""

    service: Service
    contract: Contract

    def check(self, method: str, path: str, answer: Answer) -> None:
        assert answer.status < 500 or answer.status == 503, answer.body[:1000]
        if answer.media_type == PROBLEM:
            check_problem(answer.json(), answer)
        self.contract.check(method, path, answer)

    def stream(self, rng: Rng, harm: float = 0.7) -> tuple[str, int, bytes]:
        kind = pick(rng, ["summary", "summary", "gul", "loss", "coverage"])
        width = int(rng.choice([4, 8]))
        samples = int(rng.choice([1, 3, 20, 64, 65, 150]))
        highest = int(rng.choice([5, 5000, 2**31 - 1]))
        stream = random_stream(rng, kind=kind, width=width, samples=samples, highest=highest)
        data = stream.encode()
        if rng.random() < harm:
            data = damage(rng, data)
        return kind, width if rng.random() < 0.95 else 12 - width, data

    def post(self, rng: Rng) -> str:
        """One stream in one request."""
        kind, width, data = self.stream(rng)
        request = random_request(rng, kind, width)
        body, undamaged = encode_body(rng, request, data)
        request.sound = request.sound and undamaged
        answer = send(self.service, rng, request, body)
        self.check("POST", request.path, answer)
        if answer.status == 200:
            return self._rows(request, answer, decode_body(request, body))
        found = answer.json()
        if request.sound:
            check_fault(found, request.outcome(data))
        return f"{answer.status} {found['code']}"

    def _rows(self, request: Request, answer: Answer, data: bytes | None) -> str:
        if data is None:
            assert request.duplex, "answered 200 though the body is damaged"
            if answer.whole:
                # The damage, or what was decoded of it before it was noticed.
                ending = decoded(answer)
                assert b'{"problem":' in ending or b'{"error":' in ending
            return "damaged behind rows"
        partial = answer.getheader("Upload-Complete") == "?0"
        if not request.sound:
            # Read what was really answered, and as what.
            media = {"text/csv": "csv", "application/x-ndjson": "ndjson"}
            asked = media.get(answer.media_type, answer.media_type.rpartition(".")[2])
            if partial or request.form != asked or not set(request.options) <= set(OPTIONS):
                return "odd, but rows"
        outcome = request.outcome(data)
        if request.duplex:
            return check_duplex(request, outcome, answer)
        assert answer.whole
        check_rows(request, outcome, decoded(answer))
        return "rows"

    def parts(self, rng: Rng) -> str:
        """One stream in several requests, cut anywhere, each to go on from the one before."""
        kind, width, data = self.stream(rng, harm=0.3)
        request = random_request(rng, kind, width)
        if not request.sound or request.form in {"arrow", "parquet"}:
            return self.post(rng)
        request.options.pop("duplex", None)
        outcome = request.outcome(data)
        cuts = sorted(rng.integers(0, len(data), int(rng.integers(1, 6)), endpoint=True).tolist())
        offset, got = 0, b""
        for cut in [*cuts, None]:
            request.headers = {"Upload-Complete": "?1" if cut is None else "?0"}
            body, undamaged = encode_body(rng, request, data[offset:cut])
            if not undamaged:
                return "damaged part"
            answer = send(self.service, rng, request, body)
            self.check("POST", request.path, answer)
            if answer.status != 200:
                return self._fault_of_part(answer.json(), outcome, offset)
            got += self._part(request, decoded(answer), last=cut is None)
            if cut is not None:
                token = str(answer.getheader("Thalweg-Token"))
                offset = int(str(answer.getheader("Thalweg-Offset")))
                assert offset <= cut
                assert len(token) <= 100
                request.options["after"] = token
        # Of events before a part nothing is known but the last, where ids do not ascend.
        if outcome.error is None or outcome.error[1] != "event-reopened":
            assert outcome.error is None, f"accepted in parts, but in process: {outcome.error}"
            expected = b"".join(v for _, v in sorted(expected_rows(request, outcome).items()))
            assert sorted(got) == sorted(expected) if len(request.reports) > 1 else got == expected
        return "rows in parts"

    @staticmethod
    def _part(request: Request, body: bytes, *, last: bool) -> bytes:
        if request.form == "frames":
            reason = read_frames(body)[-1].header["reason"]
            assert reason == ("complete" if last else "partial")
        return b"".join(octets for _, octets in sorted(read_rows(request, body).items()))

    @staticmethod
    def _fault_of_part(found: Mapping[str, Any], outcome: Outcome, offset: int) -> str:
        assert found["resume_offset"] == offset
        if outcome.error is not None and outcome.error[1] != "event-reopened":
            check_fault(found, outcome)
        else:
            assert outcome.error is not None, f"refused in parts, fine in process: {found}"
        return f"parts: {found['code']}"

    def token(self, rng: Rng) -> str:
        """A token that was changed a little, or is of something else."""
        kind, width, data = self.stream(rng, harm=0)
        request = random_request(rng, kind, width)
        if not request.sound:
            return self.post(rng)
        request.options.pop("duplex", None)
        request.headers = {"Upload-Complete": "?0"}
        tokens = []
        for size in sorted(rng.integers(0, len(data), 2, endpoint=True).tolist()):
            answer = send(self.service, rng, request, data[:size])
            self.check("POST", request.path, answer)
            if answer.status != 200:
                return f"before a token: {answer.json()['code']}"
            tokens.append(str(answer.getheader("Thalweg-Token")))
        offset = int(str(answer.getheader("Thalweg-Offset")))
        forged = self._forge(rng, tokens[1], tokens[0])
        request.options["after"] = forged
        request.headers = {}
        body = data[offset:] if rng.random() < 0.7 else damage(rng, data)
        answer = send(self.service, rng, request, body)
        self.check("POST", request.path, answer)
        if answer.status == 200:
            assert forged in tokens, "a token that was never given out"
            return "a good token"
        return f"token: {answer.status} {answer.json()['code']}"

    @staticmethod
    def _forge(rng: Rng, token: str, other: str) -> str:
        at = int(rng.integers(0, len(token)))
        shuffled = "".join(rng.permutation(np.array(list(token))))
        changed = token[:at] + pick(rng, "AZaz09-_+/=é ") + token[at + 1 :]
        longer = token[:at] + pick(rng, ODD) + token[at:]
        mixed = token[:at] + other[at:]
        return pick(rng, [token, token[:at], changed, longer, other, shuffled, mixed, *ODD[:2]])

    def garbage(self, rng: Rng) -> str:
        """Damaged octets where HTTP should be."""
        kind, width, data = self.stream(rng, harm=0)
        request = random_request(rng, kind, width)
        framing, pieces = frame_body(rng, data)
        start = head("POST", request.path, [*framing, *request.headers.items()])
        match rng.integers(0, 4):
            case 0:
                start = damage(rng, start)
            case 1:
                pieces = [damage(rng, piece) for piece in pieces]
            case 2:
                start, pieces = rng.bytes(int(rng.integers(1, 3000))), []
            case _:
                pieces = pieces[: int(rng.integers(0, len(pieces) + 1))]
        with self.service.connect() as client:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                client.sendall(start + b"".join(pieces))
            return self._whatever_comes(client)

    def _whatever_comes(self, client: socket.socket) -> str:
        """An answer, or the end of the connection; whoever gets neither says that it is over."""
        client.settimeout(0.1)
        with contextlib.suppress(TimeoutError, ConnectionResetError):
            client.recv(1, socket.MSG_PEEK)
        client.settimeout(PATIENCE)
        with contextlib.suppress(OSError):
            client.shutdown(socket.SHUT_WR)
        try:
            answer = Answer(client)
        except (http.client.HTTPException, ConnectionResetError):
            return "garbage: closed"
        assert answer.status < 500 or answer.status in {501, 503}, answer.body[:1000]
        if answer.status >= 400 and answer.whole:
            check_problem(answer.json(), answer)
        return f"garbage: {answer.status}"

    def leave(self, rng: Rng) -> str:
        """A client that goes away in the middle, one way or another."""
        kind, width, data = self.stream(rng)
        request = random_request(rng, kind, width)
        framing, pieces = frame_body(rng, data)
        wire = head("POST", request.path, [*framing, *request.headers.items()]) + b"".join(pieces)
        with self.service.connect() as client:
            client.sendall(wire[: int(rng.integers(0, len(wire), endpoint=True))])
            if rng.random() < 0.5:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            if rng.random() < 0.3:
                time.sleep(0.005)
        return "left"

    def input(self, rng: Rng) -> str:
        """A damaged auxiliary file."""
        parsers: dict[str, Callable[[bytes], object]] = {
            "quantiles": parse_quantiles,
            "event_rates": parse_event_rates,
            "occurrence": lambda octets: parse_occurrence(octets, 2**31 - 1),
        }
        name = pick(rng, list(parsers))
        data = damage(rng, INPUTS[pick(rng, list(INPUTS))])
        path = f"/v1/inputs/{name}"
        answer = ask(self.service, Post(path, [data], method="PUT", sized=rng.random() < 0.5))
        self.check("PUT", path, answer)
        try:
            parsers[name](data)
        except CoreError as error:
            fine = False
            # A packed file that tells another number of periods is right without ours.
            own = "periods" in str(error)
        else:
            fine = own = True
        assert answer.status < 300 or not fine, f"refused, but fine in process: {answer.json()}"
        assert answer.status >= 400 or own, "accepted, but not in process"
        return f"input: {answer.status}"

    def parquet(self, rng: Rng) -> str:
        """A damaged auxiliary file in parquet, which a decoder reads."""
        count = int(rng.integers(1, 40))
        ids = np.arange(1, count + 1)
        tables: dict[str, dict[str, Any]] = {
            "quantiles": {"quantile": ids / (count + 1)},
            "periods": {"period_no": ids, "weighting": np.full(count, 1 / count)},
            "summary_xref": {"item_id": ids, "summary_id": ids, "summaryset_id": ids},
            "summary_info": {"summary_id": ids, "name": [f"summary {i}" for i in ids]},
        }
        name = pick(rng, list(tables))
        file = io.BytesIO()
        codecs: list[Any] = ["none", "snappy", "gzip", "zstd"]
        pq.write_table(
            pa.table(tables[name]),
            file,
            compression=codecs[int(rng.integers(0, len(codecs)))],
            row_group_size=int(rng.integers(1, count + 1)),
        )
        data = file.getvalue()
        whole = rng.random() < 0.1
        if not whole:
            # Its magic bytes stay: what is no parquet file is read as csv.
            data = data[:4] + damage(rng, data[4:])
        path = f"/v1/inputs/{name}"
        answer = ask(self.service, Post(path, [data], method="PUT"))
        self.check("PUT", path, answer)
        assert answer.status in {200, 201, 400}, answer.body[:1000]
        assert answer.status < 300 or not whole, f"refused: {answer.json()}"
        return f"parquet: {answer.status}"

    def elsewhere(self, rng: Rng) -> str:
        """Other routes, methods and bodies."""
        paths = ["/", "/v1/losses", "/v1/tokens/inspect", "/v1/tokens/refresh", "/healthz", "/docs"]
        path = pick(rng, [*paths, "/problems/", "/v1/inputs/quantiles", "/metrics", "/v1/losses/"])
        if rng.random() < 0.5:
            path += pick(
                rng, ["x", "%00", "%ff", "/", "?a=1", "?a", "busy", "//", "melt", "%2e%2e"]
            )
        method = pick(rng, ["GET", "POST", "PUT", "HEAD", "DELETE", "OPTIONS", "PATCH"])
        bodies = [b"", b"{}", b'{"token": "x"}', b'{"token": 1}', rng.bytes(40), b"[" * 3000]
        kinds = ["application/json", "text/plain", "", "application/json; charset=x", "a/b"]
        headers = [("Content-Type", pick(rng, kinds))]
        body = bodies[int(rng.integers(0, len(bodies)))]
        answer = ask(self.service, Post(path, [body], headers, method=method))
        assert answer.status < 500, answer.body[:1000]
        if method != "HEAD" and answer.status >= 400:
            check_problem(answer.json(), answer)
        return f"elsewhere: {answer.status}"

    def run(self, rng: Rng) -> str:
        """One case; returns what came of it."""
        shares = {
            self.post: 0.40,
            self.parquet: 0.05,
            self.parts: 0.2,
            self.token: 0.12,
            self.garbage: 0.08,
            self.leave: 0.05,
            self.input: 0.05,
            self.elsewhere: 0.05,
        }
        kinds = list(shares)
        return kinds[int(rng.choice(len(kinds), p=list(shares.values())))](rng)


# -- the server's health -------------------------------------------------------------


class Health:
    """What must not grow, whatever is sent."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._pid = service.pid
        self._descriptors = service.descriptors()
        self._failures = 0

    def check(self) -> None:
        service = self._service
        assert service.worker_pids() == [self._pid], "the server died"
        wait_until(service.is_idle)
        wait_until(lambda: service.descriptors() <= self._descriptors + 2)
        failures = service.failures()
        fresh, self._failures = failures[self._failures :], len(failures)
        assert not fresh, "\n".join(fresh)[:20_000]
        assert service.get("/readyz").status == 200


def fuzz(fuzzer: Fuzzer, health: Health, args: argparse.Namespace) -> tuple[Counter[str], int]:
    """Case after case; returns what came of them, and how many broke a promise."""
    outcomes: Counter[str] = Counter()
    violations = 0
    start = time.perf_counter()
    case = args.case
    while time.perf_counter() - start < args.seconds:
        rng = np.random.default_rng([args.seed, case])
        begun = time.perf_counter()
        try:
            outcomes[fuzzer.run(rng)] += 1
            assert time.perf_counter() - begun < PATIENCE, "it took too long"
            if case % BATCH == BATCH - 1:
                health.check()
        except Exception:  # noqa: BLE001 - any is a finding
            violations += 1
            name = Path(tempfile.gettempdir()) / f"fuzz-http-{args.seed}-{case}.txt"
            name.write_text(traceback.format_exc())
            print(f"violation: --seed {args.seed} --case {case}, see {name}", flush=True)
        case += 1
    return outcomes, violations


def main() -> int:
    """Fuzz; exit code 1 if something undocumented happened."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 2**32)
    parser.add_argument("--case", type=int, default=0, help="the first case")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        limits = {"idle_seconds": 5, "header_seconds": 5, "keep_alive_seconds": 5}
        # Decoders of parquet inputs hold descriptors until they are stopped.
        service = Service(Path(directory), decoder_idle_seconds=1, **limits)
        try:
            fuzzer, health = Fuzzer(service, Contract.of(service)), Health(service)
            ask(service, Post("/v1/losses/events", [b"not even a header"]))
            before, start = service.memory(), time.perf_counter()
            outcomes, violations = fuzz(fuzzer, health, args)
            seconds = time.perf_counter() - start
            health.check()
            grown = (service.memory() - before) / MIB
            assert service.stop() == 0
        finally:
            service.kill()
    count = outcomes.total() + violations
    print(f"seed {args.seed}: {count} cases in {seconds:.0f} s, {count / seconds:.0f}/s")
    for outcome, number in outcomes.most_common():
        print(f"{number:>9}  {outcome}")
    print(f"{violations} violations; the server's memory grew by {grown:.0f} MiB")
    return int(violations > 0)


if __name__ == "__main__":
    sys.exit(main())
