"""The ``inspect`` command: what a loss stream or a dataset holds, and its first fault."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import orjson

from app.datasets.inspection import inspect_files
from app.losses.inspection import Findings, inspect, looks_like_stream
from core.tiles.recording import Hints
from core.tiles.view import parse_dtype

from .policy import policy_of

EXIT_FAULT = 1


def _describe(found: Findings) -> list[str]:
    lines = [f"{found.source}: {found.header.describe() if found.header else 'no header'}"]
    if found.header is not None:
        order = "ascending" if found.ascending else "not ascending"
        lines += [
            f"  bytes in whole blocks  {found.bytes:,}",
            f"  events                 {found.events:,} (ids {order})",
            f"  blocks                 {found.blocks:,} (at most {found.most_blocks:,} an event)",
            f"  pairs                  {found.pairs:,}",
        ]
    if found.lowest_event is not None:
        lines.append(f"  event ids              {found.lowest_event} to {found.highest_event}")
    fault = "none; a stream has no end marker, so blocks may be missing at its end"
    if found.fault is not None:
        fault = f"[{found.fault.code}] {found.fault}"
    return [*lines, f"  first fault            {fault}"]


def inspect_command(args: argparse.Namespace) -> int:
    """Describe a stream or a dataset; returns the exit code."""
    hints = (args.format, args.dtype, args.sig_shape, args.array)
    directory = Path(args.files[0]).is_dir()
    if len(args.files) > 1 or any(hints) or directory or not looks_like_stream(args.files[0]):
        return _inspect_dataset(args)
    found = inspect(args.files[0], policy_of(args))
    text = "\n".join(_describe(found)).encode()
    if args.json:
        text = orjson.dumps(found.to_json(), option=orjson.OPT_INDENT_2)
    sys.stdout.buffer.write(text + b"\n")
    return EXIT_FAULT if found.fault is not None else 0


def _inspect_dataset(args: argparse.Namespace) -> int:
    hints = Hints(
        dtype=None if args.dtype is None else np.dtype(parse_dtype(args.dtype)),
        sig_shape=args.sig_shape,
        nav_shape=args.nav_shape,
    )
    about = inspect_files([Path(name) for name in args.files], hints, args.format, args.array)
    text = orjson.dumps(about, option=orjson.OPT_INDENT_2)
    if not args.json:
        text = "\n".join(f"{name:<14}{value}" for name, value in about.items()).encode()
    sys.stdout.buffer.write(text + b"\n")
    return 0
