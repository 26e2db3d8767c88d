"""One worker process, from the service's side: starting, asking, measuring, killing.

A worker is told to do one thing at a time, by the thread that holds it. While it works, that
thread waits for the answer in short steps and looks at two clocks. One is the wall clock. The
other is the CPU clock of the worker, which the kernel provides to other processes too: a worker
cannot lie about it, and one that waits for a core is not blamed for that.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import orjson

from app.errors import DatasetUnreadableError
from app.tracing import NO_TRACE, Trace
from core.arrays import Octets
from core.budget import check_room

from . import wire
from .base import DecoderLimits, LibraryMissingError, OpenHandle, Parse, Request, T
from .segments import Segment, Segments
from .watch import Fetched, NotFetchedError, TimeUpError, Watch, count

MAX_OPEN = 32
"""Subjects that a worker leaves open."""
_ENDING_SECONDS = 2.0
"""Time a process that closed its connection has to end."""
_TEXT = 500
"""Maximum characters of a message from a worker."""
_INHERITED = (
    *("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "HDF5_PLUGIN_PATH"),
    *("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"),
)
"""Variables a worker gets: none that holds a secret."""
_NOTHING: Octets = np.zeros(0, np.uint8)
_SINGLE = {
    **dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "BLOSC_NTHREADS"), "1"),
    "MALLOC_ARENA_MAX": "1",
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}
"""Variables that leave libraries with one thread, and with malloc."""
_REUSING = {"MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_TRIM_THRESHOLD_": str(64 << 20)}
"""Have glibc reuse large blocks: a column chunk in a mapping of its own costs a page fault per
4 KiB. A worker that is idle for long is stopped, so what it retains is given back."""


class StartError(Exception):
    """A worker could not be started."""


class _BrokenError(Exception):
    """A worker's answer violates the protocol."""


