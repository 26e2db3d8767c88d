"""Each module's tests are found by its name, or by a row of the tables here.

``app/tiles/views.py`` is tested in ``tests/app/tiles/test_views.py``, the client, which ships
by itself, in ``tests/client``. Where one file shows
more by testing several modules together, ELSEWHERE names it; where nothing could fail, it
says so. A file of tests that is no mirror of a module has a row in ACROSS.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.mutants import modules as guarded
from tests.mutants.modules import mirror
from tests.server_process import ROOT

_CLIENT_POSTING = ("tests/client/losses/test_posting.py",)
_CLIENT_SOURCES = ("tests/client/losses/test_sources.py",)
_COMMAND = ("tests/app/command/test_main.py",)
_BACKENDS = ("tests/app/datasets/files/test_backends.py",)
_ARRAYS = ("tests/app/datasets/files/test_arrays.py",)
_ITEMS = ("tests/app/datasets/items/test_items.py",)
_DATASETS = ("tests/e2e/test_datasets.py",)
_DECODING = ("tests/app/decoding/test_pool.py",)
_OPENAPI = ("tests/contract/test_openapi.py",)
_POSTING = ("tests/app/losses/test_posting.py",)
_BATCHES = ("tests/app/pipelines/test_streaming.py",)
_CONNECTIONS = ("tests/app/server/test_connections.py",)
_BODIES = ("tests/app/server/test_bodies.py",)
_SERVE = ("tests/app/server/test_serve.py",)
_STORES = ("tests/app/state/test_stores.py",)
_BLOBS = ("tests/app/state/test_blobs.py", "tests/app/state/test_durable.py")
_POSTGRES = ("tests/app/state/test_postgres.py",)
_OBJECTS = ("tests/app/state/test_objects.py",)
_UPLOADS = ("tests/app/runs/uploads/test_uploads.py",)
_DIALECTS = ("tests/app/runs/uploads/test_tus.py", "tests/app/runs/uploads/test_ietf.py")
_RUN_ROUTES = ("tests/app/runs/routes/test_runs.py",)
_RUN_STORE = ("tests/app/runs/test_store.py",)
_SHIMS = ("tests/app/oasis/shims/test_starting.py",)
_SHIMMED_TABLES = ("tests/app/oasis/shims/test_event_tables.py",)
_SEALING = ("tests/app/runs/sealing/test_sealer.py",)
_RUN_ROWS = ("tests/app/runs/rows/test_reader.py",)
_RUN_REPORTS = ("tests/app/runs/results/test_computing.py",)
_DATAIO = ("tests/core/compat/test_dataio.py",)
_SHUFFLE = ("tests/core/iterate/test_shuffle.py",)
_READER = ("tests/core/losses/test_reader.py",)
_ANALYSIS = ("tests/core/losses/test_analysis.py",)
_FAULTS = ("tests/core/losses/test_faults.py",)
_KERNELS = ("tests/core/losses/test_kernels.py",)
_SUMMARIES = ("tests/core/losses/summaries/test_summariser.py",)
_SUMMARISE = ("tests/app/command/test_summarise.py",)
_LEDGER = ("tests/core/losses/ledger/test_ledger.py",)
_WHOLE_RUNS = ("tests/core/losses/reports/test_whole_runs.py",)
_PROGRAMMES = ("tests/core/portfolio/test_inuring.py",)
_PIPELINE = ("tests/core/pipelines/test_pipeline.py",)
_READING = ("tests/core/tiles/test_reading.py",)
_FORMATS = ("tests/core/tiles/test_formats.py", "tests/core/tiles/test_formats_refused.py")
_PICTURES = ("tests/app/losses/pictures/test_drawing.py",)
_OASIS = ("tests/app/oasis/test_aggregation.py",)
_OASIS_RUNNER = ("tests/app/oasis/model_package/test_supplier_model_runner.py",)
_OASIS_SERVICE = ("tests/app/oasis/model_package/test_thalweg_service.py",)
_OASIS_FAULTS = ("tests/app/oasis/test_faults.py",)
_PARTS = "the parts of a product, put together in app/main.py; held by mypy"
_TYPES = "types and constants"
_WARM = ("tests/core/test_warmup.py",)

_LOSS_TABLES = ("tests/core/portfolio/test_tables.py",)

ELSEWHERE: dict[str, tuple[str, ...] | str] = {
    "core/portfolio/_kernels/beta.py": ("tests/core/portfolio/test_elt.py",),
    "core/portfolio/assembling.py": _LOSS_TABLES,
    "core/portfolio/columns.py": _LOSS_TABLES,
    "core/portfolio/importing.py": _LOSS_TABLES,
    "core/portfolio/losses.py": _TYPES,
    "app/client/command/completion.py": ("tests/client/command/test_listing.py",),
    "app/client/command/": ("tests/client/command/test_main.py",),
    "app/client/datasets/": ("tests/client/datasets/test_blocking.py",),
    "app/client/doors/addresses.py": ("tests/client/doors/test_xarray.py",),
    "app/client/files/async_downloads.py": ("tests/client/files/test_downloads.py",),
    "app/client/losses/": _CLIENT_POSTING,
    "app/client/losses/async_sources.py": _CLIENT_SOURCES,
    "app/client/losses/readers.py": _CLIENT_SOURCES,
    "app/client/runs/": ("tests/client/runs/test_uploading.py",),
    "app/client/pipelines/": ("tests/client/pipelines/test_blocking.py",),
    "app/client/tiles/lazy.py": ("tests/client/doors/test_lazy.py",),
    "app/client/tiles/": ("tests/client/tiles/test_stream.py",),
    "app/client/torch/": ("tests/torch/test_torch.py",),
    "app/client/transport/": (
        "tests/client/transport/test_http.py",
        "tests/client/test_async_client.py",
    ),
    "app/command/": _COMMAND,
    "app/command/oasis.py": _OASIS,
    "app/run_errors.py": ("tests/app/test_errors.py",),
    "app/times.py": ("tests/app/test_settings.py",),
    "app/service_error.py": ("tests/app/test_errors.py",),
    "app/retention.py": ("tests/e2e/test_storage.py",),
    "app/portfolio/": (
        "tests/app/portfolio/test_answering.py",
        "tests/app/portfolio/test_making.py",
    ),
    "app/client/portfolios/": ("tests/client/portfolios/test_blocking.py",),
    "app/runs/describing.py": _UPLOADS,
    "app/runs/records.py": _RUN_STORE,
    "app/runs/results/files.py": (*_SEALING, "tests/app/runs/test_sweeping.py"),
    "app/runs/results/segments.py": _RUN_REPORTS,
    "app/runs/routes/reports.py": _SEALING,
    "app/runs/routes/uploads.py": _UPLOADS,
    "app/runs/rows/": _RUN_ROWS,
    "app/runs/sealing/": _SEALING,
    "app/runs/service.py": _PARTS,
    "app/runs/spec.py": _RUN_ROUTES,
    "app/runs/uploads/upload_protocol.py": _DIALECTS,
    "app/runs/uploads/sources.py": _UPLOADS,
    "app/state/connections.py": _POSTGRES,
    "app/state/object_layout.py": _OBJECTS,
    "app/state/object_service.py": _OBJECTS,
    "app/oasis/tied_curves.py": ("tests/app/oasis/test_comparing.py",),
    "app/oasis/confirming.py": _OASIS_FAULTS,
    "app/oasis/model_package/thalweg_script.py": _OASIS_RUNNER,
    "app/oasis/runner.py": _OASIS_RUNNER,
    "app/oasis/service_plan.py": _OASIS_SERVICE,
    "app/datasets/files/buffered.py": _BACKENDS,
    "app/datasets/files/holding.py": ("tests/app/datasets/files/test_file_set.py",),
    "app/datasets/files/visits.py": (
        "tests/app/datasets/files/test_roots.py",
        "tests/app/datasets/test_scanning.py",
    ),
    "app/datasets/files/zarr_source.py": _ARRAYS,
    "app/datasets/items/": _ITEMS,
    "app/datasets/opened.py": _ARRAYS,
    "app/datasets/opening.py": _ARRAYS,
    "app/datasets/routes.py": _DATASETS,
    "app/decoding/": _DECODING,
    "app/decoding/worker/": (*_ARRAYS, *_ITEMS),
    "app/engine/base.py": ("tests/app/losses/test_analyses.py",),
    "app/engine/request_budget.py": ("tests/app/engine/test_budgets.py",),
    "app/http/answers.py": ("tests/app/pipelines/test_routes.py", *_DATASETS),
    "app/http/media_types.py": ("tests/app/http/test_negotiation.py",),
    "app/http/openapi.py": _OPENAPI,
    "app/logs.py": _COMMAND,
    "app/losses/arrow_tables.py": ("tests/app/losses/test_tables.py",),
    "app/losses/encoding.py": _POSTING,
    "app/losses/inputs.py": ("tests/app/losses/test_routes.py",),
    "app/losses/pictures/": _PICTURES,
    "app/losses/pipes.py": ("tests/app/losses/test_outputs.py",),
    "app/losses/request.py": (*_POSTING, "tests/app/losses/test_options.py"),
    "app/losses/schemas.py": _OPENAPI,
    "app/losses/service.py": _PARTS,
    "app/oasis/shims/environment.py": _SHIMS,
    "app/oasis/shims/options.py": _SHIMS,
    "app/oasis/shims/reading.py": _SHIMMED_TABLES,
    "app/oasis/shims/tables.py": _SHIMMED_TABLES,
    "app/oasis/shims/loss_tables.py": (
        *_SHIMMED_TABLES,
        "tests/app/oasis/shims/test_annual_losses.py",
        "tests/app/oasis/shims/test_exceedance.py",
    ),
    "app/pipelines/arrays.py": ("tests/app/pipelines/test_registry.py",),
    "app/pipelines/opened.py": (*_BATCHES, "tests/app/pipelines/test_registry.py"),
    "app/pipelines/sources.py": ("tests/app/pipelines/test_registry.py",),
    "app/server/drain.py": (*_SERVE, "tests/e2e/test_drain.py"),
    "app/server/protocol.py": _CONNECTIONS,
    "app/state/base.py": _STORES,
    "app/state/blob_files.py": _BLOBS,
    "app/state/blob_pieces.py": _BLOBS,
    "app/state/sql.py": _STORES,
    "app/state/sqlite.py": _STORES,
    "app/state/sqlite_schema.py": _STORES,
    "app/tiles/routes_reductions.py": _DATASETS,
    "app/tiles/routes_zarr.py": _DATASETS,
    "app/tiles/service.py": _PARTS,
    "core/_sources.py": ("tests/core/test_jit.py",),
    "core/_linking.py": ("tests/core/test_jit.py", "tests/core/tiles/test_decoders.py"),
    "core/arrays.py": _TYPES,
    "core/compat/checkpoints.py": (
        *_DATAIO,
        "tests/core/compat/test_emloop.py",
        "tests/core/compat/infinibatch/test_checkpoints.py",
    ),
    "core/compat/dataio/": _DATAIO,
    "core/compat/errors.py": _DATAIO,
    "core/compat/infinibatch/_base.py": ("tests/core/compat/infinibatch/test_checkpoints.py",),
    "core/compat/infinibatch/_bucketed.py": ("tests/core/compat/infinibatch/test_items.py",),
    "core/compat/infinibatch/_prefetch.py": ("tests/core/compat/infinibatch/test_workers.py",),
    "core/compat/infinibatch/_random.py": ("tests/core/compat/infinibatch/test_shuffles.py",),
    "core/compat/infinibatch/iterators.py": ("tests/core/compat/infinibatch/test_items.py",),
    "core/iterate/arrow_sink.py": ("tests/core/iterate/test_sinks.py",),
    "core/iterate/blocks.py": _SHUFFLE,
    "core/iterate/columns.py": ("tests/core/iterate/test_sinks.py",),
    "core/portfolio/_kernels/adding.py": ("tests/core/portfolio/test_combining.py",),
    "core/portfolio/_kernels/attributing.py": ("tests/core/portfolio/test_contributions.py",),
    "core/portfolio/_kernels/moments.py": ("tests/core/portfolio/test_curves.py",),
    "core/portfolio/_kernels/references.py": ("tests/core/portfolio/test_combining.py",),
    "core/portfolio/_kernels/resampling.py": ("tests/core/portfolio/test_uncertainty.py",),
    "core/losses/_kernels/seen.py": ("tests/core/losses/test_seen.py",),
    "core/losses/_kernels/": (*_KERNELS, *_FAULTS),
    "core/losses/_kernels/annual.py": _WHOLE_RUNS,
    "core/losses/_kernels/cells.py": _LEDGER,
    "core/losses/_kernels/indexing.py": (
        "tests/core/losses/test_indexing.py",
        "tests/core/losses/test_sections.py",
    ),
    "core/losses/_kernels/curves.py": ("tests/core/losses/ledger/test_curves.py", *_WHOLE_RUNS),
    "core/losses/_kernels/exact.py": _LEDGER,
    "core/losses/_kernels/exceedance.py": _WHOLE_RUNS,
    "core/losses/_kernels/groups.py": _LEDGER,
    "core/losses/_kernels/references.py": (*_LEDGER, "tests/core/losses/ledger/test_originals.py"),
    "core/losses/_kernels/spreading.py": ("tests/core/losses/ledger/test_curves.py",),
    "core/losses/_kernels/stretches.py": (*_LEDGER, "tests/core/losses/ledger/test_partials.py"),
    "core/losses/_kernels/summary_blocks.py": _SUMMARIES,
    "core/losses/_kernels/summary_sums.py": _SUMMARIES,
    "core/losses/events.py": (*_READER, *_ANALYSIS),
    "core/losses/finishing.py": _LEDGER,
    "core/losses/format.py": _TYPES,
    "core/losses/inputs/": ("tests/core/losses/test_inputs.py",),
    "core/losses/inputs/text_tables.py": (
        "tests/core/losses/inputs/test_summary_info.py",
        "tests/core/losses/inputs/test_summary_map.py",
    ),
    "core/losses/ledger/": _LEDGER,
    "core/losses/receiver.py": (*_ANALYSIS, *_SUMMARIES),
    "core/losses/reports/annual.py": _WHOLE_RUNS,
    "core/losses/reports/drawing.py": _WHOLE_RUNS,
    "core/losses/reports/exceedance.py": _WHOLE_RUNS,
    "core/losses/reports/": (*_ANALYSIS, "tests/core/losses/test_outputs.py"),
    "core/losses/scanner.py": (*_READER, *_ANALYSIS, *_FAULTS),
    "core/losses/summaries/item_partitions.py": (
        *_SUMMARISE,
        "tests/core/losses/summaries/test_set_reports.py",
    ),
    "core/losses/warm.py": _WARM,
    "core/portfolio/_kernels/averages.py": _PROGRAMMES,
    "core/portfolio/_kernels/layers.py": _PROGRAMMES,
    "core/portfolio/_kernels/windows.py": _PROGRAMMES,
    "core/portfolio/layers.py": _PROGRAMMES,
    "core/portfolio/tails.py": ("tests/core/portfolio/test_contributions.py",),
    "core/pipelines/": _PIPELINE,
    "core/rng/kernels.py": ("tests/core/rng/test_keys.py",),
    "core/tiles/_kernels/correct.py": (*_READING, "tests/core/tiles/test_ranges.py"),
    "core/tiles/_kernels/reduce.py": ("tests/core/tiles/test_reduce.py",),
    "core/tiles/_kernels/unpack.py": ("tests/core/tiles/test_decoders.py",),
    "core/tiles/convert.py": _READING,
    "core/tiles/formats/": _FORMATS,
    "core/tiles/frames.py": _READING,
    "core/tiles/packing.py": ("tests/core/tiles/test_decoders.py",),
    "core/tiles/reader.py": _READING,
    "core/tiles/recording.py": _READING,
}
"""Modules, or folders for those without a row or mirror: their tests, or why there are none."""

ACROSS: dict[str, str] = {
    "tests/app/command/test_service.py": "the settings that serve starts with",
    "tests/app/command/test_summarising.py": "summaries by one thread and by all cores",
    "tests/app/datasets/test_in_buckets.py": "datasets in a bucket, against those in a directory",
    "tests/app/engine/test_kept.py": "what app/engine/ledger.py keeps to save time",
    "tests/app/engine/test_results.py": "results of app/engine/workers.py",
    "tests/app/engine/test_cluster_units.py": "a cluster of threads, whose workers do not die",
    "tests/app/datasets/test_bucket_servers.py": "datasets in object stores that run here",
    "tests/app/state/test_object_servers.py": "blobs in object stores that run here",
    "tests/app/oasis/shims/test_summary_sets.py": "summary sets, prepared and from their xref",
    "tests/client/tiles/test_options.py": "views as Python describes them",
    "tests/client/transport/test_answers.py": "success and refusal, and frames of other answers",
    "tests/client/doors/test_lazy.py": "views as arrays of dask and xarray, by the service itself",
    "tests/client/files/test_durable.py": "what a power failure leaves of every kind of file",
    "tests/client/losses/test_sets.py": "reports of summary sets, from the service itself",
    "tests/client/losses/test_service.py": "posts to the service itself, cut and uncut",
    "tests/client/tiles/test_service.py": "datasets of the service itself, cut, killed, changed",
    "tests/app/datasets/files/test_arrays.py": "HDF5 files and zarr stores, against NumPy",
    "tests/app/console/test_datasets.py": "pages of datasets, from a running service",
    "tests/app/datasets/items/test_items.py": "every format of items, under one contract",
    "tests/app/datasets/files/test_object_reads.py": "app/datasets/files/backends.py, of buckets",
    "tests/app/datasets/files/test_cursors.py": "places in app/datasets/files/seekable.py",
    "tests/app/datasets/test_own_decoders.py": "decoders of the operator's own, on opening",
    "tests/app/decoding/test_fetched.py": "bytes a worker asks for, of app/decoding/watch.py",
    "tests/app/decoding/test_limits.py": "limits of app/decoding/base.py",
    "tests/app/decoding/test_hostile_files.py": "files made to harm, with and without a service",
    "tests/app/decoding/test_mutated_files.py": "damaged files through a service, and by scan",
    "tests/app/http/test_bad_codings.py": "compressed bodies, from the socket to the answer",
    "tests/app/http/test_site.py": "the documentation, as app/http/routes_operations.py sends it",
    "tests/app/health/test_loop_lag.py": "waits of event loops and threads, app/health/monitor.py",
    "tests/app/http/test_owners.py": "every route, by whose things it is asked about",
    "tests/app/oasis/shims/test_annual_losses.py": "the tool aalpy",
    "tests/app/oasis/shims/test_event_tables.py": "the tools eltpy and pltpy",
    "tests/app/oasis/shims/test_exceedance.py": "the tool lecpy",
    "tests/app/oasis/shims/test_replay.py": "the script of a run, with all executables",
    "tests/app/oasis/test_readme.py": "the page for users of Oasis, executed",
    "tests/app/oasis/test_faults.py": "runs that cannot be trusted, by their commands",
    "tests/app/losses/pictures/test_averages.py": "a sheet of app/losses/pictures/sheets.py",
    "tests/app/losses/pictures/test_exceedance.py": "a sheet of app/losses/pictures/sheets.py",
    "tests/app/pipelines/test_encoding.py": "single batches of app/pipelines/streaming.py",
    "tests/app/pipelines/test_hostile_sizes.py": "random pipelines of hostile sizes",
    "tests/app/losses/test_bad_streams.py": "faults of streams, however they are posted",
    "tests/app/losses/test_posted_sets.py": "reports of summary sets, however they are posted",
    "tests/app/losses/test_bad_tokens.py": "tokens of posts, forged, foreign, of other data",
    "tests/app/runs/test_failing_stores.py": "stores read-only, full or damaged; clocks that jump",
    "tests/app/runs/test_readme.py": "the page about runs, executed",
    "tests/app/runs/test_uploading_page.py": "the page about uploads by each client, executed",
    "tests/app/server/test_bodies.py": "bodies however they arrive and are read",
    "tests/app/server/test_connections.py": "connections and their limits",
    "tests/app/server/lanes/test_moves.py": "connections that move between lanes",
    "tests/app/state/test_damaged_records.py": "one damaged record, beside which all goes on",
    "tests/app/state/test_stores.py": "every store, under one contract",
    "tests/core/losses/ledger/test_curves.py": "long curves, against NumPy",
    "tests/app/portfolio/test_imports.py": "tables of losses in every encoding",
    "tests/client/portfolios/test_exchanging.py": "tables of loss sets, there and back",
    "tests/core/portfolio/test_worked_examples.py": "programmes that others have published",
    "tests/core/losses/reports/test_whole_runs.py": "reports of whole runs, against the oracle",
    "tests/core/compat/infinibatch/test_checkpoints.py": "every iterator, under one contract",
    "tests/core/compat/test_dataio.py": "the package, under the names it has elsewhere",
    "tests/core/iterate/test_metered.py": "stages under a budget",
    "tests/core/iterate/test_profile.py": "stages that are timed",
    "tests/core/iterate/test_resume.py": "every stage, under one contract",
    "tests/core/losses/test_checking.py": "an analysis without a report",
    "tests/core/losses/test_fuzz.py": "damaged streams",
    "tests/core/losses/test_inputs.py": "auxiliary files, each form of each",
    "tests/core/losses/test_inputs_refused.py": "auxiliary files with faults",
    "tests/core/losses/test_kernels.py": "kernels against NumPy",
    "tests/core/losses/test_position.py": "passes that continue from any place of a stream",
    "tests/core/losses/inputs/test_periods.py": "core/losses/inputs/occurrence.py",
    "tests/core/losses/inputs/test_return_periods.py": "core/losses/inputs/points.py",
    "tests/core/losses/inputs/test_summary_info.py": "core/losses/inputs/text_tables.py",
    "tests/core/losses/inputs/test_summary_map.py": "core/losses/inputs/text_tables.py",
    "tests/core/losses/test_period_tables.py": "reports of periods, against an oracle",
    "tests/app/tiles/test_codecs.py": "codecs of app/tiles/encoding.py",
    "tests/app/tiles/test_partials.py": "the store of app/tiles/reductions.py",
    "tests/app/tiles/test_schemas.py": "views in app/tiles/routes.py, as OpenAPI has them",
    "tests/app/tiles/test_tokens.py": "tokens of app/tiles/encoding.py",
    "tests/core/tiles/test_wide.py": "sums of core/tiles/convert.py",
    "tests/core/tiles/test_orders.py": "orders of views, frozen",
    "tests/core/tiles/test_arrays.py": "core/tiles/formats/arrays.py",
    "tests/core/tiles/test_decoders.py": "decoders of formats, and of one's own",
    "tests/core/tiles/test_detect.py": "core/tiles/formats/__init__.py",
    "tests/core/tiles/test_formats.py": "every format, under one contract",
    "tests/core/tiles/test_formats_fuzz.py": "damaged files",
    "tests/core/tiles/test_formats_peer.py": "files that other programs wrote",
    "tests/core/tiles/test_formats_refused.py": "files with faults",
    "tests/core/tiles/test_peer_bugs.py": "faults that other readers have",
    "tests/core/tiles/test_reading.py": "views of every kind, against NumPy",
    "tests/core/tiles/test_ser.py": "core/tiles/formats/ser.py",
}
"""Files of tests that mirror no module, and their subject."""


def modules() -> Iterator[str]:
    """Modules of app and core, but for those that only name a package."""
    for folder in ("app", "core"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            name = str(path.relative_to(ROOT))
            if path.name not in {"__init__.py", "__main__.py"}:
                yield name


def row_of(module: str) -> str | None:
    """The key of the table that a module falls under: its own, or its nearest folder's."""
    folders = [f"{parent}/" for parent in Path(module).parents]
    return next((key for key in (module, *folders) if key in ELSEWHERE), None)


