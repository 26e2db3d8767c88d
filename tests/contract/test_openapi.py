"""The OpenAPI document says all there is, and the service does what it says."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import BaseModel

from app.datasets.spec import parse_dataset
from app.errors import KINDS
from app.http.identity import is_open
from app.http.media_types import MEDIA_TYPES, PICTURE_TYPES
from app.losses.schemas import InputQuery, LossQuery, ReportsQuery
from app.main import create_app
from app.portfolio.making import SetBody
from app.portfolio.query import Query as PortfolioQuery
from app.runs.spec import ReportsBody, RunSpec, SealBody
from app.service_error import ServiceError
from app.settings import Settings
from app.wording import FORMS
from core.errors import CoreError
from core.losses.inputs import Occurrence, encode_occurrence
from core.pipelines.pipeline import parse_pipeline
from core.tiles.reduce import parse_reduction
from core.tiles.view import MEMBERS, parse_view
from tests.app.harness import PROBLEM, Post, Service, ask, wait_until
from tests.scale import SOAK, THOROUGH, examples, half
from tests.server_process import ROOT

ROUTES = {
    ("POST", "/v1/losses"),
    ("PUT", "/v1/losses"),
    ("GET", "/v1/stages"),
    ("GET", "/v1/stages/{name}"),
    ("POST", "/v1/losses/{report}"),
    ("PUT", "/v1/losses/{report}"),
    ("PUT", "/v1/inputs/{name}"),
    ("POST", "/v1/tokens/inspect"),
    ("POST", "/v1/tokens/refresh"),
    ("GET", "/healthz"),
    ("GET", "/readyz"),
    ("GET", "/metrics"),
    ("GET", "/problems/{code}"),
    ("GET", "/v1/datasets"),
    ("POST", "/v1/datasets"),
    ("GET", "/v1/datasets/{ident}"),
    ("GET", "/v1/datasets/{ident}/files/{number}"),
    ("POST", "/v1/datasets/{ident}/tiles"),
    ("POST", "/v1/datasets/{ident}/plan"),
    ("POST", "/v1/datasets/{ident}/views"),
    ("GET", "/v1/datasets/{ident}/views/{name}"),
    ("GET", "/v1/datasets/{ident}/views/{name}/plan"),
    ("GET", "/v1/datasets/{ident}/views/{name}/tiles"),
    ("GET", "/v1/datasets/{ident}/views/{name}/raw"),
    ("GET", "/v1/datasets/{ident}/views/{name}/tiles/{index}"),
    ("POST", "/v1/datasets/{ident}/reduce"),
    ("GET", "/v1/datasets/{ident}/image.png"),
    ("GET", "/zarr/{view}/{key}"),
    ("DELETE", "/v1/inputs/{name}/{digest}"),
    ("DELETE", "/v1/datasets/{ident}"),
    ("DELETE", "/v1/datasets/{ident}/views/{name}"),
    ("DELETE", "/v1/pipelines/{ident}"),
    ("GET", "/v1/runs"),
    ("POST", "/v1/runs"),
    ("GET", "/v1/runs/{run}"),
    ("PATCH", "/v1/runs/{run}"),
    ("DELETE", "/v1/runs/{run}"),
    ("PUT", "/v1/runs/{run}/inputs/{name}"),
    ("GET", "/v1/runs/{run}/streams"),
    ("POST", "/v1/runs/{run}/streams"),
    ("GET", "/v1/runs/{run}/streams/{stream}"),
    ("PATCH", "/v1/runs/{run}/streams/{stream}"),
    ("POST", "/v1/runs/{run}/streams/{stream}"),
    ("DELETE", "/v1/runs/{run}/streams/{stream}"),
    ("POST", "/v1/runs/{run}/seal"),
    ("GET", "/v1/runs/{run}/progress"),
    ("GET", "/v1/runs/{run}/rows/{report}"),
    ("POST", "/v1/runs/{run}/reports"),
    ("GET", "/v1/runs/{run}/reports/{report}"),
    ("GET", "/v1/portfolios/loss-sets"),
    ("POST", "/v1/portfolios/loss-sets"),
    ("PUT", "/v1/portfolios/loss-sets/{ident}"),
    ("GET", "/v1/portfolios/loss-sets/{ident}"),
    ("DELETE", "/v1/portfolios/loss-sets/{ident}"),
    ("GET", "/v1/portfolios/loss-sets/{ident}/losses"),
    ("POST", "/v1/portfolios/query"),
    ("GET", "/v1/pipelines"),
    ("POST", "/v1/pipelines"),
    ("GET", "/v1/pipelines/{ident}"),
    ("GET", "/v1/pipelines/{ident}/batches"),
    ("GET", "/v1/pipelines/{ident}/batch"),
}
CONTRACT = (ROOT / "app" / "README.md").read_text()

CONFIG = """
[checks.positive_data_acceptance]
enabled = false  # octets at random are no loss stream

