"""The table of reports: all that knows which there are, and whether those requested can be had."""

from __future__ import annotations

import hashlib
from collections.abc import Container, Mapping, Sequence
from dataclasses import fields
from types import MappingProxyType
from typing import Any

from ...errors import ReportError, names_hint
from ..events import StreamHeader
from .annual import AAL, AAL_MEAN, ALCT
from .event_tables import EVENTS, MELT, MPLT, QELT, QPLT, SELT, SPLT
from .exceedance import EPT, PSEPT
from .report import ANY_KIND, Column, Input, Report, RunOptions

__all__ = ["EVENTS", "MELT", "MPLT", "QELT", "QPLT", "REPORTS", "SELT", "SPLT", "Column", "Report"]

_ROWS = (EVENTS, SELT, MELT, QELT, SPLT, MPLT, QPLT, AAL, AAL_MEAN, ALCT, EPT, PSEPT)
REPORTS: Mapping[str, Report] = MappingProxyType({report.name: report for report in _ROWS})
"""Every report by its name."""


_ELSEWHERE = {
    "aal": "aal or alct",
    "aep": "ept",
    "elt": "melt, selt or qelt",
    "kat": "any report of a run, or of several streams with thalweg-server aggregate",
    "lec": "ept or psept",
    "oep": "ept",
    "plt": "mplt, splt or qplt",
    "sampleelt": "selt",
    "sampleplt": "splt",
    "summary": "any report with a summary xref, or thalweg-server summarise for streams",
    "tvar": "ept",
    "ylt": "mplt, splt or qplt",
    **dict.fromkeys(
        ("eve", "fm", "getmodel", "gul", "gulmc", "model"),
        "any report, and post what gulpy, fmpy or summarypy writes: items with a summary xref",
    ),
}
"""Reports by the tools of ktools and oasislmf, such as ``eltcalc`` and ``eltpy``, or by what
modellers call them and the curves in them."""


def report_hint(name: str) -> str:
    """Return a hint for a name that is not a report's."""
    if name.lower() in REPORTS:
        return f"Did you mean {name.lower()}?"
    tool = name.lower().removeprefix("ord").removesuffix("calc").removesuffix("py")
    if (choice := _ELSEWHERE.get(tool)) is not None:
        return f"Use {choice}"
    return names_hint(name, REPORTS)


def choose_reports(names: Sequence[str]) -> tuple[Report, ...]:
    """The reports of these names, each once, in the order given.

    Raises:
        ReportError: none, an unknown one, or one twice.
    """
    if not names:
        raise ReportError("no report is wanted", hint=f"Use {', '.join(REPORTS)}")
    for name in names:
        if name not in REPORTS:
            raise ReportError(f"there is no report {name!r}", hint=report_hint(name))
    if twice := [name for name in names if names.count(name) > 1]:
        raise ReportError(f"report {twice[0]} is asked for twice", hint="Name each report once")
    return tuple(REPORTS[name] for name in names)


def check_inputs(reports: Sequence[Report], inputs: Mapping[str, Any]) -> None:
    """Refuse reports without an input they need, and inputs that none of them takes.

    Args:
        reports: those requested.
        inputs: by name; None where one is not given.

    Raises:
        ReportError: naming the report and the input.
    """
    present = {name for name, value in inputs.items() if value is not None}
    for report in reports:
        for need in report.needs:
            if need.name not in present:
                raise ReportError(
                    f"{report.name.upper()} needs {need.noun}", hint=need.hint, inputs=[need.name]
                )
    check_used(reports, present)


def check_used(reports: Sequence[Report], present: set[str]) -> None:
    """Refuse inputs that no report takes.

    Args:
        reports: those requested.
        present: names of inputs that are given, among others.

    Raises:
        ReportError: naming the reports that take one.
    """
    used = {entry.name for report in reports for entry in (*report.needs, *report.takes)}
    for entry, takers in _takers().items():
        if entry.name in present - used:
            names = _any_of(takers)
            raise ReportError(
                f"{entry.noun} are given, but {names} is not wanted",
                hint=f"Add {names.lower()}, or leave {entry.name} out",
                option=entry.name,
            )


def check_options(reports: Sequence[Report], options: RunOptions, choices: Container[str]) -> None:
    """Refuse options without effect on these reports, and reports without a curve.

    Args:
        reports: those requested.
        options: all of them.
        choices: names of those that somebody asked for, if only for their default.

    Raises:
        ReportError: naming the report and the option.
    """
    check_curves(reports, options)
    for entry in fields(options):
        if entry.name in choices and not any(entry.name in report.options for report in reports):
            takers = [name.upper() for name, row in REPORTS.items() if entry.name in row.options]
            names = _any_of(takers)
            raise ReportError(
                f"{entry.name} is given, but {names} is not wanted",
                hint=f"Add {names.lower()}, or leave {entry.name} out",
                option=entry.name,
            )


def check_curves(reports: Sequence[Report], options: RunOptions) -> None:
    """Refuse a report of curves none of which is wanted.

    Raises:
        ReportError: naming the report, and its curves.
    """
    for report in reports:
        if report.curves and set(report.curves).isdisjoint(options.curves):
            raise ReportError(
                f"{report.name.upper()} has none of the curves {options.curves}",
                hint=f"Name some of its curves {', '.join(report.curves)}, or leave curves out",
                option="curves",
            )


def _any_of(names: Sequence[str]) -> str:
    """Enumerate names: one, "a or b", "a, b or c"."""
    return " or ".join([*filter(None, [", ".join(names[:-1])]), names[-1]])


def _takers() -> dict[Input, list[str]]:
    """Every input, and the reports that take it."""
    takers: dict[Input, list[str]] = {}
    for report in REPORTS.values():
        for entry in (*report.needs, *report.takes):
            takers.setdefault(entry, []).append(report.name.upper())
    return takers


def check_kind(reports: Sequence[Report], header: StreamHeader, source: str | None) -> None:
    """Refuse reports that cannot be computed from this kind of stream.

    Raises:
        ReportError: naming the report and the kind.
    """
    for report in reports:
        if header.kind not in report.kinds:
            anywhere = next(name for name, row in REPORTS.items() if row.kinds == ANY_KIND)
            raise ReportError(
                f"{report.name.upper()} cannot be made from a {header.kind.value} stream",
                offset=0,
                hint=f"Give a summary_xref, which says what to add up; {anywhere!r} needs none",
                source=source,
            )


def digest(reports: Sequence[Report], inputs: Sequence[bytes]) -> str:
    """Identity of reports and inputs, 16 hexadecimal digits, to recognise a state by."""
    names = ",".join(report.name for report in reports).encode()
    return hashlib.blake2b(b"\0".join([names, *inputs]), digest_size=8).hexdigest()
