"""The modules that guard data, and the tests that each is run against.

The tests of ``app/tokens.py`` are in ``tests/app/test_tokens.py``, those of
``app/client/_frames.py`` in ``tests/client/test_frames.py``: the folder with ``tests``
before it, the name with ``test_``. Where they are elsewhere, the table says where.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[2]

_STATE = ("tests/app/storage/test_state.py",)
_BACKENDS = ("tests/app/storage/test_backends.py",)
_FILES = ("tests/app/storage/test_files.py",)
_POSTING = ("tests/app/services/test_posting.py",)
_BATCHES = ("tests/app/services/test_pipelines.py",)
_READER = ("tests/core/losses/test_reader.py",)
_POSITION = ("tests/core/losses/test_position.py", *_READER)
_ANALYSIS = ("tests/core/losses/test_analysis.py",)
_FAULTS = ("tests/core/losses/test_faults.py",)
_VIEWS = ("tests/core/tiles/test_reading.py",)
_SHUFFLES = ("tests/core/iterate/test_shuffles.py",)
_STAGES = ("tests/core/iterate/test_stages.py", "tests/core/iterate/test_resume.py")
_PIPELINE = ("tests/core/test_pipeline.py",)
_TILES = ("tests/client/test_tiles.py",)

MODULES: dict[str, tuple[str, ...]] = {
    "app/tokens.py": (),
    "app/wire.py": (),
    "app/services/checkpoints.py": ("tests/app/services/test_checkpoints.py", *_POSTING),
    "app/services/decoding.py": (),
    "app/services/pipeline_tokens.py": ("tests/app/services/test_tile_tokens.py", *_BATCHES),
    "app/services/posting.py": _POSTING,
    "app/services/reductions.py": (),
    "app/services/requests.py": _POSTING,
    "app/services/tile_tokens.py": (),
    "app/storage/base.py": _STATE,
    "app/storage/files.py": (),
    "app/storage/fingerprints.py": ("tests/app/storage/test_fingerprints.py", *_FILES),
    "app/storage/inputs.py": (),
    "app/storage/outputs.py": (),
    "app/storage/partials.py": (),
    "app/storage/ranges.py": ("tests/app/storage/test_ranges.py", *_BACKENDS),
    "app/storage/roots.py": (),
    "app/storage/segments.py": ("tests/app/storage/test_item_sources.py",),
    "app/storage/spool.py": (),
    "app/storage/state_memory.py": _STATE,
    "app/storage/state_sqlite.py": _STATE,
    "app/storage/token_keys.py": ("tests/app/storage/test_inputs.py",),
    "app/storage/turns.py": (),
    "app/client/_frames.py": (),
    "app/client/_outputs.py": (),
    "app/client/_plan.py": ("tests/client/test_plan.py", *_TILES),
    "app/client/_posting.py": (),
    "app/client/_raw.py": _TILES,
    "app/client/_resume.py": (),
    "app/client/_retry.py": (),
    "app/client/_rows.py": ("tests/client/test_rows.py", "tests/client/test_posting.py"),
    "app/client/_saving.py": (),
    "app/client/_tile_files.py": _TILES,
    "app/client/_window.py": (),
    "core/_rng_kernels.py": ("tests/core/test_rng.py",),
    "core/rng.py": (),
    "core/iterate/_kernels/blocks.py": _SHUFFLES,
    "core/iterate/_kernels/reservoir.py": _SHUFFLES,
    "core/iterate/blocks.py": _SHUFFLES,
    "core/iterate/inorder.py": ("tests/core/iterate/test_inorder.py", *_STAGES),
    "core/iterate/limits.py": ("tests/core/iterate_ends/test_limits.py",),
    "core/iterate/positions.py": (*_SHUFFLES, *_STAGES),
    "core/iterate/shuffle.py": (*_SHUFFLES, *_STAGES),
    "core/losses/_kernels/block.py": (*_POSITION, *_FAULTS),
    "core/losses/_kernels/seen.py": ("tests/core/losses/test_seen.py", *_READER),
    "core/losses/buffer.py": _READER,
    "core/losses/header.py": (),
    "core/losses/merge.py": (),
    "core/losses/reader.py": _READER,
    "core/losses/scanner.py": (*_POSITION, *_ANALYSIS, *_FAULTS),
    "core/losses/seen.py": (),
    "core/losses/snapshots.py": ("tests/core/losses/test_aggregators.py", *_ANALYSIS),
    "core/pipelines/building.py": _PIPELINE,
    "core/pipelines/spec.py": _PIPELINE,
    "core/pipelines/stepping.py": _PIPELINE,
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


def missing() -> list[str]:
    """Modules and test files that are named here and are not there."""
    named = [*MODULES, *(test for module in MODULES for test in tests_of(module))]
    return [name for name in dict.fromkeys(named) if not (ROOT / name).is_file()]
