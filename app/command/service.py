"""The commands ``serve``, ``openapi`` and ``key``."""

from __future__ import annotations

import argparse
import hashlib
import secrets
import sys
import tempfile
from pathlib import Path

import orjson
from pydantic import ValidationError

from app.settings import Settings
from app.telemetry import configure_logging
from core.errors import OptionError

from .parser import FLAGS


def serve(args: argparse.Namespace) -> int:
    """Serve until a signal; return the exit code."""
    from .serving import run_server  # noqa: PLC0415 - half a second that other commands save

    names = [*FLAGS, "scan", "log_level"]
    options = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    try:
        settings = Settings(**options)
        configure_logging(settings.log_level)
        return run_server(settings)
    except (ValidationError, ValueError) as e:
        raise OptionError(str(e)) from e


def openapi(_args: argparse.Namespace) -> int:
    """Print the OpenAPI document."""
    from app.main import create_app  # noqa: PLC0415 - as above

    with tempfile.TemporaryDirectory() as directory:
        document = create_app(Settings(data_dir=Path(directory))).openapi()
    sys.stdout.buffer.write(orjson.dumps(document, option=orjson.OPT_INDENT_2) + b"\n")
    return 0


def key(args: argparse.Namespace) -> int:
    """Generate an API key; print it with the digest that the server stores."""
    secret = secrets.token_urlsafe(32)
    digest = hashlib.sha256(secret.encode()).hexdigest()
    print(f"key for the client:   {secret}")  # noqa: T201 - the command's output
    print(f"for THALWEG_API_KEYS: {args.name}:{digest}")  # noqa: T201 - as above
    return 0
