"""The command ``thalweg post``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ..client import Client
from ..losses.requests import EXPECTED, PART_SIZE, WHOLE_STREAM_REPORTS, options_for
from ..losses.rows import End
from ..losses.saving import FORMATS, label, save_mode
from . import arguments
from .arguments import Options, count, format_of, given, new_command, size
from .console import counted, make_bar, say, saying_warnings, stopped
from .targets import writing

STDOUT = 1
_SEVERAL = (
    ". A post is one stream; those of partitions make a run (thalweg run create), or are files of"
    " thalweg-server aggregate"
)


_OPTIONS: Options = {
    **arguments.REPORT_OPTIONS,
    **arguments.PARSING_OPTIONS,
    **arguments.ROW_OPTIONS,
    "--summary-info F": ("columns to join to rows", Path),
    **arguments.EVENT_IDS,
    "--theme {light,dark}": "of svg and png",
    "--plot-tvar": "in pictures of ept",
    "--perspective {gul,il,ri,rl}": "of svg and png",
    "--currency CODE": "of svg and png, such as EUR",
    "--expect-samples N": ("for the memory bound of sums", count),
    "--expect-summaries N": ("for the memory bound of sums", count),
    "--over-bound {refuse,try}": "if that bound exceeds what a request may use (default refuse)",
    "--expect-events N": ("fail unless there are N events", count),
    "--expect-bytes N": ("fail unless there are N bytes", count),
}
_ARGUMENTS: Options = {
    "file FILE": ("a file or fifo, - for stdin", {"nargs": "?"}),
    **arguments.REPORTS,
    "-o --out OUT": ("file, or directory for several reports (default -)", {"default": "-"}),
    "--format": ("default: the extension of --out, or csv", {"choices": FORMATS}),
    "--live": "write rows to standard output, fifos and devices as they come, not when all are"
    " known to be there",
    "--mode {parts,whole,duplex}": "parts resume after a cut; whole is one request, as reports of"
    " whole runs need; duplex sends and receives at once (default: by report and output)",
    "--part-size PART_SIZE": ("of mode parts (default 16MiB)", size),
    "--state STATE": "state file (default: --out with .thalweg-state)",
    **arguments.PROGRESS,
    **arguments.FORCE,
    **_OPTIONS,
    "--exec CMD": ("post the output of a command", {"nargs": argparse.REMAINDER}),
}


def add_command(commands: Any) -> None:  # noqa: ANN401 - argparse has no public type for it
    """Add the command to a command line."""
    text = (
        "Post a loss stream and write its reports. Several reports need one pass as bin; in other"
        " formats a FILE is posted once for each."
    )
    line = "post a loss stream and write its reports"
    post = new_command(commands, "post", _post, line, _ARGUMENTS, text)
    post.set_defaults(several=_SEVERAL)


class _Post:
    """The arguments of the command, checked."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._args = args
        self.reports: list[str] = args.report
        self.format = args.format or format_of(args.out, FORMATS)
        self.options = given(args, _OPTIONS)
        self._sets: list[int | None] = args.sets or [None]
        out = Path(args.out)
        self.to_file = args.out != "-" and not _is_special(out)
        self._alone = len(self._sets) * len(self.reports) == 1
        self._several_sets = len(self._sets) > 1
        self.to_folder = self.to_file and (
            not self._alone or args.out.endswith("/") or out.is_dir()
        )
        self._check()

    def _check(self) -> None:
        args = self._args
        if (args.file is None) is (not args.exec):
            raise ValueError("give either FILE (- is standard input) or --exec CMD")
        if args.live and self.to_file:
            raise ValueError("--live is of standard output, fifos and devices: leave it out")
        if args.mode == "parts" and (whole := WHOLE_STREAM_REPORTS.intersection(self.reports)):
            text = "is of the whole stream, which goes in one request: leave --mode parts out"
            raise ValueError(f"{min(whole)} {text}")
        if args.part_size and (mode := save_mode(self.format, args.mode)) != "parts":
            raise ValueError(f"--part-size is of mode parts, and this is mode {mode}: leave it out")
        if args.state and not self.to_file:
            raise ValueError("--state needs --out FILE: output that can be continued")
        if not self._alone:
            self._check_several()

    def _check_several(self) -> None:
        out = Path(self._args.out)
        if not self.to_file:
            raise ValueError("several reports or sets need --out DIR")
        if out.is_file() or (out.suffix.removeprefix(".") in FORMATS and not out.is_dir()):
            raise ValueError(f"--out {out} takes one report or set of several: name a directory")
        if self.format == "bin":
            return
        if self._args.exec or self._args.file == "-":
            raise ValueError(
                "several reports or sets of a stream that comes once need --format bin"
            )
        if self._args.state:
            raise ValueError("each report in this format has a state file of its own: no --state")

    def passes(self) -> list[tuple[Any, dict[str, Any], str | int]]:
        """Reports, options and output of each pass."""
        out = self._args.out
        if not self.to_folder:
            return [(self.reports[0], self.options, out if out != "-" else STDOUT)]
        if self.format == "bin" and not self._alone:
            return [(self.reports, self.options, out)]
        return [
            (
                name,
                options_for(name, self.reports, self.options)
                | ({} if set_id is None else {"sets": [set_id]}),
                str(self._file(set_id, name)),
            )
            for set_id in self._sets
            for name in self.reports
        ]

    def _file(self, set_id: int | None, name: str) -> Path:
        stem = label(set_id, name) if self._several_sets and set_id else name
        return Path(self._args.out, f"{stem}.{self.format}")

    @property
    def files(self) -> list[Path]:
        """The files to write; standard output and what is no file are none."""
        if not self.to_folder:
            return [Path(self._args.out)] if self.to_file else []
        return [self._file(set_id, name) for set_id in self._sets for name in self.reports]

    def state(self, out: str | int) -> str | None:
        """The state file of a pass."""
        if self._args.state or not self.to_file:
            return str(self._args.state) if self._args.state else None
        return f"{str(out).rstrip('/')}.thalweg-state"

    def save(self, client: Client, report: Any, options: dict[str, Any], out: str | int) -> End:  # noqa: ANN401 - one, or a list
        """Do one of the passes."""
        args, state = self._args, self.state(out)
        bar = make_bar(args)
        try:
            return client.losses.save(
                report,
                0 if args.file == "-" else args.file,
                out,
                self.format,
                exec=args.exec or None,
                mode=args.mode,
                part_size=args.part_size or PART_SIZE,
                state=state,
                progress=bar,
                live=args.live,
                **options,
            )
        finally:
            stopped(bar, state)


