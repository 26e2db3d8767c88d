"""Certificates of authorities of the tests' own, made by ``openssl``."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

_NEW = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-batch")


class Certificate(NamedTuple):
    """A certificate and its key, in files."""

    certificate: Path
    key: Path


def certificate(directory: Path, name: str, issuer: Certificate | None = None) -> Certificate:
    """Make a certificate that an issuer signs; without one, that of an authority."""
    program = shutil.which("openssl")
    if program is None:
        pytest.skip("no openssl on this machine (apt-get install openssl)")
    made = Certificate(directory / f"{name}.pem", directory / f"{name}.key")
    signed = () if issuer is None else ("-CA", issuer.certificate, "-CAkey", issuer.key)
    subprocess.run(
        [
            *(program, "req", "-x509", *_NEW, "-days", "1", "-subj", f"/CN={name}", *signed),
            *("-addext", f"basicConstraints=critical,CA:{'FALSE' if issuer else 'TRUE'}"),
            *("-out", made.certificate, "-keyout", made.key),
        ],
        check=True,
        capture_output=True,
    )
    return made
