"""Auxiliary files in parquet: decoded elsewhere, checked as csv is, and refused with a reason."""

from __future__ import annotations

import io
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from app.decoding.pool import DecoderPool
from app.losses.input_parsers import parse_input
from app.losses.parquet import ROOM_BYTES, read_parquet
from core.errors import InputError
from core.losses.samples import SampleSpec, generate_stream
from tests.app.harness import Contract, Post, Service, ask, is_problem, with_query
from tests.app.losses.posts import put_input

PARQUET = ("Content-Type", "application/vnd.apache.parquet")
STREAM = b"".join(generate_stream(SampleSpec(events=10, summaries=2, samples=4)))
CSV = {
    "quantiles": b"quantile\n0.5\n0.25\n",
    "event_rates": b"EventIds,Event_rates\n1,0.5\n2,0.25\n",
    "occurrence": b"event_id,period_no,occ_date_id\n1,1,735000\n2,3,735001\n7,2,735002\n",
    "periods": b"period_no,weighting\n1,0.5\n2,0.25\n3,0.25\n",
    "return_periods": b"return_period\n100\n50\n",
    "summary_xref": b"item_id,summary_id,summaryset_id\n1,1,1\n2,1,1\n",
    "summary_map": b"loc_id,item_id,building_id\n1,1,1\n1,2,1\n",
    "summary_info": b"summary_id,name,tiv\n2,two,5\n1,\xc3\xa4,6\n",
}


def written(table: Any, **options: Any) -> bytes:  # noqa: ANN401 - pyarrow's
    file = io.BytesIO()
    pq.write_table(table, file, **options)
    return file.getvalue()


def of_csv(name: str) -> bytes:
    lines = [line.split(b",") for line in CSV[name].splitlines()]
    columns = {}
    for title, *cells in zip(*lines, strict=True):
        texts = [cell.decode() for cell in cells]
        try:
            values: Any = [float(text) if "." in text else int(text) for text in texts]
        except ValueError:
            values = texts
        columns[title.decode()] = values
    return written(pa.table(columns), row_group_size=1)


@pytest.fixture(scope="module")
def decoders() -> Iterator[DecoderPool]:
    pool = DecoderPool()
    yield pool
    pool.close()


# -- contents ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CSV)
def test_parquet_is_as_good_as_csv(decoders: DecoderPool, name: str) -> None:
    columns = read_parquet(of_csv(name), decoders)
    parsed, expected = (parse_input(name, data, 3) for data in (columns, CSV[name]))
    for field in getattr(expected, "__slots__", ()):
        found, wanted = getattr(parsed, field), getattr(expected, field)
        if isinstance(wanted, dict):
            assert {k: v.tolist() for k, v in found.items()} == {
                k: v.tolist() for k, v in wanted.items()
            }
        else:
            np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("compression", ["none", "snappy", "zstd", "gzip"])
def test_every_type_of_number_and_text_is_read(decoders: DecoderPool, compression: str) -> None:
    table = pa.table(
        {
            **{k: pa.array([1, 2, 3], k) for k in ("int8", "uint16", "int64", "float", "double")},
            "text": ["a", "", "ä, b"],
            "large": pa.array(["x", "yy", "z"], pa.large_string()),
            "kind": pa.array(["p", "q", "p"]).dictionary_encode(),
        }
    )
    columns = read_parquet(written(table, compression=compression, row_group_size=2), decoders)
    assert {name: values.tolist() for name, values in columns.items()} == table.to_pydict()


