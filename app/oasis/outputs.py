"""Facts about the outputs of an Oasis run: keys, files, flags, environment and log protocol.

Read from and measured on oasislmf 2.5.8. This is the one place that knows them; it imports
nothing but the standard library, so that an executable can start from it in no time.

An analysis asks for outputs with the keys of ``ord_output``, for each summary set of a
perspective. A key stands for a report of the engine and a file in ``output/``::

    "gul_summaries": [{"id": 1, "ord_output": {"elt_sample": true, ...}}]
                             |                      |
                             v                      v
             output/gul_S1_selt.csv  <--  report selt of set 1 of the gul streams
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

PERSPECTIVES = ("gul", "il", "ri", "rl")
"""In the order in which an analysis computes them."""


@dataclass(frozen=True, slots=True)
class Output:
    """A file in ``output/``."""

    name: str
    """Last part of the file's name, such as ``selt`` of ``gul_S1_selt.csv``."""
    report: str
    """Report of the engine, whose columns, in order, are those of the file."""
    tool: str
    """The peer's program that computes it."""
    flag: str
    """Flag of ``tool`` that names the file."""
    kat_flag: str | None = None
    """Flag of ``katpy`` for partitions of it; None for reports of whole runs."""


@dataclass(frozen=True, slots=True)
class OrdKey:
    """A key of ``ord_output`` that asks for an output."""

    output: str
    """Name of the output."""
    curve: str | None = None
    """For ept and psept: letter of the curve, as the flags of ``lecpy`` and as ``curves``."""


_OUTPUTS = (
    Output("selt", "selt", "eltpy", "-s", "-s"),
    Output("melt", "melt", "eltpy", "-m", "-m"),
    Output("qelt", "qelt", "eltpy", "-q", "-q"),
    Output("splt", "splt", "pltpy", "-s", "-S"),
    Output("mplt", "mplt", "pltpy", "-m", "-M"),
    Output("qplt", "qplt", "pltpy", "-q", "-Q"),
    Output("palt", "aal", "aalpy", "-a"),
    # The columns of palt: aalpy is never called with -M, its option for means only.
    Output("altmeanonly", "aal", "aalpy", "-a"),
    Output("alct", "alct", "aalpy", "-c"),
    Output("ept", "ept", "lecpy", "-O"),
    Output("psept", "psept", "lecpy", "-o"),
)
OUTPUTS: Mapping[str, Output] = {output.name: output for output in _OUTPUTS}
"""Every output by its name."""

MEANS_ONLY_REPORT = "aal_mean"
"""Report of ``aalpy -M``, which no key of ``ord_output`` asks for."""

ORD_KEYS: Mapping[str, OrdKey] = {
    "elt_sample": OrdKey("selt"),
    "elt_moment": OrdKey("melt"),
    "elt_quantile": OrdKey("qelt"),
    "plt_sample": OrdKey("splt"),
    "plt_moment": OrdKey("mplt"),
    "plt_quantile": OrdKey("qplt"),
    "alt_period": OrdKey("palt"),
    "alt_meanonly": OrdKey("altmeanonly"),
    "alct_convergence": OrdKey("alct"),
    "ept_full_uncertainty_aep": OrdKey("ept", "F"),
    "ept_full_uncertainty_oep": OrdKey("ept", "f"),
    "ept_mean_sample_aep": OrdKey("ept", "S"),
    "ept_mean_sample_oep": OrdKey("ept", "s"),
    "ept_per_sample_mean_aep": OrdKey("ept", "M"),
    "ept_per_sample_mean_oep": OrdKey("ept", "m"),
    "psept_aep": OrdKey("psept", "W"),
    "psept_oep": OrdKey("psept", "w"),
}
"""The keys that ask for an output."""

CONFIDENCE_KEY = "alct_confidence"
RETURN_PERIODS_KEY = "return_period_file"
PARQUET_KEY = "parquet_format"
JOIN_KEY = "join_summary_info"
OPTION_KEYS = frozenset({CONFIDENCE_KEY, RETURN_PERIODS_KEY, PARQUET_KEY, JOIN_KEY})
"""The keys of ``ord_output`` that say how."""

KAT_NAMES: Mapping[str, str] = {
    key.output: name for name, key in ORD_KEYS.items() if OUTPUTS[key.output].kat_flag is not None
}
"""Name of the partitions of an output in ``work/kat``: ``elt_sample`` of selt, and so on."""

