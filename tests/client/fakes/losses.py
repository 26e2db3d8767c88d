"""The part of the small service that answers loss streams.

Its streams are records of 16 bytes: event, value, and eight bytes that do not matter. An
event is a run of equal ids. The one report has a row per record; the other, ``count``,
one per event.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from xxhash import xxh3_64_intdigest

from .exchange import Exchange, Gone, Refusal
from .frames import DATA, END, ERROR, HEARTBEAT, frame

RECORD = 16
ROWS = np.dtype([("EventId", "<i4"), ("Loss", "<f4")])
COUNTS = np.dtype([("EventId", "<i4"), ("Count", "<i4")])
DTYPES = {"rows": ROWS, "count": COUNTS}

Table = npt.NDArray[np.void]


def make_stream(events: int, most: int = 5, seed: int = 1) -> bytes:
    rng = np.random.default_rng(seed)
    ids = np.repeat(np.arange(1, events + 1), rng.integers(1, most, events, endpoint=True))
    records = np.zeros(len(ids), [("event", "<i4"), ("value", "<f4"), ("rest", "<u8")])
    records["event"] = ids
    records["value"] = rng.random(len(ids))
    records["rest"] = rng.integers(0, 1 << 62, len(ids))
    return records.tobytes()


def tables(stream: bytes) -> dict[str, Table]:
    ids = np.frombuffer(stream, "<i4")[::4]
    rows = np.empty(len(ids), ROWS)
    rows["EventId"] = ids
    rows["Loss"] = np.frombuffer(stream, "<f4")[1::4]
    unique, counts = np.unique(ids, return_counts=True)
    count = np.empty(len(unique), COUNTS)
    count["EventId"], count["Count"] = unique, counts
    return {"rows": rows, "count": count}


def csv(table: Table) -> bytes:
    return "".join(f"{a},{b:.6f}\n" for a, b in table.tolist()).encode()


class Engine:
    """Turns the records of one request into tables, from a token on."""

    def __init__(self, token: str | None) -> None:
        parts = [int(part) for part in token.split(".")] if token else [0, 0, 0, 0, 0]
        self.offset, self._seen, self._digest, self.events, _ = parts
        self._held = b""
        self.read = self.offset
        self._checked = not self._seen

    def feed(self, data: bytes, *, last: bool) -> list[tuple[bytes, str]]:
        """Records of every event that is complete now, each with the token that follows it."""
        self._held += data
        self.read += len(data)
        if not self._checked and (last or len(self._held) >= self._seen):
            if xxh3_64_intdigest(self._held[: self._seen]) != self._digest:
                raise Refusal(412, "data-changed", "the bytes are others")
            self._checked = True
        if last and len(self._held) % RECORD:
            raise Refusal(400, "stream-truncated", "the stream ends inside a record", self.read)
        whole = len(self._held) // RECORD * RECORD
        ids = np.frombuffer(self._held[:whole], "<i4")[::4]
        if len(ids) and ids.min() < 1:
            raise Refusal(400, "event-id", "an event id below 1", self.offset)
        edges = [*(np.flatnonzero(np.diff(ids)) + 1), *([len(ids)] if last and len(ids) else [])]
        done: list[tuple[bytes, str]] = []
        at = 0
        for edge in edges:
            event = self._held[at * RECORD : int(edge) * RECORD]
            at = int(edge)
            self.offset += len(event)
            self.events += 1
            done.append((event, self.token(self._held[at * RECORD :])))
        self._held = self._held[at * RECORD :]
        return done

    def token(self, unfinished: bytes | None = None) -> str:
        held = self._held if unfinished is None else unfinished
        return f"{self.offset}.{len(held)}.{xxh3_64_intdigest(held)}.{self.events}.0"


class LossAnswer:
    """One request that posts a stream, and its answer."""

    def __init__(self, service: Any, exchange: Exchange) -> None:  # noqa: ANN401
        self.exchange = exchange
        self.service = service
        self.seen = exchange.seen
        self.fault = exchange.fault
        self.number = 0

    def run(self) -> None:
        fault = self.fault
        if fault.early:
            self.exchange.json(
                fault.status or 401, {"code": "early", "detail": "early"}, {"Connection": "close"}
            )
            self.exchange.connection.shutdown(socket.SHUT_WR)
            while self.exchange.file.read1(1 << 16):
                pass
            raise Gone
        query = self.seen.query
        self.engine = Engine(query.get("after"))
        self.reports = query.get("reports", self.seen.path.rpartition("/")[2]).split(",")
        if query.get("check") == "true":
            if not self.exchange.refuse():
                self.exchange.head(204, {}, 0)
        elif query.get("duplex") == "true":
            self._duplex()
        else:
            self._after_the_body(query["format"])

    def _duplex(self) -> None:
        started = False
        try:
            for piece in self.exchange.body():
                octets = self._frames(self.engine.feed(piece, last=False))
                if not started:
                    self.exchange.head(200, {}, None)
                    started = True
                self.exchange.chunk(octets, last=False)
            octets = self._frames(self.engine.feed(b"", last=True)) + self._end()
        except Refusal as e:
            if not started:
                raise
            octets = self._frame(
                ERROR,
                {"problem": e.problem, "token": self.engine.token(), "offset": self.engine.offset},
                b"",
            )
        self.exchange.chunk(octets, last=True)

    def _after_the_body(self, table_format: str) -> None:
        body = b"".join(self.exchange.body())
        time.sleep(self.service.delay)
        if self.exchange.refuse():
            return
        first = self.engine.offset == 0
        done = self.engine.feed(body, last=not self.seen.partial)
        answer = self._table(table_format, done, first=first)
        if self.fault.change:
            answer = self.fault.change(answer)
        end = self._summary()
        headers = {
            "Thalweg-Completeness": end["completeness"],
            "Thalweg-Events": str(end["events"]),
            "Thalweg-Bytes": str(end["bytes"]),
            "Thalweg-Reopened-Check": "whole",
            "Upload-Complete": "?0" if self.seen.partial else "?1",
        }
        if "selected_rows" in end:
            headers["Thalweg-Selected-Rows"] = str(end["selected_rows"])
        if "longest_return_period" in end:
            headers["Thalweg-Longest-Return-Period"] = str(end["longest_return_period"])
        if self.seen.partial:
            headers |= {"Thalweg-Token": end["token"], "Thalweg-Offset": str(end["offset"])}
        self.exchange.head(200, headers, None if self.service.chunked else len(answer))
        if self.service.chunked:
            self.exchange.chunk(answer, last=True)
        else:
            self.exchange.write(answer)

    def _table(self, table_format: str, done: list[tuple[bytes, str]], *, first: bool) -> bytes:
        if table_format == "frames":
            drain = self.fault.drain
            if drain is None or drain >= len(done):
                return self._frames(done) + self._end()
            token = done[drain][1]
            place = {"reason": "drain", "token": token, "offset": int(token.partition(".")[0])}
            return self._frames(done[: drain + 1]) + self._frame(END, self._summary() | place, b"")
        table = tables(b"".join(event for event, _ in done))[self.reports[0]]
        if table_format == "csv":
            return (b"Event,Value\n" if first else b"") + csv(table)
        if table_format == "ndjson":
            lines = [json.dumps({"EventId": a, "Loss": b}) for a, b in table.tolist()]
            lines.insert(
                len(lines) // 2, json.dumps({"checkpoint": {"token": self.engine.token()}})
            )
            return "\n".join([*lines, json.dumps({"end": self._summary()})]).encode() + b"\n"
        return table_format.encode() + table.tobytes()

    def _frames(self, done: list[tuple[bytes, str]]) -> bytes:
        out = []
        before = self.seen.query.get("after", "0.0.0.0.0")
        for event, token in done:
            groups = [
                (name, rows) for name in self.reports for rows in self._split(tables(event)[name])
            ]
            for i, (name, rows) in enumerate(groups, 1):
                last = i == len(groups)
                out.append(self._data(name, rows, token if last else before, more=not last))
                if self.service.heartbeats:
                    out.append(self._frame(HEARTBEAT, {}, b""))
            before = token
        return b"".join(out)

    def _split(self, rows: Table) -> list[Table]:
        return [rows[i : i + self.service.split] for i in range(0, len(rows), self.service.split)]

    def _data(self, name: str, rows: Table, token: str, *, more: bool) -> bytes:
        about = {"dtype": DTYPES[name].descr, "shape": [len(rows)]}
        header = {
            "report": name,
            "token": token,
            "offset": int(token.split(".", maxsplit=1)[0]),
            "arrays": [{"name": "rows", "offset": 0, "nbytes": rows.nbytes, **about}],
            **about,
        }
        return self._frame(DATA, header, rows.tobytes(), int(more))

    def _frame(self, kind: int, header: Mapping[str, Any], payload: bytes, flags: int = 0) -> bytes:
        self.number += 1
        return frame(kind, header, payload, self.number - 1, flags)

    def _summary(self) -> dict[str, Any]:
        partial = self.seen.partial
        declared = "declared" if "upload-length" in self.seen.headers else "undeclared"
        return {
            "reason": "partial" if partial else "complete",
            "completeness": "partial" if partial else declared,
            "events": self.engine.events,
            "bytes": self.engine.read,
            "reopened_check": "whole",
            "token": self.engine.token() if partial else None,
            "offset": self.engine.offset if partial else None,
        } | self.fault.end

    def _end(self) -> bytes:
        return self._frame(END, self._summary(), b"")