def bad_files() -> Iterator[tuple[str, bytes, str]]:
    good = of_csv("periods")
    yield "cut", good[:-9], "damaged"
    yield "magic", b"PAR1", "damaged"
    yield "zeros", b"PAR1" + bytes(96) + b"PAR1", "damaged"
    yield "missing integer", written(pa.table({"a": pa.array([1, None], pa.int32())})), "missing"
    yield "missing number", written(pa.table({"a": pa.array([1.5, None])})), "missing values"
    yield "missing text", written(pa.table({"a": pa.array(["x", None])})), "missing values"
    yield "decimal", written(pa.table({"a": [Decimal("1.5")]})), "type decimal128"
    yield "nested", written(pa.table({"a": [{"b": 1}]})), "type struct"
    yield "list", written(pa.table({"a": [[1, 2]]})), "list"
    yield "bytes", written(pa.table({"a": pa.array([b"x"], pa.binary())})), "type binary"
    rows = pa.table({"a": np.zeros(ROOM_BYTES // 8 + 1, np.int64)})
    yield "bomb", written(rows, compression="zstd"), f"more than {ROOM_BYTES} bytes"
    texts = ["x" * 2000, *([""] * (ROOM_BYTES // 8000 + 1))]
    yield "text", written(pa.table({"a": texts})), "a text of 2000 characters"


@pytest.mark.parametrize(("data", "fault"), [pytest.param(*x, id=i) for i, *x in bad_files()])
def test_a_bad_file_is_refused_with_a_reason(
    decoders: DecoderPool, data: bytes, fault: str
) -> None:
    with pytest.raises(InputError, match=fault) as caught:
        read_parquet(data, decoders)
    assert caught.value.hint


def test_damaged_files_are_read_or_refused(decoders: DecoderPool) -> None:
    rng = np.random.default_rng(3)
    data = of_csv("summary_info")
    outcomes = set()
    for _ in range(60):
        octets = bytearray(data)
        for at in rng.integers(4, len(octets), int(rng.integers(1, 6))).tolist():
            octets[at] = int(rng.integers(0, 256))
        try:
            parse_input("summary_info", read_parquet(bytes(octets), decoders))
            outcomes.add("read")
        except InputError:
            outcomes.add("refused")
    assert "refused" in outcomes


# -- over HTTP -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", CSV)
def test_parquet_is_stored_by_the_digest_of_its_bytes(
    service: Service, contract: Contract, name: str
) -> None:
    path = f"/v1/inputs/{name}"
    data = of_csv(name)
    for headers in ([PARQUET], []):
        answer = contract.check("PUT", path, put_input(service, name, data, headers))
        assert answer.status in {200, 201}, answer.body
        assert answer.json()["bytes"] == len(data)
    digest = answer.json()["digest"]
    assert digest != put_input(service, name, CSV[name]).json()["digest"]


def test_reports_are_those_of_the_csv(service: Service) -> None:
    query: dict[str, object] = {"no_of_periods": 3, "quantiles": "0.5", "reports": "qplt,aal"}
    bodies = []
    for files in ({n: of_csv(n) for n in CSV}, CSV):
        names = ("occurrence", "periods")
        given = {n: put_input(service, n, files[n]).json()["digest"] for n in names}
        answer = ask(service, Post(with_query("/v1/losses", query | given), [STREAM]))
        assert answer.status == 200, answer.body
        bodies.append(answer.body)
    assert bodies[0] == bodies[1]


def test_a_bad_parquet_input_is_a_problem(service: Service, contract: Contract) -> None:
    for _, data, fault in bad_files():
        if len(data) > 100_000:
            continue
        path = "/v1/inputs/periods"
        answer = contract.check("PUT", path, put_input(service, "periods", data, [PARQUET]))
        found = is_problem(answer, "input", 400)
        assert fault.partition(" ")[0] in found["detail"] or "columns" in found["detail"]
    answer = put_input(service, "periods", CSV["periods"], [PARQUET])
    assert "PAR1" in is_problem(answer, "input")["detail"]
    # Values are checked as those of csv are.
    table = pa.table({"period_no": [1, 3], "weighting": [0.5, 0.5]})
    csv = put_input(service, "periods", b"period_no,weighting\n1,0.5\n3,0.5\n")
    parquet = put_input(service, "periods", written(table), [PARQUET])
    same = [is_problem(answer, "input")["detail"] for answer in (csv, parquet)]
    assert same[0].replace("line 3", "row 2") == same[1]
