"""Write a generated stream and its auxiliary files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from core.losses.format import Kind
from core.losses.samples import SampleSpec, generate_inputs, generate_stream

from .outputs import Output, Outputs


def _write(output: Output, chunks: Iterable[bytes]) -> int:
    size = 0
    for chunk in chunks:
        output.write(chunk)
        size += len(chunk)
    return size


def write_sample(spec: SampleSpec, directory: Path) -> Sequence[tuple[Path, int]]:
    """Write a stream and, in ``input/``, the auxiliary files of a run directory.

    Returns:
        Path and size in bytes of each file.

    Raises:
        InputError: the directory is not writable.
    """
    name = "summary.bin" if spec.kind is Kind.SUMMARY else "gul.bin"
    chunks: dict[Path, Iterable[bytes]] = {directory / name: generate_stream(spec)}
    for name, data in generate_inputs(spec).items():
        chunks[directory / "input" / name] = [data]
    with Outputs() as outputs:
        return [(path, _write(outputs.open(path), data)) for path, data in chunks.items()]
