"""Random programmes recover what OpenQuake's reinsurance does.

``THALWEG_OPENQUAKE_PYTHON`` names the interpreter of an environment that has
``openquake.engine`` 3.26. OpenQuake has three kinds of treaties, which are ours as follows:

========  =========================================================================
prop      QS of a fraction, with at most so much of an event; all of one priority
wxlr      PR, one priority after the other
catxl     CXL, one priority after the other; limits are those of attachment and line
========  =========================================================================

Left out is what OpenQuake computes otherwise: with a limited ``prop``, ``wxlr`` that do not see
what it leaves; and limits that hold for each set of policies that share all later treaties.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from core.portfolio.inuring import Subject, run_programme
from core.portfolio.losses import Calendar, OccurrenceLosses, Occurrences
from core.portfolio.programme import parse_programme
from tests.core.portfolio.programmes import seeded

PYTHON = os.environ.get("THALWEG_OPENQUAKE_PYTHON")
PROGRAMMES = 300
POLICIES = 6

pytestmark = pytest.mark.skipif(
    PYTHON is None, reason="THALWEG_OPENQUAKE_PYTHON names no python with openquake.engine"
)


def random_case(random: Random) -> dict[str, Any]:
    """Treaties, policies and losses, as the peer takes them."""
    treaties: list[dict[str, Any]] = []
    policies: list[dict[str, float]] = [{} for _ in range(POLICIES)]

    def add(kind: str, deductible: float, limit: float, flags: list[float]) -> None:
        name = f"{kind}{len(treaties)}"
        treaty = {"id": name, "type": kind, "deductible": deductible, "limit": limit}
        treaties.append(treaty)
        for policy, flag in zip(policies, flags, strict=True):
            policy[name] = flag

    limited = random.random() < 0.3
    for _ in range(random.randint(1 if limited else 0, 2)):
        share = round(random.uniform(0.1, 0.5), 2)
        scope = [1.0] * POLICIES if limited else [float(random.random() < 0.6) for _ in policies]
        add("prop", 0, random.uniform(1e4, 5e4) if limited else 1e100, [share * f for f in scope])
    if not limited:
        for _ in range(random.randint(0, 2)):
            deductible = random.uniform(100, 5000)
            limit = deductible + random.uniform(100, 9000)
            add("wxlr", deductible, limit, [float(random.random() < 0.6) for _ in policies])
    _add_events_covers(random, add, limited=limited)
    if not treaties:
        add("catxl", 1000, 9000, [1.0] * POLICIES)
    losses = [
        [event, policy, random.lognormvariate(8.5, 1)]
        for event in range(1, 21)
        for policy in range(POLICIES)
        if random.random() < 0.7
    ]
    return {"treaties": treaties, "policies": policies, "losses": losses}


def _add_events_covers(random: Random, add: Any, *, limited: bool) -> None:  # noqa: ANN401 - a function
    """Covers of some policies each, then one of all: no two that overlap in part."""
    cuts = [0, POLICIES] if limited else sorted({0, random.randint(1, POLICIES - 1), POLICIES})
    for a, b in itertools.pairwise(cuts):
        for _ in range(random.randint(0, 2)):
            deductible = random.uniform(1000, 20_000)
            flags = [float(a <= k < b) for k in range(POLICIES)]
            add("catxl", deductible, deductible + random.uniform(1000, 40_000), flags)
    if random.random() < 0.5:
        add("catxl", 5000, 30_000, [1.0] * POLICIES)


def ours(case: dict[str, Any]) -> dict[str, dict[str, float]]:
    """What we make of it, event by event: each is a period."""
    layers = []
    for k, treaty in enumerate(case["treaties"]):
        flags = [policy[treaty["id"]] for policy in case["policies"]]
        layer: dict[str, Any] = {
            "ReinsNumber": k + 1,
            "InuringPriority": 1 if treaty["type"] == "prop" else k + 2,
            "Scope": [str(p) for p, flag in enumerate(flags) if flag],
        }
        line = treaty["limit"] - treaty["deductible"]
        if treaty["type"] == "prop":
            layer |= {"ReinsType": "QS", "CededPercent": max(flags)}
            layer |= {"OccLimit": None if line > 1e18 else line}
        elif treaty["type"] == "wxlr":
            layer |= {"ReinsType": "PR", "RiskAttachment": treaty["deductible"], "RiskLimit": line}
        else:
            layer |= {"ReinsType": "CXL", "OccAttachment": treaty["deductible"], "OccLimit": line}
        if layer["Scope"]:
            layers.append(layer)
    events, policies, losses = map(np.array, zip(*case["losses"], strict=True))
    periods, starts = np.unique(events, return_index=True)
    subject = Subject(
        OccurrenceLosses(
            np.append(starts, len(events)), periods.astype(np.int32),
            np.ones(len(periods), np.int32), (events - 1).astype(np.int32), losses,
        ),
        [str(p) for p in range(POLICIES)], policies.astype(np.int32), np.ones(len(events)),
    )  # fmt: skip
    when = np.arange(1, 21, dtype=np.int32)
    calendar = Calendar(20, Occurrences(when, when, np.zeros(20, np.int64)), np.zeros(0))
    got = run_programme(parse_programme({"layers": layers}), subject, calendar, 1)
    ceded = {layer.number: got.ceded(k) for k, layer in enumerate(got.programme.layers)}
    nothing = np.zeros(len(periods))
    names = {treaty["id"]: k for k, treaty in enumerate(case["treaties"], 1)}
    return {
        str(event): {"retention": got.net[got.subject.starts[i] : got.subject.starts[i + 1]].sum()}
        | {name: ceded.get(k, nothing)[i] for name, k in names.items()}
        for i, event in enumerate(periods.tolist())
    }


def test_programmes_recover_what_openquake_does(tmp_path: Path) -> None:
    cases = [random_case(seeded(seed)) for seed in range(PROGRAMMES)]
    peer = Path(__file__).with_name("peer_openquake.py")
    done = subprocess.run(
        [str(PYTHON), str(peer)], input=json.dumps(cases), capture_output=True, text=True,
        timeout=600, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    for case, expected in zip(cases, json.loads(done.stdout.splitlines()[-1]), strict=True):
        got = ours(case)
        assert got.keys() == {str(int(float(event))) for event in expected}
        for event, amounts in expected.items():
            # They round to six decimals.
            assert got[str(int(float(event)))] == pytest.approx(amounts, rel=1e-9, abs=1e-4), case
