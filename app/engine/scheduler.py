"""Where the scheduler of a cluster is, and how it is reached."""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from distributed import Security

_FILES = "THALWEG_ENGINE_TLS_CA, ..._TLS_CERT and ..._TLS_KEY"


@dataclass(frozen=True, slots=True)
class Scheduler:
    """A scheduler of Dask."""

    address: str
    """``tcp://host:port``, or ``tls://host:port``."""
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None

    def security(self) -> Security:
        """Return how Dask is to encrypt, and whom it is to believe."""
        from distributed import Security  # noqa: PLC0415 - an extra

        if not self.address.startswith("tls://"):
            return Security()
        files = {
            f"tls_{role}_{part}": str(path)
            for role in ("client", "worker")
            for part, path in (("cert", self.certificate), ("key", self.key))
        }
        return Security(tls_ca_file=str(self.ca), require_encryption=True, **files)

    def reach(self, seconds: float = 5.0) -> None:
        """Connect once, to learn what no waiting would mend.

        Raises:
            ValueError: a file cannot be used, or one side does not believe the other.
            OSError: nothing answers in time.
        """
        place = urlsplit(self.address)
        context = self._context()
        with socket.create_connection((place.hostname, place.port or 0), seconds) as plain:
            if context is not None:
                self._shake_hands(context, plain)

    def _context(self) -> ssl.SSLContext | None:
        try:
            context: ssl.SSLContext | None
            context = self.security().get_connection_args("client").get("ssl_context")
        except OSError as e:
            raise ValueError(f"{_FILES} cannot be used: {e}") from e
        return context

    def _shake_hands(self, context: ssl.SSLContext, plain: socket.socket) -> None:
        try:
            with context.wrap_socket(plain) as secure:
                # By TLS 1.3 only who reads learns that its certificate is refused.
                secure.recv(1)
        except ssl.SSLCertVerificationError as e:
            raise ValueError(
                f"the certificate of the scheduler {self.address} is none of the authority in"
                f" THALWEG_ENGINE_TLS_CA, {self.ca}: {e.verify_message}"
            ) from e
        except ssl.SSLError as e:
            raise ValueError(
                f"the scheduler {self.address} refuses THALWEG_ENGINE_TLS_CERT,"
                f" {self.certificate}, or does not encrypt: {e.reason}"
            ) from e
