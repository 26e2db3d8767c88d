"""Import this to have the service's modules and kernels in memory."""

import app.main  # noqa: F401 - to have it
from core.warmup import warm_up
from tests.scale import PURE_PYTHON

if not PURE_PYTHON:
    warm_up()
