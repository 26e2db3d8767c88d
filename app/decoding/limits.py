"""What a worker may use, and how long it may take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

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
