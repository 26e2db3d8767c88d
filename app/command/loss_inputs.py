"""The auxiliary files that options of ``aggregate`` name."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import structlog

from app.losses.input_parsers import parse_input, read_input
from core.errors import InputError, OptionError
from core.losses import inputs
from core.losses.inputs import Occurrence, Periods, SummaryInfo
from core.losses.parameters import ReportInputs
from core.losses.summaries import SummarySets


def read_inputs(args: argparse.Namespace) -> ReportInputs:
    """Read the files named by the options.

    Raises:
        InputError: a file is unusable, or two do not belong together.
        OptionError: a list is none.
    """
    rates = _parsed("event_rates", args.event_rates)
    occurrence: Occurrence | None = _parsed("occurrence", args.occurrence, args.no_of_periods)
    if rates is not None and occurrence is not None and "melt" in args.reports:
        structlog.get_logger().warning(
            "event rates are those of --event-rates, not of --occurrence", file=args.event_rates
        )
    return ReportInputs(
        _listed("quantiles", args.quantiles, inputs.quantiles_from_text),
        rates,
        occurrence,
        _periods(args, occurrence),
        _listed("return_periods", args.return_periods, inputs.return_periods_from_text),
    )


def read_sets(args: argparse.Namespace) -> SummarySets | None:
    """Read the summary xref and map named by the options; None if there is no xref.

    Raises:
        InputError: a file is unusable, they do not belong together, or a set is not there.
    """
    if not args.summary_xref:
        return None
    xref = _parsed("summary_xref", args.summary_xref)
    risks = _parsed("summary_map", args.summary_map)
    return SummarySets(xref, args.sets, risks, name=args.summary_xref, map_name=args.summary_map)


def read_infos(args: argparse.Namespace, sets: SummarySets | None) -> dict[int | None, SummaryInfo]:
    """Read what summaries are, by set; None stands for that of a stream of summaries.

    Raises:
        InputError: a file is unusable.
        OptionError: it is not told which set a file is of, or the set is not requested.
    """
    infos: dict[int | None, SummaryInfo] = {}
    requested: tuple[int | None, ...] = (None,) if sets is None else sets.set_ids
    for text in args.summary_info or ():
        number, equals, path = text.partition("=")
        of_set = equals and number.isdecimal()
        key = int(number) if of_set else requested[0]
        path = path if of_set else text
        if not of_set and len(requested) > 1:
            listed = " ".join(f"{set_id}=FILE" for set_id in requested)
            raise OptionError(
                "--summary-info does not tell its set", hint=f"Name one for each: {listed}"
            )
        if key not in requested or key in infos:
            raise OptionError(f"--summary-info {text} is of no requested set, or of one twice")
        infos[key] = parse_input("summary_info", read_input(path), None, path)
    return infos


def _parsed(name: str, path: str | None, periods: int | None = None) -> Any:  # noqa: ANN401 - by name
    """The content of a file; None if none is named."""
    return parse_input(name, read_input(path), periods, path) if path else None


def _periods(args: argparse.Namespace, occurrence: Occurrence | None) -> Periods | None:
    count = None if occurrence is None else occurrence.periods
    periods: Periods | None = _parsed("periods", args.periods, count)
    if periods is not None and not periods.sum_to_one:
        structlog.get_logger().warning(
            "period weights do not sum to 1", file=args.periods, sum=round(periods.total, 9)
        )
    return periods


def _listed(name: str, text: str | None, parse: Callable[[str, str], Any]) -> Any:  # noqa: ANN401 - by name
    """What an option lists, or the file that it names."""
    if text is None:
        return None
    if text != "-" and not Path(text).exists():
        option = f"--{name.replace('_', '-')}"
        try:
            return parse(text, option)
        except InputError as e:
            message = f"{option}: {e.message}, and there is no file {text!r}"
            raise OptionError(message, hint=e.hint) from e
    return parse_input(name, read_input(text), None, text)
