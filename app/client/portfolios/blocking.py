# Made from asynchronous.py by deploy/unasync.py (make fmt): change that one.
"""Loss sets with blocking calls, and questions about them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Unpack

from ..errors import ThalwegError
from ..files.outputs import write_file
from ..files.state import PathLike
from ..losses.requests import InputLike, input_bytes, put_input
from ..runs.description import Perspective, RunLike
from ..runs.requests import RunRequests
from ..transport.channel import Calls, pages
from ..transport.requests import Reply, Request
from ..transport.streams import Items
from .requests import (
    SETS,
    LossSet,
    PortfolioAnswer,
    QueryOptions,
    SetLike,
    creation,
    query_request,
    question,
    set_request,
)

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
        if summary_info is not None and not isinstance(summary_info, str):
            stored = put_input("summary_info", input_bytes("summary_info", summary_info))
            summary_info = (self._connector.call(stored)).text("digest")
        options = {
            "name": name,
            "currency": currency,
            "perspective": perspective,
            "summary_set": summary_set,
            "summary_info": summary_info,
        }
        request = creation(RunRequests(run).run, options)
        return LossSet.parse((self._connector.call(request)).json())

    def list(self) -> Iterator[LossSet]:
        """Iterate over your loss sets.

        Raises (from iteration):
            ProblemError, ConnectionFailed: the service refused, or could not be reached.
        """
        channel = self._connector.channel()
        return Items(channel, pages(channel.call, SETS, "loss_sets", LossSet.parse))

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
    ) -> PortfolioAnswer:
        """Answer a question about one or several loss sets.

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
        reply = self._answer(query_request(question(loss_sets, report, options)))
        return PortfolioAnswer.parse(reply)

    def fetch(
        self,
        loss_sets: SetLike | Sequence[SetLike],
        report: str,
        format: str = "csv",  # noqa: A002 - its name everywhere in the contract
        **options: Unpack[QueryOptions],
    ) -> bytes:
        """The answer to a question as the bytes of a file.

        Args:
            loss_sets: as for ``query``.
            report: as for ``query``.
            format: json, csv, ndjson, arrow, parquet, bin, svg or png.
            **options: as for ``query``.

        Raises:
            ProblemError, ConnectionFailed, TypeError: as for ``query``.
            ValueError: there is no such format.
        """
        request = query_request(question(loss_sets, report, options), format)
        return (self._answer(request)).body

    def save(
        self,
        loss_sets: SetLike | Sequence[SetLike],
        report: str,
        path: PathLike,
        format: str | None = None,  # noqa: A002 - as above
        **options: Unpack[QueryOptions],
    ) -> int:
        """Write the answer to a question to a file, in place of one that is there; its size.

        Args:
            loss_sets: as for ``query``.
            report: as for ``query``.
            path: of the file.
            format: as for ``fetch``; by default the extension of the path.
            **options: as for ``query``.

        Raises:
            ProblemError, ConnectionFailed, TypeError, ValueError: as for ``fetch``.
            OSError: the file cannot be written.
        """
        form = format or Path(path).suffix.removeprefix(".") or "csv"
        data = self.fetch(loss_sets, report, form, **options)
        write_file(Path(path), data)
        return len(data)

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
