# Made from asynchronous.py by deploy/unasync.py (make fmt): change that one.
"""Loss sets with blocking calls, and questions about them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Unpack

from ..errors import ThalwegError
from ..files.downloads import Download
from ..files.state import PathLike
from ..losses.requests import InputLike, check_names, input_bytes
from ..runs.blocking import digest_of
from ..runs.requests import Perspective, RunLike, RunRequests
from ..transport.channel import Calls, pages
from ..transport.requests import Reply, Request, query_of
from ..transport.streams import Items
from . import requests
from .requests import LossSet, QueryOptions, SetLike, TableOptions, question, set_request

_LONGEST = 1 << 31
"""Bytes of an answer at most."""


class Portfolios(Calls):
    """Loss sets and portfolios of them: ``client.portfolios``."""

    def create(  # noqa: PLR0913 - each is a choice of the caller
        self,
        run: RunLike,
        *,
        name: str | None = None,
        currency: str | None = None,
        perspective: Perspective | None = None,
        summary_set: int | None = None,
        summary_info: InputLike | None = None,
    ) -> LossSet:
        """Make a loss set of a sealed run; it is kept when the run is deleted.

        The same call again finds the set that is there.

        Args:
            run: sealed, with the input occurrence.
            name: id of the set; chosen by the service without.
            currency: of its losses, such as EUR.
            perspective: gul, il, ri or rl; that of the run without.
            summary_set: which set of summary_xref, if there are several.
            summary_info: what the summaries are: a digest, or a Path or bytes, which are stored
                first. Its columns are the dimensions to filter and group by.

        Raises:
            ProblemError: the run is not sealed, has no occurrences, or is not yours.
            ConnectionFailed: the service could not be reached.
            SourceError: the file cannot be read.
        """
        options = {
            "name": name,
            "currency": currency,
            "perspective": perspective,
            "summary_set": summary_set,
        }
        if summary_info is not None:
            stored = digest_of(self._connector, "summary_info", summary_info)
            options["summary_info"] = stored
        request = requests.creation(RunRequests(run).run, options)
        return LossSet.parse((self._connector.call(request)).json())

    def put(
        self, name: str, table: InputLike, *, form: str, **options: Unpack[TableOptions]
    ) -> LossSet:
        """Make a loss set of a table in csv, parquet or Arrow, without a run.

        The same call again finds the set that is there.

        Args:
            name: id of the set.
            table: a Path or bytes.
            form: what its rows are: splt, selt, ylt, openquake, climada or elt.
            **options: see TableOptions.

        Raises:
            ProblemError: the table is damaged, or contradicts itself, the options or the set that
                is there.
            ConnectionFailed: the service could not be reached.
            SourceError: a file cannot be read.
            TypeError: there is no such option, or an input is no file, bytes or digest.
        """
        check_names(options, TableOptions.__annotations__)
        query: dict[str, Any] = {"form": form, **options}
        with self._connector.channel() as channel:
            data = channel.work(partial(input_bytes, "table", table))
            for key in ("occurrence", "periods", "summary_info"):
                if query.get(key) is not None:
                    query[key] = digest_of(self._connector, key, query[key])
            return LossSet.parse((channel.call(requests.table_request(name, data, query))).json())

    def export(
        self,
        loss_set: str | LossSet,
        path: PathLike,
        form: str = "selt",
        format: str | None = None,  # noqa: A002 - its name everywhere in the contract
        sample: int | None = None,
    ) -> int:
        """Write a loss set as a table to a file, in place of one that is there; its size.

        Args:
            loss_set: by its id, or as ``create`` returned it.
            path: of the file, which appears once it is complete.
            form: what its rows are: selt, splt, ylt, openquake, climada, elt or occurrence; or
                blocks, the stored file.
            format: csv, ndjson, arrow, parquet or bin; by default the extension of the path.
            sample: which one, for openquake and climada: 0 for the numerical mean.

        Raises:
            ProblemError: there is no such set, form or format, or it is not yours.
            ConnectionFailed, ProtocolError: more failures in a row than are tolerated.
            OSError: the file cannot be written.
        """
        query = query_of(form=form, format=_ending(path, format), sample=sample)
        request = set_request("GET", loss_set, f"/losses{query}")
        return self._download("loss set", request, path)

    def _download(self, name: str, request: Request, path: PathLike) -> int:
        with self._connector.channel() as channel:
            download = Download(channel, request, name, request.target, path, None)
            size = download.save()
            requests.warn_of_notes(download.headers)
            return size

    def list(self) -> Iterator[LossSet]:
        """Iterate over your loss sets.

        Raises (from iteration):
            ProblemError, ConnectionFailed: the service refused, or could not be reached.
        """
        channel = self._connector.channel()
        return Items(channel, pages(channel.call, requests.SETS, "loss_sets", LossSet.parse))

    def get(self, loss_set: str | LossSet) -> LossSet:
        """The description of a loss set.

        Raises:
            ProblemError: there is no such set, or it is not yours.
            ConnectionFailed: the service could not be reached.
        """
        return LossSet.parse((self._connector.call(set_request("GET", loss_set))).json())

    def delete(self, loss_set: str | LossSet) -> None:
        """Delete a loss set; the run that it was made of stays.

        Raises:
            ProblemError, ConnectionFailed: as for ``get``.
        """
        self._connector.call(set_request("DELETE", loss_set))

    def query(
        self,
        loss_sets: SetLike | Sequence[SetLike],
        report: str = "summary",
        **options: Unpack[QueryOptions],
    ) -> requests.PortfolioAnswer:
        """Answer a question about one or several loss sets.

        The tables of ``curves`` are ``ept`` and ``psept``, that of ``averages`` is ``aal``, and
        that of ``periods`` is ``plt``.

        Args:
            loss_sets: by id, or as ``{"id": …, "weight": 0.5}``.
            report: averages, curves, periods, layers, recoveries, contributions, uncertainty or
                summary.
            **options: see QueryOptions; ``filter``, ``group_by``, ``return_periods`` and
                ``programme`` among them.

        Raises:
            ProblemError: the question contradicts itself or the sets, and says where.
            ConnectionFailed: the service could not be reached.
            TypeError: there is no such option.
        """
        reply = self._answer(requests.query_request(question(loss_sets, report, options)))
        return requests.PortfolioAnswer.parse(reply)

    def fetch(
        self,
        loss_sets: SetLike | Sequence[SetLike],
        report: str,
        format: str = "csv",  # noqa: A002 - as above
        **options: Unpack[QueryOptions],
    ) -> bytes:
        """The answer to a question as the bytes of a file; its notes are warnings.

        Args:
            loss_sets: as for ``query``.
            report: as for ``query``.
            format: json, csv, ndjson, arrow, parquet, bin, svg or png.
            **options: as for ``query``.

        Raises:
            ProblemError, ConnectionFailed, TypeError: as for ``query``.
            ValueError: there is no such format.
        """
        request = requests.query_request(question(loss_sets, report, options), format)
        reply = self._answer(request)
        requests.warn_of_notes(reply.head.headers)
        return reply.body

    def save(
        self,
        loss_sets: SetLike | Sequence[SetLike],
        report: str,
        path: PathLike,
        format: str | None = None,  # noqa: A002 - as above
        **options: Unpack[QueryOptions],
    ) -> int:
        """Write the answer to a question to a file, in place of one that is there; its size.

        An answer that is cut goes on at its byte.

        Args:
            loss_sets: as for ``query``.
            report: as for ``query``.
            path: of the file, which appears once it is complete.
            format: as for ``fetch``; by default the extension of the path.
            **options: as for ``query``.

        Raises:
            ProblemError, ConnectionFailed, TypeError, ValueError: as for ``fetch``.
            OSError: the file cannot be written.
        """
        request = requests.query_request(
            question(loss_sets, report, options), _ending(path, format)
        )
        return self._download("answer", request, path)

    def _answer(self, request: Request) -> Reply:
        """Ask until there is an answer, which may be long."""
        with self._connector.channel() as channel:
            backoff = channel.backoff()
            while True:
                try:
                    head = channel.open(request)
                    return Reply(head, channel.read(_LONGEST))
                except ThalwegError as error:
                    delay = backoff.delay(error)
                channel.pause(delay)


def _ending(path: PathLike, form: str | None) -> str:
    """The format that was asked for, or that the extension of a path says."""
    return form or Path(path).suffix.removeprefix(".") or "csv"