class DecoderProcess:
    """A running worker; for one thread at a time, except for ``interrupt``.

    Args:
        limits: what it may use.

    Attributes:
        known: keys of the subjects it has open, the latest last.
        idle_since: when it was last used, by the monotonic clock.
        protections: what the kernel enforces on it, by name.
    """

    def __init__(self, limits: DecoderLimits) -> None:
        self.known: OrderedDict[str, None] = OrderedDict()
        self.idle_since = time.monotonic()
        self.protections: Mapping[str, Any] = {}
        self._limits = limits
        self._libraries: Mapping[str, Any] = {}
        self._segments = Segments()
        self._forgotten: list[str] = []
        self._channel, remote = socket.socketpair()
        with remote:
            options = {
                "parent": os.getpid(),
                "memory": limits.memory,
                "sandbox": limits.sandbox,
                "descriptors": MAX_OPEN + wire.MAX_DESCRIPTORS + 32,
            }
            # No secrets of the service, no directory a client could have written to, and no
            # terminal whose Ctrl-C would end the worker before the service has drained.
            self._process = subprocess.Popen(  # noqa: S603 - our own module
                [
                    *(sys.executable, "-P", "-m", "app.decoding.worker"),
                    *(str(remote.fileno()), orjson.dumps(options).decode()),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[remote.fileno()],
                cwd="/",
                env=_environment(),
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    def wait_until_ready(self) -> None:
        """Wait until the worker has loaded its libraries and closed its sandbox.

        Raises:
            StartError: it failed to.
        """
        allowed = self._limits.start_seconds
        try:
            watch = Watch(self._channel, self.pid, allowed, allowed)
            ready, _ = wire.receive(self._channel, patience=watch)
            failed = ready.get("failed")
            self.protections = dict(ready.get("protections", {}))
            self._libraries = dict(ready.get("libraries", {}))
        except (wire.WireError, AttributeError, TypeError, ValueError) as e:
            self.kill()
            raise StartError("it does not speak our protocol") from e
        except (wire.GoneError, TimeUpError) as e:
            ending = str(e) or self._ending()
            self.kill()
            raise StartError(f"it {ending}") from e
        except BaseException:
            self.kill()
            raise
        if failed is not None:
            self.kill()
            raise StartError(str(failed))

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    @property
    def ended(self) -> bool:
        """Whether the process is known to have ended: what ``alive`` saw, or ``kill`` did."""
        return self._process.returncode is not None

    def ask(self, request: Request, parse: Parse[T], trace: Trace = NO_TRACE) -> T:
        """Have the worker do something; see ``Decoders.ask``. After an error it may be dead.

        Raises:
            RefusedError: the library refuses the file.
            LibraryMissingError: the library is not installed.
            DatasetUnreadableError: the worker failed, and has been killed.
        """
        self._check_library(request.subject.form)
        watch = Watch(
            self._channel,
            self.pid,
            self._limits.seconds + request.effort.seconds,
            self._limits.cpu_seconds + request.effort.seconds,
        )
        known = request.subject.key in self.known
        try:
            return self._exchange(request, parse, watch, trace)
        except NotFetchedError as e:
            # What the library made of it is not to be used again.
            self._forgotten.append(request.subject.key)
            raise e.failure from e
        except wire.RefusedError:
            if not known:
                self._forgotten.append(request.subject.key)
            raise
        except MemoryError as e:
            limit = self._limits.memory >> 20
            self._fail(request, "memory", f"needs more than the {limit} MiB a decoder may use", e)
        except TimeUpError as e:
            self._fail(request, "time", str(e), e)
        except wire.GoneError as e:
            self._fail(request, "crash", self._ending(), e)
        except (wire.WireError, _BrokenError) as e:
            self._fail(request, "protocol", "gave an invalid answer", e)
        except BaseException:
            # In the middle of an exchange, nothing is known of the worker's state.
            self.kill()
            raise
        finally:
            self.idle_since = time.monotonic()

    def _check_library(self, form: str) -> None:
        package = self._libraries.get(form)
        if isinstance(package, str):
            raise LibraryMissingError(package[:_TEXT])

    def _exchange(self, request: Request, parse: Parse[T], watch: Watch, trace: Trace) -> T:
        traced = {"traceparent": trace.header} if trace.is_recorded else {}
        batches, fetched = iter(request.files), Fetched(request, self._channel)
        nbytes = request.effort.nbytes
        check_room("decode", nbytes)
        segment = self._segments.take(nbytes) if nbytes else None
        try:
            self._send(request, segment, next(batches, ()), watch, traced)
            answer, _ = wire.receive(self._channel, patience=watch)
            while "need" in answer or "more" in answer or "fetch" in answer:
                if "fetch" in answer:
                    fetched.send(answer["fetch"], watch)
                elif "more" in answer:
                    wire.send(self._channel, {}, next(batches, ()), watch)
                elif segment is None:
                    nbytes = count(answer["need"], request.effort.max_bytes)
                    # The segment, and the copy of it that the caller makes.
                    check_room("decode", 2 * nbytes)
                    segment = self._segments.take(max(nbytes, 1))
                    self._send_segment(segment, watch)
                answer, _ = wire.receive(self._channel, patience=watch)
            if traced:
                seconds = count(answer["nanoseconds"], 1 << 64) / 1e9
                trace.past("decoder", min(seconds, watch.waited), **{"process.pid": self.pid})
            fetched.check()
            _raise_refusal(answer)
            values = answer["ok"]
            if not isinstance(values, dict):
                raise _BrokenError
            if segment is None:
                return parse(values, _NOTHING)
            octets, segment = self._segments.lend(segment, nbytes), None
            return parse(values, octets)
        except (ValueError, TypeError, KeyError, IndexError, OverflowError) as e:
            raise _BrokenError from e
        finally:
            if segment is not None:
                self._segments.put(segment)

    def _send(
        self,
        request: Request,
        segment: Segment | None,
        files: Sequence[int],
        watch: Watch,
        traced: Mapping[str, str | None],
    ) -> None:
        subject = request.subject
        closing, self._forgotten = self._forgotten, []
        for key in closing:
            self.known.pop(key, None)
        opening = subject.key not in self.known
        self.known[subject.key] = None
        self.known.move_to_end(subject.key)
        while len(self.known) > MAX_OPEN:
            closing.append(self.known.popitem(last=False)[0])
        values = {
            "drop": self._segments.dropped(),
            "close": closing,
            "segment": None if segment is None else [segment.number, segment.size],
            "open": _opening(subject) if opening else None,
            "key": subject.key,
            "action": request.action,
            "arguments": request.arguments,
            **traced,
        }
        descriptors = [*(subject.descriptors if opening else ()), *files]
        if segment is not None and segment.descriptor is not None:
            descriptors.insert(0, segment.descriptor)
        wire.send(self._channel, values, descriptors, watch)
        if segment is not None:
            segment.sent()

    def _send_segment(self, segment: Segment, watch: Watch) -> None:
        descriptors = [] if segment.descriptor is None else [segment.descriptor]
        values = {"segment": [segment.number, segment.size]}
        wire.send(self._channel, values, descriptors, watch)
        segment.sent()

    def forget(self, key: str) -> None:
        """Close a subject with the next request."""
        if key in self.known:
            self._forgotten.append(key)

    def interrupt(self) -> None:
        """End the process while another thread asks it, which then gets an error."""
        self._process.kill()

    def kill(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        self._channel.close()
        self._segments.close()

    def _ending(self) -> str:
        """Say how a process that closed its connection ended."""
        try:
            code = self._process.wait(_ENDING_SECONDS)
        except subprocess.TimeoutExpired:
            return "closed its connection"
        if code >= 0:
            return f"ended with code {code}"
        try:
            return f"crashed its process ({signal.Signals(-code).name})"
        except ValueError:
            return f"crashed its process (signal {-code})"

    def _fail(self, request: Request, reason: str, subject: str, error: Exception) -> NoReturn:
        self.kill()
        hints = {
            "memory": "Write it again with smaller chunks, row groups or batches",
            "time": "Write it again with smaller chunks, row groups or batches",
        }
        raise DatasetUnreadableError(
            f"decoding {request.source!r} {subject}",
            hint=hints.get(reason, "Check that the file is neither damaged nor being written"),
            file=request.source,
            reason=reason,
        ) from error


def _opening(subject: OpenHandle) -> dict[str, Any]:
    return {
        "form": subject.form,
        "arguments": subject.arguments,
        "descriptors": len(subject.descriptors),
    }


def _environment() -> dict[str, str]:
    root = str(Path(__file__).parents[2])
    inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    path = [part for part in inherited.get("PYTHONPATH", "").split(os.pathsep) if part]
    # Relative parts would mean other directories there.
    path = [str(Path(part).absolute()) for part in path]
    return {**inherited, **_SINGLE, **_REUSING, "PYTHONPATH": os.pathsep.join([*path, root])}


def _raise_refusal(answer: Mapping[str, Any]) -> None:
    if "memory" in answer:
        raise MemoryError
    if "refused" in answer:
        refused = answer["refused"]
        hint, offset = refused["hint"], refused["offset"]
        raise wire.RefusedError(
            _text(refused["message"]),
            None if hint is None else _text(hint),
            None if offset is None else count(offset, 1 << 63),
        )


def _text(value: Any) -> str:  # noqa: ANN401 - anything
    """Return text of a worker, bounded and without control characters.

    Raises:
        TypeError: it is no text.
    """
    if not isinstance(value, str):
        raise TypeError("not a text")
    return "".join(c if c.isprintable() else " " for c in value[:_TEXT])
