"""Pictures of an aggregation as files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from core.arrays import Rows
from core.errors import OptionError, ReportError

from ..outputs import Outputs
from .drawing import PICTURES, PictureCollector
from .options import FORMS, PictureOptions, require_library


class PictureFiles:
    """The pictures of some reports, collected in their pass and drawn after it.

    Args:
        target: a file that ends in .svg or .png, for a single picture, or a directory.
        reports: the requested reports; those with a picture are drawn.
        options: of the pictures; their form is that of a directory's files.

    Raises:
        OptionError: no report has a picture, several are to go into one file, or the library that
            draws is not installed.
    """

    def __init__(self, target: str, reports: Sequence[str], options: PictureOptions) -> None:
        require_library()
        drawn = [name for name in reports if name in PICTURES]
        if not drawn:
            raise OptionError(
                "none of the requested reports has a picture",
                hint=f"Ask for {' or '.join(PICTURES)} with --reports",
            )
        path = Path(target)
        form = path.suffix.removeprefix(".").lower()
        if form in FORMS:
            if len(drawn) > 1:
                raise OptionError(
                    f"{target} takes a single picture, but {' and '.join(drawn)} have one each",
                    hint="Name a directory with --plot",
                )
            options = replace(options, form=form)
            self._paths = {drawn[0]: path}
        elif form and not path.is_dir():
            raise OptionError(
                f"there is no picture {form!r}", hint=f"Use {' or '.join(FORMS)}, or a directory"
            )
        else:
            self._paths = {name: path / f"{name}.{options.form}" for name in drawn}
        self._options = options
        self._collectors = {name: PictureCollector(name, options) for name in drawn}
        self._fault: ReportError | None = None

    @property
    def taps(self) -> Mapping[str, Callable[[Rows], None]]:
        """What takes rows, by the report they are of."""
        sources = {source for c in self._collectors.values() for source in c.sources}
        return {source: partial(self._take, source) for source in sorted(sources)}

    def _take(self, source: str, rows: Rows) -> None:
        if self._fault is not None:
            return
        try:
            for collector in self._collectors.values():
                if source in collector.sources:
                    collector.take(source, rows)
        except ReportError as e:
            # The tables are worth having without their picture.
            self._fault = e

    def write(self, summary_set: int | None) -> list[Path]:
        """Draw and write all pictures; return their paths.

        Args:
            summary_set: of the stream, for titles.

        Raises:
            ReportError: a picture cannot be drawn.
            InputError: a file cannot be written.
        """
        if self._fault is not None:
            raise self._fault
        with Outputs() as outputs:
            for name, collector in self._collectors.items():
                outputs.open(self._paths[name]).write(collector.draw(summary_set))
        return list(self._paths.values())
