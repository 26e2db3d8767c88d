"""Settings that ask for what there is not are refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from app.oasis.settings import Losses, losses_of, read_settings
from core.errors import InputError


def _write(tmp_path: Path, **changes: Any) -> Path:  # noqa: ANN401 - JSON
    document: dict[str, Any] = {
        "gul_output": True,
        "gul_summaries": [{"id": 1, "ord_output": {"elt_moment": True}}],
    }
    path = tmp_path / "analysis_settings.json"
    path.write_text(json.dumps(document | changes))
    return path


def _sets(*keys: dict[str, Any], ids: tuple[int, ...] = (1,)) -> list[dict[str, Any]]:
    return [{"id": i, "ord_output": key} for i, key in zip(ids, keys, strict=True)]


def test_keys_become_outputs_and_options(tmp_path: Path) -> None:
    keys = {
        "psept_oep": True,
        "ept_full_uncertainty_aep": True,
        "alt_period": True,
        "plt_sample": False,
        "alct_confidence": 0.9,
        "return_period_file": True,
        "parquet_format": True,
    }
    (request,) = read_settings(_write(tmp_path, gul_summaries=_sets(keys))).sets["gul"]
    assert request.outputs == ("palt", "ept", "psept")
    assert sorted(request.curves) == ["F", "w"]
    assert (request.confidence, request.at_return_periods, request.form) == (0.9, True, "parquet")
    assert not request.joined


def test_perspectives_without_outputs_are_left_out(tmp_path: Path) -> None:
    settings = read_settings(_write(tmp_path, il_output=False, il_summaries=_sets({})))
    assert list(settings.sets) == ["gul"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"gul_output": False}, "asks for no output"),
        ({"gul_summaries": []}, "gul_output is true, but there are no gul_summaries"),
        (
            {"gul_summaries": _sets({"elt_sampel": True})},
            r"set 1: ord_output has no key 'elt_sampel'\. Is it elt_sample\?",
        ),
        ({"gul_summaries": _sets({}, {}, ids=(1, 1))}, "has the summary set 1 twice"),
        ({"gul_summaries": [{"ord_output": {}}]}, "a set without an id from 1"),
        ({"gul_summaries": _sets({"alct_confidence": 95})}, "alct_confidence is 95, not from 0"),
        ({"ri_inuring_priorities": ["first"]}, "ri_inuring_priorities are not whole numbers"),
    ],
)
def test_what_cannot_be_asked_for(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_settings(_write(tmp_path, **changes))


@pytest.mark.parametrize("text", ["{", "[]"])
def test_files_that_are_no_settings(tmp_path: Path, text: str) -> None:
    path = tmp_path / "analysis_settings.json"
    path.write_text(text)
    with pytest.raises(InputError, match="is not"):
        read_settings(path)


def test_legacy_requests_are_told(tmp_path: Path) -> None:
    summaries = [{"id": 1, "eltcalc": True, "ord_output": {"elt_moment": True}}]
    settings = read_settings(_write(tmp_path, gul_summaries=summaries))
    assert settings.legacy == ("gul_summaries, set 1: eltcalc",)


def test_losses_after_inuring_priorities(tmp_path: Path) -> None:
    summaries = _sets({"elt_moment": True})
    path = _write(
        tmp_path,
        ri_output=True,
        rl_output=True,
        ri_inuring_priorities=[10, 30],
        ri_summaries=summaries,
        rl_summaries=summaries,
    )
    settings = read_settings(path)
    levels = {10: 2, 20: 3, 30: 4}
    # Priority 30 is the last: what follows it are the final net losses, without a prefix.
    assert losses_of(settings, "ri", levels, 4) == [Losses("ri", 2, 2), Losses("ri", 4)]
    assert [losses.name for losses in losses_of(settings, "rl", levels, 2)] == ["rl_IP1", "rl_IP2"]
    assert losses_of(settings, "gul", levels, 4) == [Losses("gul")]
    with pytest.raises(InputError, match=r"asks for 10, which does not exist\. .* are 1, 2"):
        losses_of(settings, "ri", {1: 1, 2: 2}, 2)
    with pytest.raises(InputError, match="ri_output is true, but the run has no layers"):
        losses_of(settings, "ri", {}, 0)
