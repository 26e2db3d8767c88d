"""The commands ``thalweg datasets`` and ``thalweg tiles``."""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np

from ..client import Client
from ..tiles.options import ViewOptions
from .arguments import add_behaviour, count, given, new_command, size, spec_file
from .console import make_bar, say, stopped

_INDICES = re.compile(r"\d+(-\d+)?(,\d+(-\d+)?)*")
_SLICE = re.compile(r"(-?\d+)?:(-?\d+)?(?::(\d+)?)?")
_ENDINGS = (".npy", ".raw")


def add_commands(commands: Any) -> None:  # noqa: ANN401 - argparse has no public type for it
    """Add both commands to a command line."""
    about = "list, show, register and delete datasets"
    datasets = new_command(commands, "datasets", _datasets, about)
    datasets.add_argument("action", nargs="?", choices=tuple(_NEEDS), default="list")
    datasets.add_argument(
        "value", nargs="?", metavar="ID|JSON", help="to show or delete, or to register"
    )
    datasets.add_argument("--view", metavar="ID", help="delete this view, not the dataset")
    datasets.add_argument("--file", type=Path, metavar="F", help="JSON of the dataset to register")
    tiles = new_command(
        commands,
        "tiles",
        _tiles,
        "read a view of a dataset into a file",
        "Read a view of a dataset into a .npy file, or a .raw file without header.",
    )
    tiles.add_argument("dataset", metavar="DATASET")
    tiles.add_argument("-o", "--out", required=True, metavar="FILE", help="ends in .npy or .raw")
    which = tiles.add_mutually_exclusive_group()
    which.add_argument("--frames", type=_indices, metavar="LIST", help="such as 3,1,5-9")
    which.add_argument("--nav", type=_slices, metavar="SLICES", help="such as 0:10,5:50:5")
    which.add_argument(
        "--mask", type=Path, metavar="FILE.npy", help="bool, in the shape of the scan"
    )
    which.add_argument("--shuffle", type=count, metavar="SEED", help="all, in random order")
    tiles.add_argument("--sig", type=_slices, metavar="SLICES", help="such as 0:32,8:40")
    tiles.add_argument("--bin-nav", type=count, metavar="N", help="sum N positions per axis")
    tiles.add_argument("--bin-sig", type=count, metavar="N", help="sum N pixels per axis")
    tiles.add_argument("--dtype", help="such as <f4")
    tiles.add_argument("--casting", choices=("safe", "wrap", "clip"))
    tiles.add_argument("--no-corrections", action="store_true", help="no dark, gain, exclusions")
    tiles.add_argument("--sync-offset", type=int, metavar="N")
    tiles.add_argument("--missing", choices=("skip", "zero", "nan"))
    shape = tiles.add_mutually_exclusive_group()
    shape.add_argument("--tile-shape", type=_lengths, metavar="N,N", help="of a tile")
    shape.add_argument("--target-bytes", type=size, metavar="SIZE", help="of a tile")
    add_behaviour(tiles)


def _indices(text: str) -> list[int]:
    if not _INDICES.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list such as 3,1,5-9")
    indices: list[int] = []
    for part in text.split(","):
        low, _, high = part.partition("-")
        indices.extend(range(int(low), int(high or low) + 1))
    return indices


def _slices(text: str) -> list[slice]:
    slices = []
    for part in text.split(","):
        match = _SLICE.fullmatch(part)
        if not match:
            raise argparse.ArgumentTypeError(
                f"{text!r} is not a list of slices such as 0:10,5:50:5"
            )
        slices.append(slice(*(int(n) if n else None for n in match.groups())))
    return slices


def _lengths(text: str) -> list[int]:
    return [count(part) for part in text.split(",")]


def _options(args: argparse.Namespace) -> ViewOptions:
    """The view that the arguments describe.

    Raises:
        OSError, ValueError: the mask cannot be read.
    """
    binning = {"nav": args.bin_nav, "sig": args.bin_sig}
    options: Any = given(args, ViewOptions.__annotations__)
    if args.mask is not None:
        options["mask"] = np.load(args.mask, allow_pickle=False)
    if any(n is not None for n in binning.values()):
        options["bin"] = {name: n for name, n in binning.items() if n is not None}
    if args.dtype is not None:
        options["dtype"] = _dtype(args.dtype)
    if args.no_corrections:
        options["corrections"] = False
    view: ViewOptions = options
    return view


def _dtype(text: str) -> np.dtype[Any]:
    try:
        return np.dtype(text)
    except (TypeError, SyntaxError) as e:
        raise ValueError(f"there is no type {text!r}") from e


def _tiles(args: argparse.Namespace, client: Client) -> None:
    if Path(args.out).suffix not in _ENDINGS:
        raise ValueError("--out must end in .npy, or in .raw for values without a header")
    state = str(args.state or f"{args.out}.thalweg-state")
    bar = make_bar(args)
    view = client.datasets[args.dataset].view(**_options(args))
    try:
        view.to_npy(args.out, state=state, progress=bar)
    finally:
        stopped(bar, state)
    if not args.quiet:
        shape = " x ".join(map(str, view.shape))
        say(f"{args.out}: {shape} of {view.dtype.str}, {view.nbytes} bytes")


def _datasets(args: argparse.Namespace, client: Client) -> None:
    if (args.file is not None) and (args.action != "register" or args.value is not None):
        raise ValueError("--file goes with register, instead of JSON")
    if (args.value is not None) is (args.action == "list" or args.file is not None):
        raise ValueError(f"datasets {args.action} needs {_NEEDS[args.action]}")
    if args.view is not None and args.action != "delete":
        raise ValueError("--view goes with delete")
    if args.action == "list":
        sys.stdout.writelines(f"{ident}\n" for ident in client.datasets.list())
        return
    if args.action == "delete":
        dataset = client.datasets[args.value]
        dataset.delete() if args.view is None else dataset.delete_view(args.view)
        return
    if args.action == "show":
        info = client.datasets[args.value].info
    else:
        spec = json.loads(args.value) if args.file is None else spec_file(args.file)
        info = client.datasets.register(spec).info
    json.dump(info, sys.stdout, indent=2)
    sys.stdout.write("\n")


_NEEDS = {"list": "nothing", "show": "an ID", "register": "JSON or --file", "delete": "an ID"}
