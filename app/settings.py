"""Everything that can be set, from ``THALWEG_…`` variables or flags, with its default."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

Names = Annotated[tuple[str, ...], NoDecode]
"""Several values, separated by commas in a variable."""

MIB = 1 << 20


class Settings(BaseSettings):
    """The service's settings; passed on, never global."""

    model_config = SettingsConfigDict(env_prefix="THALWEG_", frozen=True, extra="ignore")

    host: str = "127.0.0.1"
    port: int = Field(default=8000, ge=0, le=65535)
    workers: int = Field(default=1, ge=1, le=256)
    """Processes that serve."""
    threads: int | None = Field(default=None, ge=1, le=256)
    """Threads of a process that parse and encode; default: its share of the cores."""
    data_dir: Path = Path("thalweg-data")
    """Where inputs, the token key and waiting rows are kept."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    dataset_roots: str = ""
    """Directories that datasets' files may lie in, separated as in PATH; none: none."""
    scan: bool = False
    """Whether recordings under the roots are datasets without being registered."""
    catalogue: Path | None = None
    """TOML file of datasets that are always there."""
    read_buffers: int = Field(default=16, ge=1)
    """Buffers of 1 MiB for reading what is not wanted whole."""

    public_url: str | None = None
    """How clients reach the service; default: as the request says."""
    trusted_proxies: str | None = None
    """Addresses whose X-Forwarded headers are believed, comma separated, or ``*``."""
    cors_origins: Names = ()
    api_keys: Names = ()
    """SHA-256 of each key that is let in, as ``thalweg-server key`` prints it; a name may
    come before it: ``alice:9f86…``. None: everybody is let in."""
    token_keys: Names = ()
    """``id:sign|accept|refresh-only:64 hexadecimal digits``; default: made once and kept
    in the data directory."""

    buffers: int = Field(default=512, ge=2)
    """Buffers of ``buffer_bytes`` that requests may hold at once, two each."""
    buffer_bytes: int = Field(default=MIB, ge=4096, le=64 * MIB)
    spool_memory: int = Field(default=8 * MIB, ge=0)
    """Bytes of rows of one request that wait in memory; more wait on disk."""
    spool_limit: int = Field(default=64 << 30, ge=MIB)
    """Bytes of rows of one request that may wait in all."""
    max_body: int | None = Field(default=None, ge=1)
    """Bytes of a loss stream in one request, as sent and as decoded; default: any."""
    max_input: int = Field(default=128 * MIB, ge=1)
    """Bytes of an auxiliary file, decoded."""
    input_days: float = Field(default=7.0, gt=0)
    """Days an auxiliary file is kept after its last use."""
    max_samples: int = Field(default=200_000, ge=1)
    max_blocks: int = Field(default=1 << 22, ge=1)

    header_bytes: int = Field(default=64 << 10, ge=1024)
    header_seconds: float = Field(default=10.0, gt=0)
    idle_seconds: float = Field(default=30.0, gt=0)
    """A body that brings no byte for so long is given up."""
    body_seconds: float | None = Field(default=None, gt=0)
    """A body may take so long in all; default: any time."""
    write_seconds: float = Field(default=60.0, gt=0)
    """A client that takes no byte of its answer for so long is given up."""
    keep_alive_seconds: float = Field(default=15.0, gt=0)
    drain_seconds: float = Field(default=20.0, ge=0)
    """Running requests may go on for so long after a request to stop."""
    drain_delay: float = Field(default=0.0, ge=0)
    """Seconds between readiness turning 503 and no longer taking connections."""

    @field_validator("cors_origins", "api_keys", "token_keys", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:  # noqa: ANN401 - text or a sequence
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(",") if part.strip())
        return value

    def environment(self) -> dict[str, str]:
        """The variables that give a worker process the same settings."""
        prefix = self.model_config["env_prefix"].upper()
        values = self.model_dump(mode="json", exclude_none=True)
        return {
            prefix + name.upper(): ",".join(value) if isinstance(value, list) else str(value)
            for name, value in values.items()
        }
