"""The command ``thalweg ls``: what you have on the service, in one list."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from ..client import Client
from ..errors import ProblemError
from ..transport.retry import is_retryable
from .arguments import new_command
from .console import print_json, say, told

Entry = tuple[str, str, Mapping[str, Any]]
"""An id, what a long line says of it, and its description."""
_STATUS_FORBIDDEN = 403


def add_command(commands: Any) -> None:  # noqa: ANN401 - argparse has no public type for it
    """Add the command to a command line."""
    new_command(
        commands,
        "ls",
        _ls,
        "list your runs, datasets and pipelines",
        {
            "kind": ("default: all of them", {"nargs": "?", "choices": tuple(_KINDS)}),
            "-l --long": "also what each is like",
            "--json": "a JSON object of lists, by kind",
        },
        "List your runs, datasets and pipelines, a line for each: its kind and its id.",
    )


def _runs(client: Client, *, long: bool) -> Iterator[Entry]:  # noqa: ARG001 - as the others
    for run in client.runs.list():
        document = run.document
        reports = ",".join(document.get("reports", ()))
        line = f"{run.state:10} {document.get('perspective', '')}  {reports}"
        yield run.id, f"{line}  {document.get('label') or ''}", document


def _datasets(client: Client, *, long: bool) -> Iterator[Entry]:
    def describe(ident: str) -> tuple[str, Mapping[str, Any]]:
        info = (dataset := client.datasets[ident]).info
        shape = repr(dataset).partition(": ")[2].removesuffix(">")
        stored = info.get("stored_dtype")
        if stored not in {None, info.get("dtype")}:
            shape += f", stored as {stored}"
        return f"{info.get('format', ''):10} {shape}", info

    return _rows(client.datasets, describe if long else None)


def _pipelines(client: Client, *, long: bool) -> Iterator[Entry]:
    def describe(ident: str) -> tuple[str, Mapping[str, Any]]:
        info = client.pipeline_info(ident)
        return " | ".join(stage["op"] for stage in info.get("spec", {}).get("stages", ())), info

    return _rows(client.pipelines(), describe if long else None)


def _rows(
    idents: Iterable[str], describe: Callable[[str], tuple[str, Mapping[str, Any]]] | None
) -> Iterator[Entry]:
    """A row for each id; what is wrong with one is said in its row, and hides no other."""
    for ident in idents:
        try:
            line, document = describe(ident) if describe else ("", {"id": ident})
        except ProblemError as error:
            if error.status == _STATUS_FORBIDDEN or is_retryable(error):
                raise
            line, document = told(error), {"id": ident, "problem": error.problem}
        yield ident, line, document


_KINDS: dict[str, Callable[..., Iterable[Entry]]] = {
    "runs": _runs,
    "datasets": _datasets,
    "pipelines": _pipelines,
}


def _ls(args: argparse.Namespace, client: Client) -> None:
    found: dict[str, list[Mapping[str, Any]]] = {}
    for kind in [args.kind] if args.kind else _KINDS:
        found[kind] = []
        try:
            for ident, line, document in _KINDS[kind](client, long=args.long):
                found[kind].append(document)
                if not args.json:
                    text = f"{kind[:-1]:8}  {ident}  {line if args.long else ''}"
                    sys.stdout.write(f"{text.rstrip()}\n")
        except ProblemError as error:
            # A key that is for one kind only still lists that one.
            if error.status != _STATUS_FORBIDDEN or args.kind:
                raise
            say(f"{kind} are not listed: {error.detail}")
    if args.json:
        print_json(found)