def has_mirror(module: str) -> bool:
    return (ROOT / mirror(module)).is_file()


def importers(module: str) -> list[str]:
    """Files of tests that import a module: candidates for its row."""
    dotted = module.removesuffix(".py").replace("/", ".")
    found = []
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        nodes = list(ast.walk(ast.parse(path.read_bytes())))
        names = {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
        names |= {a.name for node in nodes if isinstance(node, ast.Import) for a in node.names}
        if dotted in names:
            found.append(str(path.relative_to(ROOT)))
    return found


def test_every_module_has_its_tests_or_a_row() -> None:
    unknown = [name for name in modules() if not has_mirror(name) and row_of(name) is None]
    assert not unknown, {name: (mirror(name), importers(name)) for name in unknown}


def test_every_row_is_needed() -> None:
    needed = {row_of(name) for name in modules() if not has_mirror(name)}
    assert set(ELSEWHERE) - needed == set()


def test_every_file_that_a_row_names_is_there() -> None:
    named = {test for row in ELSEWHERE.values() if not isinstance(row, str) for test in row}
    assert sorted(name for name in named if not (ROOT / name).is_file()) == []


def test_every_file_of_tests_mirrors_a_module_or_has_a_row() -> None:
    mirrors = {mirror(name) for name in modules()}
    folders = (ROOT / "tests/app", ROOT / "tests/client", ROOT / "tests/core")
    files = {str(f.relative_to(ROOT)) for top in folders for f in top.rglob("test_*.py")}
    assert files - mirrors == set(ACROSS)


def test_changes_are_tried_against_the_tests_of_their_module() -> None:
    for module in guarded.MODULES:
        row = ELSEWHERE.get(row_of(module) or "", ())
        own = {mirror(module)} if has_mirror(module) else set(row)
        assert own & set(guarded.tests_of(module)), module
