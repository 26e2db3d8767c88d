"""Templates, and the files that pages load."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from jinja2 import UndefinedError

from app.console.pages import HEADERS, Pages
from tests.server_process import ROOT

HOSTILE = "<script>alert('&\"')</script>"
STATIC = ROOT / "app" / "console" / "static"
MOST = 200_000


def test_values_are_text_wherever_they_come_from() -> None:
    page = Pages().answer("datasets", datasets=[HOSTILE, "a/b?c"], after=HOSTILE, prefix=HOSTILE)
    text = bytes(page.body).decode()
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert(&#39;&amp;&#34;&#39;)" in text
    assert 'href="/console/datasets/%3Cscript%3E' in text
    assert 'href="/console/datasets/a/b%3Fc"' in text


def test_a_page_that_lacks_a_value_is_none() -> None:
    with pytest.raises(UndefinedError):
        Pages().answer("datasets")


def test_pages_run_and_load_nothing_but_the_files_of_the_service() -> None:
    pages = Pages()
    page = pages.answer("sign-in", place="/")
    assert {name: page.headers[name] for name in HEADERS} == HEADERS
    assert "unsafe" not in HEADERS["Content-Security-Policy"]
    loaded = re.findall(r'(?:src|href)="(/console/assets/[^"]+)"', bytes(page.body).decode())
    assert loaded
    for address in loaded:
        *_, digest, name = address.split("/")
        assert digest == pages.digest
        assert pages.assets[name].content


TEMPLATES = sorted((STATIC.parent / "templates").iterdir())


@pytest.mark.parametrize("path", TEMPLATES, ids=[path.stem for path in TEMPLATES])
def test_templates_have_neither_scripts_nor_styles_of_their_own(path: Path) -> None:
    text = path.read_text()
    assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:", text)
    assert all("src=" in tag for tag in re.findall(r"<script[^>]*>", text))
    assert "://" not in text
    # Addresses begin where people see the service.
    assert not re.search(r'(href|src|action)="/', text)


def test_addresses_are_below_the_path_of_the_public_url() -> None:
    text = bytes(Pages(root="/below").answer("sign-in", place="/").body).decode()
    addresses = re.findall(r'(?:href|src|action)="(/[^"]*)"', text)
    assert {"/below/", "/below/console/runs", "/below/console/sign-in"} <= {*addresses}
    assert all(address.startswith("/below/") for address in addresses)


def test_files_stay_small_and_name_no_foreign_host() -> None:
    assets = Pages().assets
    assert assets.keys() == {path.name for path in STATIC.iterdir()}
    loaded = (len(asset.content) for name, asset in assets.items() if name.endswith(("js", "css")))
    assert sum(loaded) <= MOST
    for name, asset in assets.items():
        if name.endswith(("js", "css")):
            # The name of SVG's elements is no address.
            content = asset.content.replace(b'"http://www.w3.org/2000/svg"', b"")
            assert not re.search(rb"[\"'(](https?:)?//[a-z]", content), name


SCRIPTS = sorted(path for path in STATIC.glob("*.js") if not path.name.endswith(".min.js"))
LITERAL = re.compile(r""""[^"\n]*"|'[^'\n]*'|`[^`]*`""")


def bare(code: str) -> str:
    return re.sub(r"[\s;]", "", code)


def test_scripts_are_sent_without_comments_and_idle_space_and_with_all_texts() -> None:
    assets = Pages().assets
    for path in SCRIPTS:
        lines = (line.strip() for line in path.read_text().splitlines())
        code = "\n".join(re.sub(r"(^|(?<=[\])},;]) )// .*", "", line) for line in lines)
        sent = assets[path.name].content.decode()
        assert bare(sent) == bare(code)
        assert len(sent) < len(code)
        assert b" // " not in assets[path.name].content
        texts = [text for line in code.splitlines() for text in LITERAL.findall(line)]
        # White space within a text of two lines would be lost.
        assert all(line.count("`") % 2 == 0 for line in code.splitlines()), path.name
        assert [text for text in texts if text not in sent] == [], path.name
    assert assets["uPlot.LICENSE.txt"].content == (STATIC / "uPlot.LICENSE.txt").read_bytes()


def test_words_of_scripts_stay_apart() -> None:
    assets = Pages().assets
    for path in SCRIPTS:
        sent = assets[path.name].content.decode()
        code = re.sub(r"// .*", "", path.read_text())
        words = re.compile(r"[\w$]+")
        assert set(words.findall(sent)) <= set(words.findall(code)), path.name


def test_the_address_of_files_changes_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    before = Pages()
    later = Pages()
    changed = {**before.assets, "api.js": before.assets["icon.svg"]}
    monkeypatch.setitem(later.__dict__, "assets", changed)
    monkeypatch.delitem(later.__dict__, "digest")
    assert later.digest != before.digest
