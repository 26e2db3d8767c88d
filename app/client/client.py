"""The blocking client."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

from .datasets.blocking import Datasets
from .errors import ThalwegError
from .losses.blocking import Losses
from .losses.requests import InputLike, input_bytes, put_input
from .pipelines.blocking import Pipeline
from .transport.http import Address, Pool
from .transport.refusals import checked
from .transport.requests import Reply, Request, token_request
from .transport.retry import Backoff

RETRIES = 8
"""Faults in a row to bear: about a minute of a server that is away."""
TIMEOUT = 60.0
"""Seconds without a byte after which a connection counts as broken."""

_STATUS_OK = 200
_STATUS_UNAVAILABLE = 503


class Inputs:
    """Auxiliary files: ``client.inputs``."""

    def __init__(self, call: Callable[[Request], Reply]) -> None:
        self._call = call

    def put(self, name: str, data: InputLike) -> str:
        """Store a file, or keep it from expiring.

        Args:
            name: quantiles, event_rates or occurrence.
            data: path of a csv or packed file, or its bytes.

        Returns:
            Its digest, to be used as an option of a post.

        Raises:
            SourceError: the file cannot be read.
            ProblemError: the service refused it.
            ConnectionFailed: the service could not be reached.
        """
        return self._call(put_input(name, input_bytes(data))).text("digest")


class Tokens:
    """What tokens say: ``client.tokens``."""

    def __init__(self, call: Callable[[Request], Reply]) -> None:
        self._call = call

    def inspect(self, token: str) -> dict[str, Any]:
        """What a token says.

        Raises:
            ProblemError: it is malformed or forged.
            ConnectionFailed: the service could not be reached.
        """
        return self._call(token_request("inspect", token)).json()

    def refresh(self, token: str) -> str:
        """The same token, signed with the key of today.

        Raises:
            ProblemError: it is malformed or forged.
            ConnectionFailed: the service could not be reached.
        """
        return self._call(token_request("refresh", token)).text("token")


class Client:
    """A Thalweg service; any thread may use it.

    Args:
        url: of the service, such as ``http://127.0.0.1:8000``.
        key: bearer key, or None.
        timeout: seconds without a byte after which a connection counts as broken.
        retries: faults in a row, without progress between them, to bear.
        ssl_context: for https; the system's by default.

    Attributes:
        losses: event reports from loss streams.
        datasets: tiles of detectors' files.
        inputs: auxiliary files.
        tokens: what tokens say.

    Raises:
        ValueError: the URL is none.
    """

    def __init__(
        self,
        url: str,
        key: str | None = None,
        *,
        timeout: float = TIMEOUT,
        retries: int = RETRIES,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self._pool = Pool(Address.parse(url, key, timeout, ssl_context))
        self._retries = retries
        self.losses = Losses(self._pool, retries)
        self.datasets = Datasets(self._pool, retries, self._call)
        self.inputs = Inputs(self._call)
        self.tokens = Tokens(self._call)

    def pipeline(self, spec: Mapping[str, Any]) -> Pipeline:
        """A pipeline, to iterate over its batches.

        The same spec over the same data is the same pipeline.

        Args:
            spec: as the contract has it, such as ``{"stages": [{"op": "source",
                "dataset": "scan1"}, {"op": "batch", "size": 32}]}``.

        Raises:
            ProblemError: the service refused it, and says which stage is wrong.
            ConnectionFailed: it could not be reached.
            TypeError, ValueError: the spec cannot be written as JSON.
        """
        return Pipeline(self._pool, self._retries, self._call, spec)

    def health(self) -> bool:
        """Whether the service takes work; False while it starts or stops.

        Raises:
            ConnectionFailed: it could not be reached.
            ProblemError: something else answers there.
        """
        return is_ready(self._pool.call(Request("GET", "/readyz")))

    def _call(self, request: Request) -> Reply:
        backoff = Backoff(self._retries)
        while True:
            try:
                return checked(self._pool.call(request))
            except ThalwegError as error:
                time.sleep(backoff.delay(error))

    def close(self) -> None:
        """Close the connections that wait for requests."""
        self._pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def is_ready(reply: Reply) -> bool:
    """What the answer to a question for readiness says."""
    if reply.head.status == _STATUS_UNAVAILABLE:
        return False
    return checked(reply).head.status == _STATUS_OK
