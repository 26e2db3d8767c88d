"""How a service computes the outputs of a run directory: its runs, and the tables to fetch.

The streams of each perspective, and of each layer of reinsurance, are a durable run of their own,
with the summary sets of the settings::

    analysis_settings.json --> plan --> thalweg run create    one for gul, il, ri_IP1, ri, ...
    input/*.bin                         thalweg run upload    one for each process
                                        thalweg run seal
                                        thalweg run compute   where sets want other curves
                                        thalweg run fetch     work/.../S1_melt.bin
                               aggregate --tables  <----------+
                                   |
                                   v
                                output/gul_S1_melt.csv, ...

A run has one set of options, and sets may want different curves, confidences or return periods:
those of most tables are the run's, and the others are further reports of it. Tables come as packed
rows and are encoded here, with the encoders of a local run, so that formats, joined columns and
names cannot differ from it.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from app.losses.outputs import Outputs
from app.losses.tables import table_encoder
from core.errors import OptionError
from core.losses.policy import Policy
from core.losses.reports import REPORTS

from .chunks import in_pieces, packed_rows
from .directory import OutputTables, RunDirectory, check_writable
from .files import failing_as, locked
from .settings import Losses, SetRequest

VERSION = 1
_SERVICE_HAS = ("missing_end", "max_samples")
"""Options of a policy that a service decides for all of its streams."""


class _Options(NamedTuple):
    """Options of a table that a run can have only once."""

    curves: str = ""
    at_return_periods: bool = False
    confidence: float | None = None


class _Table(NamedTuple):
    set_id: int
    report: str
    options: _Options


def service_plan(directory: RunDirectory, policy: Policy) -> dict[str, Any]:
    """Plan the runs by which a service computes the outputs of a run directory.

    Args:
        directory: of the run.
        policy: what its streams may hold.

    Returns:
        ``{"version", "sorted", "ignored", "runs"}``; each run has the ``name`` and ``perspective``
        of its losses, a ``digest`` of all that its reports follow from besides the streams, the
        arguments of ``thalweg run create``, those of ``thalweg run compute`` for each of its
        ``variants``, and in ``tables`` the reports of each set and the variant they are in.

    Raises:
        CoreError: the settings, the inputs or the policy ask for what cannot be computed.
    """
    for name in _SERVICE_HAS:
        if getattr(policy, name) != getattr(Policy(), name):
            option = name.replace("_", "-")
            raise OptionError(f"--{option} is not an option of runs of a service")
    return {
        "version": VERSION,
        "sorted": directory.ascends,
        "ignored": list(directory.settings.legacy),
        "runs": [_run(directory, losses, policy) for losses in directory.losses()],
    }


def _run(directory: RunDirectory, losses: Losses, policy: Policy) -> dict[str, Any]:
    requests = directory.requests(losses)
    for request in requests:
        _check_tables(directory, losses, request)
    directory.sets(losses)
    tables = [table for request in requests for table in _tables(request)]
    own = _most_frequent(tables)
    variants = list(dict.fromkeys(t.options for t in tables if not _fits(t.options, own)))
    files = directory.files(losses)
    options = ["--perspective", losses.perspective]
    options += ["--report", _reports(tables)]
    options += ["--sets", ",".join(str(request.set_id) for request in requests)]
    options += ["--float-width", str(directory.float_width), "--nan", policy.nan]
    options += ["--negative", policy.negative, "--sample-order", policy.sample_order]
    options += _arguments(own)
    periods = files.pop("return_periods", None)
    inputs = dict(files)
    if own.at_return_periods:
        inputs["return_periods"] = _found(periods)
    identity = hashlib.blake2b(directory.digest(losses).encode(), digest_size=16)
    identity.update(repr((VERSION, options, variants)).encode())
    return {
        "name": losses.name,
        "perspective": losses.perspective,
        "digest": identity.hexdigest(),
        "create": [*options, *_file_arguments(inputs)],
        "variants": [
            _variant(tables, options, _found(periods) if options.at_return_periods else None)
            for options in variants
        ],
        "tables": list(_fetched(tables, own, variants)),
    }


def _check_tables(directory: RunDirectory, losses: Losses, request: SetRequest) -> None:
    """Refuse what the local run would refuse: missing inputs, joined columns in packed rows."""
    directory.inputs(request, losses)
    info = directory.info(request, losses)
    for name in request.reports:
        table_encoder(request.form, REPORTS[name], directory.float_width, info)


def _tables(request: SetRequest) -> Iterator[_Table]:
    for report in request.reports:
        if report in {"ept", "psept"}:
            options = _Options(request.options.curves, request.at_return_periods)
        elif report == "alct":
            options = _Options(confidence=request.options.confidence)
        else:
            options = _Options()
        yield _Table(request.set_id, report, options)


def _most_frequent(tables: list[_Table]) -> _Options:
    """The options of most tables; at every point before at return periods, which can be added."""
    curves = Counter((t.options.curves, t.options.at_return_periods) for t in tables)
    del curves["", False]
    confidences = Counter(t.options.confidence for t in tables if t.options.confidence is not None)
    chosen = max(curves, key=lambda c: (not c[1], curves[c]), default=("", False))
    confidence = max(confidences, key=lambda c: confidences[c], default=None)
    return _Options(*chosen, confidence)


def _fits(options: _Options, own: _Options) -> bool:
    """Whether a table with these options is one of a run with its own."""
    if options.curves:
        return options[:2] == own[:2]
    return options.confidence in {None, own.confidence}


def _reports(tables: list[_Table]) -> str:
    return ",".join(dict.fromkeys(table.report for table in tables))


def _arguments(options: _Options) -> list[str]:
    arguments = ["--curves", options.curves] if options.curves else []
    if options.confidence is not None:
        arguments += ["--confidence", repr(options.confidence)]
    return arguments


def _file_arguments(files: Mapping[str, Path]) -> list[str]:
    return [
        word for name, path in files.items() for word in (f"--{name.replace('_', '-')}", str(path))
    ]


def _variant(tables: list[_Table], options: _Options, periods: Path | None) -> list[str]:
    reports = _reports([table for table in tables if table.options == options])
    files = {} if periods is None else {"return_periods": periods}
    return ["--report", reports, *_arguments(options), *_file_arguments(files)]


def _fetched(
    tables: list[_Table], own: _Options, variants: list[_Options]
) -> Iterator[dict[str, Any]]:
    groups: dict[tuple[int, int | None], list[str]] = {}
    for table in tables:
        variant = None if _fits(table.options, own) else variants.index(table.options)
        groups.setdefault((table.set_id, variant), []).append(table.report)
    for (set_id, variant), reports in groups.items():
        yield {"set": set_id, "variant": variant, "reports": reports}


def _found(path: Path | None) -> Path:
    assert path is not None  # noqa: S101 - the inputs of every set were looked for
    return path


def write_fetched(directory: RunDirectory, out: Path, fetched: Path) -> list[Path]:
    """Write the outputs of a run whose tables are here, all or none; return their paths.

    Args:
        directory: the files of the run.
        out: where the outputs go.
        fetched: folder with a folder for each of the losses, and in it ``S1_melt.bin``, packed
            rows.

    Raises:
        CoreError: a table is missing or cut, or an output cannot be written.
    """
    check_writable(out)
    with locked(out, "outputs"), Outputs() as outputs:
        files = OutputTables(outputs, directory, out)
        for losses in directory.losses():
            for request in directory.requests(losses):
                files.add(losses, request)
                for report in request.reports:
                    path = fetched / losses.name / f"S{request.set_id}_{report}.bin"
                    with failing_as("cannot be read", path):
                        table = packed_rows(path, REPORTS[report].dtype(directory.float_width))
                    for rows in in_pieces([table]):
                        files.write((losses.name, request.set_id), report, rows)
        files.end()
    return files.paths
