"""Reports of runs as clients ask for them: where they stand, and which file answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple, cast

import structlog
from pydantic import ValidationError

from app.errors import InvalidOptionError, NotAcceptableError
from app.http.identity import RUNS, Identity, require
from app.http.media_types import PICTURE_TYPES
from app.losses.options import no_picture, read_run_options
from app.losses.pictures.drawing import PICTURES
from app.losses.pictures.options import Perspective, PictureForm, PictureOptions, can_draw
from app.losses.request import parse_reports
from app.losses.schemas import PassOptions
from app.losses.selection import Chosen, RowSelection
from app.run_errors import ReportMissingError, ReportNotReadyError, RunSealedError
from app.service_error import ServiceError
from core.errors import CoreError
from core.losses.reports import REPORTS, check_curves, check_options, check_used
from core.losses.reports.report import RETURN_PERIODS

from .records import OWN, RunRecord
from .results.files import DAMAGED, RECORDS, Look, PublishedFile, ReportFiles, ReportName
from .sealing.jobs import Job, Jobs, Variant
from .sealing.sealer import Sealer
from .spec import ReportsBody, RunSpec, SealBody, invalid
from .streams import Change

RETRY_SECONDS = 2
"""Seconds after which to ask again for a report that is being computed."""


class PendingError(Exception):
    """A report is being computed.

    Args:
        run: whose it is.
        job: that computes it, if it is known.
    """

    def __init__(self, run: RunRecord, job: Job | None) -> None:
        super().__init__(f"the report of the run {run.id} is being computed")
        self.state: dict[str, Any] = {"state": "computing" if run.state == "done" else run.state}
        """What to tell of the run."""
        if job is not None:
            self.state |= {"done": job.done, "total": job.total}


class Found(NamedTuple):
    """A published report, and what it was computed with."""

    files: ReportFiles
    file: PublishedFile
    run: RunRecord
    variant: Variant


class RunReportsService:
    """Finds and derives the report files of runs; methods may take long.

    Args:
        sealer: computes reports.
    """

    def __init__(self, sealer: Sealer) -> None:
        self._sealing = sealer.sealing
        self._sealer = sealer
        self.jobs: Jobs = sealer.jobs
        """The jobs of all runs."""

    def seal(
        self, caller: Identity, ident: str, values: Mapping[str, Any] | None = None
    ) -> RunRecord:
        """Seal a run, with options of its reports from a body; see :meth:`Sealer.seal`.

        Raises:
            ForbiddenError: ``admin`` alone may only have a run tried again that failed.
            RunSealedError: it is sealed with other options.
            CoreError, ServiceError: an option is invalid, or does not fit the run.
        """
        run = self._sealing.runs.get(caller, ident)
        if run.state != "failed" or values:
            require(caller, RUNS)
            run = self._sealing.runs.own(caller, ident)
        if not values:
            return self._sealer.seal(run)
        return self._sealer.seal(run, self._change(caller, run, values))

    def _change(self, caller: Identity, run: RunRecord, values: Mapping[str, Any]) -> Change:
        """Check the options that a run is to be sealed with; return what gives it them."""
        try:
            variant = Variant(SealBody.model_validate(values).options)
            spec = self._sealing.spec(run, variant)
        except ValidationError as e:
            raise invalid(e) from e
        _check_options(run, spec, run.spec["reports"], variant)
        spec.check(caller, self._sealing.losses)

        def changed(run: RunRecord) -> RunRecord:
            spec = self._sealing.spec(run, variant)
            if spec.to_json() == run.spec and spec.inputs == run.inputs:
                return run
            if not run.is_open:
                raise RunSealedError(
                    f"the run is {run.state} with other options",
                    hint="POST /v1/runs/{run}/reports computes these with other options",
                    state=run.state,
                    reports=list(spec.reports),
                )
            return replace(run, spec=spec.to_json(), inputs=spec.inputs)

        return changed

    def compute(self, caller: Identity, ident: str, values: Mapping[str, Any]) -> Job:
        """Have further reports of a sealed run computed; see :meth:`Sealer.compute`.

        Raises:
            ReportNotReadyError: the run is not done.
            CoreError, ServiceError: the body is invalid, or does not fit the run.
        """
        run = self._sealing.runs.own(caller, ident)
        if run.state != "done":
            raise _not_ready(run)
        try:
            body = ReportsBody.model_validate(values)
            variant = Variant(body.options, dict(body.inputs))
            reports = parse_reports(",".join(body.reports))
            spec = self._sealing.spec(run, variant)
        except ValidationError as e:
            raise invalid(e) from e
        _check_options(run, spec, reports, variant)
        return self._sealer.compute(run, reports, variant)

    def find(self, caller: Identity, ident: str, name: ReportName, form: str) -> Found:
        """Return the file of a report in a format.

        Raises:
            PendingError: it is being computed.
            ReportNotReadyError: the run is not sealed, or sealing failed.
            ReportMissingError: it was not requested, or not of this set or variant.
            NotAcceptableError: there is no picture of it.
            CoreError, ServiceError: it cannot be drawn, or a store failed.
        """
        run, files, result = self._computed(caller, ident, name)
        variant = Variant(result["options"], result["inputs"])
        known = files.find(name.file(form))
        if known is None:
            drawn = self._drawn(run, result, name, form)
            try:
                known = files.derive(name, form, drawn)
            except DAMAGED:
                raise self._recompute(run, result, name, form) from None
        return Found(files, known, run, variant)

    def tell(self, found: Found, name: ReportName, selection: RowSelection) -> dict[str, int | str]:
        """Say what the rows of a report, or those of a selection, do not; as ``Ending.remarks``.

        Raises:
            CoreError, ServiceError: the records are damaged, or a store failed.
        """
        files, _, run, variant = found
        options, remarks = self._sealing.spec(run, variant).options, files.remarks(name)
        if selection:
            chosen = Chosen(selection)
            remarks |= {"selected_rows": files.count(name, chosen), **chosen.missing}
        elif options.summary_ids is not None and (records := files.find(name.file(RECORDS))):
            remarks["selected_rows"] = records.size // files.dtype(name.report).itemsize
        if RETURN_PERIODS in REPORTS[name.report].takes:
            # An input may be gone by now: nothing more is known of it, then.
            with suppress(CoreError, ServiceError):
                inputs = self._sealing.request(run, variant, (name.report,)).inputs
                if inputs.longest_return_period is not None:
                    remarks["longest_return_period"] = inputs.longest_return_period
        return remarks

    def repair(
        self, caller: Identity, ident: str, name: ReportName, form: str, file: PublishedFile
    ) -> Found:
        """Return a report as ``find`` does, made again because this file of it is damaged.

        Raises:
            PendingError, CoreError, ServiceError: see ``find``.
        """
        run, files, result = self._computed(caller, ident, name)
        if form == RECORDS:
            raise self._recompute(run, result, name, form)
        files.discard(file)
        return self.find(caller, ident, name, form)

    def draw(
        self, caller: Identity, ident: str, name: ReportName, form: str, look: Look
    ) -> tuple[PublishedFile, bytes]:
        """Draw a report as a client wants it; return the file of its records, and the picture.

        Raises:
            PendingError, CoreError, ServiceError: see ``find``.
        """
        run, files, result = self._computed(caller, ident, name)
        drawn = self._drawn(run, result, name, form)
        records = files.find(name.file(RECORDS))
        if drawn is None or records is None:
            raise PendingError(run, None)
        try:
            return records, files.picture(name, replace(drawn, **look._asdict()))
        except DAMAGED:
            raise self._recompute(run, result, name, form) from None

    def _recompute(
        self, run: RunRecord, result: Mapping[str, Any], name: ReportName, form: str
    ) -> PendingError:
        """Have a report computed again, because its records are damaged or missing; say so.

        The job looks which of them are. So nothing is deleted before it can be computed.

        Raises:
            NotFoundError: the run was deleted, and its files with it.
            CoreError, ServiceError: an input is missing, or a store failed.
        """
        run = self._sealing.runs.again(run)
        reports = PICTURES[name.report] if form in PICTURE_TYPES else (name.report,)
        log = structlog.get_logger().bind(run=run.id, variant=name.variant)
        log.warning("a report is damaged and computed again", reports=list(reports))
        variant = Variant(result["options"], result["inputs"])
        return PendingError(run, self._sealer.compute(run, tuple(reports), variant))

    def _computed(
        self, caller: Identity, ident: str, name: ReportName
    ) -> tuple[RunRecord, ReportFiles, Mapping[str, Any]]:
        """Return the run, its files, and the result that has a report."""
        run = self._sealing.runs.get(caller, ident)
        if run.state in {"sealed", "computing"}:
            jobs = self.jobs.of_run(run.owner, run.id)
            if not jobs:
                self._sealer.seal(run)
            raise PendingError(run, next((j for j in jobs if j.variant.name == OWN), None))
        if run.state != "done":
            raise _not_ready(run)
        result = run.results.get(name.variant, {})
        if name.report not in result.get("reports", ()):
            self._check_running(run, name)
            raise _missing(run, name, result.get("problem"))
        return run, self._sealing.files(run), result

    def _check_running(self, run: RunRecord, name: ReportName) -> None:
        """Raise PendingError if a job computes a report."""
        for job in self.jobs.of_run(run.owner, run.id):
            if job.variant.name == name.variant and name.report in job.reports:
                if not job.is_poisoned:
                    raise PendingError(run, job)
                return

    def _drawn(
        self, run: RunRecord, result: Mapping[str, Any], name: ReportName, form: str
    ) -> PictureOptions | None:
        """Return how a picture of a report is drawn, if it can be; None for a table."""
        if self._sealing.files(run).find(name.file(RECORDS)) is None:
            self._check_running(run, name)
            if result["problem"] is not None:
                raise _missing(run, name, result["problem"])
            raise _missing_set(name)
        if form not in PICTURE_TYPES:
            return None
        _check_picture(name, result["reports"])
        spec = self._sealing.spec(run, Variant(result["options"], result["inputs"]))
        return PictureOptions(
            form=cast("PictureForm", form),
            confidence=spec.options.confidence,
            perspective=cast("Perspective", spec.perspective),
        )


def _check_options(run: RunRecord, spec: RunSpec, reports: Sequence[str], variant: Variant) -> None:
    """Check that options of reports of a run, which ``spec`` has, are of these reports.

    Raises:
        InvalidOptionError: one is of the streams, which have been read by it.
        CoreError: one is of none of the reports.
    """
    tables = [REPORTS[report] for report in reports]
    check_curves(tables, read_run_options(spec.options))
    changed = read_run_options(PassOptions.model_construct(**variant.options))
    check_options(tables, changed, variant.options)
    check_used(tables, {*variant.options, *variant.inputs})
    own = RunSpec.of(run).options
    for fixed in ("float_width", "nan", "negative", "sample_order", "partitions"):
        if getattr(spec.options, fixed) != getattr(own, fixed):
            raise InvalidOptionError(
                f"{fixed} is that of the streams, and cannot be changed any more", option=fixed
            )


def _check_picture(name: ReportName, computed: Sequence[str]) -> None:
    if name.report not in PICTURES or not can_draw():
        raise no_picture(name.report)
    lacking = [report for report in PICTURES[name.report] if report not in computed]
    if lacking:
        raise NotAcceptableError(
            f"the picture of {name.report.upper()} shows {' and '.join(lacking)} too, which"
            " the run does not have",
            hint="POST these reports to the reports of the run first",
        )


_OF_STREAM = {"offset", "event", "block", "streams", "fault"}
"""Members of problems that a stream is at fault for."""


def _not_ready(run: RunRecord) -> ReportNotReadyError:
    if run.state == "failed":
        problem = run.problem or {}
        of_stream = _OF_STREAM & problem.keys() or "hint" not in problem
        hint = "Delete the stream at fault, upload it again, then seal the run again"
        return ReportNotReadyError(
            f"the run failed when it was sealed: {problem.get('detail', 'it cannot be read')}",
            hint=hint if of_stream else problem["hint"],
            state=run.state,
            problem=run.problem,
        )
    return ReportNotReadyError(
        f"the run is {run.state}: its reports are computed when it is sealed",
        hint=f"POST /v1/runs/{run.id}/seal once all streams are complete",
        retry_after=RETRY_SECONDS,
        state=run.state,
    )


def _missing(
    run: RunRecord, name: ReportName, problem: Mapping[str, Any] | None
) -> ReportMissingError:
    if problem is not None:
        return ReportMissingError(
            f"the report could not be computed: {problem.get('detail')}", problem=problem
        )
    if name.variant not in {OWN, *run.results}:
        raise ReportMissingError(
            f"the run has no variant {name.variant}",
            hint=f"Its variants are {', '.join(run.results)}",
        )
    suffix = "" if name.variant == OWN else f" of the variant {name.variant[:40]}"
    return ReportMissingError(
        f"the run has no report {name.report}{suffix}",
        hint=f'POST {{"reports": ["{name.report}"]}} to /v1/runs/{run.id}/reports',
        reports=[name.report],
    )


def _missing_set(name: ReportName) -> ReportMissingError:
    if name.set_id is None:
        return ReportMissingError("the run has several summary sets", hint="Name one by set=")
    return ReportMissingError(
        f"the run has no report {name.report} of the summary set {name.set_id}",
        hint="Streams of summaries have one set, which set= need not name",
    )