def _is_special(path: Path) -> bool:
    return path.exists() and not (path.is_file() or path.is_dir())


def _post(args: argparse.Namespace, client: Client) -> None:
    post = _Post(args)
    passes = post.passes()
    folder = Path(args.out) if post.to_folder else None
    command = {"post": [args.file, args.exec]}
    with writing(post.files, folder, command, force=args.force):
        if len(passes) > 1:
            for report, options, _ in passes:
                client.losses.check(report, post.format, **options)
        for report, options, out in passes:
            with saying_warnings(quiet=args.quiet):
                end = post.save(client, report, options, out)
                if not args.quiet:
                    name = report if isinstance(report, str) else ",".join(report)
                    is_declared = not options.keys().isdisjoint(EXPECTED)
                    say(f"{name}: {_describe(end, is_declared=is_declared)}")


def _describe(end: End, *, is_declared: bool) -> str:
    completeness = end.completeness
    if completeness == "declared" and not is_declared:
        # The client has measured the file: that is not to say that its writer was done.
        completeness = "undeclared (the whole file was sent)"
    text = f"{counted(end.events, 'event')} of {counted(end.bytes, 'byte')}"
    text += f", completeness {completeness}"
    if end.completeness == "undeclared":
        text += " (a stream has no end marker: declare its length with --expect-events)"
    if bare := end.blocks_without_exposure:
        text += f", {bare:,} blocks with losses have exposure 0 and no rows in melt and qelt"
    if end.reopened_check != "whole":
        text += f", reopened events checked {end.reopened_check}"
    return text
