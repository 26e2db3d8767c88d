"""Loss sets, and questions about them."""

from __future__ import annotations

from collections.abc import Mapping

from tests.app.harness import with_query
from tests.memory.desk import Desk, Prepare, Request, Table
from tests.memory.losses import INT_MAX, occurrence, stream_of

TABLE = Table("portfolios")
SETS, QUERY = "/v1/portfolios/loss-sets", "/v1/portfolios/query"
ONE = f"{SETS}/{{ident}}"


def tower(layers: int, peril: str | None = None) -> Mapping[str, object]:
    """A programme of layers above each other."""
    types = {"ReinsType": "CXL", "OccLimit": 1e4} | ({"ReinsPeril": peril} if peril else {})
    return {
        "layers": [
            {**types, "ReinsNumber": n, "OccAttachment": 1e4 * n} for n in range(1, layers + 1)
        ]
    }


def sealed(desk: Desk, events: int, first: int = 1) -> str:
    """A sealed run with occurrences; its id."""
    inputs = {"occurrence": desk.input("occurrence", occurrence(events + first, each=4))}
    path = desk.run(stream_of(events, first=first), inputs=inputs)
    assert desk.sealed(path) == 200
    return path.rpartition("/")[2]


def made(desk: Desk, events: int, name: str) -> str:
    """A loss set; its path."""
    desk.ask("POST", SETS, {"run": sealed(desk, events), "name": name})
    return f"{SETS}/{name}"


def years(count: int) -> bytes:
    """A year loss table."""
    return b"Period,Loss\n" + b"".join(b"%d,%d.5\n" % (n, n) for n in range(1, count))


@TABLE.case(f"POST {SETS}")
def making(desk: Desk) -> Request:
    made(desk, 3, "small")
    return Request.of("POST", SETS, {"run": sealed(desk, 4000), "name": "a"})


@TABLE.case(f"GET {SETS}")
def listing(desk: Desk) -> Request:
    for number in range(5):
        desk.ask("PUT", f"{SETS}/y{number}?form=ylt&no_of_periods=50", years(9))
    desk.ask("GET", SETS)
    return Request("GET", f"{SETS}?limit=1000")


@TABLE.case(f"GET {ONE}")
def describing(desk: Desk) -> Request:
    path = made(desk, 3, "a")
    desk.ask("GET", path)
    return Request("GET", path)


@TABLE.case(f"DELETE {ONE}")
def deleting(desk: Desk) -> Request:
    desk.send(Request("DELETE", made(desk, 3, "small")))
    return Request("DELETE", made(desk, 3000, "a"))


@TABLE.case(f"PUT {ONE}")
def importing(desk: Desk) -> Request:
    path = f"{SETS}/a?form=ylt&no_of_periods=200000"
    desk.ask("PUT", path.replace("/a?", "/b?"), years(9))
    return Request.of("PUT", path, years(100_000))


@TABLE.case(f"PUT {ONE}", hostile=True)
def importing_a_row_of_endless_periods(desk: Desk) -> Request:
    desk.ask("PUT", f"{SETS}/b?form=ylt&no_of_periods=9", years(9))
    declared = {"form": "elt", "no_of_periods": INT_MAX, "samples": INT_MAX}
    row = b"EventId,rate,mean,sd_independent,sd_correlated,exposed_value\n1,900,1,0.1,0.1,9\n"
    return Request.of("PUT", with_query(f"{SETS}/a", declared), row)


def exporting(form: str, encoding: str) -> Prepare:
    """A loss set as a table."""

    def prepare(desk: Desk) -> Request:
        query = f"losses?form={form}&format={encoding}"
        desk.send(Request("GET", f"{made(desk, 3, 'small')}/{query}"))
        return Request("GET", f"{made(desk, 4000, 'a')}/{query}")

    return prepare


for _form, _encoding in (("blocks", "arrow"), ("selt", "csv"), ("splt", "parquet")):
    TABLE.add(f"GET {ONE}/losses", f"{_form} in {_encoding}", exporting(_form, _encoding))


_OF_POINTS = {"curves", "contributions", "uncertainty"}


def asking(form: str = "json", **members: object) -> Prepare:
    """A question about a loss set, after one about another."""

    points = {"return_periods": [100, 50]} if members["report"] in _OF_POINTS else {}

    def body(name: str) -> Mapping[str, object]:
        return {"loss_sets": [{"id": name}], **points, **members}

    def prepare(desk: Desk) -> Request:
        made(desk, 3, "small"), made(desk, 4000, "a")
        desk.send(Request.of("POST", f"{QUERY}?format={form}", body("small")))
        return Request.of("POST", f"{QUERY}?format={form}", body("a"))

    return prepare


for _report in ("averages", "curves", "periods", "contributions", "uncertainty"):
    TABLE.add(f"POST {QUERY}", _report, asking(report=_report))
for _report in ("layers", "recoveries"):
    TABLE.add(f"POST {QUERY}", _report, asking("csv", report=_report, programme=tower(3)))
_CEDED = {"of": "ceded", "programme": tower(1), "group_by": ["SummaryId"]}
TABLE.add(f"POST {QUERY}", "contributions ceded", asking("csv", report="contributions", **_CEDED))
_PERILS = {"WW1": "1-500000", "EQ": "500001-1000000"}
TABLE.add(
    f"POST {QUERY}",
    "layers of perils",
    asking("csv", report="layers", programme=tower(3, "WW1"), perils=_PERILS),
)


@TABLE.case(f"POST {QUERY}", hostile=True)
def asking_with_everything_at_its_largest(desk: Desk) -> Request:
    made(desk, 4000, "a")
    body = {
        "loss_sets": [{"id": "a"}],
        "filter": {"events": "1-900000", "dimensions": {str(n): ["x"] for n in range(9000)}},
        "programme": tower(100, "7"),
        "perils": {str(n): f"{111 * n + 1}-{111 * n + 111}" for n in range(9000)},
        "return_periods": [*range(1, 1000)],
    }
    return Request.of("POST", QUERY, body)
