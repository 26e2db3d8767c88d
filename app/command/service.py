"""The commands ``serve`` and ``openapi``."""

from __future__ import annotations

import argparse
import os
import sys

import orjson
import structlog
from pydantic import ValidationError

from app.logs import configure_logging
from app.settings import Settings, unknown_variables
from app.state.base import StorageError
from app.wording import wording
from core.errors import OptionError

from . import serving
from .parser import FLAGS


def serve(args: argparse.Namespace) -> int:
    """Serve until a signal; return the exit code."""
    try:
        settings = settings_of(args)
        configure_logging(settings.log_level)
        for name, nearest in unknown_variables(os.environ):
            structlog.get_logger().warning(
                "this variable is not a setting and is ignored", variable=name, nearest=nearest
            )
        return serving.run_server(settings)
    except ValidationError as e:
        raise OptionError(sentence_of(e)) from e
    except (ValueError, StorageError) as e:
        raise OptionError(str(e)) from e


def settings_of(args: argparse.Namespace) -> Settings:
    """Return the settings that options and variables say.

    Raises:
        ValidationError: they cannot be.
    """
    names = [*FLAGS, "scan", "allow_anonymous", "ephemeral", "log_level"]
    options = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    return Settings(**options)


def sentence_of(error: ValidationError) -> str:
    """Say in one line what is wrong with settings, without their values: some are secret."""
    found = error.errors(include_url=False, include_input=False)
    sentences = []
    for each in found:
        names = [f"THALWEG_{str(name).upper()}" for name in each["loc"][:1]]
        sentences.append(("".join(names) + wording(each)).removeprefix(": "))
    return "; ".join(sentences)


def openapi(_args: argparse.Namespace) -> int:
    """Print the OpenAPI document."""
    from app.main import create_app  # noqa: PLC0415 - seconds that the supervisor saves

    with serving.kept(Settings(ephemeral=True)) as settings:
        document = create_app(settings).openapi()
    sys.stdout.buffer.write(orjson.dumps(document, option=orjson.OPT_INDENT_2) + b"\n")
    return 0
