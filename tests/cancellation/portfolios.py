"""Loss sets, and questions about them, of as many losses as a short preparation can upload."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from itertools import count

from tests.cancellation.leaving import Work
from tests.cancellation.losses import Size, occurrences
from tests.cancellation.place import JSON, Place, Prepare, Table

TABLE = Table()
SETS, QUERY = "/v1/portfolios/loss-sets", "/v1/portfolios/query"
ONE = f"{SETS}/{{ident}}"
MOST = 40 << 20
"""Bytes of a table that is imported, about."""
LARGE = Size(5_000, 20, 100, 10_000)
"""Ten million losses, twenty million of occurrences."""
_numbers = count()


def sealed(place: Place, part: float) -> str:
    """A sealed run of a large stream; its id."""
    data = occurrences(LARGE.events, int(LARGE.occurrences * part))
    values = {"perspective": "gul", "reports": ["melt"]}
    inputs = {"occurrence": place.store("occurrence", data)}
    run: str = place.send("/v1/runs", {**values, "inputs": inputs})["id"]
    place.ask("POST", f"/v1/runs/{run}/streams", LARGE.stream(part))
    place.ask("POST", f"/v1/runs/{run}/seal")
    return run


def making(place: Place, part: float) -> Callable[[], Work]:
    """A loss set of a run."""
    run = sealed(place, part)

    def make() -> Work:
        body = json.dumps({"run": run, "name": f"made-{next(_numbers)}"}).encode()
        return Work("POST", SETS, body, JSON)

    return make


def importing(place: Place, part: float) -> Callable[[], Work]:  # noqa: ARG001 - a kind of work
    """A year loss table in csv."""
    line = b"%d,%d,1,123.5\n"
    rows = int(MOST * part) // 22
    body = b"Period,EventId,SampleId,Loss\n" + b"".join(line % (n, n) for n in range(1, rows))
    query = f"form=ylt&no_of_periods={rows}"
    return lambda: Work("PUT", f"{SETS}/read-{next(_numbers)}?{query}", body)


def stored(place: Place, part: float) -> str:
    """A loss set of a run; its id."""
    body = {"run": sealed(place, part), "name": f"asked-{next(_numbers)}"}
    return str(place.send(SETS, body)["id"])


def exporting(query: str) -> Prepare:
    """The losses of a set as a table."""

    def prepare(place: Place, part: float) -> Work:
        return Work("GET", f"{SETS}/{stored(place, part)}/losses?{query}")

    return prepare


def asking(**members: object) -> Prepare:
    """A question, with a filter of its own so that nothing of it is kept."""

    def prepare(place: Place, part: float) -> Callable[[], Work]:
        ident = stored(place, part)

        def make() -> Work:
            kept: Mapping[str, object] = {"periods": [1, 10_000_000 + next(_numbers)]}
            body = {"loss_sets": [{"id": ident}], "filter": kept, **members}
            return Work("POST", QUERY, json.dumps(body).encode(), JSON)

        return make

    return prepare


def net(place: Place, part: float) -> Work | Callable[[], Work]:
    """Losses after a programme, of as many occurrences as the memory of a request allows."""
    asked = asking(report="periods", of="net", group_by=["SummaryId"], **TOWER)
    return asked(place, 0.4 * part)


def parts(place: Place, part: float) -> Work | Callable[[], Work]:
    """What groups contribute to them, with and without each group."""
    more: dict[str, object] = {"leave_one_out": True, "return_periods": [10], **TOWER}
    return asking(report="contributions", of="net", group_by=["SummaryId"], **more)(
        place, 0.35 * part
    )


LAYER = {"ReinsNumber": 1, "ReinsType": "CXL", "OccAttachment": 10, "OccLimit": 1e6}
TOWER = {"programme": {"layers": [LAYER]}}
TABLE.add(f"POST {SETS}", "a loss set", making)
TABLE.add(f"PUT {ONE}", "a year loss table", importing)
for _form in ("splt", "ylt", "elt", "climada&sample=1"):
    TABLE.add(f"GET {ONE}/losses", f"a loss set as {_form[:7]}", exporting(f"form={_form}"))
TABLE.add(f"POST {QUERY}", "portfolio curves", asking(report="curves"))
TABLE.add(f"POST {QUERY}", "contributions", asking(report="contributions", return_periods=[10]))
TABLE.add(f"POST {QUERY}", "contributions to net losses", parts)
TABLE.add(f"POST {QUERY}", "uncertainty", asking(report="uncertainty", return_periods=[10]))
TABLE.add(f"POST {QUERY}", "layers", asking(report="layers", **TOWER))
TABLE.add(f"POST {QUERY}", "net losses of groups", net)
