"""A small service that speaks the contract, and misbehaves by a script."""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from xxhash import xxh3_64_intdigest

from . import pipelines, runs, tiles
from .exchange import Exchange, Fault, Gone, Refusal, Seen
from .losses import LossAnswer

_STREAM = re.compile(
    r"^/v1/(datasets/scan/(tiles|reduce|views/[^/]+/raw)|pipelines/[^/]+/batch(es)?)$"
)


class FakeService:
    """Listens on loopback until it is closed.

    Args:
        script: a fault, or None, for each losses request or stream of a dataset or pipeline
            in turn; none after the last.
        split: rows of a frame; an event with more has several, with MORE.
        chunked: answer in chunks instead of with a length.
        heartbeats: send one after every frame.
        delay: seconds before an answer.

    Attributes:
        gone: set when a client has closed its connection, or the service.
        refreshed: gives the token for one that is refreshed.
    """

    def __init__(
        self,
        script: list[Fault | None] | None = None,
        *,
        split: int = 2,
        chunked: bool = True,
        heartbeats: bool = False,
        delay: float = 0.0,
    ) -> None:
        self.script = list(script or [])
        self.split = split
        self.chunked = chunked
        self.heartbeats = heartbeats
        self.delay = delay
        self.seen: list[Seen] = []
        self.gone = threading.Event()
        self.inputs: dict[str, bytes] = {}
        self.refreshed: Callable[[str], str] = lambda token: f"{token.rpartition('.')[0]}.0"
        self.ready = True
        self.pages: list[dict[str, Any]] = []  # what to answer the next GETs with
        self.scan = tiles.FakeScan()
        self.pipeline = pipelines.FakePipeline()
        self.run = runs.FakeRuns()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._connections: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    @property
    def losses(self) -> list[Seen]:
        return [seen for seen in self.seen if seen.target.startswith("/v1/losses")]

    @property
    def streams(self) -> list[Seen]:
        return [seen for seen in self.seen if _STREAM.match(seen.path)]

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._connections.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def close(self) -> None:
        # Closing alone does not wake the thread that accepts.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()
        self.cut_all()

    def cut_all(self) -> None:
        for connection in self._connections:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            file = connection.makefile("rb")
            try:
                while self._answer(Exchange(connection, file)):
                    pass
            except (Gone, OSError, ValueError):
                return
            finally:
                file.close()
                self.gone.set()

    def _answer(self, exchange: Exchange) -> bool:
        """Answer one request; False if there is no other one."""
        seen = exchange.read_head()
        if seen is None:
            return False
        self.seen.append(seen)
        broken = seen.path.startswith("/v1/losses") or _STREAM.match(seen.path)
        if broken or (seen.path.startswith("/v1/runs") and runs.breaks(seen)):
            exchange.fault = (self.script.pop(0) if self.script else None) or Fault()
        try:
            if self.pages and seen.method == "GET":
                exchange.json(200, self.pages.pop(0))
            elif seen.path.startswith("/v1/losses"):
                LossAnswer(self, exchange).run()
            elif seen.path.startswith("/v1/datasets"):
                tiles.answer(exchange, self.scan, b"".join(exchange.body()))
            elif seen.path.startswith("/v1/runs"):
                runs.answer(exchange, self.run)
            elif seen.path.startswith("/v1/pipelines"):
                pipelines.answer(exchange, self.pipeline, b"".join(exchange.body()))
            else:
                self._answer_small(exchange, b"".join(exchange.body()))
        except Refusal as e:
            exchange.json(e.status, e.problem)
        return True

    def _delete_input(self, exchange: Exchange, digest: str) -> None:
        if self.inputs.pop(digest, None) is None:
            exchange.json(404, {"code": "not-found", "detail": "there is no such input"})
        else:
            exchange.head(204, {}, 0)

    def _answer_small(self, exchange: Exchange, body: bytes) -> None:
        path = exchange.path
        if exchange.seen.method == "DELETE":
            self._delete_input(exchange, path.rpartition("/")[2])
        elif path.startswith("/v1/inputs/"):
            digest = f"{xxh3_64_intdigest(body):016x}"
            self.inputs[digest] = body
            exchange.json(201, {"name": path.rpartition("/")[2], "digest": digest})
        elif path == "/v1/tokens/refresh":
            exchange.json(200, {"token": self.refreshed(json.loads(body)["token"])})
        elif path == "/v1/tokens/inspect":
            exchange.json(200, {"kind": "losses", "token": json.loads(body)["token"]})
        elif path == "/readyz":
            exchange.json(200 if self.ready else 503, {})
        else:
            exchange.json(404, {"code": "not-found", "title": "Not found", "status": 404})
