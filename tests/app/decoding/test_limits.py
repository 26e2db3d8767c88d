from __future__ import annotations

from contextlib import closing

from app.decoding.base import DecoderLimits
from app.parts import make_decoders
from app.settings import Settings
from app.tally import Column, Table


def test_limits_are_those_of_the_settings() -> None:
    with closing(make_decoders(Settings(), Column(Table()))) as pool:
        assert pool._limits == DecoderLimits()
