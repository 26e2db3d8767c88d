"""Import this to have the service's modules and kernels in memory."""

from app.server.memory import raise_malloc_thresholds

# As the service does, before anything starts a thread.
raise_malloc_thresholds()

# FastAPI imports it with the first route: a tenth of a second of each process that serves.
import pydantic.v1  # noqa: E402, F401

import app.main  # noqa: E402, F401 - to have it
from core.warmup import warm_up  # noqa: E402
from tests.scale import PURE_PYTHON  # noqa: E402

if not PURE_PYTHON:
    warm_up()
