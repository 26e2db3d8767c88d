"""The auxiliary files that options of ``aggregate`` name."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import numpy.typing as npt
import structlog

from app.losses.input_files import read_input
from core.errors import OptionError
from core.losses.inputs import (
    EventRates,
    Occurrence,
    Periods,
    ReturnPeriods,
    parse_event_rates,
    parse_occurrence,
    parse_periods,
    parse_quantiles,
    parse_return_periods,
    quantiles_from_text,
    return_periods_from_text,
)
from core.losses.parameters import ReportInputs


def read_inputs(args: argparse.Namespace) -> ReportInputs:
    """Read the files named by the options.

    Raises:
        InputError: a file is unusable, or two do not belong together.
        OptionError: an option lacks the file it is about.
    """
    if args.no_of_periods is not None and not args.occurrence:
        raise OptionError("--no-of-periods applies only to --occurrence")
    rates, occurrence = _event_rates(args), _occurrence(args)
    if rates is not None and occurrence is not None and "melt" in args.reports:
        structlog.get_logger().warning(
            "event rates are those of --event-rates, not of --occurrence", file=args.event_rates
        )
    return ReportInputs(
        _quantiles(args.quantiles),
        rates,
        occurrence,
        _periods(args, occurrence),
        _return_periods(args.return_periods),
    )


def _event_rates(args: argparse.Namespace) -> EventRates | None:
    if not args.event_rates:
        return None
    return parse_event_rates(read_input(args.event_rates), args.event_rates)


def _occurrence(args: argparse.Namespace) -> Occurrence | None:
    if not args.occurrence:
        return None
    return parse_occurrence(read_input(args.occurrence), args.no_of_periods, args.occurrence)


def _periods(args: argparse.Namespace, occurrence: Occurrence | None) -> Periods | None:
    if not args.periods:
        return None
    count = None if occurrence is None else occurrence.periods
    periods = parse_periods(read_input(args.periods), count, args.periods)
    if not periods.sum_to_one:
        structlog.get_logger().warning(
            "period weights do not sum to 1", file=args.periods, sum=round(periods.total, 9)
        )
    return periods


def _quantiles(text: str | None) -> npt.NDArray[np.float32] | None:
    if text is None:
        return None
    if set(text) <= set("0123456789.eE+-, ") and not Path(text).exists():
        return quantiles_from_text(text, "--quantiles")
    return parse_quantiles(read_input(text), text)


def _return_periods(text: str | None) -> ReturnPeriods | None:
    if text is None:
        return None
    if set(text) <= set("0123456789, ") and not Path(text).exists():
        return return_periods_from_text(text, "--return-periods")
    return parse_return_periods(read_input(text), text)
