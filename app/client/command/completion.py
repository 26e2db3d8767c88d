"""The command ``thalweg completion``, and the examples that the help of each command has."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

SHELLS = ("bash", "zsh", "fish")
_FILES = ("FILE", "DIR", "F", "LIST|F", "FILE.npy", "FILE.png")

EXAMPLES = {
    "post": "summary.bin --report ept --occurrence occurrence.bin -o ept.csv",
    "run create": "--perspective gul --report melt,ept --occurrence occurrence.bin",
    "run upload": "RUN p1.bin p2.bin",
    "run input": "RUN occurrence occurrence.bin",
    "run compute": "RUN --report ept --return-periods 250,100",
    "run status": "RUN --json",
    "run seal": "RUN --no-wait",
    "run fetch": "RUN --report ept -o ept.parquet",
    "run label": "RUN 'flood v3, portfolio 7'",
    "run list": "",
    "run delete": "RUN --partition 3",
    "portfolio create": "RUN --name wind --summary-info info.csv --currency EUR",
    "portfolio import": "losses.csv --form ylt --no-of-periods 10000 --name quake",
    "portfolio export": "wind --form selt -o wind.parquet",
    "portfolio list": "",
    "portfolio show": "wind",
    "portfolio delete": "wind",
    "portfolio query": "wind --report curves --group-by Region --return-periods 250,100,50",
    "portfolio price": "tower.json wind",
    "datasets": "register --file scan1.json",
    "tiles": "scan1 --nav 0:100,::5 --sig 32:96,32:96 --dtype f4 -o scan.npy",
    "frame": "scan1 5,7 -o frame.npy",
    "reduce": "scan1 disk:64,64,20 -o map.npy",
    "image": "scan1 --map magma --scale log -o sum.png",
    "batches": "spec.json --count 100 -o out/ --token-file token",
    "inputs put": "occurrence occurrence.bin",
    "inputs delete": "occurrence DIGEST",
    "pipelines register": "spec.json",
    "pipelines list": "",
    "pipelines show": "ID",
    "pipelines delete": "ID",
    "stages": "filter",
    "token inspect": "token",
    "ls": "datasets --long",
    "completion": "bash > ~/.local/share/bash-completion/completions/thalweg",
}
"""An example of each command."""


def add_command(commands: Any) -> None:  # noqa: ANN401 - argparse has no public type for it
    """Add the command to a command line."""
    text = "print what completes commands in a shell"
    parser = commands.add_parser("completion", help=text, description=_ABOUT, allow_abbrev=False)
    parser.add_argument("shell", choices=SHELLS, help="which shell it is")
    parser.set_defaults(run=_completion, parser=parser)


_ABOUT = (
    "Print a script by which a shell completes commands and options. Where it belongs: bash"
    " ~/.local/share/bash-completion/completions/thalweg, zsh a file _thalweg in a folder of"
    " $fpath, fish ~/.config/fish/completions/thalweg.fish."
)


def leaves(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """The parsers of commands; groups are none."""
    below = [action.choices for action in parser._actions if isinstance(action.choices, dict)]  # noqa: SLF001 - no other way
    if not below:
        yield parser
    for parsers in below:
        for each in parsers.values():
            yield from leaves(each)


def add_examples(parser: argparse.ArgumentParser) -> None:
    """End the help of each command with its example."""
    for each in leaves(parser):
        name = each.prog.removeprefix(f"{parser.prog} ")
        each.epilog = f"example: {each.prog} {EXAMPLES[name]}".rstrip()


def _completion(args: argparse.Namespace, _client: object) -> None:
    """Print the script.

    Raises:
        ValueError: shtab is not installed.
    """
    from .main import build_parser  # noqa: PLC0415 - which has this command

    try:
        shtab = import_module("shtab")
    except ImportError as e:
        raise ValueError("completion needs shtab: pip install 'thalweg[completion]'") from e
    parser = build_parser()
    for each in leaves(parser):
        for action in each._actions:  # noqa: SLF001 - as above
            if action.type is Path or action.metavar in _FILES or action.dest == "out":
                action.complete = shtab.FILE  # type: ignore[attr-defined]
    sys.stdout.write(shtab.complete(parser, args.shell))
