"""Errors of the compatible packages: classes of the error tree and of the peers' at once.

Callers who moved here catch the builtin exceptions that the peers raise; every class here
is one of them too, and carries the codes and hints of the tree.
"""

from __future__ import annotations

from ..errors import CoreError, OptionError, StateError


class ArgumentError(OptionError, ValueError):
    """An argument has a value it cannot have."""


class EmptySourceError(OptionError, ValueError):
    """A source gives nothing where something is needed to go on."""


class CheckpointError(StateError, ValueError):
    """A checkpoint is malformed, of another version or of another iterator."""


class DataChangedError(StateError, RuntimeError):
    """A checkpoint points past the end of the data, or the data is other data."""


class ClosedError(CoreError, RuntimeError):
    """An iterator was used after it was closed."""

    code = "closed"


class SourceEndedError(CoreError, RuntimeError):
    """A source ended although more of it was asked for."""

    code = "source-ended"


class WorkerError(CoreError, RuntimeError):
    """A worker process failed with an exception that cannot be brought over."""

    code = "worker"


class WorkerDiedError(CoreError, ChildProcessError):
    """A worker process or thread ended without a word."""

    code = "worker-died"


class RemoteTracebackError(Exception):
    """The cause of an exception that was raised in a worker: its traceback, as text."""


class ContractError(OptionError, AssertionError):
    """A schema is missing or does not fit, or names and readers are not as many."""
