"""Pages of runs on a running service, as browsers without scripts see them."""

from __future__ import annotations

import html
import re

import pytest

from tests.app.console.browsing import page
from tests.app.harness import Service, is_problem, wait_until
from tests.app.runs.requests import TUS, Uploader, stream
from tests.auxiliary import packed_occurrence

HOSTILE = "<img src=x onerror=alert(1)>"


def listed(text: str) -> list[str]:
    return re.findall(r'<tr id="run-([0-9a-f]+)"', text)


def console(uploader: Uploader) -> str:
    return uploader.path.replace("/v1", "/console")


def ident(uploader: Uploader) -> str:
    return uploader.path.rpartition("/")[2]


def with_inputs(place: Service) -> Uploader:
    """A run of two partitions with occurrences, and summaries that are described."""
    uploader = Uploader(place, reports=["aal", "ept"], options={"partitions": 2})
    occurrence = packed_occurrence((1, 1, 1), (60, 2, 1), periods=12)
    assert uploader.ask("PUT", f"{uploader.path}/inputs/occurrence", occurrence).status in {
        200,
        201,
    }
    rows = "".join(f'{n},"{HOSTILE}",Zone {n % 7}\n' for n in range(1, 3001))
    info = f"summary_id,Name,Area\n{rows}".encode()
    assert uploader.ask("PUT", f"{uploader.path}/inputs/summary_info", info).status in {200, 201}
    return uploader


def test_a_list_is_of_one_state_and_says_how_many_partitions_there_will_be(place: Service) -> None:
    uploader = Uploader(place, options={"partitions": 3})
    other = Uploader(place)
    assert other.ask("POST", f"{other.path}/streams", stream()).status == 201
    every = page(place, "/console/runs")
    assert {ident(uploader), ident(other)} <= set(listed(every))
    assert "0 of 3" in every
    created = listed(page(place, "/console/runs?state=created"))
    assert ident(uploader) in created
    assert ident(other) not in created
    assert ident(other) in listed(page(place, "/console/runs?state=uploading"))
    assert "There are no failed runs." in page(place, "/console/runs?state=failed")


def test_labels_are_shown_as_text(place: Service) -> None:
    path = Uploader(place, label="<b>flood</b>").path
    for text in (page(place, "/console/runs"), page(place, f"/console{path.removeprefix('/v1')}")):
        assert "&lt;b&gt;flood&lt;/b&gt;" in text
        assert "<b>flood" not in text


def test_a_state_that_there_is_not_is_refused(place: Service) -> None:
    assert place.get("/console/runs?state=gone").status == 422


def test_pages_of_one_state_together_have_all_of_its_runs(place: Service) -> None:
    wanted = {ident(Uploader(place, perspective="ri")) for _ in range(120)}
    found: list[str] = []
    path = "/console/runs?state=created"
    for _ in range(10):
        text = page(place, path)
        found += listed(text)
        following = re.search(r'rel="next" href="([^"]+)"', text)
        if following is None:
            break
        path = f"/console/runs{html.unescape(following[1])}"
        assert "state=created" in path
    assert wanted <= set(found)
    assert len(found) == len(set(found))


def test_the_form_of_a_new_run_names_reports_and_what_they_need(place: Service) -> None:
    text = page(place, "/console/runs/new")
    assert 'value="ept" data-needs="occurrence"' in text
    # What a run costs most is decided by them.
    assert text.index('name="return_periods"') < text.index('name="perspective"')
    assert 'value="qelt" data-needs="quantiles"' in text
    assert "<noscript>" in text


def test_a_run_tells_without_scripts_how_far_it_has_come(place: Service) -> None:
    uploader = with_inputs(place)
    data = stream()
    path = f"{uploader.path}/streams?partition=1"
    assert uploader.ask("POST", path, data).status == 201
    broken = bytearray(stream(first=100))
    broken[20:24] = b"\xff\xff\xff\x7f"
    assert uploader.ask("POST", f"{uploader.path}/streams?partition=2", bytes(broken)).status >= 400
    text = page(place, console(uploader))
    assert f"{len(data):,} of {len(data):,}" in text
    assert "1 complete of 2, 1 failed" in text
    assert re.search(r"event \d+ · offset \d+ <a href=\"/problems/", text)
    assert 'id="choose-streams"' in text