[checks.negative_data_rejection]
expected-statuses = ["4XX"]

[[operations]]
include-operation-id = "put_input"
checks.negative_data_rejection.enabled = false  # a number is a text too
"""
TWINS = """
[[operations]]
include-operation-id = ["put_report", "put_reports"]
phases.coverage.enabled = false  # the functions of their POSTs, with the same options
"""
"""Left out where some of the cases that go the same way are enough."""

HOOKS = '''
"""Most of what is asked for is sensible, so that rows come back."""

import zlib

import schemathesis

from core.losses.reports import REPORTS
from tests.streams import Block, Stream

INPUTS = @INPUTS@

BLOCKS = [Block(e, i, ((-1, 2.5), (1, 1.0), (3, 4.0))) for e in (1, 2, 5) for i in (1, 2)]
BODY = Stream("summary", 4, 4, tuple(BLOCKS)).encode()
DEEP = (
    *("after", "event_rates", "occurrence", "no_of_periods", "periods", "return_periods"),
    *("expect_events", "expect_bytes", "confidence", "curves", "tvar"),
    *("summary_xref", "summary_map", "sets", "summary_info"),
    *("expect_samples", "expect_summaries"),
    *("theme", "plot_tvar", "perspective", "currency"),
)


def often(value):
    return zlib.crc32(repr(value).encode()) % 8 > 0


@schemathesis.hook
def map_query(context, query):
    if query and often(query):
        query = {name: value for name, value in query.items() if name not in DEEP}
        query.pop("float_width", None)
        query.pop("quantiles", None)
        query.pop("duplex", None)
        if query.get("format") in {"svg", "png"}:
            query["format"] = "csv"
        query |= {name: "1-3" for name in ("summary_ids", "event_ids") if name in query}
        if "reports" in query:
            # Several, of periods and of the whole run too.
            place = zlib.crc32(repr(query).encode())
            names = list(REPORTS)
            chosen = {"melt", names[place % len(names)], names[place // 7 % len(names)]}
            query["reports"] = ",".join(sorted(chosen))
            query |= inputs_of(chosen)
            if "events" in chosen:
                query.pop("summary_ids", None)
    return query


def inputs_of(reports):
    """What these reports are computed from."""
    needed = {need.name for name in reports for need in REPORTS[name].needs}
    if reports & {"ept", "psept"}:
        needed.add("return_periods")
    return {name: INPUTS[name] for name in needed}


@schemathesis.hook
def map_case(context, case):
    # A path does not know its query, nor a query its path.
    report = (case.path_parameters or {}).get("report")
    if report in REPORTS and often((report, case.query)):
        case.query = {**(case.query or {}), **inputs_of({report})}
        if report == "events":
            case.query.pop("summary_ids", None)
        if REPORTS[report].scope == "run":
            case.headers = {
                name: value
                for name, value in (case.headers or {}).items()
                if name.lower() != "upload-complete"
            }
    return case


@schemathesis.hook
def map_headers(context, headers):
    if headers and often(headers):
        return {"Upload-Complete": "?0"} if "Upload-Complete" in headers else {}
    return headers


@schemathesis.hook
def map_body(context, body):
    # Generated octets come wrapped, or as bytes in other versions.
    return body if isinstance(body, dict | list) or not often(body) else BODY
'''


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    service = Service(tmp_path_factory.mktemp("service"))
    try:
        yield service
        wait_until(service.is_idle)
        assert service.stop() == 0
        assert not service.failures()
    finally:
        service.kill()


@pytest.fixture(scope="module")
def document(service: Service) -> Any:  # noqa: ANN401 - JSON
    return service.get("/openapi.json").json()


def run_schemathesis(service: Service, where: Path, *options: str, hooks: str = "") -> str:
    """Requests made from the document, their answers held to it; returns what it printed."""
    (where / "schemathesis.toml").write_text(CONFIG if THOROUGH else CONFIG + TWINS)
    (where / "sensible_hooks.py").write_text(hooks)
    command = [str(Path(sys.executable).with_name("schemathesis")), "--no-color", "run"]
    fixed = ["--generation-database", "none", "--request-timeout", "20", "--continue-on-failure"]
    seed = [] if SOAK else ["--seed", "1"]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{where}"}
    if hooks:
        environment["SCHEMATHESIS_HOOKS"] = "sensible_hooks"
    run = subprocess.run(
        [*command, f"http://127.0.0.1:{service.port}/openapi.json", *fixed, *seed, *options],
        capture_output=True,
        text=True,
        cwd=where,
        env=environment,
        timeout=3600 if SOAK else 900,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


def answers(service: Service, *labels: str) -> float:
    """Requests answered so far, of those with all of these labels."""
    lines = service.get("/metrics").body.decode().splitlines()
    counts = [line for line in lines if line.startswith("thalweg_requests_total{")]
    return sum(
        float(line.rsplit(" ", 1)[1]) for line in counts if all(label in line for label in labels)
    )


def test_requests_at_random_get_documented_answers(service: Service, tmp_path: Path) -> None:
    before = answers(service)
    printed = run_schemathesis(service, tmp_path, "--max-examples", str(half(10)))
    assert f"Tested: {len(ROUTES)}" in printed, printed
    assert answers(service) - before > 200


def test_sensible_requests_get_documented_answers(service: Service, tmp_path: Path) -> None:
    before = answers(service, "/v1/losses", 'status="200"')
    options = ["--mode", "positive", "--phases", "fuzzing", "--max-examples", str(examples(30))]
    options += ["--include-path-regex", "/v1/losses"]
    hooks = HOOKS.replace("@INPUTS@", repr(stored_inputs(service)))
    printed = run_schemathesis(service, tmp_path, *options, hooks=hooks)
    assert "Tested: 4" in printed, printed
    # Of forty. Which they are changes with any number in the code that the hooks import, as
    # Hypothesis tries the constants that it finds there.
    assert answers(service, "/v1/losses", 'status="200"') - before > 10


def stored_inputs(service: Service) -> dict[str, str]:
    """Options that name the inputs of reports, which are stored now."""
    ids = np.array([1, 2, 5, 7], np.int32)
    occurrence = Occurrence(3, ids, np.array([1, 2, 2, 3], np.int32), ids.astype(np.int64))
    data = encode_occurrence(occurrence, "bin")
    answer = ask(service, Post("/v1/inputs/occurrence", [data], method="PUT"))
    return {"quantiles": "0.1,0.5", "return_periods": "3,2", "occurrence": answer.json()["digest"]}


# -- what the document has -----------------------------------------------------------


def operations(document: Any) -> Iterator[tuple[str, str, Any]]:  # noqa: ANN401 - JSON
    """(method, path, operation) of each."""
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def parameters(operation: Any, place: str) -> set[str]:  # noqa: ANN401 - JSON
    return {each["name"] for each in operation.get("parameters", ()) if each["in"] == place}


def test_every_route_is_documented(document: Any) -> None:  # noqa: ANN401 - JSON
    found = list(operations(document))
    assert {(method, path) for method, path, _ in found} == ROUTES
    names = [operation["operationId"] for _, _, operation in found]
    assert len(set(names)) == len(names)
    for _, _, operation in found:
        assert operation["description"]
        for parameter in operation.get("parameters", ()):
            assert parameter["in"] == "path" or parameter["description"]
    for path in (
        "/v1/losses/{report}",
        "/v1/losses?reports=",
        "/v1/inputs/{name}",
        "/openapi.json",
    ):
        assert path in CONTRACT


def test_every_member_of_a_view_and_of_a_dataset_is_described(document: Any) -> None:  # noqa: ANN401 - JSON
    bodies = {
        path: methods["post"]["requestBody"]["content"]["application/json"]["schema"]
        for path, methods in document["paths"].items()
        if path.startswith("/v1/datasets") and "post" in methods
    }
    assert len(bodies) == 5
    for path, schema in bodies.items():
        for name, member in schema["properties"].items():
            assert member["description"], (path, name)
    assert bodies["/v1/datasets/{ident}/tiles"]["properties"].keys() == MEMBERS


def test_every_option_is_documented(document: Any) -> None:  # noqa: ANN401 - JSON
    models: dict[str, type[BaseModel]] = {
        "/v1/losses/{report}": LossQuery,
        "/v1/losses": ReportsQuery,
        "/v1/inputs/{name}": InputQuery,
    }
    table = CONTRACT[CONTRACT.index("| query |") : CONTRACT.index("Anything else is 422")]
    for _, path, operation in operations(document):
        known = set(models[path].model_fields) if path in models else set()
        documented = ("/v1/datasets", "/v1/pipelines", "/v1/portfolios", "/v1/runs", "/zarr")
        if path.startswith(documented):
            assert all(f"{name}=" in CONTRACT for name in parameters(operation, "query"))
            continue
        assert parameters(operation, "query") == known
        if path.startswith("/v1/losses"):
            assert all(f"`{name}`" in table for name in known - {"reports"})
            headers = {"Upload-Complete", "Upload-Length", "Content-Encoding"}
            assert parameters(operation, "header") == headers


def test_every_format_and_header_is_documented(document: Any) -> None:  # noqa: ANN401 - JSON
    table = CONTRACT[CONTRACT.index("| response header |") : CONTRACT.index("In a duplex answer")]
    named = set(re.findall(r"`([A-Z][\w-]+)`", table))
    assert len(named) == 16
    for _, path, operation in operations(document):
        if not path.startswith("/v1/losses"):
            continue
        rows = operation["responses"]["200"]
        media = {text.split(";")[0] for text in MEDIA_TYPES.values()}
        media |= set(PICTURE_TYPES.values())
        one = {"application/vnd.thalweg.frames"}
        assert set(rows["content"]) == (media if "{report}" in path else one)
        assert named <= set(rows["headers"])


def test_every_error_is_a_problem(document: Any) -> None:  # noqa: ANN401 - JSON
    reference = {"schema": {"$ref": "#/components/schemas/ProblemDocument"}}
    documented: dict[int, set[str]] = {}
    for _, path, operation in operations(document):
        for status, answer in operation["responses"].items():
            assert answer["description"]
            assert "X-Request-Id" in answer["headers"]
            if int(status) < 400 or (path, status) == ("/readyz", "503"):
                assert PROBLEM not in answer["content"]
                continue
            assert answer["content"] == {PROBLEM: reference}
            documented.setdefault(int(status), set()).add(path)
            if status == "401":
                assert "WWW-Authenticate" in answer["headers"]
            if status == "503":
                assert "Retry-After" in answer["headers"]
    # What no route answers: the server does so before there is one, or it is our fault.
    elsewhere = {405, 431, 500, 501}
    assert {kind.status for kind in KINDS.values()} == documented.keys() | elsewhere
    assert not documented.keys() & elsewhere
    problems = CONTRACT[CONTRACT.index("## Problems") :]
    for status in documented.keys() | elsewhere:
        assert str(status) in problems, status
    codes = document["components"]["schemas"]["ProblemDocument"]["properties"]["code"]["enum"]
    assert codes == sorted(KINDS)


PARSERS: dict[str, Callable[[dict[str, Any]], object]] = {
    "register_dataset": parse_dataset,
    "stream_tiles": parse_view,
    "plan_view": parse_view,
    "register_view": parse_view,
    "reduce_view": lambda body: (
        parse_view(body.pop("view")),
        parse_reduction(body.pop("reduction") | body, (8, 8)),
    ),
    "register_pipeline": parse_pipeline,
    "create_run": RunSpec.parse,
    "change_run": RunSpec.parse_change,
    "compute_reports": ReportsBody.model_validate,
    "seal_run": SealBody.model_validate,
    "create_loss_set": SetBody.model_validate,
    "query_portfolio": PortfolioQuery.parse,
}


def test_every_body_is_described_as_it_is_checked(document: Any) -> None:  # noqa: ANN401 - JSON
    bodies = {
        operation["operationId"]: media["application/json"]
        for _, _, operation in operations(document)
        if "application/json" in (media := operation.get("requestBody", {}).get("content", {}))
    }
    assert {name for name, body in bodies.items() if "$ref" not in body["schema"]} == set(PARSERS)
    for name, parse in PARSERS.items():
        schema, example = bodies[name]["schema"], bodies[name]["example"]
        assert set(schema["required"]) <= set(example) <= set(schema["properties"])
        parse(deepcopy(example))
        assert schema["additionalProperties"] is False
        with pytest.raises((CoreError, ServiceError, ValueError)):
            parse({**deepcopy(example), "other": 1})
    assert "decoder" not in bodies["register_dataset"]["schema"]["properties"]


def test_what_has_ranges_and_versions_says_so(document: Any) -> None:  # noqa: ANN401 - JSON
    ranged = set()
    for _, path, operation in operations(document):
        statuses = set(operation["responses"])
        assert "412" in statuses or "304" not in statuses, path
        if "206" in statuses:
            assert {"304", "416"} <= statuses, path
            ranged.add(path.rpartition("/v1/")[2])
    assert ranged == {
        *("datasets/{ident}/files/{number}", "datasets/{ident}/views/{name}/raw"),
        *("portfolios/loss-sets/{ident}/losses", "portfolios/query"),
        "runs/{run}/reports/{report}",
    }


def test_a_posted_question_has_the_conditions_of_a_get(document: Any) -> None:  # noqa: ANN401 - JSON
    unchanged = {
        operation["operationId"]: operation
        for method, _, operation in operations(document)
        if method == "POST" and "304" in operation["responses"]
    }
    assert set(unchanged) == {"query_portfolio"}
    assert "``If-None-Match``" in unchanged["query_portfolio"]["description"]
    assert "412" in unchanged["query_portfolio"]["responses"]


def test_every_reference_leads_somewhere(document: Any) -> None:  # noqa: ANN401 - JSON
    schemas = document["components"]["schemas"]
    named = set(re.findall(r"'\$ref': '#/components/schemas/(\w+)'", str(document)))
    assert str(document).count("'$ref'") == len(
        re.findall(r"'\$ref': '#/components/schemas/\w+'", str(document))
    )
    assert named == set(schemas)


def test_keys_are_declared_where_they_are_needed(tmp_path: Path) -> None:
    for keys in ((), ("alice:" + "0" * 64,)):
        settings = Settings(data_dir=tmp_path, api_keys=keys, public_url="https://losses.example")
        document = create_app(settings).openapi()
        assert document["servers"] == [{"url": "https://losses.example"}]
        assert ("securitySchemes" in document["components"]) == bool(keys)
        for _, path, operation in operations(document):
            guarded = bool(keys) and not is_open(path)
            assert operation.get("security") == ([{"key": []}] if guarded else None)


def test_the_command_prints_what_is_served(document: Any, tmp_path: Path) -> None:  # noqa: ANN401
    command = [sys.executable, "-m", "app.command", "openapi"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "THALWEG_DATA_DIR": str(tmp_path)}
    printed = subprocess.run(
        command, check=True, capture_output=True, cwd=tmp_path, env=environment
    )
    assert json.loads(printed.stdout) == document


def test_every_pattern_is_told_in_words(document: Any) -> None:  # noqa: ANN401 - JSON
    assert set(re.findall(r"'pattern': '([^']+)'", str(document))) == set(FORMS)
