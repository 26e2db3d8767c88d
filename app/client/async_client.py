"""The asynchronous client."""

from __future__ import annotations

import ssl
import warnings
from collections.abc import Mapping
from typing import Any

import httpx

from .datasets.asynchronous import AsyncDatasets
from .losses.asynchronous import AsyncLosses
from .losses.requests import InputLike, input_bytes, put_input
from .pipelines.asynchronous import AsyncPipeline
from .pipelines.requests import PipelineInfo, creation
from .portfolios.asynchronous import AsyncPortfolios
from .runs.asynchronous import AsyncRuns
from .transport.async_channel import AsyncCalls, AsyncClosing
from .transport.asynchronous import HttpxConnector
from .transport.http import TIMEOUT, Address
from .transport.requests import Request, is_ready, path_of, token_request
from .transport.retry import RETRIES


class AsyncInputs(AsyncCalls):
    """Auxiliary files: ``client.inputs``."""

    async def put(self, name: str, data: InputLike) -> str:
        """Store a file, or keep a stored one from expiring.

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
        reply = await self._connector.call(put_input(name, input_bytes(name, data)))
        return reply.text("digest")

    async def delete(self, name: str, digest: str) -> None:
        """Delete a file; others who have stored the same keep it.

        Args:
            name: as for ``put``.
            digest: what ``put`` returned.

        Raises:
            ProblemError: you have stored no such file.
            ConnectionFailed: the service could not be reached.
        """
        await self._connector.call(Request("DELETE", path_of("inputs", name, digest)))


class AsyncTokens(AsyncCalls):
    """Contents of tokens: ``client.tokens``."""

    async def inspect(self, token: str) -> dict[str, Any]:
        """What a token says.

        Raises:
            ProblemError: it is malformed or forged.
            ConnectionFailed: the service could not be reached.
        """
        return (await self._connector.call(token_request("inspect", token))).json()

    async def refresh(self, token: str) -> str:
        """The same token, signed with the current key.

        Raises:
            ProblemError: it is malformed or forged.
            ConnectionFailed: the service could not be reached.
        """
        return (await self._connector.call(token_request("refresh", token))).text("token")


class AsyncClient(AsyncClosing):
    """A Thalweg service, for asyncio.

    Args:
        url: of the service, such as ``http://127.0.0.1:8000``.
        key: bearer key, or None.
        timeout: seconds without a byte after which a connection counts as broken.
        retries: failures in a row, without progress between them, to tolerate.
        ssl_context: for https; the system's by default.
        transport: of httpx, for everything but duplex requests; its own by default.

    Attributes:
        losses: event reports from loss streams.
        runs: durable uploads, and the reports of many streams.
        portfolios: loss sets of runs, and questions about them.
        datasets: tiles of detectors' files.
        inputs: auxiliary files.
        tokens: contents of tokens.

    Raises:
        ValueError: the URL is not one of http or https.
    """

    def __init__(  # noqa: PLR0913 - each is a choice of the caller
        self,
        url: str,
        key: str | None = None,
        *,
        timeout: float = TIMEOUT,
        retries: int = RETRIES,
        ssl_context: ssl.SSLContext | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        address = Address.parse(url, key, timeout, ssl_context)
        self._connector = HttpxConnector(url, address, retries, transport)
        self.losses = AsyncLosses(self._connector)
        self.runs = AsyncRuns(self._connector)
        self.portfolios = AsyncPortfolios(self._connector)
        self.datasets = AsyncDatasets(self._connector)
        self.inputs = AsyncInputs(self._connector)
        self.tokens = AsyncTokens(self._connector)

    async def pipeline(self, spec: Mapping[str, Any]) -> AsyncPipeline:
        """A pipeline, to iterate over its batches.

        The same spec over the same data is the same pipeline. What people should know of it, such
        as items that it leaves out, is warned of.

        Args:
            spec: as in the contract, such as ``{"stages": [{"op": "source",
                "dataset": "scan1"}, {"op": "batch", "size": 32}]}``.

        Raises:
            ProblemError: the service refused it, and says which stage is wrong.
            ConnectionFailed: it could not be reached.
            TypeError, ValueError: the spec is not a dict, or cannot be written as JSON.
        """
        request = creation(spec)
        info = PipelineInfo.parse(await self._connector.call(request))
        for note in info.notes:
            warnings.warn(note, stacklevel=2)
        return AsyncPipeline(self._connector, spec, request, info)

    async def pipelines(self) -> list[str]:
        """Ids of your pipelines, in order.

        Raises:
            ThalwegError: the service refused, or could not be reached.
        """
        return await self._connector.ids("pipelines")

    async def pipeline_info(self, ident: str) -> dict[str, Any]:
        """The description of a pipeline: its spec, sources, schema and number of batches.

        Raises:
            ProblemError: there is no such pipeline, or it is not yours.
            ConnectionFailed: the service could not be reached.
        """
        request = Request("GET", path_of("pipelines", ident))
        return (await self._connector.call(request)).json()

    async def stages(self, name: str | None = None) -> dict[str, Any]:
        """What stages and their functions do, with options and examples; all, or one by name.

        Raises:
            ThalwegError: the service refused, or could not be reached.
        """
        request = Request("GET", path_of("stages", name) if name else "/v1/stages")
        return (await self._connector.call(request)).json()

    async def delete_pipeline(self, ident: str) -> None:
        """Have the service forget a pipeline; its tokens hold again once it is posted again.

        Args:
            ident: ``AsyncPipeline.id``.

        Raises:
            ProblemError: there is no such pipeline, or it is not yours.
            ConnectionFailed: the service could not be reached.
        """
        await self._connector.call(Request("DELETE", path_of("pipelines", ident)))

    async def health(self) -> bool:
        """Whether the service takes work; False while it starts or stops.

        Raises:
            ConnectionFailed: it could not be reached.
            ProblemError: something else answers there.
        """
        async with self._connector.channel() as channel:
            return is_ready(await channel.exchange(Request("GET", "/readyz")))

    async def aclose(self) -> None:
        """Close the idle connections."""
        await self._connector.aclose()
