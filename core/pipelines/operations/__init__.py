"""The table of stages, the only place that lists all of them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from ..stage import Operation
from .batches import BATCH, BUCKET_BATCH, DELAY, EPOCH, LIMIT, PAD, PREFETCH
from .items import FILTER, MAP, SCAN, SELECT_MANY
from .positions import PERMUTE, REPEAT, SHARD, SHUFFLE, SPLIT, WINDOW
from .sources import MIX, SOURCE, ZIP

__all__ = ["ALIASES", "OPERATIONS"]

_OF_ITEMS = (SHARD, SPLIT, PERMUTE, REPEAT, SHUFFLE, MAP, FILTER, SELECT_MANY, WINDOW, SCAN)
_OF_BATCHES = (BATCH, BUCKET_BATCH, PAD, EPOCH, LIMIT, PREFETCH, DELAY)
_ROWS = (SOURCE, ZIP, MIX, *_OF_ITEMS, *_OF_BATCHES)
OPERATIONS: Final[Mapping[str, Operation]] = MappingProxyType({row.name: row for row in _ROWS})
"""Every stage, by its name in a spec."""

ALIASES: Final[Mapping[str, str]] = {"collate": "pad"}
"""Other names of stages; canonical JSON uses the names in ``OPERATIONS``."""
