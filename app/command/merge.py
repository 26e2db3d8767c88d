"""The ``merge`` command: finished tables of partitions as one."""

from __future__ import annotations

import argparse
from pathlib import Path

import structlog

from app.losses.merging import MergeJob, merge_tables
from app.losses.outputs import STDOUT, check_free


def merge(args: argparse.Namespace) -> int:
    """Merge tables; return the exit code."""
    job = MergeJob(args.tables, args.out, args.by, args.report, args.float_width, args.live)
    check_free([] if args.out == STDOUT else [Path(args.out)], force=args.force)
    rows = merge_tables(job)
    structlog.get_logger().info("tables merged", tables=len(job.tables), rows=rows)
    return 0
