"""The command ``thalweg post``."""

from __future__ import annotations

import argparse
import stat
from pathlib import Path
from typing import Any

from ..losses.requests import PART_SIZE
from ..losses.rows import End
from ..losses.saving import FORMATS, Observe, label
from ..losses.sources import SourceLike
from .arguments import (
    add_behaviour,
    add_service,
    connect,
    count,
    list_or_file,
    names,
    numbers,
    size,
)
from .console import EXIT_USAGE, fail, make_bar, say, stopped

STDOUT = 1


def add_command(commands: Any) -> None:  # noqa: ANN401 - argparse has no public type for it
    """Add the command to a command line."""
    post = commands.add_parser(
        "post",
        help="post a loss stream and write its reports",
        description="Post a loss stream and write its reports. Several reports need one pass"
        " as bin; in other formats a FILE is posted once for each.",
    )
    post.set_defaults(run=_post)
    post.add_argument("file", nargs="?", metavar="FILE", help="a file or fifo, - for stdin")
    post.add_argument("--report", type=names, required=True, metavar="LIST")
    post.add_argument(
        "-o", "--out", default="-", help="file, or directory for several reports (default -)"
    )
    post.add_argument("--format", choices=FORMATS, help="default: the extension of --out, or csv")
    post.add_argument(
        "--live",
        action="store_true",
        help="write rows to standard output, fifos and devices as they come, not when all are"
        " known to be there",
    )
    post.add_argument("--mode", choices=("parts", "whole", "duplex"))
    post.add_argument("--part-size", type=size, default=PART_SIZE, help="default 16MiB")
    add_behaviour(post)
    post.add_argument("--quantiles", metavar="F", help="file, or a list such as 0.5,0.9")
    post.add_argument("--event-rates", type=Path, metavar="F")
    post.add_argument("--occurrence", type=Path, metavar="F")
    post.add_argument("--no-of-periods", type=count, metavar="N")
    post.add_argument("--periods", type=Path, metavar="F", help="weights of the periods")
    post.add_argument("--return-periods", metavar="F", help="file, or a list such as 250,100,50")
    post.add_argument("--confidence", type=float, metavar="P", help="of alct (default 0.95)")
    post.add_argument("--curves", metavar="LETTERS", help="of ept and psept (default FfSsMmWw)")
    post.add_argument("--tvar", choices=("count", "weight"))
    post.add_argument("--float-width", type=int, choices=(4, 8))
    post.add_argument("--nan", choices=("error", "zero", "drop"))
    post.add_argument("--negative", choices=("error", "keep"))
    post.add_argument("--sample-order", choices=("ascending", "any"))
    post.add_argument("--order", choices=("received", "event"))
    post.add_argument("--summary-ids", metavar="LIST", help="such as 1,5,10-20")
    post.add_argument("--summary-xref", type=Path, metavar="F", help="the stream is of items")
    post.add_argument("--summary-map", type=Path, metavar="F", help="to count affected risks")
    post.add_argument("--sets", type=numbers, metavar="LIST", help="of the xref, such as 1,2")
    post.add_argument("--summary-info", type=Path, metavar="F", help="columns to join to rows")
    post.add_argument("--theme", choices=("light", "dark"), help="of svg and png")
    post.add_argument("--plot-tvar", action="store_true", default=None, help="in pictures of ept")
    post.add_argument("--perspective", choices=("gul", "il", "ri", "rl"), help="of svg and png")
    post.add_argument("--currency", metavar="CODE", help="of svg and png, such as EUR")
    post.add_argument("--expect-samples", type=count, metavar="N")
    post.add_argument("--expect-summaries", type=count, metavar="N")
    post.add_argument("--over-bound", choices=("refuse", "try"))
    post.add_argument("--expect-events", type=count, metavar="N")
    post.add_argument("--expect-bytes", type=count, metavar="N")
    add_service(post)
    post.add_argument(
        "--exec", nargs=argparse.REMAINDER, metavar="CMD", help="post the output of a command"
    )


_OPTIONS = (
    "event_rates",
    "occurrence",
    "no_of_periods",
    "periods",
    "confidence",
    "curves",
    "tvar",
    "float_width",
    "nan",
    "negative",
    "sample_order",
    "order",
    "summary_ids",
    "summary_xref",
    "summary_map",
    "sets",
    "summary_info",
    "theme",
    "plot_tvar",
    "perspective",
    "currency",
    "expect_samples",
    "expect_summaries",
    "over_bound",
    "expect_events",
    "expect_bytes",
)


