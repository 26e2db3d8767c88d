"""However a stream is posted and answered, every byte and every row is there."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from backports import zstd
from isal import isal_zlib

from core.losses.analysis import aggregate
from tests import oracle
from tests.e2e import samples
from tests.e2e.samples import FORMATS, Rows, assert_rows, rows_of_answer
from tests.e2e.service import Answer, Service, in_pieces
from tests.e2e.service import aggregate as aggregate_by_command
from tests.scale import SOAK

KINDS = ("default", "duplex", "partial")
CODINGS = ("identity", "gzip", "zstd")
PAUSE = 0.002
REPORT = "melt"


class Case(NamedTuple):
    """A stream with the table it makes."""

    data: bytes
    rows: Rows
    csv: bytes


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return make_case(samples.twenty_thousand_bytes(), tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return make_case(samples.large_stream(64), tmp_path_factory.mktemp("large"))


def make_case(data: bytes, directory: Path) -> Case:
    rows = aggregate(data, [REPORT])[REPORT]
    return Case(data, rows, aggregate_by_command(directory, data, REPORT))


def encode(coding: str, data: bytes) -> bytes:
    if coding == "gzip":
        return isal_zlib.compress(data, 1, wbits=31)
    return zstd.compress(data, 1) if coding == "zstd" else data


def decode(answer: Answer) -> bytes:
    coding = answer.headers.get("content-encoding", "identity")
    if coding == "gzip":
        return isal_zlib.decompress(answer.body, wbits=31)
    return zstd.decompress(answer.body) if coding == "zstd" else answer.body


class Post(NamedTuple):
    """One way of posting a stream."""

    kind: str
    form: str
    body_coding: str = "identity"
    coding: str = "identity"

    def target(self, token: str | None = None) -> str:
        query = f"format={self.form}"
        if self.kind == "duplex":
            query += "&duplex=true"
        return f"/v1/losses/{REPORT}?{query}" + ("" if token is None else f"&after={token}")

    def headers(self, *more: str) -> tuple[str, ...]:
        headers = (f"Accept-Encoding: {self.coding}", *more)
        if self.body_coding != "identity":
            headers += (f"Content-Encoding: {self.body_coding}",)
        return headers

    def paced(
        self, service: Service, data: bytes, *headers: str, token: str | None = None
    ) -> Answer:
        """Post it chunked, in pieces with pauses, reading meanwhile."""
        pieces = in_pieces(encode(self.body_coding, data), 20)
        with service.connect() as connection:
            connection.begin("POST", self.target(token), *self.headers(*headers))
            with connection.sending(lambda: connection.send_paced(pieces, PAUSE)):
                return self.checked(connection.answer())

    def sized(
        self, service: Service, body: bytes, *headers: str, token: str | None = None
    ) -> Answer:
        """Post it at once, with its length, reading meanwhile."""
        return self.checked(service.post(self.target(token), body, *self.headers(*headers)))

    def checked(self, answer: Answer) -> Answer:
        assert answer.status == 200, answer.body
        coding = answer.headers.get("content-encoding", "identity")
        assert coding == self.coding, "the answer is not compressed as was asked"
        return answer

    def check(self, case: Case, bodies: list[bytes]) -> None:
        """The answers, joined, are the table of the whole."""
        if self.form == "csv":
            assert b"".join(bodies) == case.csv
            return
        rows = [rows_of_answer(self.form, REPORT, body) for body in bodies]
        assert_rows(samples.joined(rows), case.rows)
        if self.form == "bin":
            assert b"".join(bodies) == case.rows.tobytes()


def post_parts(
    post: Post, service: Service, data: bytes, sizes: Iterator[int], *, paced: bool
) -> list[bytes]:
    """All parts of a stream, each from where the last answer said."""
    send = post.paced if paced else post.sized
    bodies: list[bytes] = []
    token, offset = None, 0
    while True:
        end = offset + next(sizes)
        part = data[offset:end] if paced else encode(post.body_coding, data[offset:end])
        if end >= len(data):
            return [*bodies, decode(send(service, part, token=token))]
        answer = send(service, part, "Upload-Complete: ?0", token=token)
        assert answer.headers["thalweg-completeness"] == "partial"
        bodies.append(decode(answer))
        token, offset = answer.headers["thalweg-token"], int(answer.headers["thalweg-offset"])


def test_the_expected_rows_are_those_of_the_independent_oracle(small: Case) -> None:
    parsed = oracle.parse(small.data, 4)
    oracle.assert_same(REPORT, small.rows, oracle.melt(parsed, {}))
    assert len(small.rows) == 194


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("kind", KINDS)
def test_twenty_paced_chunks_of_a_thousand_bytes(
    service: Service, small: Case, kind: str, form: str
) -> None:
    def run(codings: tuple[str, ...]) -> None:
        post = Post(kind, form, *codings)
        if kind == "partial":
            # Twenty chunks that end within an event, and the rest.
            sizes = iter([19_990, 1000])
            bodies = post_parts(post, service, small.data, sizes, paced=True)
        else:
            bodies = [decode(post.paced(service, small.data))]
        post.check(small, bodies)

    with ThreadPoolExecutor(9) as pool:
        assert len(list(pool.map(run, product(CODINGS, CODINGS)))) == 9


# What is large goes through answers of a kind alike: each kind has half of the formats.
LARGE = [
    (kind, form)
    for (place, kind), (number, form) in product(enumerate(KINDS), enumerate(FORMATS))
    if SOAK or (place + number) % 2 == 0
]


@pytest.mark.parametrize(("kind", "form"), LARGE)
def test_64_mebibytes_in_every_kind_of_answer(
    service: Service, large: Case, kind: str, form: str
) -> None:
    post_large(service, large, Post(kind, form))


@pytest.fixture(scope="module")
def encoded(large: Case) -> dict[str, bytes]:
    return {coding: encode(coding, large.data) for coding in CODINGS}


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
@pytest.mark.parametrize(("kind", "form"), [("default", "csv"), ("duplex", "frames")])
def test_64_mebibytes_compressed_both_ways(
    service: Service, large: Case, encoded: dict[str, bytes], kind: str, form: str, coding: str
) -> None:
    post = Post(kind, form, coding, coding)
    post.check(large, [decode(post.sized(service, encoded[coding]))])


def test_64_mebibytes_in_compressed_parts(service: Service, large: Case) -> None:
    post_large(service, large, Post("partial", "bin", "zstd", "zstd"))


def post_large(service: Service, large: Case, post: Post) -> None:
    if post.kind == "partial":
        rng = np.random.default_rng(64)
        sizes = iter(lambda: int(rng.integers(3 << 20, 24 << 20)), None)
        bodies = post_parts(post, service, large.data, sizes, paced=False)
        assert len(bodies) > 3
    else:
        bodies = [decode(post.sized(service, large.data))]
    post.check(large, bodies)
