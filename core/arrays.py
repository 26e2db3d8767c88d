"""Types of arrays that several packages share."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
"""Of any dtype."""
Mask = npt.NDArray[np.bool_]
Octets = npt.NDArray[np.uint8]
Indices = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Words = npt.NDArray[np.uint64]
"""Random bits."""
Rows = npt.NDArray[np.void]
"""Records: the rows of a table, or the blocks of a stream."""
