"""Arguments that several commands share, and how they are read."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from functools import partial
from math import isfinite
from pathlib import Path
from typing import Any, TypeAlias

from ..client import Client
from ..losses.requests import reports_of
from ..transport.http import TIMEOUT
from ..transport.retry import RETRIES

_SIZE = re.compile(r"(\d+) ?(?:([KMG])(i?B)?|B)?")


def size(text: str) -> int:
    """Bytes, such as 16MiB (1024 x 1024 each) or 16MB (1000 x 1000); M is MiB.

    Raises:
        argparse.ArgumentTypeError: the text is not a size.
    """
    found = _SIZE.fullmatch(text)
    if not found or not int(found[1]):
        raise argparse.ArgumentTypeError(f"{text!r} is not a size such as 16MiB")
    unit: int = (1000 if found[3] == "B" else 1024) ** " KMG".index(found[2] or " ")
    return int(found[1]) * unit


def count(text: str) -> int:
    """A number of things.

    Raises:
        argparse.ArgumentTypeError: the text is not a number, or below 0.
    """
    if text.startswith("-") and text[1:].isdecimal():
        raise argparse.ArgumentTypeError("must be 0 or more")
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def folder(text: str) -> Path:
    """A folder, which need not exist yet.

    Raises:
        argparse.ArgumentTypeError: the text looks like the name of a file.
    """
    path = Path(text)
    if path.suffix and not text.endswith("/") and not path.is_dir():
        raise argparse.ArgumentTypeError(f"{text} is no folder: if it shall be one, write {text}/")
    return path


def names(text: str) -> list[str]:
    """Names of reports, such as melt,aal.

    Raises:
        argparse.ArgumentTypeError: there is none, an empty one, or one twice.
    """
    try:
        return list(reports_of([name.strip() for name in text.split(",")]))
    except ValueError as e:
        raise argparse.ArgumentTypeError(str(e)) from e


def numbers(text: str) -> list[int]:
    """Numbers, such as 1,2.

    Raises:
        argparse.ArgumentTypeError: one is not a number.
    """
    return [count(number.strip()) for number in text.split(",")]


def ranges(text: str) -> list[int]:
    """Numbers, such as 1,4-6.

    Raises:
        argparse.ArgumentTypeError: one is not a number, or a range ends before it begins.
    """
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        start = count(first.strip())
        end = count(last.strip()) if dash else start
        if end < start:
            raise argparse.ArgumentTypeError(f"{part.strip()} ends before it begins")
        found += range(start, end + 1)
    return found


def list_or_file(text: str, kind: type[float] = float) -> str | Path:
    """Numbers such as 0.5,0.9 as they are, or the path of a file.

    Raises:
        argparse.ArgumentTypeError: there is no such file, and one of them is not a number.
    """
    if Path(text).exists():
        return Path(text)
    for part in text.split(","):
        try:
            is_finite = isfinite(kind(part))
        except ValueError:
            is_finite = False
        if not is_finite:
            years = "whole number of years (250 for the probability 0.004)"
            number = "number" if kind is float else years
            raise argparse.ArgumentTypeError(f"{part!r} is not a {number}, nor {text!r} a file")
    return text


def format_of(out: str | Path, formats: Iterable[str]) -> str:
    """The format that the ending of a file says; csv for a directory or a stream.

    Raises:
        ValueError: there is no such format.
    """
    path = Path(out)
    ending = path.suffix.removeprefix(".") or "csv"
    if ending in formats:
        return ending
    if path.exists() and not path.is_file():
        return "csv"
    raise ValueError(
        f"there is no format {ending!r}: end --out in {', '.join(formats)}, or give --format"
    )


class _TwiceError(ValueError):
    """A member of an object is given twice."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose members are each given once: of two, one would be lost."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise _TwiceError(f"{name[:80]!r} is given twice: give it once")
        found[name] = value
    return found


