"""Pages of datasets, as they are without scripts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.console.pages import Pages
from tests.app.console.browsing import HTML, page, post
from tests.app.harness import Service

HOSTILE = "<img src=x onerror=alert(1)>'\"&.npy"
AXES = [
    {"name": "y", "unit": "nm", "scale": 0.5},
    {"name": "x", "unit": "<b>nm</b>", "scale": 0.5, "offset": -2},
    {"name": "v"},
    {"name": "u"},
]


@pytest.fixture(scope="module")
def roots(roots: Path) -> Path:
    values = np.arange(4 * 6 * 3 * 2, dtype="<u2").reshape(4, 6, 3, 2)
    np.save(roots / HOSTILE, values)
    np.save(roots / "spectra.npy", values.reshape(24, 6))
    values.tofile(roots / "headerless.raw")
    (roots / "lines.txt").write_text("a\nb\n")
    return roots


def register(service: Service, **values: Any) -> Any:  # noqa: ANN401 - JSON
    return post(service, "/v1/datasets", values)


def listed(service: Service, query: str = "") -> list[str]:
    return re.findall(r'<tr data-id="([^"]+)">', page(service, f"/console/datasets{query}"))


def test_a_page_tells_format_shape_axes_with_units_and_files_as_text(place: Service) -> None:
    found = register(
        place, id="scan", files=[HOSTILE], nav_shape=[4, 6], sig_shape=[3, 2], axes=AXES
    )
    text = page(place, "/console/datasets/scan")
    assert re.search("scan 4 . 6, frame 3 . 2<", text)
    for part in ("24 of 12 bytes", found["fingerprint"], "<td>nm</td>"):
        assert part in text
    assert "&lt;b&gt;nm&lt;/b&gt;" in text
    assert "&lt;img src=x onerror=alert(1)&gt;" in text
    assert "<img src=x" not in text
    assert "<b>nm" not in text
    assert 'data-id="scan"' in text
    assert "/dataset.js" in text


def test_metadata_of_files_is_text() -> None:
    described = {
        "id": "scan",
        "format": "dm",
        "items": {},
        "files": [],
        "immutable": False,
        "growing": False,
        "fingerprint": "0",
        "metadata": {"<b>": "<i>", "keys": {"</td>": ["<script>", 1, None]}, "items": 3},
    }
    text = bytes(Pages().answer("dataset", dataset=described).body).decode()
    assert "&lt;b&gt;" in text
    assert "&lt;i&gt;" in text
    for tag in ("<b>", "<i>", "<script>"):
        assert tag not in text


def test_a_page_tells_that_frames_are_missing(place: Service) -> None:
    shapes = {"nav_shape": [6, 6], "sig_shape": [3, 2]}
    spec = {"format": "raw", "dtype": "<u2", "partial": True, "file_header": 0}
    register(place, id="short", files=["headerless.raw"], **spec, **shapes)
    assert "12 positions at the end of the scan have no frame" in page(
        place, "/console/datasets/short"
    )


@pytest.mark.parametrize(
    ("name", "spec", "told"),
    [
        (
            "spectra",
            {"files": ["spectra.npy"], "nav_shape": [24], "sig_shape": [6]},
            "those of this dataset have 1",
        ),
        ("lines", {"files": ["lines.txt"], "format": "lines"}, "Items: line"),
    ],
)
def test_what_is_no_scan_of_frames_has_no_browser(
    place: Service, name: str, spec: dict[str, Any], told: str
) -> None:
    register(place, id=name, **spec)
    text = page(place, f"/console/datasets/{name}")
    assert told in text
    assert "/dataset.js" not in text


def test_datasets_are_listed_by_the_begin_of_their_names_page_by_page(place: Service) -> None:
    for number in range(103):
        register(
            place,
            id=f"part.{number:03}",
            files=["spectra.npy"],
            nav_shape=[24],
            sig_shape=[6],
        )
    register(place, id="part", files=["spectra.npy"], nav_shape=[24], sig_shape=[6])
    register(place, id="paru", files=["spectra.npy"], nav_shape=[24], sig_shape=[6])
    first = page(place, "/console/datasets?prefix=part")
    assert listed(place, "?prefix=part")[:2] == ["part", "part.000"]
    (more,) = re.findall(r'rel="next" href="([^"]+)"', first)
    rest = listed(place, more.replace("&amp;", "&"))
    assert rest == ["part.099", "part.100", "part.101", "part.102"]
    assert listed(place, "?prefix=part.102") == ["part.102"]
    assert listed(place, "?prefix=nothing") == []
    assert "No dataset has a name that begins so" in page(place, "/console/datasets?prefix=nothing")


def test_what_no_name_begins_with_is_refused_as_text(place: Service) -> None:
    answer = place.get("/console/datasets?prefix=%3Cu%3E", [HTML])
    assert answer.status == 400
    assert b"<u>" not in answer.body
