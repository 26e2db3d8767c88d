"""Pages of a running service."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlencode

import numpy as np
import pytest

from tests.app.console.browsing import HTML, page, post
from tests.app.harness import Answer, Service, is_problem, wait_until

NAME = "a'b&c"


@pytest.fixture(scope="module")
def roots(roots: Path) -> Path:
    np.save(roots / f"{NAME}.npy", np.arange(4 * 6, dtype="<u2").reshape(4, 3, 2))
    return roots


def test_people_get_the_first_page_and_programs_the_documentation(place: Service) -> None:
    assert "<h1>" in page(place, "/")
    for headers in ([], [("Accept", "*/*")]):
        answer = place.get("/", headers)
        assert (answer.status, answer.getheader("Location")) == (307, "docs")


def test_a_host_that_is_no_address_is_no_failure(place: Service) -> None:
    with place.connect() as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: [1.2.3]\r\nAccept: text/html\r\n\r\n")
        assert client.recv(12) == b"HTTP/1.1 200"


def test_a_sign_in_that_ends_early_is_no_failure(place: Service) -> None:
    failed = 'status="500"'
    with place.connect() as client:
        head = b"POST /console/sign-in HTTP/1.1\r\nHost: here\r\nContent-Length: 5000\r\n\r\nkey=a"
        client.sendall(head)
    wait_until(lambda: 'route="/console/sign-in",status=' in place.get("/metrics").body.decode())
    assert failed not in place.get("/metrics").body.decode()


def test_files_are_kept_for_good(place: Service) -> None:
    for address in re.findall(r'(?:src|href)="(/console/assets/[^"]+)"', page(place, "/")):
        answer = place.get(address)
        assert answer.status == 200
        assert answer.getheader("Cache-Control") == "public, max-age=31536000, immutable"
        assert answer.getheader("X-Content-Type-Options") == "nosniff"
        other = re.sub(r"[0-9a-f]{16}", "0" * 16, address)
        is_problem(place.get(other), "not-found", 404)
    is_problem(place.get("/console/assets/x/../../pages.py"), "not-found", 404)


def test_runs_are_listed_page_by_page(place: Service) -> None:
    assert "There are no runs" in page(place, "/console/runs")
    spec = {"perspective": "gul", "reports": ["melt", "aal"]}
    made = [post(place, "/v1/runs", spec)["id"] for _ in range(101)]
    first = page(place, "/console/runs")
    more = re.search(r'rel="next" href="(\?after=[^"]+)"', first)
    assert more is not None
    second = page(place, f"/console/runs{more[1]}")
    listed = [re.findall(r'href="/console/runs/([^"]+)"', text) for text in (first, second)]
    assert (len(listed[0]), len(listed[1])) == (100, 1)
    assert [*listed[0], *listed[1]] == made[::-1]
    named = post(place, "/v1/runs", spec | {"label": "Flood v3, <b>2026</b>"})["id"]
    for sought, expected in (("flood", [named]), ("v3, <B>", [named]), (made[5], [made[5]])):
        text = page(place, f"/console/runs?{urlencode({'q': sought})}")
        assert re.findall(r'href="/console/runs/([^"]+)"', text) == expected
    assert "<b>2026" not in text
    assert "looked through" not in text
    assert "no runs of this label or id" in page(place, "/console/runs?q=drought")
    assert "no done runs of this" in page(place, "/console/runs?q=flood&state=done")
    ident = listed[0][0]
    assert ident in page(place, f"/console/runs/{ident}")
    assert 'aria-current="page">Runs' in first


def test_files_below_the_roots_are_listed(place: Service, roots: Path) -> None:
    """But none outside of them, and a thousand of a directory at most."""
    for number in range(1001):
        (roots / "many" / f"{number}.raw").parent.mkdir(exist_ok=True)
        (roots / "many" / f"{number}.raw").touch()
    top = place.get("/console/files").json()
    assert {"name": "many", "directory": True} in top["entries"]
    assert {"name": f"{NAME}.npy", "directory": False} in top["entries"]
    many = place.get("/console/files?path=many").json()
    assert [entry["name"] for entry in many["entries"]] == [f"{n}.raw" for n in range(1000)]
    assert many["of"] == 1001
    for path in ("../console", "/etc", "none", "many/0.raw"):
        assert place.get(f"/console/files?path={path}").json()["entries"] == [], path


def test_datasets_are_listed(place: Service) -> None:
    assert "There are no datasets" in page(place, "/console/datasets")
    ident = post(place, "/v1/datasets", {"files": [f"{NAME}.npy"]})["id"]
    assert f'href="/console/datasets/{ident}"' in page(place, "/console/datasets")
    assert ident in page(place, f"/console/datasets/{ident}")


def test_a_broken_dataset_can_be_deleted(place: Service, roots: Path) -> None:
    np.save(roots / "gone.npy", np.zeros((2, 3, 4), "<u2"))
    ident = post(place, "/v1/datasets", {"files": ["gone.npy"]})["id"]
    assert f"/v1/datasets/{ident}/image.png" in page(place, f"/console/datasets/{ident}")
    (roots / "gone.npy").unlink()
    text = place.get(f"/console/datasets/{ident}", [HTML]).body.decode()
    assert f'data-path="/v1/datasets/{ident}"' in text
    assert "data-path" not in place.get("/console/datasets/none", [HTML]).body.decode()


def answers(service: Service, *paths: str) -> list[Answer]:
    return [service.get(path, [HTML]) for path in paths]


def test_its_name_leads_to_the_first_page(place: Service) -> None:
    for path, location in (("/console", "./"), ("/console/", "../")):
        answer = place.get(path, [HTML])
        assert (answer.status, answer.getheader("Location")) == (307, location)


def test_without_the_console_there_are_no_pages(tmp_path: Path) -> None:
    service = Service(tmp_path, "--console", "off")
    try:
        (root,) = answers(service, "/")
        assert (root.status, root.getheader("Location")) == (307, "docs")
        for answer in answers(service, "/console/runs", "/console/assets/x/api.js", "/console"):
            is_problem(answer, "not-found", 404)
        assert "<nav" not in service.get("/problems/busy").body.decode()
    finally:
        service.kill()