def spec_of(text: str, example: str = "", instead: str = "") -> dict[str, Any]:
    """The spec given as JSON, or in a file.

    Args:
        text: JSON, or the path of a file.
        example: how such a spec looks, for errors; a sentence.
        instead: how else to name a thing, where there is no such file; a sentence.

    Raises:
        OSError, ValueError: the file cannot be read, or does not hold a JSON object.
    """
    inline = text.lstrip().startswith(("{", "["))
    if not inline and (not Path(text).exists() or Path(text).is_dir()):
        absent = f"there is no file {text[:80]!r}: give JSON, or a file of it"
        paths = [str(path) for path in Path(text).parent.glob("*")]
        nearest = get_close_matches(str(Path(text)), paths, 1)
        guess = f"Did you mean {nearest[0]}?" if nearest else example or instead
        raise ValueError(f"{absent}. {guess}")
    name, example = "what is given" if inline else text, example and f". {example}"
    try:
        value = json.loads(text if inline else Path(text).read_bytes(), object_pairs_hook=_once)
    except _TwiceError as e:
        raise ValueError(f"{name}: {e}") from e
    except RecursionError:
        raise ValueError(f"{name} is nested too deeply") from None
    except ValueError as e:
        found = "but bytes" if isinstance(e, UnicodeDecodeError) else str(e)
        if inline and "'" in text and '"' not in text:
            found = "whose names and texts are in double quotes: '{\"stages\": ...}'"
        raise ValueError(f"{name} is not JSON, {found}{example}") from e
    if not isinstance(value, dict):
        raise ValueError(f"{name} does not hold a JSON object{example}")  # noqa: TRY004 - of the file
    return value


PIPELINE = (
    "A pipeline is given by its spec; to thalweg batches also by its id: thalweg pipelines list"
)
"""How to name a pipeline, rather than a dataset."""

Options: TypeAlias = dict[str, str | tuple[Any, ...]]
"""Arguments by their words, ``-n --name METAVAR`` or ``name METAVAR``, with their help.

``{a,b}`` in place of the metavar are choices; an option that has neither is a flag. After the help
come how a text is read, and what else argparse is told.
"""
REPORT_OPTIONS: Options = {
    "--event-rates F": ("of melt, instead of the occurrences'", Path),
    "--occurrence F": (
        (
            "when events happen: for splt, mplt, qplt, aal, aal_mean, alct, ept and psept, and"
            " the event rates of melt"
        ),
        Path,
    ),
    "--periods F": ("weights of the periods (default: equal)", Path),
    "--summary-xref F": ("the stream is of items", Path),
    "--summary-map F": ("to count affected risks", Path),
    "--quantiles LIST|F": ("of qelt and qplt: a file, or a list such as 0.5,0.9", list_or_file),
    "--return-periods LIST|F": (
        "of ept and psept: a file, or a list such as 250,100,50 (default: every point)",
        partial(list_or_file, kind=int),
    ),
    "--no-of-periods N": ("for an occurrence csv or parquet", count),
    "--confidence P": ("of alct (default 0.95)", float),
    "--curves LETTERS": "of ept: F full uncertainty, S sample mean, M per-sample mean; of psept: W"
    " per sample; capital for AEP, small for OEP (default FfSsMmWw)",
    "--tvar {count,weight}": "mean of losses by their number or by the weight of periods"
    " (default count)",
}
"""Options of reports: of posts, of runs, and of further reports of these."""
PARSING_OPTIONS: Options = {
    "--float-width": ("bytes of a loss (default 4)", int, {"choices": (4, 8)}),
    "--nan {error,zero,drop}": "losses that are NaN or infinite (default error)",
    "--negative {error,keep}": "negative losses (default error)",
    "--sample-order {ascending,any}": "order of sidx in a block (default ascending)",
}
"""How streams are read: of posts and of runs."""
ROW_OPTIONS: Options = {
    "--order {received,event}": "rows as they arise, or by event (default received)",
    "--summary-ids LIST": "only these summaries, such as 1,5,10-20",
    "--sets LIST": ("of the xref, such as 1,2", numbers),
}
"""What rows there are: of posts and of runs."""
CONNECTION_OPTIONS: Options = {
    "--url URL": "of the service (THALWEG_URL)",
    "--key KEY": "bearer key (THALWEG_KEY)",
    "--timeout S": (
        f"seconds of silence after which a connection is broken (default {TIMEOUT:.0f})",
        float,
    ),
    "--retries N": (f"failures in a row to tolerate (default {RETRIES})", count),
}
"""Options that precede commands or follow them: one that is not there replaces none before it."""
REPORTS: Options = {
    "--report --reports LIST": (
        (
            "comma-separated: events, selt, melt, qelt, splt, mplt, qplt, aal, aal_mean, alct, ept,"
            " psept"
        ),
        names,
        {"required": True},
    )
}
EVENT_IDS: Options = {"--event-ids LIST": "only these events, such as 1,5,10-20"}
PROGRESS: Options = {"--no-progress": "no progress bar", "--quiet": "report errors only"}
"""Of commands that show how far they are."""
FORCE: Options = {"--force": "replace files that are there"}
"""Of commands that write files."""


