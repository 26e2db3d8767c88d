"""Import this to have the service's modules and kernels in memory."""

from app.server.memory import raise_malloc_thresholds

# As the service does, before anything starts a thread.
raise_malloc_thresholds()

from core.warmup import warm_up  # noqa: E402
from tests.quick_routes import prepare  # noqa: E402
from tests.scale import PURE_PYTHON  # noqa: E402

# With what FastAPI imports for its first route.
prepare()
if not PURE_PYTHON:
    warm_up()
