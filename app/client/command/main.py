"""The ``thalweg`` command.

Exit codes: 0 done, 1 error in the stream or of the service, 2 wrong usage, 3 gave up on the
connection, 130 interrupted, 141 broken pipe, 143 terminated. After 3, 130 and 143 the same
command resumes where it stopped, if it had a state file.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from .. import __version__
from ..client import Client
from ..errors import ThalwegError
from ..losses.requests import INPUTS
from ..transport.http import TIMEOUT
from ..transport.retry import RETRIES
from . import arguments, batches, completion, console, listing, portfolios, post, runs, tiles
from .arguments import PIPELINE, Options, commas, new_command, new_group, spec_of
from .console import fail, print_json, saying_outages, saying_warnings

_NEGATIVE = re.compile(r"-\d+[,:][-\d,:]*")
"""Positions and slices that count from the end."""
_LONGEST = 255
"""Characters of the name of a file."""


_OF_SERVER = (
    *("aggregate", "merge", "split", "summarise", "inspect", "sample", "oasis"),
    *("serve", "openapi", "doctor", "key", "keys", "state", "worker", "warmup"),
)
"""Commands of the other program, for who takes one for the other."""
_MEANT = {
    "--rp": "Did you mean --return-periods?",
    **dict.fromkeys(("--server", "--host", "--service", "--port"), "Did you mean --url?"),
    "--epochs": """The spec says it: {"op": "permute", "epochs": 3}; --epoch ends with one""",
    "--summary-ids": "It is an option of thalweg post, run create and run fetch",
    "--event-ids": "It is an option of thalweg post and run fetch",
}
"""Options that are elsewhere, or have another name."""


class _Parser(argparse.ArgumentParser):
    """A parser that names the nearest word where there is none of a name."""

    def error(self, message: str) -> NoReturn:
        choice = re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)", message)
        if choice and choice[1] in _OF_SERVER and "post" in choice[2]:
            super().error(f"{choice[1]} is a command of thalweg-server: thalweg-server {choice[1]}")
        known = re.findall(r"[\w-]+", choice[2]) if choice else []
        nearest = get_close_matches(choice[1].lower(), known, 1) if choice else []
        super().error(f"{message}. Did you mean {nearest[0]}?" if nearest else message)


def build_parser() -> argparse.ArgumentParser:
    """The command line, with its help texts."""
    parser = _Parser(
        prog="thalweg",
        description="Event reports from loss streams, tiles of datasets and batches of"
        " pipelines, from a Thalweg service.",
        allow_abbrev=False,
    )
    arguments.add_options(parser, arguments.CONNECTION_OPTIONS, default=argparse.SUPPRESS)
    url = os.environ.get("THALWEG_URL", "http://127.0.0.1:8000")
    key = os.environ.get("THALWEG_KEY") or None
    parser.set_defaults(url=url, key=key, timeout=TIMEOUT, retries=RETRIES)
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    post.add_command(commands)
    runs.add_commands(commands)
    portfolios.add_commands(commands)
    tiles.add_commands(commands)
    batches.add_command(commands)
    _add_inputs(commands)
    _add_pipelines(commands)
    text = "describe the stages of pipelines, as the service at --url has them"
    name: Options = {"name": ("of a stage; default: all of them", {"nargs": "?"})}
    new_command(commands, "stages", _stages, text, name, text)
    group = new_group(commands, "token", "inspect tokens")
    token: Options = {"token": "as an answer has it, or a token file"}
    new_command(group, "inspect", _inspect, "print what a token says", token)
    listing.add_command(commands)
    completion.add_command(commands)
    completion.add_examples(parser)
    return parser


def _add_inputs(commands: Any) -> None:  # noqa: ANN401 - argparse has no public type for it
    group = new_group(commands, "inputs", "store and delete auxiliary files")
    name: Options = {"name": ("which file it is", {"choices": INPUTS})}
    put: Options = {**name, "file": ("csv, packed or parquet, detected by content", Path)}
    new_command(group, "put", _put, "store a file and print its digest", put)
    stored: Options = {**name, "digest": "as put prints it"}
    new_command(group, "delete", _delete_input, "delete a stored file", stored)


def _add_pipelines(commands: Any) -> None:  # noqa: ANN401 - as above
    group = new_group(commands, "pipelines", "register, list, show and delete pipelines")
    spec: Options = {"spec SPEC": "file with the spec, or its JSON"}
    text = "register a pipeline and print its description"
    new_command(group, "register", _register_pipeline, text, spec)
    new_command(group, "list", _list_pipelines, "print the ids of your pipelines", {})
    ident: Options = {"id ID": "as register and list print it"}
    new_command(group, "show", _show_pipeline, "print the description of a pipeline", ident)
    new_command(group, "delete", _delete_pipeline, "have the service forget a pipeline", ident)


def _put(args: argparse.Namespace, client: Client) -> None:
    sys.stdout.write(client.inputs.put(args.name, args.file) + "\n")


def _delete_input(args: argparse.Namespace, client: Client) -> None:
    client.inputs.delete(args.name, args.digest)


def _delete_pipeline(args: argparse.Namespace, client: Client) -> None:
    client.delete_pipeline(args.id)


def _register_pipeline(args: argparse.Namespace, client: Client) -> None:
    with saying_warnings(quiet=False):
        print_json(client.pipeline(spec_of(args.spec, "", PIPELINE)).info)


def _list_pipelines(_args: argparse.Namespace, client: Client) -> None:
    sys.stdout.writelines(f"{ident}\n" for ident in client.pipelines())


def _show_pipeline(args: argparse.Namespace, client: Client) -> None:
    print_json(client.pipeline_info(args.id))


def _stages(args: argparse.Namespace, client: Client) -> None:
    if args.name is None:
        known = client.stages()
        for name, stage in known["stages"].items():
            sys.stdout.write(f"{name:13} {stage['about']}\n")
        order = known["order"]
        sys.stdout.write(f"\norder: {order['about']}\n\n  {json.dumps(order['example'])}\n")
        return
    stage = client.stages(args.name)
    lines = [f"{args.name}: {stage['about']}", ""]
    lines += [f"  {name:11} {text}" for name, text in stage["options"].items()]
    lines += ["", f"  {json.dumps(stage['example'])}"]
    for name, function in stage.get("functions", {}).items():
        parts = "; ".join(f"{argument}: {text}" for argument, text in function["args"].items())
        lines += ["", f"  {name}: {function['about']}", f"    args: {parts or 'none'}"]
        lines.append(f"    such as {json.dumps(function['example'])}")
    sys.stdout.write("\n".join(lines) + "\n")


def _inspect(args: argparse.Namespace, client: Client) -> None:
    is_file = len(args.token) <= _LONGEST and Path(args.token).is_file()
    token = batches.read_token(Path(args.token)) if is_file else None
    print_json(client.tokens.inspect(token or args.token))


def _terminate(_number: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(console.EXIT_TERMINATED)


def _parsed(argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse a command line; files may follow options, and unknown options are told the nearest."""
    words = list(sys.argv[1:] if argv is None else argv)
    if "--exec" not in words:
        # What follows a blank is no option.
        words = [f" {word}" if _NEGATIVE.fullmatch(word) else word for word in words]
    args, rest = build_parser().parse_known_args(words)
    unknown = [text for text in rest if text.startswith("-")]
    if unknown:
        known = set(re.findall(r"--([a-z-]+)", args.parser.format_help()))
        nearest = get_close_matches(unknown[0].partition("=")[0].lstrip("-"), known, 1)
        guess = _MEANT.get(unknown[0].partition("=")[0]) or (
            f"Did you mean --{nearest[0]}?" if nearest else args.parser.description or ""
        )
        args.parser.error(f"there is no option {unknown[0]}. {guess}".rstrip(". "))
    # Words after an option, which argparse takes to have been left out before it.
    name = next((name for name in ("value", "reduction", "file") if hasattr(args, name)), None)
    if rest and name is not None and isinstance(getattr(args, name), list):
        args.file += rest
    elif len(rest) == 1 and name is not None and getattr(args, name) is None:
        setattr(args, name, rest[0])
    elif rest:
        listed = commas(words, args.parser.format_help())
        several = listed or getattr(args, "several", "")
        args.parser.error(f"unexpected: {' '.join(rest)}{several}")
    return args


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command.

    Args:
        argv: arguments; those of the process by default.

    Returns:
        The exit code.
    """
    args = _parsed(argv)
    signal.signal(signal.SIGTERM, _terminate)
    try:
        with (
            saying_outages(quiet=getattr(args, "quiet", False)),
            Client(args.url, args.key, timeout=args.timeout, retries=args.retries) as client,
        ):
            return args.run(args, client) or 0
    except BrokenPipeError:
        return console.EXIT_BROKEN_PIPE
    except (ThalwegError, OSError, TypeError, ValueError, IndexError) as e:
        return fail(e, args)
    except KeyboardInterrupt:
        return console.EXIT_INTERRUPTED
