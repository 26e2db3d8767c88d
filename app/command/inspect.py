"""The ``inspect`` command: the contents and the first fault of a stream or dataset."""

from __future__ import annotations

import argparse
import contextlib
import sys
from pathlib import Path

import numpy as np
import orjson

from app.datasets.inspection import inspect_files
from app.decoding.pool import DecoderPool
from app.losses.inspection import Findings, inspect, looks_like_stream
from core.tiles.recording import Hints
from core.tiles.view import parse_dtype

from .policy import policy_of

EXIT_FAULT = 1


def _describe(findings: Findings) -> list[str]:
    header = findings.header
    lines = [f"{findings.source}: {header.describe() if header else 'no header'}"]
    if header is not None:
        order = "ascending" if findings.ascending else "not ascending"
        most_blocks = f"at most {findings.most_blocks:,} per event"
        lines += [
            f"  bytes in whole blocks  {findings.bytes:,}",
            f"  events                 {findings.events:,} (ids {order})",
            f"  blocks                 {findings.blocks:,} ({most_blocks})",
            f"  pairs                  {findings.pairs:,}",
        ]
    if findings.lowest_event is not None:
        lines.append(
            f"  event ids              {findings.lowest_event} to {findings.highest_event}"
        )
    fault = "none; a stream has no end marker, so blocks may be missing at its end"
    if findings.fault is not None:
        fault = f"[{findings.fault.code}] {findings.fault}"
    return [*lines, f"  first fault            {fault}"]


def inspect_command(args: argparse.Namespace) -> int:
    """Describe a stream or a dataset; return the exit code."""
    hints = (args.format, args.dtype, args.sig_shape, args.array)
    directory = Path(args.files[0]).is_dir()
    if len(args.files) > 1 or any(hints) or directory or not looks_like_stream(args.files[0]):
        return _inspect_dataset(args)
    findings = inspect(args.files[0], policy_of(args))
    text = "\n".join(_describe(findings)).encode()
    if args.json:
        text = orjson.dumps(findings.to_json(), option=orjson.OPT_INDENT_2)
    sys.stdout.buffer.write(text + b"\n")
    return EXIT_FAULT if findings.fault is not None else 0


def _inspect_dataset(args: argparse.Namespace) -> int:
    hints = Hints(
        dtype=None if args.dtype is None else np.dtype(parse_dtype(args.dtype)),
        sig_shape=args.sig_shape,
        nav_shape=args.nav_shape,
    )
    paths = list(map(Path, args.files))
    with contextlib.closing(DecoderPool()) as decoders:
        description = inspect_files(paths, hints, args.format, args.array, decoders)
    text = orjson.dumps(description, option=orjson.OPT_INDENT_2)
    if not args.json:
        text = "\n".join(f"{name:<14}{value}" for name, value in description.items()).encode()
    sys.stdout.buffer.write(text + b"\n")
    return 0