SUMMARY_FOLDERS: Mapping[str, str] = {
    "palt": "summary_palt",
    "alct": "summary_palt",
    "altmeanonly": "summary_altmeanonly",
    "ept": "summaryleccalc",
    "psept": "summaryleccalc",
}
"""Folder in ``work`` of what an output of the whole run is computed from, after ``gul_S1_``."""


def stem(perspective: str, priority: int | None, set_id: int) -> str:
    """Beginning of the names of a set: ``gul_S1``, or ``ri_IP1_S2`` after a priority."""
    return f"{run_name(perspective, priority)}_S{set_id}"


def run_name(perspective: str, priority: int | None) -> str:
    """Name of a perspective, or of reinsurance after an inuring priority: ``ri_IP1``."""
    return perspective if priority is None else f"{perspective}_IP{priority}"


def output_file(name: str, output: str, form: str) -> str:
    """Name of a file in ``output/``: ``gul_S1_selt.csv`` of stem, output and format."""
    return f"{name}_{output}.{form}"


def kat_file(name: str, output: str, process: int) -> str:
    """Path below ``work`` of the rows of one process: ``kat/gul_S1_elt_sample_P1``."""
    return f"kat/{name}_{KAT_NAMES[output]}_P{process}"


def summary_file(name: str, output: str, process: int) -> str:
    """Path below ``work`` of the losses of one process: ``gul_S1_summary_palt/P1.bin``."""
    return f"{name}_{SUMMARY_FOLDERS[output]}/P{process}.bin"


# -- environment and logs ---------------------------------------------------------------

FLOAT_VARIABLE = "OASIS_FLOAT"
FLOAT_WIDTHS: Mapping[str, int] = {"f4": 4, "float32": 4, "f8": 8, "float64": 8, "f": 4, "d": 8}
"""Values of OASIS_FLOAT to bytes of a loss; the peer takes any name that numpy knows."""
_WIDTH = re.compile(r"(?:read the stream with|Use) float_width=([48])")
INT_VARIABLE = "OASIS_INT"
INT_WIDTHS: Mapping[str, int] = {"i4": 4, "int32": 4, "i": 4}
"""Values of OASIS_INT to bytes of an id; the peer takes wider ones, and Thalweg refuses them."""
AAL_MEMORY_VARIABLE = "OASIS_AAL_MEMORY"
"""GB that aalpy may use, 4 by default."""
TMPDIR_VARIABLE = "OASIS_TMPDIR"

LOG_DIR_VARIABLE = "OASIS_PYTOOLS_LOG_DIR"
LOG_LEVEL_VARIABLE = "OASIS_PYTOOLS_LOG_LEVEL"
"""A number of the module logging; it beats the option -v."""
LOG_FOLDER = "log"
"""Where logs go without LOG_DIR_VARIABLE, below the run directory."""
LOG_NAME = "oasislmf"
LOG_STARTING = "starting process"
LOG_FINISHING = "finishing process"
"""Without a line with this, check_complete takes the process for lost."""


def log_file(tool: str, pid: int, unique: str, environ: Mapping[str, str] = os.environ) -> Path:
    """Path of the log of a process, ``log/eltpy_<pid>_<unique>.log``."""
    return Path(environ.get(LOG_DIR_VARIABLE, LOG_FOLDER)) / f"{tool}_{pid}_{unique}.log"


def float_width(environ: Mapping[str, str] = os.environ) -> int:
    """Bytes of a loss that OASIS_FLOAT asks for, 4 without it; those of an id are 4.

    Raises:
        ValueError: naming the value, of OASIS_INT too, which is not supported.
    """
    _width(INT_VARIABLE, "i4", INT_WIDTHS, environ)
    return _width(FLOAT_VARIABLE, "f4", FLOAT_WIDTHS, environ)


def in_words_of_runs(text: str) -> str:
    """What the engine says, with the variable that a run has the width of its losses from."""
    return _WIDTH.sub(rf"{FLOAT_VARIABLE}=f\1 has to be set for the whole run", text)


def _width(name: str, default: str, widths: Mapping[str, int], environ: Mapping[str, str]) -> int:
    value = environ.get(name, default)
    if value not in widths:
        supported = ", ".join(widths)
        raise ValueError(f"{name}={value} is not supported: unset it, or choose of {supported}")
    return widths[value]