def add_options(
    parser: argparse._ActionsContainer,
    options: Options,
    **more: Any,  # noqa: ANN401 - of argparse
) -> None:
    """Add arguments by their words, all with what more argparse is told."""
    for words, value in options.items():
        text, *facts = (value,) if isinstance(value, str) else value
        first, *others = words.split()
        names = [first, *(word for word in others if word.startswith("-"))]
        shape = "".join(others[len(names) - 1 :])
        keywords: dict[str, Any] = {"metavar": shape} if shape else {}
        if shape.startswith("{"):
            keywords = {"choices": shape.strip("{}").split(",")}
        for fact in facts:
            keywords |= fact if isinstance(fact, dict) else {"type": fact}
        if not keywords and first.startswith("-"):
            keywords = {"action": "store_true"}
        parser.add_argument(*names, help=text, **keywords, **more)


def given(args: argparse.Namespace, options: Iterable[str]) -> dict[str, Any]:
    """Return what was given, by their names in Python, of options by these or by their words."""
    names = (words.split()[0].lstrip("-").replace("-", "_") for words in options)
    values = {name: getattr(args, name, None) for name in names}
    return {
        name: value for name, value in values.items() if value is not None and value is not False
    }


def commas(words: Sequence[str], text: str) -> str:
    """How to write a list, if words of a command line have one with blanks in place of commas.

    Args:
        words: of a command line that has too many.
        text: help of the command, which says what options are lists.
    """
    for option, *values in zip(words, words[1:], words[2:], strict=False):
        is_list = re.search(rf"{re.escape(option)} \S*(LIST|SLICES|,)", text)
        if option.startswith("--") and is_list and not any(v.startswith("-") for v in values):
            return (
                f". A list has commas, and no blanks: {option} {','.join(map(str.strip, values))}"
            )
    return ""


def new_command(  # noqa: PLR0913, PLR0917 - what a command consists of
    group: Any,  # noqa: ANN401 - argparse has no public type for it
    name: str,
    run: Callable[[argparse.Namespace, Client], int | None],
    text: str,
    options: Options,
    description: str | None = None,
) -> argparse.ArgumentParser:
    """Add a command that talks to the service.

    Args:
        group: of commands.
        name: of the command.
        run: what it does; returns the exit code, unless that is 0.
        text: its line in the help of the group.
        options: its arguments.
        description: of its own help.
    """
    parser: argparse.ArgumentParser = group.add_parser(
        name, help=text, description=description, allow_abbrev=False
    )
    parser.set_defaults(run=run, parser=parser)
    add_options(parser, CONNECTION_OPTIONS, default=argparse.SUPPRESS)
    add_options(parser, options)
    return parser


def new_group(
    commands: Any,  # noqa: ANN401 - as above
    name: str,
    text: str,
    description: str | None = None,
) -> Any:  # noqa: ANN401 - as above
    """Add a group of commands, which share its name."""
    parser = commands.add_parser(name, help=text, description=description, allow_abbrev=False)
    add_options(parser, CONNECTION_OPTIONS, default=argparse.SUPPRESS)
    return parser.add_subparsers(required=True, metavar="COMMAND")
