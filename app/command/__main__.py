"""Run the command as ``python -m app.command``."""

import sys

from .main import main

sys.exit(main())
