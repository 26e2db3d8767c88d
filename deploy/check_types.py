"""Run mypy, which takes a quarter less time if nobody looks for garbage.

What it allocates, it keeps to its end. It asks for few collections, but they go through millions
of objects each, and it turns them on again after it has read its cache.
"""

from __future__ import annotations

import gc
import sys

from mypy.main import main

gc.disable()
gc.enable = gc.disable
main(args=sys.argv[1:], clean_exit=True)
