"""All settings and their defaults, from ``THALWEG_…`` variables or command line options."""

from __future__ import annotations

import re
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import ByteSize, Field, TypeAdapter, ValidationInfo, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from app.times import MAX_DAYS

Names = Annotated[tuple[str, ...], NoDecode]
"""Several values, comma-separated in a variable."""

MIB = 1 << 20
MAX_SECONDS = 366 * 86_400
"""Longest time limit: timers take no time without end."""
MAX_NUMBER = 1 << 60
"""Most bytes or things: products and shares of them are numbers of a machine."""
SECRETS = ("api_keys", "token_keys", "state")
"""Settings that a file may hold, named by the setting with ``_file`` after it."""
METRICS_DIRECTORY = "PROMETHEUS_MULTIPROC_DIR"
"""Variable with the directory through which workers share their metrics; the library of the
metrics reads it when it is imported."""
OBJECT_SCHEMES = ("s3", "gs", "az")
"""Beginnings of the addresses of object stores."""
_NO_END = "none"
_LIFETIMES = ("view_days", "pipeline_days", "dataset_days", "run_days", "loss_set_days")
"""Settings that may have no end."""
PREFIX = "THALWEG_"
"""Beginning of the variables."""
_SIZES = (
    *("decoder_memory", "memory_limit", "request_memory", "spool_memory", "spool_limit"),
    *("max_body", "max_upload", "max_input", "min_rate"),
)
"""Settings in bytes, besides those whose names say so."""
_SIZE = re.compile(r"[0-9.]+ ?([kKMGT]i?B?|B)")
_BYTES = TypeAdapter(ByteSize)
_ORIGIN = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/\s]+")
_API_KEY = re.compile(r"(.*:)?\s*[0-9A-Fa-f]{64}")


