"""Notices among the nodes of a service, by way of their database.

On a node, they go from process to process without it (:mod:`app.state.notices`). Between nodes the
database passes them on: each process has a thread that tells it, so that nobody waits for that, and
one process of each node listens, and gives what it hears to the others of its node.

    announce ──▶ notices of the node
           └───▶ thread ──▶ NOTIFY ──▶ relay of another node ──▶ its notices

A notice that is lost, as one given while a relay connects again, delays those who wait for it: a
relay that has connected gives all notices, and whoever follows looks once in a while.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path

import structlog

from .base import StoreError
from .notices import FILES, Notices, file_of
from .postgres import PostgresStateStore

_CHANNEL = "thalweg_notices"
_PAUSE = 1.0
"""Seconds before a relay connects again, and in which it notices that it is to stop."""


class NodeNotices(Notices):
    """Notices to the processes of all nodes.

    Args:
        directory: of the notices of this node.
        database: of all.
        node: name of this one.

    Raises:
        StoreError: the directory cannot be made.
    """

    def __init__(self, directory: Path, database: PostgresStateStore, node: str) -> None:
        super().__init__(directory)
        self._database = database
        self._node = node
        self._waiting: set[str] = set()
        self._changed = threading.Condition()
        self._stopped = threading.Event()
        self._threads: dict[Callable[[], None], threading.Thread] = {}

    def give(self, name: str) -> None:
        """See Notices; other nodes are told a moment later."""
        super().give(name)
        with self._changed:
            self._waiting.add(file_of(name))
            self._changed.notify()
            self._start(self._tell)

    def relay(self) -> None:
        """Give the notices of other nodes to the processes of this one, from now on."""
        with self._changed:
            self._start(self._relay)

    def _start(self, function: Callable[[], None]) -> None:
        if function not in self._threads and not self._stopped.is_set():
            thread = threading.Thread(target=function, name="notices", daemon=True)
            self._threads[function] = thread
            thread.start()

    def _tell(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._stopped.is_set())
                files, self._waiting = self._waiting, set()
            if not files:
                return
            # Who is not told looks after a while.
            with contextlib.suppress(StoreError):
                self._database.notify(_CHANNEL, " ".join([self._node, *files]))

    def _relay(self) -> None:
        while not self._stopped.is_set():
            try:
                with self._database.listening(_CHANNEL) as listener:
                    # Some may have been given while nobody listened.
                    self._give_files(FILES)
                    while not self._stopped.is_set():
                        for text in listener(_PAUSE):
                            node, *files = text.split()
                            if node != self._node:
                                self._give_files(files)
            except StoreError as e:
                structlog.get_logger().warning("notices of other nodes are late", reason=str(e))
                self._stopped.wait(_PAUSE)

    def close(self) -> None:
        """End the threads; may be called twice."""
        self._stopped.set()
        with self._changed:
            self._changed.notify_all()
        for thread in self._threads.values():
            thread.join()
