"""File formats: they locate the frames of a recording in its files.

Each format is a module with one subclass of :class:`~.format.Format`. The table below is the
only place that lists them.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from .blo import Blo
from .dm import Dm
from .empad import Empad
from .format import Format
from .frms6 import Frms6
from .k2is import K2is
from .mib import Mib
from .mrc import Mrc
from .npy import Npy
from .raw import Raw
from .raw_csr import RawCsr
from .seq import Seq
from .ser import Ser
from .tvips import Tvips

__all__ = ["FORMATS", "Format"]

_ROWS: tuple[Format, ...] = (
    Raw(),
    Npy(),
    Empad(),
    Mib(),
    Tvips(),
    Seq(),
    Blo(),
    Frms6(),
    Mrc(),
    K2is(),
    RawCsr(),
    Ser(),
    Dm(),
)

FORMATS: Mapping[str, Format] = MappingProxyType({form.name: form for form in _ROWS})
"""All formats, by their name in catalogues and requests."""
