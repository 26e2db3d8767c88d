"""The command ``thalweg batches``."""

from __future__ import annotations

import argparse
import io
import json
import re
import sys
import warnings
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from ..client import Client
from ..errors import ProblemError, StateError
from ..files.state import FileGroups
from ..pipelines.batch import Batch, Column, Ragged
from ..pipelines.blocking import Pipeline
from ..pipelines.selection import is_token
from ..transport.frames import Array
from .arguments import FORCE, PIPELINE, Options, add_options, count, folder, new_command, spec_of
from .console import say, saying_warnings
from .targets import begin

_ID = re.compile("[0-9a-f]{32}")
"""Name of a registered pipeline."""


def add_command(commands: Any) -> None:  # noqa: ANN401 - argparse has no public type for it
    """Add the command to a command line."""
    batches = new_command(
        commands,
        "batches",
        _batches,
        "read the batches of a pipeline",
        {
            "spec SPEC": "file with the spec, its JSON, or the id of a registered pipeline",
            "-n --count N": ("batches (default: all)", count),
            "-o --out DIR": ("folder for .npy files", folder),
            **FORCE,
        },
        "Read the batches of a pipeline: a line of JSON for each, and with --out its fields as"
        " .npy files. With --token-file the same command resumes where it stopped, even with"
        " another --rank and --world; killed, it may repeat lines and files of a second: the number"
        " sequence tells lines that are there already, and files are the same.",
    )
    where: Options = {
        "--token-file F": ("resume from it, and update it once a second", Path),
        "--after TOKEN": "resume after a token, such as a line's",
    }
    add_options(batches.add_mutually_exclusive_group(), where)
    others: Options = {
        "--rank R": ("default 0", count, {"default": 0}),
        "--world W": ("default 1", count, {"default": 1}),
        "--epoch": "stop where an epoch ends",
        "--prefetch N": (
            "batches to read ahead (default 0): faster with --out and batches above 100 kB",
            count,
            {"default": 0},
        ),
        "--parallel K": (
            "streams to read in turn: faster if the service has idle cores; slower over loopback",
            count,
        ),
        "--quiet": "report errors only, beside the lines",
    }
    add_options(batches, others)


def _batches(args: argparse.Namespace, client: Client) -> None:
    if args.rank >= args.world == 1:
        raise ValueError(f"--rank {args.rank} needs --world: how many readers there are")
    after = args.after if args.token_file is None else read_token(args.token_file)
    known = _ID.fullmatch(args.spec) and not Path(args.spec).exists()
    spec = client.pipeline_info(args.spec)["spec"] if known else spec_of(args.spec, "", PIPELINE)
    with saying_warnings(quiet=args.quiet):
        pipeline = client.pipeline(spec)
    if args.out is not None:
        _begin(args, pipeline, after)
    try:
        _read(args, pipeline, after)
    except ProblemError as e:
        if args.token_file is not None and e.code.startswith("token-"):
            way_out = "remove the file to begin with batch 0, or give another for another spec"
            say(f"the token is of {args.token_file}: {way_out}")
        raise


def _read(args: argparse.Namespace, pipeline: Pipeline, after: str | None) -> None:
    number = 0
    with (
        FileGroups(args.token_file) as files,
        warnings.catch_warnings(action="ignore"),
        pipeline.batches(
            after,
            rank=args.rank,
            world=args.world,
            max_batches=args.count,
            epoch=args.epoch,
            prefetch=args.prefetch,
            parallel=args.parallel,
        ) as batches,
    ):
        for batch in batches:
            if args.out is not None:
                _write_fields(files, args.out, batch)
            sys.stdout.write(json.dumps(_line(batch)) + "\n")
            sys.stdout.flush()
            # Last: after a kill the batch comes again rather than getting lost.
            files.follow(batch.token)
            number += 1
    if not args.quiet:
        last = ", the last of the pipeline" if number else ": the token is at the end"
        ended = last if batches.data_finished and (number or after is not None) else ""
        known = pipeline.info.get("notes", ())
        say("; ".join([f"{number} batches{ended}", *(n for n in batches.notes if n not in known)]))


def _begin(args: argparse.Namespace, pipeline: Pipeline, after: str | None) -> None:
    """Mark the directory as of the pipeline; after a token, another rank and world go on in it."""
    command: dict[str, Any] = {"pipeline": pipeline.id}
    if after is None:
        command |= {"fingerprint": pipeline.fingerprint, "rank": args.rank, "world": args.world}
    try:
        begin(args.out.glob("*.npy"), args.out, command, force=args.force)
    except (FileExistsError, NotADirectoryError) as e:
        problem = f"--out is a directory for .npy files, but {args.out} cannot be one"
        raise ValueError(problem) from e


def read_token(path: Path) -> str | None:
    """The token in a file; None if the file is missing.

    Raises:
        StateError: it is empty, or holds something else.
    """
    try:
        text = path.read_text("utf-8").strip()
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as e:
        raise StateError(f"token-malformed: {path} does not hold a token") from e
    if not is_token(text):
        found = "does not hold a token" if text else "is empty; remove it to begin with batch 0"
        raise StateError(f"token-malformed: {path} {found}")
    return text


def _line(batch: Batch) -> dict[str, Any]:
    return {
        "sequence": batch.sequence,
        "epoch": batch.epoch,
        "count": batch.count,
        "rows": list(batch.rows),
        "fields": {name: _field(column) for name, column in batch.items()},
        "token": batch.token,
    }


def _field(column: Column) -> dict[str, Any]:
    if isinstance(column, Ragged):
        return {**_field(column.values), "items": len(column)}
    return {"dtype": np.lib.format.dtype_to_descr(column.dtype), "shape": list(column.shape)}


def _write_fields(files: FileGroups, directory: Path, batch: Batch) -> None:
    """A .npy file for each field, and one more for the offsets of a ragged one."""
    for name, column in batch.items():
        # The name of a field must not lead out of the directory.
        stem = f"{batch.sequence:08d}.{quote(name, safe=' ')}"
        if isinstance(column, Ragged):
            files.write(directory / f"{stem}.npy", _npy(column.values))
            files.write(directory / f"{stem}.offsets.npy", _npy(column.offsets))
        else:
            files.write(directory / f"{stem}.npy", _npy(column))


def _npy(array: Array) -> memoryview:
    file = io.BytesIO()
    np.lib.format.write_array(file, array, allow_pickle=False)
    return file.getbuffer()
