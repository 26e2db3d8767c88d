"""The modules that guard data, and the tests that each is run against.

The tests of ``app/tokens.py`` are in ``tests/app/test_tokens.py``, those of
``app/client/errors.py`` in ``tests/client/test_errors.py``: the folder with ``tests``
before it, the name with ``test_``. Where they are elsewhere, the table says where.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[2]

_STATE = ("tests/app/state/test_stores.py",)
_POSTGRES = ("tests/app/state/test_postgres.py",)
_OBJECTS = ("tests/app/state/test_objects.py",)
_BLOBS = ("tests/app/state/test_blobs.py", "tests/app/state/test_durable.py")
_FILES = ("tests/app/datasets/files/test_file_set.py",)
_BACKENDS = ("tests/app/datasets/files/test_backends.py",)
_ARRAYS = ("tests/app/datasets/files/test_arrays.py",)
_HOSTILE = ("tests/app/decoding/test_hostile_files.py",)
_TABLES = ("tests/app/datasets/items/test_items.py",)
_POOL = ("tests/app/decoding/test_pool.py",)
_DURABLE = ("tests/client/files/test_durable.py",)
_WORKER = ("tests/app/decoding/worker/test_serving.py",)
_POSTING = ("tests/app/losses/test_posting.py",)
_REGISTRY = ("tests/app/pipelines/test_registry.py",)
_READER = ("tests/core/losses/test_reader.py",)
_POSITION = ("tests/core/losses/test_position.py", *_READER)
_ANALYSIS = ("tests/core/losses/test_analysis.py",)
_FAULTS = ("tests/core/losses/test_faults.py",)
_VIEWS = ("tests/core/tiles/test_reading.py",)
_SHUFFLES = ("tests/core/iterate/test_shuffle.py",)
_STAGES = ("tests/core/iterate/test_positions.py", "tests/core/iterate/test_resume.py")
_PIPELINE = ("tests/core/pipelines/test_pipeline.py",)
_PROGRAMMES = (
    "tests/core/portfolio/test_programme.py",
    "tests/core/portfolio/test_inuring.py",
    "tests/core/portfolio/test_worked_examples.py",
)
_ANSWERS = ("tests/app/portfolio/test_answering.py",)
_TILES = ("tests/client/tiles/test_stream.py",)
_BATCHES = ("tests/client/pipelines/test_blocking.py",)

WHOLE = ("app/state", "app/decoding", "app/datasets/files")
"""Folders of which every module guards data."""

MODULES: dict[str, tuple[str, ...]] = {
    "app/tokens.py": (),
    "app/streams/driver.py": (),
    "app/streams/frames.py": (),
    "app/losses/tokens.py": ("tests/app/losses/test_tokens.py", *_POSTING),
    "app/http/cookies.py": (),
    "app/http/decompression.py": (),
    "app/http/guard.py": (
        "tests/app/http/test_guard.py",
        "tests/app/http/test_trail.py",
        "tests/app/http/test_owners.py",
        "tests/app/http/test_origins.py",
    ),
    "app/http/identity.py": (),
    "app/http/keys.py": (),
    "app/http/origins.py": (),
    "app/pipelines/tokens.py": ("tests/app/pipelines/test_tokens.py", *_REGISTRY),
    "app/losses/posting.py": _POSTING,
    "app/datasets/pinning.py": (),
    "app/tiles/reductions.py": (
        "tests/app/tiles/test_reductions.py",
        "tests/app/tiles/test_partials.py",
    ),
    "app/losses/request.py": (*_POSTING, "tests/app/losses/test_options.py"),
    "app/losses/selection.py": (),
    "app/state/base.py": _STATE,
    "app/datasets/files/backends.py": (
        "tests/app/datasets/files/test_mapped.py",
        "tests/app/datasets/files/test_object_reads.py",
        *_BACKENDS,
    ),
    "app/datasets/files/buffered.py": _BACKENDS,
    "app/datasets/files/buffers.py": (),
    "app/datasets/files/addresses.py": (),
    "app/datasets/files/buckets.py": (),
    "app/datasets/files/fetching.py": (),
    "app/datasets/files/holding.py": _FILES,
    "app/datasets/files/object_set.py": (),
    "app/datasets/files/objects.py": (),
    "app/datasets/files/places.py": (),
    "app/datasets/files/passing.py": (),
    "app/datasets/files/seekable.py": (
        "tests/app/datasets/files/test_seekable.py",
        "tests/app/datasets/files/test_cursors.py",
        *_TABLES,
    ),
    "app/datasets/permissions.py": (),
    "app/datasets/scanning.py": (),
    "app/datasets/files/file_set.py": (),
    "app/datasets/files/foreign.py": ("tests/app/datasets/files/test_foreign.py", *_HOSTILE),
    "app/datasets/files/hdf5.py": ("tests/app/datasets/files/test_hdf5.py", *_ARRAYS, *_HOSTILE),
    "app/datasets/files/identity.py": (
        "tests/app/datasets/files/test_identity.py",
        "tests/app/datasets/files/test_fingerprints.py",
        *_FILES,
    ),
    "app/datasets/files/mapped.py": (),
    "app/datasets/files/zarr_files.py": (
        "tests/app/datasets/files/test_zarr_files.py",
        *_ARRAYS,
    ),
    "app/datasets/files/zarr_source.py": (*_ARRAYS, *_HOSTILE),
    "app/decoding/base.py": (
        "tests/app/decoding/test_process.py",
        "tests/app/decoding/test_limits.py",
        *_POOL,
    ),
    "app/decoding/pool.py": (),
    "app/decoding/process.py": ("tests/app/decoding/test_process.py", *_POOL),
    "app/decoding/segments.py": (),
    "app/decoding/turns.py": ("tests/app/decoding/test_turns.py", *_POOL),
    "app/decoding/watch.py": (
        "tests/app/decoding/test_watch.py",
        "tests/app/decoding/test_fetched.py",
    ),
    "app/decoding/wire.py": (),
    "app/decoding/worker/codecs.py": (),
    "app/decoding/worker/hdf5_chunks.py": (
        "tests/app/decoding/worker/test_hdf5_chunks.py",
        *_ARRAYS,
    ),
    "app/decoding/worker/hdf5.py": (
        "tests/app/decoding/worker/test_hdf5.py",
        *_WORKER,
        *_ARRAYS,
        *_HOSTILE,
    ),
    "app/decoding/worker/hdf5_inside.py": (
        "tests/app/decoding/worker/test_hdf5.py",
        *_WORKER,
        *_ARRAYS,
        *_HOSTILE,
    ),
    "app/decoding/worker/landlock.py": (
        "tests/app/decoding/worker/test_landlock.py",
        "tests/app/decoding/worker/test_sandbox.py",
    ),
    "app/decoding/worker/octets.py": (),
    "app/decoding/worker/requests.py": (*_WORKER, *_ARRAYS),
    "app/decoding/worker/sandbox.py": (),
    "app/decoding/worker/seccomp.py": (
        "tests/app/decoding/worker/test_seccomp.py",
        "tests/app/decoding/worker/test_sandbox.py",
    ),
    "app/decoding/worker/serving.py": (),
    "app/decoding/worker/columns.py": (*_WORKER, *_TABLES),
    "app/decoding/worker/tables.py": (
        "tests/app/decoding/worker/test_tables.py",
        *_WORKER,
        *_TABLES,
    ),
    "app/decoding/worker/zarr.py": ("tests/app/decoding/worker/test_zarr.py", *_ARRAYS),
    "app/datasets/files/fingerprints.py": (
        "tests/app/datasets/files/test_fingerprints.py",
        *_FILES,
    ),
    "app/losses/input_store.py": (),
    "app/losses/outputs.py": (),
    "core/tiles/ranges.py": (
        "tests/core/tiles/test_ranges.py",
        *_BACKENDS,
    ),
    "app/datasets/files/roots.py": (),
    "app/datasets/files/visits.py": (
        "tests/app/datasets/files/test_roots.py",
        "tests/app/datasets/test_scanning.py",
    ),
    "app/datasets/items/segments.py": _TABLES,
    "app/datasets/items/tables.py": ("tests/app/datasets/items/test_tables.py", *_TABLES),
    "app/losses/spool.py": (),
    "app/state/api_keys.py": (),
    "app/state/blob_files.py": _BLOBS,
    "app/state/blob_pieces.py": _BLOBS,
    "app/state/blobs.py": (),
    "app/state/reservations.py": (),
    "app/command/state.py": ("tests/app/command/test_state.py",),
    "app/state/durable.py": (),
    "app/state/object_layout.py": _OBJECTS,
    "app/state/object_service.py": _OBJECTS,
    "app/state/objects.py": (),
    "app/state/connections.py": _POSTGRES,
    "app/state/postgres.py": (),
    "app/state/notices.py": ("tests/app/state/test_notices.py", *_POSTGRES),
    "app/state/ownership.py": (),
    "app/state/presence.py": (
        "tests/app/state/test_presence.py",
        "tests/app/state/test_reservations.py",
    ),
    "app/state/private.py": (),
    "app/state/quotas.py": (),
    "app/state/shares.py": (),
    "app/state/space.py": (),
    "app/state/sql.py": _STATE,
    "app/state/sqlite.py": _STATE,
    "app/state/sqlite_schema.py": _STATE,
    "app/state/storage.py": (
        "tests/app/state/test_storage.py",
        "tests/app/command/test_serving.py",
        "tests/app/state/test_space.py",
    ),
    "app/state/sweeper.py": (),
    "app/state/token_keys.py": (),
    "app/state/turns.py": (),
    "app/tally.py": (),
    "app/client/files/downloads.py": (),
    "app/client/files/outputs.py": ("tests/client/files/test_outputs.py", *_DURABLE),
    "app/client/files/state.py": ("tests/client/files/test_state.py", *_DURABLE),
    "app/client/losses/posting.py": (),
    "app/client/losses/rows.py": (
        "tests/client/losses/test_rows.py",
        "tests/client/losses/test_posting.py",
    ),
    "app/client/losses/saving.py": (),
    "app/client/losses/window.py": (),
    "app/client/pipelines/blocking.py": (),
    "app/client/pipelines/layout.py": ("tests/client/pipelines/test_layout.py", *_BATCHES),
    "app/client/pipelines/selection.py": _BATCHES,
    "app/client/pipelines/streams.py": _BATCHES,
    "app/client/tiles/plan.py": ("tests/client/tiles/test_plan.py", *_TILES),
    "app/client/tiles/saving.py": (),
    "app/client/tiles/stream.py": (*_TILES, "tests/client/tiles/test_streams.py"),
    "app/client/tiles/streams.py": ("tests/client/tiles/test_streams.py", *_TILES),
    "app/client/transport/channel.py": (
        "tests/client/transport/test_channel.py",
        "tests/client/datasets/test_blocking.py",
    ),
    "app/client/transport/frames.py": (),
    "app/client/transport/retry.py": (),
    "app/client/transport/streams.py": (),
    "core/rng/kernels.py": ("tests/core/rng/test_keys.py",),
    "core/rng/keys.py": ("tests/core/rng/test_keys.py",),
    "core/iterate/options.py": (
        "tests/core/iterate/test_options.py",
        "tests/core/iterate/test_transforms.py",
    ),
    "core/iterate/blocks.py": _SHUFFLES,
    "core/iterate/base.py": ("tests/core/iterate/test_base.py", *_STAGES),
    "core/iterate/limits.py": ("tests/core/iterate/test_limits.py",),
    "core/iterate/positions.py": (*_SHUFFLES, *_STAGES),
    "core/iterate/shuffle.py": (*_SHUFFLES, *_STAGES),
    "core/losses/_kernels/block.py": (*_POSITION, *_FAULTS, "tests/core/losses/test_kernels.py"),
    "core/losses/_kernels/seen.py": ("tests/core/losses/test_seen.py", *_READER),
    "core/losses/buffer.py": ("tests/core/losses/test_buffer.py", *_READER),
    "core/losses/header.py": (),
    "core/losses/merge.py": (),
    "core/losses/reader.py": _READER,
    "core/losses/scanner.py": (*_POSITION, *_ANALYSIS, *_FAULTS),
    "core/losses/seen.py": (),
    "core/losses/aggregators.py": ("tests/core/losses/test_aggregators.py", *_ANALYSIS),
    "core/pipelines/building.py": _PIPELINE,
    "core/pipelines/spec.py": ("tests/core/pipelines/test_spec.py", *_PIPELINE),
    "core/pipelines/stepping.py": _PIPELINE,
    "core/portfolio/_kernels/layers.py": _PROGRAMMES,
    "core/portfolio/_kernels/windows.py": _PROGRAMMES,
    "core/portfolio/contributions.py": (),
    "core/portfolio/layers.py": (*_PROGRAMMES, *_ANSWERS),
    "core/portfolio/programme.py": _PROGRAMMES,
    "core/portfolio/tails.py": ("tests/core/portfolio/test_contributions.py",),
    "core/portfolio/uncertainty.py": ("tests/core/portfolio/test_uncertainty.py", *_ANSWERS),
    "core/tiles/plan.py": ("tests/core/tiles/test_plan.py", *_VIEWS),
    "core/tiles/positions.py": ("tests/core/tiles/test_positions.py", *_VIEWS),
    "core/tiles/view.py": ("tests/core/tiles/test_view.py", *_VIEWS),
}
"""Tests of each; none for those where the name says."""


def tests_of(module: str) -> tuple[str, ...]:
    """The test files of a module."""
    return tuple(dict.fromkeys(MODULES[module] or (mirror(module),)))


def mirror(module: str) -> str:
    """Where the tests of a module are unless the table says otherwise."""
    path = PurePosixPath(module)
    folder = str(path.parent).replace("app/client", "client", 1)
    return f"tests/{folder}/test_{path.stem.lstrip('_')}.py"


def unguarded() -> list[str]:
    """Modules of the whole folders that the table lacks."""
    found = [path for folder in WHOLE for path in sorted((ROOT / folder).rglob("*.py"))]
    names = [str(path.relative_to(ROOT)) for path in found if not path.name.startswith("__")]
    return [name for name in names if name not in MODULES]


def missing() -> list[str]:
    """Modules and test files that are named here and are not there."""
    named = [*MODULES, *(test for module in MODULES for test in tests_of(module))]
    return [name for name in dict.fromkeys(named) if not (ROOT / name).is_file()]
