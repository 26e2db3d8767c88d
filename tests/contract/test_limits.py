"""The page of limits: settings, defaults, codes and tests are the real ones."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from app.errors import _CORE, _SERVICE, _SETTINGS, KINDS, ServiceError
from app.settings import Settings
from core.losses.policy import Policy

ROOT = Path(__file__).parents[2]
NO_LIMITS = {
    *(
        "host",
        "port",
        "workers",
        "lanes",
        "long_nice",
        "threads",
        "data_dir",
        "ephemeral",
        "log_level",
        "audit_log",
        "access_log",
        "traces",
        "traces_sample",
        "blobs",
        "state",
        "state_file",
    ),
    *("dataset_roots", "scan", "catalogue", "decoder_sandbox", "public_url", "trusted_proxies"),
    *(
        "cors_origins",
        "hosts",
        "api_keys",
        "api_keys_file",
        "allow_anonymous",
        "open_metrics",
        "console",
        "docs_site",
    ),
    *("token_keys", "token_keys_file", "uploads_without_version"),
    *("engine", "engine_tls_ca", "engine_tls_cert", "engine_tls_key", "shared_roots"),
}
"""Settings that limit nothing a client does."""
_UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


class Row(NamedTuple):
    name: str
    value: str
    answer: str
    bounded: str
    test: str


def rows() -> list[Row]:
    found = []
    for line in (ROOT / "deploy" / "LIMITS.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| `"):
            assert len(cells) == 5, line
            found.append(Row(cells[0].strip("`"), *cells[1:]))
    return found


TOO_LARGE: list[type[Exception]] = [
    *(kind for kind, (status, _) in _SERVICE.items() if status == 413),
    *(kind for kind, (status, _) in _CORE.items() if status == 413),
]


def written() -> Iterator[tuple[Path, ast.AST]]:
    """All that the code of the service says."""
    for path in sorted((ROOT / "app").rglob("*.py")):
        if "client" not in path.parts:
            for node in ast.walk(ast.parse(path.read_text())):
                yield path, node


ROWS = rows()
SETTINGS = {row.name.lower(): row for row in ROWS if ":" not in row.name}
CONSTANTS = {row.name: row for row in ROWS if ":" in row.name}


def shown(value: float | None, *, is_bytes: bool) -> str:
    """A limit as the page has it."""
    if value is None:
        return "none"
    if is_bytes:
        for size, unit in _UNITS:
            if value >= size and not value % size:
                return f"{value // size:,.0f} {unit}"
    return f"{value:,.0f}" if value == int(value) else str(value)


def is_bytes(name: str) -> bool:
    last = name.lower().rpartition(":")[2]
    return last.endswith(("_bytes", "_memory")) or last in {
        *("spool_limit", "max_body", "max_input", "max_upload", "_limit", "max_line", "max_value"),
        *("memory_limit", "min_rate"),
    }


def test_every_setting_is_on_the_page_or_limits_nothing() -> None:
    assert set(SETTINGS) | NO_LIMITS == set(Settings.model_fields)
    assert not set(SETTINGS) & NO_LIMITS
    assert len(SETTINGS) + len(CONSTANTS) == len(ROWS)


@pytest.mark.parametrize("name", SETTINGS)
def test_defaults_are_the_real_ones(name: str) -> None:
    default = Settings.model_fields[name].default
    assert SETTINGS[name].value == shown(default, is_bytes=is_bytes(name))


@pytest.mark.parametrize("name", CONSTANTS)
def test_constants_are_the_real_ones(name: str) -> None:
    module, _, path = name.partition(":")
    value = importlib.import_module(module)
    for part in path.split("."):
        value = getattr(value, part)
    assert CONSTANTS[name].value == shown(value, is_bytes=is_bytes(name))  # type: ignore[arg-type]


@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_answers_are_problems_with_their_status(row: Row) -> None:
    assert row.bounded
    for status, code in re.findall(r"(\d{3}) `([a-z-]+)`", row.answer):
        assert KINDS[code].status == int(status)


@pytest.mark.parametrize("kind", TOO_LARGE)
def test_no_refusal_of_what_is_too_large_can_be_made_without_its_limit(
    kind: type[Exception],
) -> None:
    parameters = inspect.signature(kind).parameters
    for name in ("limit", "allowed", *(("setting",) if issubclass(kind, ServiceError) else ())):
        assert parameters[name].default is inspect.Parameter.empty


def test_nothing_else_answers_413() -> None:
    nodes = list(written())
    # Who raises it from one of ours answers that one.
    caused = [node.exc for _, node in nodes if isinstance(node, ast.Raise) and node.cause]
    for path, call in nodes:
        if not isinstance(call, ast.Call):
            continue
        name = ast.unparse(call.func).rpartition(".")[2]
        values = [node.value for node in call.args if isinstance(node, ast.Constant)]
        assert 413 not in values or name == "problem_responses" or call in caused, path
        codes = KINDS.keys() & {value for value in values if isinstance(value, str)}
        too_large = [code for code in codes if KINDS[code].status == 413]
        assert not too_large or name not in {"problem", "new_problem", "Problem"}, path


def test_settings_that_problems_name_are_the_real_ones() -> None:
    for path, node in written():
        if isinstance(node, ast.Constant) and str(node.value).startswith("THALWEG_MAX_"):
            assert str(node.value).removeprefix("THALWEG_").lower() in SETTINGS, path
        if isinstance(node, ast.keyword) and node.arg == "setting":
            name = node.value.value if isinstance(node.value, ast.Constant) else None
            assert name is None or str(name).removeprefix("THALWEG_").lower() in SETTINGS, path
    for name, setting in _SETTINGS.items():
        assert setting == f"THALWEG_{name.upper()}"
        assert hasattr(Policy(), name)


@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_every_test_is_there(row: Row) -> None:
    file, _, name = row.test.partition("::")
    tree = ast.parse((ROOT / file).read_text())
    names = {
        node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)
    }
    names |= {node.name for node in ast.walk(tree) if isinstance(node, ast.AsyncFunctionDef)}
    assert name in names, row.test
