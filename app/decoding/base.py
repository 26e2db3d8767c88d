"""What is asked of the decoders, the interface through which products ask it, and its limits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeVar

from core.arrays import Octets

Sandbox = Literal["auto", "require", "off"]


@dataclass(frozen=True, slots=True)
class DecoderLimits:
    """Limits of the pool and of each of its workers."""

    workers: int = 2
    """Maximum number of worker processes."""
    memory: int = 1 << 30
    """Memory of a worker in bytes, beyond what it has when it is ready."""
    seconds: float = 10.0
    """Wall time per request in seconds; more where many bytes have to be decoded."""
    cpu_seconds: float = 2.0
    """CPU time per request, likewise."""
    idle_seconds: float = 60.0
    """Time after which an idle worker is stopped."""
    start_seconds: float = 60.0
    """Time a worker may take to start."""
    wait_seconds: float = 30.0
    """Time that a request waits for a worker."""
    sandbox: Sandbox = "auto"
    """``auto`` uses what the kernel has, ``require`` starts no worker without Landlock and
    seccomp, ``off`` uses neither."""


T = TypeVar("T")

_BYTES_PER_SECOND = 64 << 20
"""Decoded bytes that a second must suffice for; the slowest usual filters reach twice that."""


@dataclass(frozen=True, slots=True)
class OpenHandle:
    """What a worker opens for a request, and may leave open for later ones.

    Two subjects of one key must be the same: a key holds the identity of the file, so that a
    worker never reads a file with what it remembers of the file's predecessor.
    """

    key: str
    form: str
    """The format, a name in ``worker.serving``."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    descriptors: Sequence[int] = ()
    """The open files; the worker gets copies."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How much a request may take."""

    nbytes: int = 0
    """Size of the result in shared memory, if it is known beforehand."""
    max_bytes: int = 0
    """Maximum size of the result, if only the worker can tell."""
    work: int = 0
    """Bytes that have to be decoded; they add to the time allowed."""

    @property
    def seconds(self) -> float:
        """Time allowed for the bytes to decode, in seconds."""
        return self.work / _BYTES_PER_SECOND


@dataclass(frozen=True, slots=True)
class Request:
    """One request to a worker."""

    source: str
    """Name of the file, for problems."""
    subject: OpenHandle
    action: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    files: Iterable[Sequence[int]] = ()
    """Further files, for this request only: batches of descriptors, each of which stays open
    until the next one is asked for."""
    effort: Effort = Effort()
    fetch: Callable[[int, int], bytes] | None = None
    """Reads bytes ``start`` to ``stop`` of the subject's file, which the worker asks for; None if
    the worker has the file open, or there is none."""


class LibraryMissingError(Exception):
    """The library of a format is not installed.

    Attributes:
        package: its name.
    """

    def __init__(self, package: str) -> None:
        super().__init__(package)
        self.package = package


Parse = Callable[[Mapping[str, Any], Octets], T]
"""Builds a result from a worker's JSON and bytes.

Must check all it uses; ValueError, TypeError, KeyError or IndexError mean that the worker broke
the protocol.
"""


class Decoders(Protocol):
    """Decodes in isolated processes; several threads may ask at once."""

    @property
    def max_bytes(self) -> int:
        """Maximum size of a result in bytes."""

    def ask(self, request: Request, parse: Parse[T]) -> T:
        """Have a worker do something, and return what ``parse`` makes of its answer.

        Raises:
            RefusedError: the library refuses the file.
            LibraryMissingError: the library is not installed.
            DatasetUnreadableError: the worker crashed, hung, ran out of memory or answered
                nonsense; it has been replaced.
            BusyError: no worker became free in time, or none could be started.
            ShareExceededError: the owner holds all workers that it may have at present.
        """

    def forget(self, key: str) -> None:
        """Have workers close a subject before long; never waits."""
