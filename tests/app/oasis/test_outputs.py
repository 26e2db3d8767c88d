"""The facts about outputs agree with the engine and with each other."""

from __future__ import annotations

import subprocess
import sys

import pytest

from app.oasis import outputs
from core.losses.reports import REPORTS
from core.losses.reports.report import CURVES


def test_every_output_is_a_report_of_the_engine() -> None:
    assert {output.report for output in outputs.OUTPUTS.values()} < set(REPORTS)
    assert outputs.MEANS_ONLY_REPORT in REPORTS


def test_every_output_has_a_key_and_every_key_an_output() -> None:
    assert {key.output for key in outputs.ORD_KEYS.values()} == set(outputs.OUTPUTS)


def test_every_curve_of_the_engine_has_one_key() -> None:
    letters = [key.curve for key in outputs.ORD_KEYS.values() if key.curve is not None]
    assert sorted(letters) == sorted(CURVES)


def test_names_are_those_of_a_run() -> None:
    assert outputs.output_file(outputs.stem("ri", 1, 2), "selt", "csv") == "ri_IP1_S2_selt.csv"
    gul = outputs.stem("gul", None, 1)
    assert outputs.kat_file(gul, "selt", 3) == "kat/gul_S1_elt_sample_P3"
    assert outputs.kat_file(gul, "mplt", 3) == "kat/gul_S1_plt_moment_P3"
    assert outputs.summary_file(gul, "psept", 3) == "gul_S1_summaryleccalc/P3.bin"
    log = outputs.log_file("eltpy", 17, "u", {"OASIS_PYTOOLS_LOG_DIR": "log/4"})
    assert str(log) == "log/4/eltpy_17_u.log"


@pytest.mark.parametrize(
    ("variable", "value"), [("OASIS_FLOAT", "f2"), ("OASIS_FLOAT", ""), ("OASIS_INT", "i8")]
)
def test_widths_that_are_not_supported_are_refused_by_name(variable: str, value: str) -> None:
    with pytest.raises(ValueError, match=f"{variable}={value} is not supported"):
        outputs.float_width({variable: value})


def test_widths_without_variables_are_four_bytes() -> None:
    assert outputs.float_width({}) == 4
    assert outputs.float_width({"OASIS_FLOAT": "f8"}) == 8


def test_facts_are_there_without_the_engine() -> None:
    code = "import sys, app.oasis.outputs; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
