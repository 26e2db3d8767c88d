"""The command ``thalweg post``."""

from __future__ import annotations

import argparse
import re
import stat
from pathlib import Path
from typing import Any

from ..losses.jobs import PART_SIZE, Observe
from ..losses.rows import End
from ..losses.saving import FORMATS
from ..losses.sources import SourceLike
from .arguments import add_behaviour, add_service, connect, count, size
from .console import EXIT_USAGE, fail, make_bar, say, stopped

STDOUT = 1
_LIST = re.compile(r"[0-9.eE+-]+(,[0-9.eE+-]+)*")


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
    post.add_argument("--report", type=_names, required=True, metavar="LIST")
    post.add_argument(
        "-o", "--out", default="-", help="file, or directory for several reports (default -)"
    )
    post.add_argument("--format", choices=FORMATS, help="default: the extension of --out, or csv")
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
    "expect_events",
    "expect_bytes",
)


_LISTS = ("quantiles", "return_periods")


def _list_or_file(text: str) -> str | Path:
    return text if _LIST.fullmatch(text) and not Path(text).exists() else Path(text)


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
        self.options |= {k: _list_or_file(text) for k, text in lists.items() if text is not None}
        self.to_file = args.out != "-" and not _is_special(Path(args.out))
        self._check()

    def _check(self) -> None:
        args = self._args
        if (args.file is None) is (not args.exec):
            raise ValueError("give either FILE or --exec CMD")
        if args.state and not self.to_file:
            raise ValueError("--state needs --out FILE: output that can be continued")
        if len(self.reports) > 1:
            self._check_several()

    def _check_several(self) -> None:
        if not self.to_file:
            raise ValueError("several reports need --out DIR")
        if self.format == "bin":
            return
        if self._args.exec or self._args.file == "-":
            raise ValueError("several reports of a stream that comes once need --format bin")
        if self._args.state:
            raise ValueError("each report in this format has a state file of its own: no --state")

    @property
    def source(self) -> SourceLike | None:
        """The stream, unless it is the output of a command."""
        return 0 if self._args.file == "-" else self._args.file

    def passes(self) -> list[tuple[Any, str | int]]:
        """Reports and output of each pass."""
        out = self._args.out
        if len(self.reports) == 1:
            return [(self.reports[0], out if out != "-" else STDOUT)]
        if self.format == "bin":
            return [(self.reports, out)]
        Path(out).mkdir(parents=True, exist_ok=True)
        return [(name, f"{out}/{name}.{self.format}") for name in self.reports]

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
    for report, out in post.passes():
        state = post.state(out)
        try:
            end = _pass(args, post, report, out, state, bar)
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
            **post.options,
        )


def _describe(end: End) -> str:
    text = f"{end.events} events of {end.bytes} bytes, completeness {end.completeness}"
    if end.completeness == "undeclared":
        text += " (a stream has no end marker: declare its length with --expect-events)"
    if end.reopened_check != "whole":
        text += f", reopened events checked {end.reopened_check}"
    return text


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]
