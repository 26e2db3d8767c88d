"""Write a generated stream and its auxiliary files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from core.losses.format import Kind
from core.losses.samples import SampleSpec, generate_inputs, generate_stream

from .outputs import FileOutput


def _write(path: Path, chunks: Iterable[bytes]) -> int:
    output = FileOutput(path)
    size = 0
    try:
        for chunk in chunks:
            output.write(chunk)
            size += len(chunk)
    except BaseException:
        output.discard()
        raise
    output.commit()
    return size


def write_sample(spec: SampleSpec, directory: Path) -> Iterator[tuple[Path, int]]:
    """Write a stream and, in ``input/``, the auxiliary files of a run directory.

    Yields:
        Path and size in bytes of each file, after it was written.

    Raises:
        InputError: the directory is not writable.
    """
    name = "summary.bin" if spec.kind is Kind.SUMMARY else "gul.bin"
    path = directory / name
    yield path, _write(path, generate_stream(spec))
    for name, data in generate_inputs(spec).items():
        path = directory / "input" / name
        yield path, _write(path, [data])
