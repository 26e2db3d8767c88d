"""The commands ``sample`` and ``warmup``."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from app.engine.warmup import forecast, warm_kernels
from app.losses.outputs import Output, Outputs, check_free
from core._jit import portable_targets
from core.errors import OptionError
from core.losses.format import Kind
from core.losses.samples import SampleSpec, generate_inputs, generate_stream


def _write(output: Output, chunks: Iterable[bytes]) -> int:
    size = 0
    for chunk in chunks:
        output.write(chunk)
        size += len(chunk)
    return size


def write_sample(
    spec: SampleSpec, directory: Path, partitions: int = 1, *, force: bool = False
) -> Sequence[tuple[Path, int]]:
    """Write a stream, or so many, and in ``input/`` the auxiliary files of a run directory.

    Returns:
        Path and size in bytes of each file.

    Raises:
        InputError: the directory is not writable.
        OptionError: a file is there already, and is not to be replaced.
    """
    name = "summary" if spec.kind is Kind.SUMMARY else "gul"
    chunks: dict[Path, Iterable[bytes]] = {}
    for part in range(1, partitions + 1):
        file = f"{name}_P{part}.bin" if partitions > 1 else f"{name}.bin"
        chunks[directory / file] = generate_stream(spec, part, partitions)
    for name, data in generate_inputs(spec).items():
        chunks[directory / "input" / name] = [data]
    check_free(chunks, force=force)
    with Outputs() as outputs:
        return [(path, _write(outputs.open(path), data)) for path, data in chunks.items()]


def sample(args: argparse.Namespace) -> int:
    """Write a loss stream and its auxiliary files; return the exit code."""
    spec = SampleSpec(
        events=args.events,
        summaries=args.summaries,
        samples=args.samples,
        density=args.density,
        seed=args.seed,
        kind=Kind(args.kind),
        float_width=args.float_width,
        periods=args.periods,
    )
    if not 1 <= args.partitions <= spec.events:
        raise OptionError(f"--partitions is {args.partitions}, not 1 to {spec.events:,}")
    for path, size in write_sample(spec, Path(args.out), args.partitions, force=args.force):
        print(f"{size:>12,} bytes  {path}")  # noqa: T201 - the command's output
    return 0


def warmup(args: argparse.Namespace) -> int:
    """Compile and store the kernels; print what each took, and return the exit code."""
    if (text := forecast()) is not None:
        print(text, flush=True)  # noqa: T201 - the command's output
    seconds = warm_kernels()
    for name, value in seconds.items():
        print(f"{value:8.2f} s  {name}")  # noqa: T201 - as above
    print(f"{sum(seconds.values()):8.2f} s  total")  # noqa: T201 - as above
    for name in portable_targets() if args.portable else ():
        print(f"for {name}:", flush=True)  # noqa: T201 - as above
        target = {"NUMBA_CPU_NAME": name, "NUMBA_CPU_FEATURES": ""}
        command = [sys.executable, "-m", "app.command", "warmup"]
        subprocess.run(command, env=os.environ | target, check=True)  # noqa: S603
    return 0
