"""Every kind of work, and the routes that have none."""

from __future__ import annotations

from collections.abc import Mapping

from tests.cancellation import inputs, losses, pipelines, portfolios, runs, tiles
from tests.cancellation.place import Kind

KINDS: Mapping[str, Kind] = {
    **losses.TABLE,
    **inputs.TABLE,
    **runs.TABLE,
    **portfolios.TABLE,
    **tiles.TABLE,
    **pipelines.TABLE,
}
"""What servers work on, by name."""

_RECORD = "reads or writes one record"
_LIST = "reads a page of records"
_REMOVAL = "is completed for whoever comes next: what is left half removed would be in the way"
SHORT: Mapping[str, str] = {
    "GET /healthz": "computes nothing",
    "GET /readyz": "computes nothing",
    "GET /metrics": "writes numbers that are there",
    "GET /problems/{code}": "sends a page that is there",
    "POST /v1/tokens/inspect": "decodes a token of some kilobytes",
    "POST /v1/tokens/refresh": "decodes and signs a token of some kilobytes",
    "GET /v1/datasets": _LIST,
    "GET /v1/datasets/{ident}": _RECORD,
    "DELETE /v1/datasets/{ident}": _REMOVAL,
    "GET /v1/datasets/{ident}/views/{name}": _RECORD,
    "DELETE /v1/datasets/{ident}/views/{name}": _REMOVAL,
    "GET /v1/stages": "sends a table that is there",
    "GET /v1/stages/{name}": "sends a part of that table",
    "GET /v1/pipelines": _LIST,
    "GET /v1/pipelines/{ident}": _RECORD,
    "DELETE /v1/pipelines/{ident}": _REMOVAL,
    "DELETE /v1/inputs/{name}/{digest}": _REMOVAL,
    "GET /v1/portfolios/loss-sets": _LIST,
    "GET /v1/portfolios/loss-sets/{ident}": _RECORD,
    "DELETE /v1/portfolios/loss-sets/{ident}": _REMOVAL,
    "GET /v1/runs": _LIST,
    "POST /v1/runs": _RECORD,
    "GET /v1/runs/{run}": _RECORD,
    "PATCH /v1/runs/{run}": _RECORD,
    "DELETE /v1/runs/{run}": _REMOVAL,
    "GET /v1/runs/{run}/streams": _LIST,
    "GET /v1/runs/{run}/streams/{stream}": _RECORD,
    "DELETE /v1/runs/{run}/streams/{stream}": _REMOVAL,
}
"""Why a route has no kind of work: it is over sooner than anybody can leave."""
