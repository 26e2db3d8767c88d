"""Requests about runs, their streams, rows and reports."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode, urlsplit

from ..errors import ProtocolError
from ..losses.requests import INPUTS, check_names, listed, numbers_of, reports_of
from ..transport.requests import OCTETS, Request, json_request, path_of
from .description import Run, RunLike, RunOptions

RUNS = "/v1/runs"
INTEROP_VERSION = "8"
"""Version of the IETF's resumable uploads."""
_LISTS = ("quantiles", "return_periods", "sets")
"""Options of numbers."""
_PLAIN = (str, int, float, type(None))
_DIALECT = {"Upload-Draft-Interop-Version": INTEROP_VERSION}


def report_spec(reports: str | Sequence[str], options: Mapping[str, Any]) -> dict[str, Any]:
    """What reports of a run are made of, as the contract has it.

    Raises:
        TypeError, ValueError: as ``options_of``; or no report is named, or one twice.
    """
    return {"reports": list(reports_of(reports)), "options": options_of(options)}


def options_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of reports of a run, as the contract has them.

    Raises:
        TypeError: there is no such option, or it must be numbers.
        ValueError: ids are malformed.
    """
    if inputs := [name for name in INPUTS if name in options and name not in _LISTS]:
        raise TypeError(f'{inputs[0]} is an input of runs: give inputs={{"{inputs[0]}": …}}')
    check_names(options, RunOptions.__annotations__)
    for name, value in options.items():
        if not (name in _LISTS or name == "summary_ids" or isinstance(value, _PLAIN)):
            raise TypeError(f"{name} must be a text or a number, not {value!r}")
    lists: dict[str, Any] = {
        n: numbers_of(n, options[n]) for n in options if n in _LISTS and options[n] is not None
    }
    if options.get("summary_ids") is not None:
        lists["summary_ids"] = listed("summary_ids", options["summary_ids"])
    return {**options, **lists}


def create_run(spec: Mapping[str, Any], key: str) -> Request:
    """Create a run.

    Args:
        spec: as in the contract.
        key: of this creation: the same key creates one run, however often it is sent.
    """
    headers = {"Content-Type": "application/json", "Idempotency-Key": f'"{key}"'}
    return Request("POST", RUNS, headers, json.dumps(spec).encode())


class RunRequests:
    """Builds the requests about one run.

    Args:
        run: the run, or its id.

    Attributes:
        streams: path of the list of its streams.

    Raises:
        TypeError: it is neither.
    """

    def __init__(self, run: RunLike) -> None:
        if not isinstance(run, str | Run):
            raise TypeError(f"a run is given by its id, or as create returned it, not as {run!r}")
        self.run = run if isinstance(run, str) else run.id
        self._path = path_of("runs", self.run)
        self.streams = f"{self._path}/streams"

    def describe(self) -> Request:
        """Ask for the state of the run."""
        return Request("GET", self._path)

    def delete(self) -> Request:
        """Delete the run, its streams and reports."""
        return Request("DELETE", self._path)

    def seal(self, options: Mapping[str, Any]) -> Request:
        """Announce that no more streams come, and change options of the reports."""
        path = f"{self._path}/seal"
        return json_request(path, {"options": options}) if options else Request("POST", path)

    def put_input(self, name: str, data: bytes) -> Request:
        """Bind an auxiliary file to the run."""
        return Request("PUT", path_of("runs", self.run, "inputs", name), OCTETS, data)

    # -- streams -----------------------------------------------------------------------

    def create_stream(self, partition: int, length: int | None) -> Request:
        """Create the stream of a partition, without bytes.

        Args:
            partition: from 1.
            length: of the whole stream in bytes, if it is known.
        """
        headers = {**_DIALECT, "Upload-Complete": "?0", **OCTETS}
        if length is not None:
            headers["Upload-Length"] = str(length)
        return Request("POST", f"{self._path}/streams" + _query(partition=partition), headers)

    def delete_stream(self, stream: str) -> Request:
        """Delete a stream."""
        return Request("DELETE", self.stream_target(stream))

    def stream_target(self, stream: str) -> str:
        """Return the path of a stream."""
        return path_of("runs", self.run, "streams", stream)

    # -- results -----------------------------------------------------------------------

    def rows(self, report: str, after: str | None, *, stream: str | None, follow: bool) -> Request:
        """Ask for the rows of a report, in frames."""
        query = _query(
            format="frames", after=after, stream=stream, follow="true" if follow else None
        )
        return Request("GET", path_of("runs", self.run, "rows", report) + query)

    def progress(self, after: str | None) -> Request:
        """Ask for the events of the run's progress, after one of them."""
        headers = {"Accept": "text/event-stream"}
        if after is not None:
            headers["Last-Event-ID"] = after
        return Request("GET", f"{self._path}/progress", headers)

    def report(self, report: str, query: Mapping[str, Any]) -> Request:
        """Ask for a finished report.

        Args:
            report: its name.
            query: format, set and the like.
        """
        path = path_of("runs", self.run, "reports", report)
        return Request("GET", path + _query(**query))

    def add_reports(self, content: Mapping[str, Any]) -> Request:
        """Have a sealed run compute further reports."""
        return json_request(f"{self._path}/reports", content)


def retrieve_offset(target: str) -> Request:
    """Ask how many bytes of a stream are stored."""
    return Request("HEAD", target, _DIALECT)


def append(target: str, offset: int, *, last: bool, length: int | None = None) -> Request:
    """Append to a stream.

    Args:
        target: path of the stream.
        offset: bytes that are stored.
        last: whether the stream ends with the body.
        length: of the whole stream, if it is known.
    """
    headers = {
        **_DIALECT,
        "Content-Type": "application/partial-upload",
        "Upload-Offset": str(offset),
        "Upload-Complete": "?1" if last else "?0",
    }
    if length is not None:
        headers["Upload-Length"] = str(length)
    return Request("PATCH", target, headers)


def stream_of_location(location: str) -> str:
    """Return the id of the stream that a Location names.

    Raises:
        ProtocolError: it names none.
    """
    ident = urlsplit(location).path.rstrip("/").rpartition("/")[2]
    if not ident:
        raise ProtocolError(f"the service created a stream at {location!r}")
    return ident


def _query(**values: object) -> str:
    given = {name: _text(value) for name, value in values.items() if value is not None}
    return f"?{urlencode(given, safe=',')}" if given else ""


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Iterable) and not isinstance(value, str):
        return ",".join(map(str, value))
    return str(value)
