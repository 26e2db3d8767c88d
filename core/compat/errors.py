"""Errors of the compatible packages.

Every class derives from an error of the engine, with its codes and hints, and from the builtin
class that the original library raises, so that existing ``except`` clauses work.
"""

from ..errors import CoreError, OptionError, StateError


class ArgumentError(OptionError, ValueError):
    """An argument is invalid."""


class EmptySourceError(OptionError, ValueError):
    """A source has no items, but at least one is needed to continue."""


class CheckpointError(StateError, ValueError):
    """A checkpoint is malformed, of another version, or of another iterator."""


class DataChangedError(StateError, RuntimeError):
    """A checkpoint lies past the end of the data, or belongs to other data."""


class ClosedError(CoreError, RuntimeError, code="closed"):
    """An iterator was used after ``close``."""


class SourceEndedError(CoreError, RuntimeError, code="source-ended"):
    """A source ended before the iterator that reads it."""


class WorkerError(CoreError, RuntimeError, code="worker"):
    """A worker process failed with an exception that cannot be pickled."""


class WorkerDiedError(CoreError, ChildProcessError, code="worker-died"):
    """A worker process or thread ended unexpectedly."""


class RemoteTracebackError(Exception):
    """Holds the traceback of an exception in a worker, as the cause of its copy here."""


class ContractError(OptionError, AssertionError):
    """A schema is missing or does not fit, or there are more names than readers or fewer."""
