"""Loss streams and auxiliary files to send to a server."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

import numpy as np

from core.losses.samples import SampleSpec, generate_inputs
from tests.app.harness import Answer, Headers, Post, Service, ask
from tests.streams import Block, Stream

INT_MAX = 2**31 - 1
INT_MIN = -(2**31)
SAMPLES = 4
GOOD = (
    Block(1, 1, ((-5, 9.0), (-1, 2.0), (1, 1.0), (3, 2.0))),
    Block(1, 2, ((-1, 2.0), (2, 1.0))),
    Block(2, 1, ((1, 4.0), (2, 0.0), (4, 1.0)), 5.0),
)
AFTER = Block(INT_MAX, 1, ((1, 1.0),))
INPUTS = generate_inputs(SampleSpec(events=8, summaries=2, samples=4))
PARTIAL = ("Upload-Complete", "?0")
Way: TypeAlias = tuple[bool, str | None]
WAYS: list[Way] = [(sized, coding) for sized in (True, False) for coding in (None, "gzip", "zstd")]
"""How a body can be sent: with its length or in chunks, and in which coding."""


def good(kind: str = "summary", width: int = 4) -> Stream:
    return Stream(kind, SAMPLES, width, GOOD)


def put_input(
    service: Service, name: str, data: bytes, headers: Headers = (), query: str = ""
) -> Answer:
    return ask(service, Post(f"/v1/inputs/{name}{query}", [data], headers, method="PUT"))


def repetitive(size: int) -> bytes:
    """A valid stream that compresses to a thousandth."""
    samples = 2000
    one = good("loss").with_blocks(
        [Block(1, 1, tuple((sidx, 1.0) for sidx in range(1, samples + 1)))]
    )
    header = replace(one, samples=samples).header
    block = np.frombuffer(one.encode()[len(header) :], "<i4")
    blocks = np.tile(block, (size // block.nbytes, 1))
    blocks[:, 0] = np.arange(1, len(blocks) + 1)
    return header + blocks.tobytes()
