"""What an analysis asks for: the part of ``analysis_settings.json`` that concerns outputs."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from core.errors import InputError
from core.losses.reports.report import RunOptions

from . import outputs
from .files import failing_as, json_object
from .outputs import OPTION_KEYS, ORD_KEYS, OUTPUTS, PERSPECTIVES

_LEGACY = ("eltcalc", "aalcalc", "aalcalcmeanonly", "pltcalc", "summarycalc", "lec_output")
_WITH_PREFIX = frozenset({"ri", "rl"})


@dataclass(frozen=True, slots=True)
class SetRequest:
    """What is asked of one summary set of a perspective."""

    set_id: int
    outputs: tuple[str, ...]
    """Names of the outputs, in the order of :data:`~app.oasis.outputs.OUTPUTS`."""
    curves: str = ""
    """Letters of the curves of ept and psept."""
    confidence: float = 0.95
    """Confidence level of alct."""
    at_return_periods: bool = False
    """Whether ept and psept are given at return periods rather than at every point."""
    form: str = "csv"
    joined: bool = False
    """Whether rows have the columns of the summary info."""

    @property
    def reports(self) -> tuple[str, ...]:
        """Reports of the engine that the outputs need, each once."""
        return tuple(dict.fromkeys(OUTPUTS[name].report for name in self.outputs))

    @property
    def options(self) -> RunOptions:
        """How reports of whole runs are computed."""
        return RunOptions(self.confidence, self.curves or RunOptions().curves)


@dataclass(frozen=True, slots=True)
class Settings:
    """What an analysis asks for."""

    source: str
    """File it was read from."""
    sets: Mapping[str, tuple[SetRequest, ...]]
    """By perspective; only those with outputs."""
    priorities: tuple[int, ...] = ()
    """Inuring priorities, as in the OED files, after which ri is asked for besides."""
    legacy: tuple[str, ...] = ()
    """Requests that the peer ignores with a warning, too."""
    number_of_samples: int | None = None
    document: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """The whole file."""


def read_settings(path: Path, form: str | None = None, *, join: bool = False) -> Settings:
    """Read what an analysis asks for.

    Args:
        path: of ``analysis_settings.json``.
        form: format of all outputs instead of that of the settings; None to leave them.
        join: whether to join the summary info whatever the settings say.

    Raises:
        InputError: the file cannot be read, is malformed, or asks for something unknown.
    """
    with failing_as("cannot be read", path):
        octets = path.read_bytes()
    return _Parser(str(path), form, join=join).settings(json_object(octets, path))


class _Parser:
    def __init__(self, source: str, form: str | None, *, join: bool) -> None:
        self._source = source
        self._form = form
        self._join = join
        self._legacy: list[str] = []

    def settings(self, document: Mapping[str, Any]) -> Settings:
        self._join |= bool(document.get(outputs.JOIN_KEY, False))
        sets = {
            name: requests
            for name in PERSPECTIVES
            if document.get(f"{name}_output") and (requests := self._sets(name, document))
        }
        if not sets:
            raise self._error(
                "asks for no output", "Set gul_output, il_output, ri_output or rl_output to true"
            )
        return Settings(
            source=self._source,
            sets=sets,
            priorities=self._priorities(document.get("ri_inuring_priorities") or ()),
            legacy=tuple(self._legacy),
            number_of_samples=document.get("number_of_samples"),
            document=document,
        )

    def _sets(self, name: str, document: Mapping[str, Any]) -> tuple[SetRequest, ...]:
        summaries = document.get(f"{name}_summaries")
        if not isinstance(summaries, list) or not summaries:
            raise self._error(f"{name}_output is true, but there are no {name}_summaries")
        requests = [self._set(name, summary) for summary in summaries]
        ids = [request.set_id for request in requests]
        for set_id in ids:
            if ids.count(set_id) > 1:
                raise self._error(f"{name}_summaries has the summary set {set_id} twice")
        return tuple(request for request in requests if request.outputs)

    def _set(self, name: str, summary: Any) -> SetRequest:  # noqa: ANN401 - JSON
        set_id = summary.get("id") if isinstance(summary, dict) else None
        if type(set_id) is not int or set_id < 1:
            raise self._error(f"{name}_summaries has a set without an id from 1: {summary!r}"[:200])
        label = f"{name}_summaries, set {set_id}"
        self._legacy += [f"{label}: {key}" for key in _LEGACY if summary.get(key)]
        keys = summary.get("ord_output") or {}
        if not isinstance(keys, dict):
            raise self._error(f"{label}: ord_output is not an object")
        for key in keys:
            self._check_key(label, key)
        chosen = [ORD_KEYS[key] for key, value in keys.items() if key in ORD_KEYS and value]
        names = {key.output for key in chosen}
        confidence = keys.get(outputs.CONFIDENCE_KEY) or RunOptions().confidence
        if not isinstance(confidence, int | float) or not 0 <= confidence < 1:
            raise self._error(f"{label}: alct_confidence is {confidence!r}, not from 0 to below 1")
        parquet = bool(keys.get(outputs.PARQUET_KEY, False))
        return SetRequest(
            set_id=set_id,
            outputs=tuple(name for name in OUTPUTS if name in names),
            curves="".join(key.curve for key in chosen if key.curve is not None),
            confidence=float(confidence),
            at_return_periods=bool(keys.get(outputs.RETURN_PERIODS_KEY, False)),
            form=self._form or ("parquet" if parquet else "csv"),
            joined=self._join,
        )

    def _check_key(self, label: str, key: str) -> None:
        known = (*ORD_KEYS, *OPTION_KEYS)
        if key not in known:
            close = difflib.get_close_matches(key, known, 1)
            hint = f"Is it {close[0]}?" if close else f"Choose from {', '.join(ORD_KEYS)}"
            raise self._error(f"{label}: ord_output has no key {key!r}", hint)

    def _priorities(self, values: Iterable[Any]) -> tuple[int, ...]:
        try:
            return tuple(sorted({int(value) for value in values}))
        except (TypeError, ValueError) as e:
            raise self._error(f"ri_inuring_priorities are not whole numbers: {values!r}") from e

    def _error(self, message: str, hint: str | None = None) -> InputError:
        return InputError(message, hint=hint, source=self._source)


@dataclass(frozen=True, slots=True)
class Losses:
    """Streams of losses that an analysis asks reports of: a perspective after some layers."""

    perspective: str
    level: int | None = None
    """Layer of reinsurance whose structure they come out of; None of gul and il."""
    priority: int | None = None
    """Level in names such as ``ri_IP1``; None for gul, il and the final net losses."""

    @property
    def name(self) -> str:
        """Beginning of the names of its streams: ``gul``, ``ri_IP1``."""
        return outputs.run_name(self.perspective, self.priority)


def losses_of(
    settings: Settings, perspective: str, levels: Mapping[int, int], layers: int
) -> Sequence[Losses]:
    """The losses of a perspective that an analysis asks reports of.

    Args:
        settings: of the analysis.
        perspective: one with outputs.
        levels: last layer of each inuring priority.
        layers: number of layers of reinsurance.

    Raises:
        InputError: there is no reinsurance, or not such an inuring priority.
    """
    if perspective not in _WITH_PREFIX:
        return [Losses(perspective)]
    if not layers:
        raise InputError(
            f"{perspective}_output is true, but the run has no layers of reinsurance",
            hint="They are in input/ri_layers.json and input/RI_1, RI_2, ...",
            source=settings.source,
        )
    if perspective == "rl":
        return [Losses("rl", level, level) for level in range(1, layers + 1)]
    for priority in settings.priorities:
        if priority not in levels:
            listed = ", ".join(map(str, sorted(levels)))
            raise InputError(
                f"ri_inuring_priorities asks for {priority}, which does not exist",
                hint=f"The inuring priorities of the run are {listed}",
                source=settings.source,
            )
    between = sorted({levels[priority] for priority in settings.priorities} - {layers})
    return [*(Losses("ri", level, level) for level in between), Losses("ri", layers)]
