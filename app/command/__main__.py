"""Runs the command: ``python -m app.command``."""

import sys

from .main import main

sys.exit(main())
