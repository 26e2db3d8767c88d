"""The ``thalweg-server`` command line: commands, options and help texts."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from app import __version__
from app.logs import LEVELS
from app.times import MAX_DAYS


def add_serve(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``serve``."""
    from app.settings import Settings  # noqa: PLC0415 - a tenth of a second that others save

    for name, field in Settings.model_fields.items():
        if name not in FLAGS:
            continue
        flag = FLAGS[name]
        default = None if field.default_factory else field.get_default()
        suffix = "" if default in {None, "", ()} else f" (default {default})"
        parser.add_argument(
            "--" + name.replace("_", "-"),
            dest=name,
            type=flag.parse,
            metavar=flag.metavar,
            help=flag.help + suffix,
        )
    for name, text in (
        ("--scan", "serve recordings under the dataset roots without registration"),
        ("--allow-anonymous", "listen on other addresses than loopback without API keys"),
        ("--ephemeral", "keep nothing: state and a token key that end with the service"),
    ):
        parser.add_argument(name, action="store_const", const=True, help=text)


def add_doctor(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``doctor``: those of ``serve``, and its own."""
    add_serve(parser)
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")


def add_openapi(_parser: argparse.ArgumentParser) -> None:
    """``openapi`` has no options."""


def add_key(parser: argparse.ArgumentParser) -> None:
    """Add the argument of ``key``."""
    text = "name of its owner (default client)"
    parser.add_argument("name", nargs="?", default="client", help=text)


def _add_data_dir(parser: argparse.ArgumentParser) -> None:
    text = "data directory (default THALWEG_DATA_DIR)"
    parser.add_argument("--data-dir", type=Path, metavar="DIR", help=text)


def add_keys(parser: argparse.ArgumentParser) -> None:
    """Add the actions of ``keys``."""
    _add_data_dir(parser)
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    add = actions.add_parser("add", help="add a key and print it, once")
    add.add_argument("name", metavar="NAME", help="owner that the key stands for")
    text = (
        "losses, pipelines, runs, admin, read:PATTERN (datasets of the catalogue) or"
        " register:PATTERN (paths); repeatable"
    )
    add.add_argument("--scope", action="append", required=True, metavar="SCOPE", help=text)
    add.add_argument("--expires", type=lifetime, metavar="TIME", help="lifetime, such as 90d")
    actions.add_parser("list", help="list keys: id, state, owner, scopes and expiry")
    revoke = actions.add_parser("revoke", help="revoke a key, or all keys of an owner")
    revoke.add_argument("name", metavar="ID|NAME", help="id of a key, or name of an owner")
    adopt = actions.add_parser("adopt", help="hand everything of one owner to another")
    adopt.add_argument("old", metavar="OLD", help="such as admin, who owns what had no owner")
    adopt.add_argument("name", metavar="NAME", help="the new owner")


def add_state(parser: argparse.ArgumentParser) -> None:
    """Add the action of ``state``."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    copy = actions.add_parser("copy", help="copy everything")
    copy.add_argument("--to", required=True, metavar="URL", help="as in THALWEG_STATE")
    text = "as in THALWEG_BLOBS; default: they stay in the data directory"
    copy.add_argument("--blobs", default="file:", metavar="URL", help=text)
    _add_data_dir(copy)


def add_worker(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``worker``."""
    text = "tcp:// or tls:// (default: that of THALWEG_ENGINE)"
    parser.add_argument("--scheduler", metavar="URL", help=text)
    parser.add_argument("--host", metavar="ADDRESS", help="address to listen on")
    _add_data_dir(parser)


def add_warmup(parser: argparse.ArgumentParser) -> None:
    """Add the option of ``warmup``."""
    text = "also compile them for each level of the architecture that this CPU has, for images"
    parser.add_argument("--portable", action="store_true", help=text)


def lifetime(text: str) -> int:
    """Parse a lifetime such as ``90d``; seconds.

    Raises:
        argparse.ArgumentTypeError: it is not one.
    """
    match = _LIFETIME.fullmatch(text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a lifetime such as 90d, 12h or 2w")
    seconds = int(match[1]) * _UNITS[match[2]]
    if seconds > MAX_DAYS * _UNITS["d"]:
        raise argparse.ArgumentTypeError(f"a lifetime is at most {MAX_DAYS}d")
    return seconds


_LIFETIME = re.compile(r"([1-9][0-9]{0,5})([mhdw])", re.ASCII)
_UNITS = {"m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


class Flag(NamedTuple):
    """A setting as an option of ``serve``."""

    parse: Callable[[str], Any]
    help: str
    metavar: str


FLAGS = {
    "host": Flag(str, "address to listen on", "ADDRESS"),
    "port": Flag(int, "port to listen on; 0 picks a free one", "N"),
    "workers": Flag(int, "number of server processes", "N"),
    "threads": Flag(int, "compute threads per process (default: its share of the cores)", "N"),
    "dataset_roots": Flag(
        str,
        "directories and buckets that may hold datasets, separated as in PATH (default: none)",
        "DIRS",
    ),
    "catalogue": Flag(Path, "TOML catalogue of datasets", "FILE"),
    "data_dir": Flag(Path, "directory for inputs, the token key and spooled rows", "DIR"),
    "public_url": Flag(
        str, "URL under which clients reach the service (default: as requested)", "URL"
    ),
    "trusted_proxies": Flag(str, "addresses whose X-Forwarded headers are trusted, or *", "LIST"),
    "cors_origins": Flag(str, "web origins that may call the service (default: none)", "LIST"),
    "hosts": Flag(str, "further host names of a service without keys (default: none)", "LIST"),
    "console": Flag(str, "pages for people: on (default) or off", "on|off"),
    "drain_seconds": Flag(float, "grace period of running requests at shutdown", "S"),
    "drain_delay": Flag(float, "pause between turning unready and refusing connections", "S"),
}
"""Settings that are also options, by name."""


class _Command(NamedTuple):
    """A command: its line in the list, an example with which its help ends, its description."""

    summary: str
    example: str
    description: str | None = None
    module: str = "parser"


_COMMANDS = {
    "aggregate": _Command(
        "compute reports from loss streams",
        "p1.bin p2.bin --reports melt,ept --occurrence occurrence.bin --out reports",
        "Compute any reports from loss streams in a single pass.",
        "data_options",
    ),
    "doctor": _Command(
        "look at what the service would meet here",
        "--data-dir data",
        "Look at what a service with these options and variables would meet; 1 if a part is wrong.",
    ),
    "inspect": _Command(
        "describe a loss stream or a dataset",
        "scan_000.mib",
        "Describe a loss stream, up to its first fault, or the files of a dataset.",
        "data_options",
    ),
    "merge": _Command(
        "merge finished tables of partitions",
        "p1_melt.csv p2_melt.csv --out melt.csv",
        "Merge finished tables of one report and several partitions, by event.",
        "data_options",
    ),
    "oasis": _Command(
        "use Thalweg in models of Oasis",
        "shims /opt/thalweg/shims",
        "Write the runner, or the executables, by which a model of Oasis uses Thalweg.",
        "oasis_options",
    ),
    "split": _Command(
        "split a loss stream into partitions",
        "summary.bin --partitions 4 --out parts",
        "Split a loss stream into partitions of whole events, with about as many bytes each.",
        "data_options",
    ),
    "summarise": _Command(
        "add item streams up into streams of summaries",
        "gul_p1.bin gul_p2.bin --summary-xref gulsummaryxref.bin --out work",
        "Add the items of loss streams up into a stream of summaries for each summary set.",
        "data_options",
    ),
    "sample": _Command(
        "generate a realistic loss stream and its inputs",
        "--events 2000 --out run",
        "Generate a realistic loss stream and its auxiliary files.",
        "data_options",
    ),
    "serve": _Command(
        "run the service",
        "--data-dir data --dataset-roots /data",
        "Serve until SIGTERM. Each option can also be set as a THALWEG_... variable.",
    ),
    "openapi": _Command("print the OpenAPI document", "> openapi.json"),
    "key": _Command("generate an API key and its THALWEG_API_KEYS entry", "alice"),
    "keys": _Command(
        "add, list and revoke stored API keys; hand over what an owner has",
        "add alice --scope losses --expires 90d",
        "Manage the API keys in a data directory; servers notice within seconds.",
    ),
    "state": _Command(
        "copy the state of a data directory to stores that nodes share",
        "copy --to postgres://thalweg@db/thalweg --blobs s3://losses/thalweg",
        "Copy the state of a data directory, whose service is stopped, to a database"
        " and an object store. Every record and blob is compared. A copy that was interrupted is"
        " completed by the same command; the data directory stays as it is.",
    ),
    "worker": _Command(
        "do heavy work of services and of aggregate --engine, for a Dask scheduler",
        "--scheduler tcp://10.0.0.5:8786",
        "Do tasks of a Dask scheduler until a signal. Stores, dataset roots and limits"
        " are those of the services, and come from the same THALWEG_ variables.",
    ),
    "warmup": _Command("compile the kernels and cache them", ""),
}
"""The commands, each with the module that has its ``add_<command>``. Modules are imported as they
are asked for: the engine takes a second, which ``serve`` saves."""

_OF_CLIENT = (
    *("post", "run", "inputs", "datasets", "tiles"),
    *("batches", "pipelines", "stages", "token", "ls"),
)
"""Commands of the other program, for who takes one for the other."""
_MEANT = {"--rp": "--return-periods", "--url": "--host", "--bind": "--host"}
"""Options that have another name."""


class _Parser(argparse.ArgumentParser):
    """A parser that takes no abbreviated options, and names the nearest of what is unknown.

    The names of the options that were given, if only for their default, are ``given``.
    """

    def __init__(self, **options: Any) -> None:  # noqa: ANN401 - those of argparse
        super().__init__(**options, allow_abbrev=False)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:  # noqa: ANN401 - as argparse
        found, rest = super().parse_known_args(args, namespace)
        for word in rest:
            if word.startswith("--"):
                known = re.findall(r"--[a-z-]+", self.format_help())
                self._refuse(f"there is no option {word}", word.partition("=")[0], known)
        if rest and args is not None:
            self.error(f"unexpected: {' '.join(rest)}{self._commas(args)}")
        words = ["--out" if word == "-o" else word.partition("=")[0] for word in args or ()]
        found.given = {word[2:].replace("-", "_") for word in words if word.startswith("--")}
        return found, rest

    def _commas(self, words: Sequence[str]) -> str:
        """How to write a list, if words have one with blanks in place of commas."""
        for option, *values in zip(words, words[1:], words[2:], strict=False):
            is_list = re.search(rf"{re.escape(option)} \S*(LIST|,)", self.format_help())
            if option.startswith("--") and is_list and not any(v.startswith("-") for v in values):
                return f". A list has commas, and no blanks: {option} {','.join(values)}"
        return ""

    def error(self, message: str) -> NoReturn:
        choice = re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)", message)
        if choice is None:
            super().error(message)
        self._refuse(message, choice[1], re.findall(r"[\w-]+", choice[2]))

    def _refuse(self, message: str, word: str, known: Sequence[str]) -> NoReturn:
        if word in _OF_CLIENT and "aggregate" in known:
            super().error(f"{word} is a command of thalweg: thalweg {word}")
        if word in {"--url", "--key"} and "--host" not in known:
            super().error(f"{message}: only the commands of thalweg ask a service")
        nearest = get_close_matches(_MEANT.get(word, word), known, 1)
        super().error(f"{message}. Did you mean {nearest[0]}?" if nearest else message)


def build_parser(argv: Sequence[str] | None = None) -> argparse.ArgumentParser:
    """Build the parser of the command line.

    Args:
        argv: the arguments to be parsed: commands that they do not name get no options, so
            that the supervisor of a service does not import the engine for them; None for
            all options of all commands.
    """
    parser = _Parser(
        prog="thalweg-server",
        description="Resumable streams of loss reports, dataset tiles and batches.",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    parser.add_argument(
        "--log-level",
        choices=LEVELS,
        help="least severe level to log (default info; serve: THALWEG_LOG_LEVEL)",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, entry in _COMMANDS.items():
        command = commands.add_parser(name, help=entry.summary, description=entry.description)
        command.set_defaults(command=name)
        command.epilog = f"example: {command.prog} {entry.example}".rstrip()
        if argv is None or name in argv:
            getattr(import_module(f".{entry.module}", __package__), f"add_{name}")(command)
    return parser
