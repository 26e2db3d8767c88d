"""The page of loss sets on a running service, as browsers without scripts see it."""

from __future__ import annotations

import html
import re

from tests.app.console.browsing import page, post
from tests.app.harness import Service, wait_until
from tests.app.runs.requests import Uploader, stream
from tests.auxiliary import packed_occurrence

HOSTILE = "<img src=x onerror=alert(1)>"


def done(place: Service) -> str:
    """A run whose summaries have a dimension that would be markup."""
    uploader = Uploader(place, reports=["aal"])
    occurrence = packed_occurrence((1, 1, 1), (2, 2, 1), periods=12)
    info = f'summary_id,"{HOSTILE}"\n1,a\n'.encode()
    for name, content in (("occurrence", occurrence), ("summary_info", info)):
        assert uploader.ask("PUT", f"{uploader.path}/inputs/{name}", content).status in {200, 201}
    assert uploader.ask("POST", f"{uploader.path}/streams", stream()).status == 201
    uploader.ask("POST", f"{uploader.path}/seal")
    wait_until(lambda: uploader.describe()["state"] == "done")
    return uploader.path.rpartition("/")[2]


def test_loss_sets_are_listed_with_the_runs_that_others_can_be_made_of(place: Service) -> None:
    text = page(place, "/console/portfolio")
    assert "There are no loss sets yet" in text
    assert 'href="/console/runs"' in text
    run = done(place)
    assert f'<option value="{run}">' in page(place, "/console/portfolio")
    names = [f"set{number:03}" for number in range(101)]
    info = place.get(f"/v1/runs/{run}").json()["inputs"]["summary_info"]
    given = {"run": run, "currency": "EUR", "summary_info": info}
    made = [post(place, "/v1/portfolios/loss-sets", {**given, "name": name}) for name in names]
    first = page(place, "/console/portfolio")
    assert HOSTILE not in first
    assert html.escape(HOSTILE) in first
    assert f'<td>EUR</td><td class="number">{made[0]["events"]:,}</td>' in first
    (following,) = re.findall(r'rel="next" href="([^"]+)"', first)
    second = page(place, f"/console/portfolio{html.unescape(following)}")
    boxes = r'type="checkbox" name="sets" value="([^"]+)"'
    assert re.findall(boxes, first) + re.findall(boxes, second) == names