_LISTS = ("quantiles", "return_periods")


class _Post:
    """The arguments of the command, checked."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._args = args
        self.reports: list[str] = args.report
        self.format = args.format or _format_of(args.out)
        self.options: dict[str, Any] = {
            name: getattr(args, name) for name in _OPTIONS if getattr(args, name) is not None
        }
        lists = {name: getattr(args, name) for name in _LISTS}
        self.options |= {k: list_or_file(text) for k, text in lists.items() if text is not None}
        self.to_file = args.out != "-" and not _is_special(Path(args.out))
        self._check()

    def _check(self) -> None:
        args = self._args
        if (args.file is None) is (not args.exec):
            raise ValueError("give either FILE or --exec CMD")
        if args.state and not self.to_file:
            raise ValueError("--state needs --out FILE: output that can be continued")
        if len(self._sets) * len(self.reports) > 1:
            self._check_several()

    @property
    def _sets(self) -> list[int | None]:
        """Summary sets; None alone where none is named."""
        return self._args.sets or [None]

    def _check_several(self) -> None:
        if not self.to_file:
            raise ValueError("several reports or sets need --out DIR")
        if self.format == "bin":
            return
        if self._args.exec or self._args.file == "-":
            raise ValueError(
                "several reports or sets of a stream that comes once need --format bin"
            )
        if self._args.state:
            raise ValueError("each report in this format has a state file of its own: no --state")

    @property
    def source(self) -> SourceLike | None:
        """The stream, unless it is the output of a command."""
        return 0 if self._args.file == "-" else self._args.file

    def passes(self) -> list[tuple[Any, dict[str, Any], str | int]]:
        """Reports, options and output of each pass."""
        out = self._args.out
        if len(self._sets) * len(self.reports) == 1:
            return [(self.reports[0], self.options, out if out != "-" else STDOUT)]
        if self.format == "bin":
            return [(self.reports, self.options, out)]
        Path(out).mkdir(parents=True, exist_ok=True)
        several = len(self._sets) > 1
        return [
            (
                name,
                self.options | ({} if set_id is None else {"sets": [set_id]}),
                f"{out}/{label(set_id, name) if several and set_id else name}.{self.format}",
            )
            for set_id in self._sets
            for name in self.reports
        ]

    def state(self, out: str | int) -> str | None:
        """The state file of a pass."""
        if self._args.state or not self.to_file:
            return str(self._args.state) if self._args.state else None
        return f"{str(out).rstrip('/')}.thalweg-state"


def _format_of(out: str) -> str:
    ending = Path(out).suffix.removeprefix(".")
    return ending if ending in FORMATS else "csv"


def _is_special(path: Path) -> bool:
    if not path.exists():
        return False
    mode = path.stat().st_mode
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def _post(args: argparse.Namespace) -> int:
    try:
        post = _Post(args)
    except ValueError as e:
        return fail(e, EXIT_USAGE)
    bar = make_bar(args)
    for report, options, out in post.passes():
        state = post.state(out)
        try:
            end = _pass(args, post, report, options, out, state, bar)
        finally:
            stopped(bar, state)
        if not args.quiet:
            name = report if isinstance(report, str) else ",".join(report)
            say(f"{name}: {_describe(end)}")
    return 0


def _pass(  # noqa: PLR0913, PLR0917 - what differs from pass to pass
    args: argparse.Namespace,
    post: _Post,
    report: Any,  # noqa: ANN401 - one or several
    options: dict[str, Any],
    out: str | int,
    state: str | None,
    observe: Observe | None,
) -> End:
    with connect(args) as client:
        return client.losses.save(
            report,
            post.source,
            out,
            post.format,
            exec=args.exec or None,
            mode=args.mode,
            part_size=args.part_size,
            state=state,
            progress=observe,
            live=args.live,
            **options,
        )


def _describe(end: End) -> str:
    text = f"{end.events} events of {end.bytes} bytes, completeness {end.completeness}"
    if end.completeness == "undeclared":
        text += " (a stream has no end marker: declare its length with --expect-events)"
    if end.reopened_check != "whole":
        text += f", reopened events checked {end.reopened_check}"
    if end.events_without_occurrence:
        text += f", {end.events_without_occurrence} without occurrence"
    if end.events_only_in_occurrence:
        text += f", {end.events_only_in_occurrence} events only in the occurrences"
    return text
