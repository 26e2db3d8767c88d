"""Settings come from variables and flags, and reach every worker the same."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from app import settings
from app.command.parser import FLAGS
from app.command.serving import unknown_variables
from app.settings import MAX_NUMBER, MAX_SECONDS, Settings
from app.times import MAX_DAYS

A, B, C = (64 * digit for digit in "aB0")


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("THALWEG_"):
            monkeypatch.delenv(name)


def test_variables_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THALWEG_API_KEYS", f"alice:{A}, {B}")
    monkeypatch.setenv("THALWEG_DATA_DIR", "/data")
    monkeypatch.setenv("THALWEG_BODY_SECONDS", "12.5")
    settings = Settings()
    assert settings.api_keys == (f"alice:{A}", B)
    assert settings.data_dir == Path("/data")
    assert settings.body_seconds == 12.5


def test_flags_come_before_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THALWEG_PORT", "9000")
    assert Settings().port == 9000
    assert Settings(port=0).port == 0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("port", "70000"), ("workers", "0"), ("log_level", "loud"), ("buffers", "x")],
        *[("api_keys", "alice:zz"), ("api_keys", f"{A}:alice"), ("api_keys", f"{A},{A}0")],
        *[("api_keys", f"alice:{A},bob:{A}"), ("api_keys", f"alice:{B},{B.lower()}")],
        *[("public_url", "foo"), ("public_url", "ftp://foo"), ("public_url", "http://")],
        *[("traces", "collector:4318"), ("traces_sample", "1.1"), ("traces_sample", "nan")],
        *[("access_log", "combined"), ("traces", "ftp://collector")],
        *[("trusted_proxies", "10.0.0.0/33"), ("trusted_proxies", "10.0.0.1, proxy")],
        *[("cors_origins", "example.com"), ("cors_origins", "https://example.com/")],
        *[("public_url", "//foo"), ("public_url", "http://foo/?a=b"), ("public_url", "http://f o")],
    ],
)
def test_values_that_cannot_be_are_refused(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"THALWEG_{name.upper()}", value)
    with pytest.raises(ValidationError):
        Settings()


def test_the_variable_of_a_kubernetes_service_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("THALWEG_PORT", "tcp://10.0.0.1:8000")
    with pytest.raises(ValidationError, match="enableServiceLinks: false"):
        Settings()


def test_an_empty_url_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THALWEG_PUBLIC_URL", "")
    assert not Settings().public_url


def numbers() -> list[tuple[str, float]]:
    """Settings that are numbers, and the most that each may be."""
    found: list[tuple[str, float]] = []
    for name, field in Settings.model_fields.items():
        kind = str(field.annotation)
        if "float" in kind and name not in {"owner_share", "traces_sample"}:
            found.append((name, MAX_DAYS if name.endswith("_days") else MAX_SECONDS))
        elif name in {"max_samples", "max_blocks"}:
            found.append((name, 2**31 - 1))
        elif name.startswith(("quota_", "max_", "request_", "spool_")):
            found.append((name, MAX_NUMBER))
    return found


@pytest.mark.parametrize(("name", "most"), numbers())
def test_times_and_sizes_have_an_end(
    name: str, most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"THALWEG_{name.upper()}", str(most))
    assert getattr(Settings(), name) == most
    for value in (str(most + 1), "inf", "1e300", "nan"):
        monkeypatch.setenv(f"THALWEG_{name.upper()}", value)
        with pytest.raises(ValidationError, match=name):
            Settings()


def test_flags_are_settings() -> None:
    assert set(FLAGS) <= set(Settings.model_fields)


def test_secrets_may_be_in_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    api_keys, token_keys = tmp_path / "api", tmp_path / "token"
    api_keys.write_text(f"# clients\nalice:{A}\n\n  {B},{C} \n")
    token_keys.write_text("1:sign:" + "00" * 32)
    monkeypatch.setenv("THALWEG_API_KEYS_FILE", str(api_keys))
    settings = Settings(token_keys_file=token_keys)
    assert settings.api_keys == (f"alice:{A}", B, C)
    assert settings.token_keys == ("1:sign:" + "00" * 32,)


def test_files_of_secrets_that_cannot_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "keys"
    monkeypatch.setenv("THALWEG_API_KEYS_FILE", str(path))
    with pytest.raises(ValidationError, match="api_keys_file cannot be read"):
        Settings()
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ValidationError, match="api_keys_file cannot be read"):
        Settings()
    for empty in ("", "# keys of the team\n\n", " , \n"):
        path.write_text(empty)
        with pytest.raises(ValidationError, match="api_keys_file holds no key"):
            Settings()
    path.write_text(f"alice:{A}")
    with pytest.raises(ValidationError, match="exclude each other"):
        Settings(api_keys=(B,))


def test_variables_that_are_no_settings_are_found() -> None:
    others = ("URL", "KEY", "KERNEL_CACHE", "SOAK", "PEER_PYTHON", "OASIS_URL", "AGGREGATE_OPTIONS")
    known = [*others, "PORT", "QUOTA_RUNS", "API_KEYS_FILE"]
    names = [f"THALWEG_{name}" for name in known] + ["PATH", "thalweg_port", "HALWEG_PORT"]
    assert list(unknown_variables(names)) == []
    unknown = ["THALWEG_ZZZ", "THALWEG_QUOTA_RUN", "THALWEG_WORKER"]
    assert list(unknown_variables(unknown)) == [
        ("THALWEG_QUOTA_RUN", "THALWEG_QUOTA_RUNS"),
        ("THALWEG_WORKER", "THALWEG_WORKERS"),
        ("THALWEG_ZZZ", None),
    ]


@pytest.mark.parametrize(
    ("text", "size"), [("64MiB", 64 << 20), ("1 GiB", 1 << 30), ("100MB", 100_000_000)]
)
def test_sizes_have_units(monkeypatch: pytest.MonkeyPatch, text: str, size: int) -> None:
    for name in ("MEMORY_LIMIT", "QUOTA_RUN_BYTES"):
        monkeypatch.setenv(f"THALWEG_{name}", text)
    settings = Settings()
    assert settings.memory_limit == settings.quota_run_bytes == size
    monkeypatch.setenv("THALWEG_MAX_REQUESTS", text)
    with pytest.raises(ValueError, match="max_requests"):
        Settings()


@pytest.mark.parametrize(
    ("values", "match"),
    [
        ({"state": "s3://bucket"}, "80 conditional writes"),
        ({"state": "mysql://host/db"}, "sqlite: or postgres://"),
        ({"blobs": "ftp://host"}, "s3://bucket"),
        ({"ephemeral": True, "state": "postgres://host/db"}, "it keeps nothing"),
        ({"ephemeral": True, "blobs": "s3://bucket"}, "it keeps nothing"),
    ],
)
def test_stores_that_cannot_be_named(values: dict[str, Any], match: str) -> None:
    with pytest.raises(ValidationError, match=match):
        Settings(**values)


def test_every_setting_reaches_the_service() -> None:
    """One that nothing asks for has no effect; those that are asked for by name end so."""
    root = Path(settings.__file__).parent
    code = "\n".join(p.read_text() for p in root.rglob("*.py") if p.name != "settings.py")
    by_name = re.compile(r"quota_|.*_file$")
    names = (name for name in Settings.model_fields if not by_name.match(name))
    assert [name for name in names if not re.search(rf"\.{name}\b", code)] == []


def test_the_state_may_be_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("postgres://user:secret@host/db\n")
    assert Settings(state_file=tmp_path / "state").state == "postgres://user:secret@host/db"


def test_a_size_that_is_none_is_told_how_sizes_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THALWEG_MEMORY_LIMIT", "8Mx")
    with pytest.raises(ValidationError, match="a size is as 8MiB, 1 GB or 8388608"):
        Settings()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"engine": "ray"}, "it must be local, dask:tcp://host:port"),
        ({"engine": "dask:host:1"}, "it must be local, dask:tcp://host:port"),
        ({"engine": "dask:tls://host:1"}, "needs THALWEG_ENGINE_TLS_CA"),
    ],
)
def test_an_engine_that_cannot_be_reached_is_refused(values: dict[str, str], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Settings(**values)  # type: ignore[arg-type]