def test_a_run_that_is_done_links_the_files_of_its_reports(place: Service) -> None:
    uploader = Uploader(place)
    assert uploader.ask("POST", f"{uploader.path}/streams", stream()).status == 201
    uploader.ask("POST", f"{uploader.path}/seal")
    wait_until(lambda: uploader.describe()["state"] == "done")
    text = page(place, console(uploader))
    (link,) = re.findall(r'href="([^"]+format=csv)"', text)
    assert place.get(html.unescape(link)).status == 200
    assert 'id="choose-streams"' not in text
    assert 'id="curves"' in text


def test_a_run_shows_what_its_owner_should_know(place: Service) -> None:
    uploader = with_inputs(place)
    for partition, first in ((1, 900_001), (2, 900_101)):
        path = f"{uploader.path}/streams?partition={partition}"
        assert uploader.ask("POST", path, stream(first=first)).status == 201
    uploader.ask("POST", f"{uploader.path}/seal")
    wait_until(lambda: uploader.describe()["state"] == "done")
    notes = uploader.describe()["notes"]
    assert any("never occur" in note for note in notes)
    text = html.unescape(page(place, console(uploader)))
    assert all(f'<p class="note">{note}</p>' in text for note in notes)


def test_more_is_known_of_a_run_than_its_resource_tells(place: Service) -> None:
    uploader = with_inputs(place)
    before = place.get(f"{console(uploader)}/about").json()
    assert (before["samples"], before["periods"], before["perspective"]) == (None, 12, "gul")
    assert uploader.ask("POST", f"{uploader.path}/streams", stream()).status == 201
    assert place.get(f"{console(uploader)}/about").json()["samples"] == 4


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", list(range(1, 21))),
        ("?q=zone+3", list(range(3, 143, 7))),
        ("?q=2999", [2999]),
        ("?ids=5,2,4000", [2, 5]),
        ("?q=nowhere", []),
    ],
)
def test_summaries_are_found_by_a_search(place: Service, query: str, found: list[int]) -> None:
    answer = place.get(f"{console(with_inputs(place))}/about{query}").json()
    assert [each["id"] for each in answer["summaries"]] == found
    assert answer["columns"] == ["Name", "Area"]
    # A name is data: whoever shows it makes a text of it.
    assert all(each["name"].startswith(HOSTILE) for each in answer["summaries"])


def test_a_run_without_descriptions_says_so(place: Service) -> None:
    answer = place.get(f"{console(Uploader(place))}/about?q=1").json()
    assert answer["summaries"] is None
    assert answer["columns"] is None
    assert answer["periods"] is None


def test_inputs_that_are_gone_leave_the_rest(place: Service) -> None:
    uploader = with_inputs(place)
    for name, digest in uploader.describe()["inputs"].items():
        assert uploader.ask("DELETE", f"/v1/inputs/{name}/{digest}").status == 204
    answer = place.get(f"{console(uploader)}/about").json()
    assert (answer["summaries"], answer["periods"]) == (None, None)


@pytest.mark.parametrize("path", ["/console/runs/none", "/console/runs/none/about"])
def test_a_run_that_there_is_not(place: Service, path: str) -> None:
    is_problem(place.get(path), "not-found", 404)


@pytest.mark.parametrize("query", ["ids=x", "ids=1,,2", "q=" + "a" * 201])
def test_a_search_that_cannot_be(place: Service, query: str) -> None:
    assert place.get(f"{console(Uploader(place))}/about?{query}").status == 422


def test_an_upload_keeps_what_it_is_known_again_by(place: Service) -> None:
    """The page knows a file again by what it gave with its stream."""
    uploader = Uploader(place)
    given = "filename YS5iaW4=,beginning MDBmZg=="
    address = uploader.create(1000, "", **{"Upload-Metadata": given})
    answer = uploader.ask("HEAD", address, **TUS)
    assert answer.getheader("Upload-Metadata") == given
    assert (answer.getheader("Upload-Offset"), answer.getheader("Upload-Length")) == ("0", "1000")