class Settings(BaseSettings):
    """The settings of the service; passed as an argument, never global."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="ignore")

    host: str = "127.0.0.1"
    port: int = Field(default=8000, ge=0, le=65535)
    workers: int | None = Field(default=None, ge=1, le=256)
    """Number of processes for long work; default: as ``lanes`` says."""
    lanes: str = "auto"
    """Processes by lane, such as ``front=1,quick=1,long=2``; ``auto`` for one for long work for
    each core; ``one`` for a single process that serves all requests."""
    long_nice: int = Field(default=7, ge=0, le=19)
    """By how much the processes of the lane for long work are nicer than the others. Beside a
    foreign program on every core, long work has a quarter of its speed with 7, a sixth with 10."""
    threads: int | None = Field(default=None, ge=1, le=256)
    """Compute threads per process; default: its share of the cores."""
    data_dir: Path = Path("thalweg-data")
    """Directory for inputs, registered resources, the token key and spooled rows."""
    state: str = "sqlite:"
    """Where small state is kept: ``sqlite:`` for a file in the data directory, or the address of a
    Postgres database, which other nodes may share, as ``postgres://user@host/database``."""
    state_file: Path | None = None
    """File that holds ``state`` instead, as it may have a password."""
    blobs: str = "file:"
    """Where streams, inputs and reports are kept: ``file:`` for files in the data directory, or the
    address of an object store, as ``s3://bucket/prefix``; its credentials are those of the
    environment, such as ``AWS_ACCESS_KEY_ID``."""
    engine: str = "local"
    """What does heavy work: ``local`` for this machine, or the workers of a Dask scheduler at
    ``dask:tcp://host:port`` or ``dask:tls://host:port``."""
    engine_tls_ca: Path | None = None
    """Certificate of the authority that scheduler and workers are to have theirs from."""
    engine_tls_cert: Path | None = None
    """Certificate of this process for them."""
    engine_tls_key: Path | None = None
    """Its key."""
    engine_wait_seconds: float = Field(default=30.0, gt=0)
    """How long work waits for a scheduler that is lost, or has no worker, until it is refused."""
    shared_roots: str = ""
    """Those of ``dataset_roots`` that workers have at the same paths; what is elsewhere is reduced
    on this machine."""
    ephemeral: bool = False
    """Whether to keep nothing: state in a private directory, and a token key, that end with the
    service."""
    reserve_bytes: int = Field(default=256 * MIB, ge=0)
    """Bytes of the data directory's disk that nothing new may take, at most a tenth of it."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    audit_log: str = "log"
    """Where a line per change of state goes: ``log`` for the log of the service, ``none``, or
    the path of a file."""
    access_log: Literal["json", "off"] = "json"
    """Whether the log of the service has a line for each request."""
    traces: str | None = None
    """URL of an OTLP/HTTP receiver of traces, such as ``http://collector:4318``; default: as
    ``OTEL_EXPORTER_OTLP_ENDPOINT`` says."""
    traces_sample: float = Field(default=0.1, ge=0, le=1)
    """Part of the requests that are traced, where a request does not say so by ``traceparent``."""

    dataset_roots: str = ""
    """Directories and buckets that may hold the files of datasets, separated as in PATH; ``~`` is
    the home directory of the service's user."""
    scan: bool = False
    """Whether to serve recordings under the roots without registration."""
    max_entries: int = Field(default=200_000, ge=1)
    """Maximum directory entries looked at to find the files of a dataset, or in a scan of a
    root."""
    catalogue: Path | None = None
    """TOML catalogue of datasets."""
    read_buffers: int = Field(default=16, ge=1)
    """Number of 1 MiB buffers for reading parts of datasets; every process has as many of them, and
    one at least."""

    decoders: int = Field(default=2, ge=1, le=64)
    """Processes that decode HDF5, zarr, parquet and Arrow."""
    decoder_memory: int = Field(default=1024 * MIB, ge=64 * MIB)
    """Memory of each of them in bytes."""
    decoder_seconds: float = Field(default=10.0, gt=0)
    """Time limit for one read of a file by them."""
    decoder_idle_seconds: float = Field(default=60.0, gt=0)
    """Time after which an idle one is stopped."""
    decoder_sandbox: Literal["auto", "require", "off"] = "auto"
    """``auto`` uses Landlock and seccomp where the kernel has them, ``require`` decodes
    nothing without them, ``off`` uses neither."""

    public_url: str | None = None
    """URL under which clients reach the service; default: as the request states it."""
    trusted_proxies: str | None = None
    """Addresses whose X-Forwarded headers are trusted, comma-separated, or ``*``."""
    cors_origins: Names = ()
    """Web origins that may call the service."""
    hosts: Names = ()
    """Further host names of a service without keys, besides addresses, names without a dot and that
    of ``public_url``; ``*`` for any, where something in front of it checks them."""
    api_keys: Names = ()
    """SHA-256 digests of the API keys, as ``thalweg-server key`` prints them, each
    optionally after a name: ``alice:9f86…``. Without any, here or stored, there is a single
    user."""
    api_keys_file: Path | None = None
    """File that holds ``api_keys``, one on each line, instead."""
    console: Literal["on", "off"] = "on"
    """Whether there are pages for people at ``/`` and below ``/console``."""
    docs_site: Path | None = None
    """File that ``make docs`` has packed, to be served below ``/docs/``; default: the one of the
    installation, if it has one."""
    allow_anonymous: bool = False
    """Whether to listen on other addresses than loopback without API keys."""
    open_metrics: bool = False
    """Whether ``/metrics`` needs no API key."""
    token_keys: Names = ()
    """``id:sign|accept|refresh-only:64 hexadecimal digits``; default: a key generated once
    and stored in the data directory."""
    token_keys_file: Path | None = None
    """File that holds ``token_keys``, one on each line, instead."""

    memory_limit: int = Field(default=2048 * MIB, ge=16 * MIB)
    """Maximum bytes that all requests hold together."""
    owner_share: float = Field(default=0.7, gt=0, le=1)
    """Part of memory, buffers, requests and connections that one owner may have."""
    max_requests: int = Field(default=1024, ge=1)
    """Maximum requests in progress."""
    max_connections: int = Field(default=4096, ge=1)
    """Maximum connections of a process."""
    owner_rate: float | None = Field(default=None, gt=0)
    """Requests per second of one owner, on average; default: no limit."""
    owner_burst: int = Field(default=100, ge=1)
    """Requests of one owner that may come at once where there is a rate."""
    min_rate: int = Field(default=1024, ge=0)
    """Minimum bytes per second of a JSON body or auxiliary file; of a loss stream only where
    its owner's share is spent."""
    buffers: int = Field(default=512, ge=2)
    """Number of read buffers; a posted body takes one while bytes arrive."""
    buffer_bytes: int = Field(default=MIB, ge=4096, le=64 * MIB)
    spool_memory: int = Field(default=8 * MIB, ge=0)
    """Maximum bytes of rows per request that wait in memory; further rows wait on disk."""
    spool_limit: int = Field(default=64 << 30, ge=MIB)
    """Maximum bytes of rows per request that wait in total."""
    max_body: int | None = Field(default=None, ge=1)
    """Maximum bytes of a posted loss stream, as sent and as decoded; default: no limit."""
    max_upload: int = Field(default=1 << 40, ge=1)
    """Maximum bytes of an uploaded stream of a run."""
    uploads_without_version: bool = True
    """Whether uploads are taken that name neither tus nor an interop version of the IETF draft,
    as the RFC will have them."""
    max_input: int = Field(default=128 * MIB, ge=1)
    """Maximum bytes of an auxiliary file, as sent and as decoded."""
    input_days: float = Field(default=7.0, gt=0)
    """Lifetime of an auxiliary file, or a segment of a reduction, after its last use, in days."""
    view_days: float | None = Field(default=30.0, gt=0)
    """Lifetime of a view after its last use, in days; ``none`` for no end."""
    pipeline_days: float | None = Field(default=30.0, gt=0)
    """Lifetime of a pipeline after its last use, in days; ``none`` for no end."""
    dataset_days: float | None = Field(default=None, gt=0)
    """Lifetime of a registered dataset after its last use, in days; ``none`` for no end."""
    run_days: float | None = Field(default=30.0, gt=0)
    """Maximum lifetime of a run after its last change, in days; ``none`` for no end."""
    loss_set_days: float | None = Field(default=365.0, gt=0)
    """Lifetime of a loss set after its last use, in days; ``none`` for no end."""
    quota_runs: int = Field(default=10_000, ge=0)
    """Maximum runs per owner."""
    quota_run_bytes: int = Field(default=256 * MIB, ge=0)
    """Maximum bytes of the descriptions of runs per owner."""
    quota_streams: int = Field(default=100_000, ge=0)
    """Maximum streams per owner, of all runs together."""
    quota_stream_bytes: int = Field(default=1 << 40, ge=0)
    """Maximum bytes of uploaded streams per owner."""
    quota_segments: int = Field(default=100_000, ge=0)
    """Maximum partial sums of segments of streams per owner, of all runs together."""
    quota_segment_bytes: int = Field(default=256 << 30, ge=0)
    """Maximum bytes of partial sums per owner."""
    quota_reports: int = Field(default=100_000, ge=0)
    """Maximum files of reports per owner, of all runs together."""
    quota_report_bytes: int = Field(default=256 << 30, ge=0)
    """Maximum bytes of files of reports per owner."""
    quota_inputs: int = Field(default=10_000, ge=0)
    """Maximum auxiliary files per owner."""
    quota_input_bytes: int = Field(default=16 << 30, ge=0)
    """Maximum bytes of auxiliary files per owner."""
    quota_views: int = Field(default=10_000, ge=0)
    """Maximum views per owner."""
    quota_view_bytes: int = Field(default=64 * MIB, ge=0)
    """Maximum bytes of the specs of views per owner."""
    quota_pipelines: int = Field(default=10_000, ge=0)
    """Maximum pipelines per owner."""
    quota_pipeline_bytes: int = Field(default=64 * MIB, ge=0)
    """Maximum bytes of the specs of pipelines per owner."""
    quota_datasets: int = Field(default=10_000, ge=0)
    """Maximum registered datasets per owner."""
    quota_dataset_bytes: int = Field(default=64 * MIB, ge=0)
    """Maximum bytes of the entries of registered datasets per owner."""
    quota_loss_sets: int = Field(default=1000, ge=0)
    """Maximum loss sets per owner."""
    quota_loss_set_bytes: int = Field(default=256 << 30, ge=0)
    """Maximum bytes of loss sets per owner."""
    max_groups: int = Field(default=10_000, ge=1)
    """Maximum groups of a query of loss sets."""
    portfolio_bytes: int = Field(default=1024 * MIB, ge=0)
    """Maximum bytes of opened loss sets and prepared groups that stay in memory."""
    quota_spool_bytes: int = Field(default=256 << 30, ge=0)
    """Maximum bytes of rows per owner that wait on disk, of all requests together."""
    max_samples: int = Field(default=200_000, ge=1, le=2**31 - 1)
    """Largest accepted len_sample of a loss stream."""
    max_blocks: int = Field(default=1 << 22, ge=1, le=2**31 - 1)
    """Maximum blocks per event of a loss stream."""

    request_memory: int = Field(default=1024 * MIB, ge=16 * MIB)
    """Maximum bytes of items, tiles or rows that a request holds while it computes."""
    request_cpu_seconds: float = Field(default=60.0, gt=0)
    """Maximum CPU time of a request since it last made progress: a batch or tile, or bytes of
    a posted stream."""
    request_items: int = Field(default=1 << 28, ge=1)
    """Maximum items that the stages of a pipeline look at for one batch."""

    header_bytes: int = Field(default=64 << 10, ge=1024)
    """Maximum bytes of request line and headers."""
    header_seconds: float = Field(default=10.0, gt=0)
    """Time limit for the headers of a request."""
    idle_seconds: float = Field(default=30.0, gt=0)
    """Time limit for a body that sends no byte."""
    body_seconds: float | None = Field(default=None, gt=0)
    """Time limit for a whole body; default: no limit."""
    write_seconds: float = Field(default=60.0, gt=0)
    """Time limit for a client that takes no byte of its answer."""
    keep_alive_seconds: float = Field(default=15.0, gt=0)
    """Time limit for an idle connection."""
    drain_seconds: float = Field(default=20.0, ge=0)
    """Grace period of running requests at shutdown."""
    drain_delay: float = Field(default=0.0, ge=0)
    """Seconds between turning unready and refusing connections at shutdown."""

    @model_validator(mode="before")
    @classmethod
    def _read_files(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Replace the names of files of secrets by what they hold."""
        for name in SECRETS:
            path = values.pop(f"{name}_file", None)
            if path is None:
                continue
            if values.get(name):
                raise ValueError(f"{name} and {name}_file exclude each other")
            try:
                lines = Path(path).read_text().splitlines()
            except (OSError, UnicodeDecodeError) as e:
                raise ValueError(f"{name}_file cannot be read: {e}") from e
            held = [
                line for line in lines if line.strip(" ,") and not line.lstrip().startswith("#")
            ]
            if not held:
                # Without keys everybody could do everything, which nobody means who names a file.
                raise ValueError(f"{name}_file holds no {name.rpartition('_')[2].rstrip('s')}")
            values[name] = ",".join(held)
        return values

    @field_validator("*", mode="before")
    @classmethod
    def _with_units(cls, value: Any, info: ValidationInfo) -> Any:  # noqa: ANN401 - any setting
        """Take sizes such as 8MiB or 1 GB."""
        name = str(info.field_name)
        if not isinstance(value, str) or not (name.endswith("_bytes") or name in _SIZES):
            return value
        if _SIZE.fullmatch(value.strip()):
            return int(_BYTES.validate_python(value.strip()))
        if value.strip()[:1].isdigit() and not value.strip().isdigit():
            raise ValueError("a size is as 8MiB, 1 GB or 8388608")
        return value

    @field_validator(*_LIFETIMES, mode="before")
    @classmethod
    def _no_end(cls, value: Any) -> Any:  # noqa: ANN401 - text or a number
        return None if value == _NO_END else value

    @field_validator("port", mode="before")
    @classmethod
    def _no_link(cls, value: Any) -> Any:  # noqa: ANN401 - text or a number
        if isinstance(value, str) and "://" in value:
            raise ValueError(
                "Kubernetes sets it to a URL for a service named thalweg: set"
                " enableServiceLinks: false in the pod"
            )
        return value

    @field_validator("cors_origins", "hosts", "api_keys", "token_keys", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:  # noqa: ANN401 - text or a sequence
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(",") if part.strip())
        return value

    @field_validator("trusted_proxies")
    @classmethod
    def _check_proxies(cls, value: str | None) -> str | None:
        for name in (part.strip() for part in (value or "").split(",")):
            if name not in {"", "*"}:
                try:
                    ip_network(name, strict=False)
                except ValueError as e:
                    raise ValueError(
                        f"{name[:60]!r} is no address or network, such as 10.0.0.0/8"
                    ) from e
        return value

    @field_validator("cors_origins")
    @classmethod
    def _check_origins(cls, value: Names) -> Names:
        for origin in value:
            if origin not in {"*", "null"} and not _ORIGIN.fullmatch(origin):
                raise ValueError(f"{origin[:60]!r} is no origin, such as https://example.com")
        return value

    @field_validator("*")
    @classmethod
    def _bound(cls, value: Any, info: ValidationInfo) -> Any:  # noqa: ANN401 - any setting
        """Refuse numbers that times and sizes cannot be computed with."""
        if isinstance(value, int | float):
            most = MAX_NUMBER if isinstance(value, int) else MAX_SECONDS
            if str(info.field_name).endswith("_days"):
                most = MAX_DAYS
            if not value <= most:
                raise ValueError(f"it must be at most {most}")
        return value

    @field_validator("api_keys")
    @classmethod
    def _check_digests(cls, value: Names) -> Names:
        owners: dict[str, str] = {}
        for number, entry in enumerate(value, 1):
            if not _API_KEY.fullmatch(entry):
                raise ValueError(
                    f"entry {number} is not NAME:DIGEST or DIGEST, a SHA-256 digest of 64"
                    " hexadecimal digits as thalweg-server key prints it"
                )
            owner, digest = (part.strip() for part in entry.rpartition(":")[::2])
            if owners.setdefault(digest.lower(), owner) != owner:
                raise ValueError(f"entry {number} gives the key of an earlier one to another owner")
        return value

    @field_validator("state")
    @classmethod
    def _check_state(cls, value: str) -> str:
        scheme = urlsplit(value).scheme
        if scheme in OBJECT_SCHEMES:
            raise ValueError(
                "an object store makes about 80 conditional writes a second and cannot count what"
                " an owner has in the same write: use sqlite: or postgres://user@host/database, and"
                " THALWEG_BLOBS for the object store"
            )
        if value != "sqlite:" and scheme not in {"postgres", "postgresql"}:
            raise ValueError("it must be sqlite: or postgres://user@host/database")
        return value

    @field_validator("blobs")
    @classmethod
    def _check_blobs(cls, value: str) -> str:
        if value != "file:" and urlsplit(value).scheme not in OBJECT_SCHEMES:
            raise ValueError("it must be file:, s3://bucket, gs://bucket or az://container/prefix")
        return value

    @field_validator("engine")
    @classmethod
    def _check_engine(cls, value: str) -> str:
        parts = urlsplit(value.removeprefix("dask:"))
        known = value.startswith("dask:") and parts.scheme in {"tcp", "tls"} and parts.netloc
        if value != "local" and not known:
            raise ValueError("it must be local, dask:tcp://host:port or dask:tls://host:port")
        return value

    @field_validator("engine_tls_key")
    @classmethod
    def _check_engine_files(cls, value: Path | None, info: ValidationInfo) -> Path | None:
        files = info.data.get("engine_tls_ca"), info.data.get("engine_tls_cert"), value
        encrypts = str(info.data.get("engine")).startswith("dask:tls:")
        if encrypts and None in files:
            raise ValueError("dask:tls: needs THALWEG_ENGINE_TLS_CA, ..._TLS_CERT and ..._TLS_KEY")
        return value

    @field_validator("ephemeral")
    @classmethod
    def _check_lasting(cls, value: bool, info: ValidationInfo) -> bool:
        stores = info.data.get("state", "sqlite:"), info.data.get("blobs", "file:")
        if value and stores != ("sqlite:", "file:"):
            raise ValueError("it keeps nothing, but THALWEG_STATE or THALWEG_BLOBS names what does")
        return value

    @field_validator("public_url", "traces")
    @classmethod
    def _check_url(cls, value: str | None) -> str | None:
        # Compose files pass an empty one on, which is none.
        if value:
            parts = urlsplit(value)
            if parts.scheme not in {"http", "https"} or not parts.hostname or not _is_bare(value):
                raise ValueError(
                    "it must be an absolute URL such as https://losses.example/thalweg"
                )
        return value


def _is_bare(url: str) -> bool:
    """Whether a path can follow a URL."""
    return url.isascii() and url.isprintable() and not set(url) & set(" ?#")
