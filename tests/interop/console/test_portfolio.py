"""The page of loss sets in Chromium, against what the service answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from app.client import Client
from core.losses.samples import SampleSpec, generate_inputs, generate_stream
from tests.app.harness import Post, Service, ask
from tests.interop.browser import find_browser
from tests.interop.console.chromium import Page, chromium
from tests.scale import PURE_PYTHON

BROWSER = find_browser()
pytestmark = [
    pytest.mark.skipif(BROWSER is None, reason="no browser (apt-get install chromium)"),
    pytest.mark.skipif(PURE_PYTHON, reason="the server is a process of its own"),
]
SPEC = SampleSpec(events=600, summaries=3, samples=10)
HOSTILE = "<img src=x onerror=alert(1)>"
INFO = f'summary_id,Region\n1,"{HOSTILE}"\n2,Coast\n3,Coast\n'.encode()
TABLE = (
    "[...document.querySelectorAll('#%s tr')]"
    ".map((row) => [...row.cells].map((cell) => cell.innerText))"
)
PROGRAMME = "document.getElementById('programme').value"
YEARS = [250, 100, 50]


@pytest.fixture(scope="module")
def run(server: Service) -> str:
    inputs = {"occurrence": generate_inputs(SPEC)["occurrence.bin"], "summary_info": INFO}
    with Client(server.url) as client:
        made = client.runs.create("gul", ["aal"], inputs=inputs)
        client.runs.upload(made, b"".join(generate_stream(SPEC)))
        client.runs.seal(made)
    return made.id


@pytest.fixture
def page() -> Iterator[Page]:
    with chromium(str(BROWSER)) as opened:
        opened.resize(1280, 900)
        yield opened
        opened.run("0")
        assert opened.errors == []


def tables(server: Service, **question: Any) -> dict[str, list[dict[str, Any]]]:  # noqa: ANN401
    answer = ask(server, Post("/v1/portfolios/query", [json.dumps(question).encode()]))
    assert answer.status == 200, answer.body
    found: dict[str, list[dict[str, Any]]] = answer.json()["tables"]
    return found


def number(text: str) -> float:
    return float(text.replace(",", ""))


def drawn(page: Page, layers: list[dict[str, Any]]) -> None:
    """Wait until the curves are those of a programme, and the address is."""
    given = json.dumps(json.dumps(layers, separators=(",", ":")))
    page.wait(f"document.getElementById('chart').dataset.of === {given}")
    if layers:
        page.wait(f"new URLSearchParams(location.search).get('layers') === {given}")
    page.wait("!document.getElementById('busy').textContent")


def put(page: Page, selector: str, value: str, event: str = "input") -> None:
    page.run(
        f"(() => {{ const input = document.querySelector({json.dumps(selector)});"
        f"input.value = {json.dumps(value)}; input.dispatchEvent(new Event('{event}')) }})()"
    )


def test_a_run_becomes_a_loss_set_by_one_click_and_its_parts_are_bars(
    page: Page, server: Service, run: str
) -> None:
    page.open(f"{server.url}/console/portfolio?run={run}")
    page.wait("!document.getElementById('make').hidden")
    page.run("document.querySelector('#make button').click()")
    page.wait("!!document.querySelector('#sets input:checked')")
    drawn(page, [])
    put(page, "#group", "Region", "change")
    page.wait("document.querySelectorAll('#parts tbody tr').length === 2")
    ident = str(page.run("document.querySelector('#sets input').value"))
    question = {"loss_sets": [{"id": ident}], "group_by": ["Region"]}
    averages = tables(server, **question, report="averages")["aal"]
    wanted = {row["Region"]: row["MeanLoss"] for row in averages if row["SampleType"] == 2}
    assert parts(page) == pytest.approx(wanted, abs=0.5)
    assert HOSTILE in wanted
    assert page.run("document.querySelectorAll('main img').length") == 0
    put(page, "[name=part]", "100", "change")
    found = tables(server, **question, report="contributions", return_periods=[100])
    wanted = {row["Region"]: row["Loss"] for row in found["contributions"] if row["EPType"] == 4}
    (whole,) = {row["Whole"] for row in found["contributions"] if row["EPType"] == 4}
    assert sum(wanted.values()) == pytest.approx(whole)
    most = f"{max(wanted.values()):,.0f}"
    page.wait(f"document.querySelector('#parts td:nth-child(3)').innerText === '{most}'")
    assert parts(page) == pytest.approx(wanted, abs=0.5)


def parts(page: Page) -> dict[str, float]:
    return {row[0]: number(row[2]) for row in page.run(TABLE % "parts")[1:]}


@pytest.fixture
def chosen(server: Service, run: str) -> str:
    """The page of a loss set."""
    body = json.dumps({"run": run}).encode()
    made = ask(server, Post("/v1/portfolios/loss-sets", [body])).json()
    return f"{server.url}/console/portfolio?sets={made['id']}"


def add_a_layer(page: Page, **values: str) -> dict[str, Any]:
    """Add a layer by the editor; return what the address says of it."""
    page.run("document.getElementById('add').click()")
    page.wait("document.querySelectorAll('#layers fieldset').length === 1")
    for name, value in values.items():
        for event in ("input", "change"):
            put(page, f"#layers [name={name}]", value, event)
    layers = json.loads(page.run(PROGRAMME))["layers"]
    drawn(page, layers)
    return dict(layers[0])


RENEWED = {"ReinsPremium": 3000, "Reinstatement": 1, "ReinstatementCharge": 1}
TERMS = {"OccAttachment": 10_000, "OccLimit": 200_000, "ReinsPremium": 3000, "Reinstatement": 1}


def test_a_programme_has_its_curves_and_its_price(page: Page, server: Service, chosen: str) -> None:
    page.open(chosen)
    drawn(page, [])
    given = {name: str(value) for name, value in TERMS.items()}
    layer = add_a_layer(page, **given, PlacedPercent="50")
    known = {"ReinsNumber": 1, "ReinsType": "CXL", "ReinstatementCharge": 1}
    assert layer == {**known, **TERMS, "PlacedPercent": 0.5}
    ident = chosen.rpartition("=")[2]
    question = {"loss_sets": [{"id": ident}], "curves": "Ff", "return_periods": YEARS}
    net = tables(server, **question, programme={"layers": [layer]}, of="net")
    gross = tables(server, **question)
    header, *rows = page.run(TABLE % "points")
    assert header[1:] == ["OEP, gross", "OEP, net", "AEP, gross", "AEP, net"]
    found = {number(year): [number(loss) for loss in losses] for year, *losses in rows}
    for year in YEARS:
        wanted = [loss(answer, kind, year) for kind in (1, 3) for answer in (gross, net)]
        assert found[year] == pytest.approx(wanted, abs=0.5)
        assert wanted[1] < wanted[0]
    (priced,) = page.run(TABLE % "priced")[1:]
    (row,) = [row for row in net["layers"] if row["SampleType"] == 2]
    assert number(priced[1]) == pytest.approx(row["ExpectedLoss"], rel=1e-3)
    assert "200,000 xs 10,000, 50 % placed, 1 reinstatement at 100 %" in page.text("#tower-said")
    assert page.run("document.querySelectorAll('#tower rect').length") == 2


def test_a_tower_is_as_wide_as_what_is_ceded_and_has_all_terms_in_words(
    page: Page, chosen: str
) -> None:
    layer = {"ReinsNumber": 1, "ReinsType": "CXL", "OccAttachment": 10_000, "OccLimit": 200_000}
    layer |= {"AggAttachment": 1000, "AggLimit": 500_000, "CededPercent": 0.5}
    layer |= {"PlacedPercent": 0.8, "TreatyShare": 0.25}
    page.open(f"{chosen}&layers={quote(json.dumps([layer], separators=(',', ':')))}")
    drawn(page, [layer])
    words = "200,000 xs 10,000 of 50 % of each loss, annual deductible 1,000, annual limit 500,000"
    assert f"{words}, 20 % placed" in page.text("#tower-said")
    whole, part = page.run(
        "[...document.querySelectorAll('#tower rect')].map((r) => r.width.baseVal.value)"
    )
    assert part / whole == pytest.approx(0.1)


def test_text_in_a_tower_of_several_priorities_breaks_instead_of_being_cut(
    page: Page, chosen: str
) -> None:
    layer = {"ReinsType": "CXL", "OccAttachment": 10_000, "OccLimit": 200_000, **RENEWED}
    layers = [{**layer, "ReinsNumber": k, "InuringPriority": k} for k in (1, 2, 3)]
    page.open(f"{chosen}&layers={quote(json.dumps(layers, separators=(',', ':')))}")
    drawn(page, layers)
    shown = page.run(
        "[...document.querySelectorAll('#tower div')].map((text) =>"
        " [text.innerText, text.scrollHeight <= text.clientHeight, text.scrollWidth <="
        " text.clientWidth])"
    )
    assert shown == [[f"Layer {k}\n1 reinstatement at 100 %", True, True] for k in (1, 2, 3)]


def test_a_share_of_risks_is_told_as_what_it_is_of_and_small_chances_are_not_0(
    page: Page, server: Service
) -> None:
    path = "/v1/portfolios/loss-sets/rare?form=ylt&no_of_periods=50000&perspective=gul"
    made = ask(server, Post(path, [b"Period,Loss\n17,3000000\n"], method="PUT"))
    assert made.status in {200, 201}, made.body
    layer = {"ReinsNumber": 1, "ReinsType": "CXL", "OccAttachment": 10**6, "OccLimit": 2_000_000}
    layers = quote(json.dumps([layer], separators=(",", ":")))
    page.open(f"{server.url}/console/portfolio?sets=rare&layers={layers}")
    drawn(page, [layer])
    header, row = page.run(TABLE % "priced")
    told = dict(zip(header, row, strict=True))
    assert [text for name, text in told.items() if name.endswith("%")][:2] == ["0.002", "0.002"]
    layer = {"ReinsNumber": 1, "ReinsType": "PR", "RiskAttachment": 10**6, "RiskLimit": 2_000_000}
    layers = quote(json.dumps([{**layer, "CededPercent": 0.5}], separators=(",", ":")))
    page.open(f"{server.url}/console/portfolio?sets=rare&layers={layers}")
    page.wait("document.getElementById('tower-said').innerText.includes('xs')")
    assert "50 % of 2,000,000 xs 1,000,000 of each risk" in page.text("#tower-said")
    # The set has no insured values, which is said, and the browser reports it.
    page.wait("!document.getElementById('problem').hidden")
    page.errors.clear()


def test_a_layer_of_some_parts_is_priced_by_what_the_losses_are_grouped_by(
    page: Page, server: Service, run: str
) -> None:
    info = ask(server, Post(f"/v1/runs/{run}", [], method="GET")).json()["inputs"]["summary_info"]
    body = json.dumps({"run": run, "name": "coasts", "summary_info": info}).encode()
    assert ask(server, Post("/v1/portfolios/loss-sets", [body])).status in {200, 201}
    chosen = f"{server.url}/console/portfolio?sets=coasts"
    share = {"ReinsNumber": 1, "ReinsType": "QS", "CededPercent": 0.3, "Scope": ["Coast"]}
    programme = {"layers": [share]}
    page.open(f"{chosen}&layers={quote(json.dumps([share], separators=(',', ':')))}")
    page.wait("document.getElementById('problem').innerText.includes('choose under')")
    assert "30 % of the losses of Coast" in page.text("#tower-said")
    put(page, "#group", "Region", "change")
    drawn(page, [share])
    assert page.run("document.getElementById('problem').hidden")
    asked: dict[str, Any] = {"loss_sets": [{"id": "coasts"}], "group_by": ["Region"]}
    answer = tables(server, **asked, report="layers", programme=programme)
    (expected,) = [row["ExpectedLoss"] for row in answer["layers"] if row["SampleType"] == 2]
    header, row = page.run(TABLE % "priced")
    told = dict(zip(header, row, strict=True))
    assert number(told["Expected loss"]) == pytest.approx(expected, rel=1e-3)
    parts = {row[0]: row for row in page.run(TABLE % "parts")[1:]}
    assert number(parts["Coast"][-1]) == pytest.approx(0.7 * number(parts["Coast"][2]), rel=1e-3)
    answer = tables(server, loss_sets=[{"id": "coasts"}], of="net", programme_by=["Region"],
                    programme=programme, report="averages")  # fmt: skip
    (average,) = [row["MeanLoss"] for row in answer["aal"] if row["SampleType"] == 2]
    assert "net\n" in page.text("#averages")
    assert number(page.text("#averages").split("net\n")[1].split()[0]) == pytest.approx(
        average, rel=1e-3
    )
    saved = page.saved("document.querySelector('[aria-label=\"prices: csv\"]')")
    assert saved.decode().startswith("Layer,")


def loss(answer: dict[str, list[dict[str, Any]]], kind: int, year: int) -> float:
    sought = (2, kind, year)
    (row,) = [r for r in answer["ept"] if (r["EPCalc"], r["EPType"], r["ReturnPeriod"]) == sought]
    return float(row["Loss"])


def test_a_slider_moves_a_layer_and_a_link_shows_the_same(page: Page, chosen: str) -> None:
    page.open(chosen)
    drawn(page, [])
    layer = add_a_layer(page, OccAttachment="10000", OccLimit="200000")
    before = page.run(TABLE % "points")
    put(page, "#layers div:not([hidden]) [type=range]", "0")
    moved = {**layer, "OccAttachment": 0}
    drawn(page, [moved])
    assert page.run("document.querySelector('#layers [name=OccAttachment]').value") == "0"
    after = page.run(TABLE % "points")
    assert after != before
    for name, columns in (("prices", "Layer,"), ("curves, net", "SummaryId,"), ("averages", "")):
        button = f"document.querySelector('[aria-label=\"{name}: csv\"]')"
        header, *rows = page.saved(button).decode().splitlines()
        assert header.startswith(columns)
        assert rows
    assert page.saved("document.querySelector('#saves button')").startswith(b"\x89PNG")
    page.send("Page.reload")
    page.wait("document.querySelectorAll('#layers fieldset').length === 1")
    drawn(page, [moved])
    assert page.run(TABLE % "points") == after
    for width, dark in ((400, True), (1280, False)):
        page.resize(width, 900, dark=dark)
        page.wait(f"document.documentElement.scrollWidth <= {width}")


def test_a_programme_that_cannot_be_is_told(page: Page, chosen: str) -> None:
    page.open(chosen)
    drawn(page, [])
    wrong = json.dumps({"layers": [{"ReinsTyp": "CXL"}]})
    page.run(f"document.getElementById('programme').value = {json.dumps(wrong)}")
    page.run("document.getElementById('apply').click()")
    page.wait("document.getElementById('problem').innerText.includes('Layer 1: ReinsTyp')")
    assert "earlier question" in page.text("#busy")
    page.run("document.querySelector('#layers button').click()")
    page.wait("document.getElementById('problem').hidden")
    drawn(page, [])
    # The browser notes every refused request.
    page.errors[:] = [error for error in page.errors if "422" not in error]


def test_what_is_refused_at_a_later_key_leaves_the_value_before(page: Page, chosen: str) -> None:
    page.open(chosen)
    drawn(page, [])
    layer = add_a_layer(page, OccLimit="200000", PlacedPercent="80")
    before = page.text("#averages")
    page.run("document.querySelector('#layers [name=PlacedPercent]').select()")
    for letter in "150":
        page.send("Input.insertText", text=letter)
    page.key("Enter")
    drawn_of = json.dumps(json.dumps([layer], separators=(",", ":")))
    address = "new URLSearchParams(location.search).get('layers')"
    page.wait(f"chart.dataset.of === {drawn_of} && {address} === {drawn_of}")
    page.wait("busy.textContent.startsWith('A value above is refused')")
    assert page.text("#averages") == before
    assert "80 % placed" in page.text("#tower-said")
    put(page, "#layers [name=PlacedPercent]", "90")
    drawn(page, [{**layer, "PlacedPercent": 0.9}])
    # What was typed into one box is one step back.
    page.run("history.back()")
    drawn(page, [layer])
    page.wait("document.querySelector('#layers [name=PlacedPercent]').value === '80'")
    page.run("history.back()")
    page.wait("document.querySelector('#layers').childElementCount === 0")
    drawn(page, [])


def test_a_set_that_cannot_be_added_is_made_but_not_chosen(
    page: Page, run: str, chosen: str
) -> None:
    page.open(f"{chosen}&run={run}")
    drawn(page, [])
    before = page.run("location.search")
    put(page, "#make [name=name]", "again")
    page.run("document.querySelector('#make button').click()")
    page.wait("document.querySelector('#make ~ .note').innerText.startsWith('again is made, but')")
    assert "count twice" in page.text("#make ~ .note")
    wanted = before.replace(f"&run={run}", "")
    assert page.run("location.search") == wanted
    page.run("document.querySelector('#make ~ .note a').click()")
    page.wait("document.querySelectorAll('#sets [value=again]').length === 1")
    drawn(page, [])
    assert page.run("document.querySelector('#sets [value=again]').checked") is False
    put(page, "#programme", '{"layers": [')
    page.run("document.getElementById('apply').click()")
    page.wait("problem.innerText.startsWith('The programme is no JSON (')")
    page.errors[:] = [error for error in page.errors if "422" not in error]


def test_layers_that_the_service_refuses_are_there_to_be_corrected(page: Page, chosen: str) -> None:
    layer = {"ReinsNumber": 1, "ReinsType": "CXL", "OccAttachment": 20000, "OccLimit": 0}
    page.open(f"{chosen}&layers={quote(json.dumps([layer]))}")
    page.wait("document.getElementById('problem').innerText.includes('Layer 1')")
    page.wait("document.querySelector('#layers [name=OccLimit]').value === '0'")
    put(page, "#layers [name=OccLimit]", "200000")
    drawn(page, [{**layer, "OccLimit": 200000}])
    page.errors[:] = [error for error in page.errors if "422" not in error]


def test_a_page_goes_on_once_the_service_is_back(page: Page, server: Service, chosen: str) -> None:
    page.open(chosen)
    drawn(page, [])
    before = page.text("#averages dd")
    server.kill()
    try:
        put(page, f"#sets [name='weight.{chosen.rpartition('=')[2]}']", "2", "change")
        page.wait("document.getElementById('problem').innerText.includes('does not answer')")
    finally:
        server.start()
    page.wait(f"document.querySelector('#averages dd').innerText !== '{before}'")
    assert number(page.text("#averages dd")) == pytest.approx(2 * number(before), abs=2)
    assert page.run("document.getElementById('problem').hidden")
    page.errors[:] = [error for error in page.errors if "ERR_" not in error]


def test_a_loss_set_that_was_deleted_elsewhere_is_listed_no_more(
    page: Page, server: Service, run: str
) -> None:
    body = json.dumps({"run": run, "name": "brief"}).encode()
    assert ask(server, Post("/v1/portfolios/loss-sets", [body])).status == 201
    page.open(f"{server.url}/console/portfolio?sets=brief")
    drawn(page, [])
    assert page.run("fetch('/v1/portfolios/loss-sets/brief', {method: 'DELETE'}).then((a) => a.ok)")
    page.run("document.dispatchEvent(new Event('visibilitychange'))")
    page.wait("document.getElementById('problem').innerText.includes('no loss set')")
    assert page.run("document.querySelector('#sets [value=brief]')") is None
    assert page.run("location.search") == ""
    page.errors[:] = [error for error in page.errors if "404" not in error]


def test_an_address_that_is_wrong_is_told(page: Page, server: Service, chosen: str) -> None:
    page.open(f"{chosen}&layers=%5B1%5D")
    drawn(page, [])
    assert "A programme is" in page.text("#problem:not([hidden])")
    page.open(f"{server.url}/console/portfolio?sets=none")
    page.wait("document.querySelector('#problem:not([hidden])').innerText.includes('no loss set')")
    assert "/v1/" not in page.text("#problem")
    page.errors[:] = [error for error in page.errors if "404" not in error]


def test_what_cannot_be_read_is_said_at_its_box_and_asks_nothing(page: Page, chosen: str) -> None:
    page.open(chosen)
    drawn(page, [])
    layer = add_a_layer(page, OccLimit="200000")
    before = number(page.text("#averages dd"))
    boxes = {
        ".controls [name=rates]": ("EUR 1,25", ""),
        f"#sets [name='weight.{chosen.rpartition('=')[2]}']": ("2,0", "2"),
        "#layers [name=OccLimit]": ("200,000", "200000"),
        "#layers [name=PlacedPercent]": ("150", ""),
    }
    for box, (wrong, right) in boxes.items():
        event = "input" if box.startswith("#layers") else "change"
        put(page, box, wrong, event)
        text = wrong.rpartition(" ")[2]
        page.wait(f"document.querySelector('main small').innerText.includes('“{text}”')")
        page.wait("document.getElementById('busy').innerText.includes('earlier question')")
        assert json.loads(page.run(PROGRAMME))["layers"] == [layer]
        put(page, box, right, event)
        page.wait("!document.querySelector('.earlier, main small')")
    drawn(page, [layer])
    assert number(page.text("#averages dd")) == pytest.approx(2 * before, abs=2)
    put(page, "#layers [name=PlacedPercent]", "0.3")
    page.wait("document.querySelector('#layers small').innerText.includes('all of it is 100')")


def test_terms_that_no_box_has_are_told_and_charges_are_typed_as_they_are_shown(
    page: Page, chosen: str
) -> None:
    given = {**TERMS, "Reinstatement": 2, "ReinstatementCharge": [1, 0.5], "AggAttachment": 5000}
    layer = {"ReinsNumber": 1, "ReinsType": "CXL", "CededPercent": 0.5, **given}
    page.open(f"{chosen}&layers={quote(json.dumps([{**layer, 'ReinsName': 'W' * 80}]))}")
    page.wait("document.querySelectorAll('#notes p').length === 1")
    assert f"{'W' * 80}: CededPercent is of each loss" in page.text("#notes")
    assert "2 reinstatements at 100 % and 50 %" in page.text("#tower-said")
    # The name takes what lines there are, and no more width than its box.
    assert page.run(
        "[...document.querySelectorAll('#tower div')].map((text) =>"
        " [text.scrollWidth <= text.clientWidth, text.innerText.startsWith('WW')])"
    ) == [[True, True]]
    assert "CededPercent:0.5" in page.text("#layers .faint")
    assert page.run("document.querySelector('#layers label [name=AggAttachment]').value") == "5000"
    charge = page.run("document.querySelector('#layers [name=ReinstatementCharge]').value")
    assert charge == "100;50"
    put(page, "#layers [name=ReinstatementCharge]", "100; 50")
    typed = json.loads(page.run(PROGRAMME))["layers"]
    assert typed[0]["ReinstatementCharge"] == "1;0.5"
    drawn(page, typed)


def test_losses_in_another_currency_need_a_rate(page: Page, server: Service, run: str) -> None:
    body = json.dumps({"run": run, "currency": "USD"}).encode()
    made = ask(server, Post("/v1/portfolios/loss-sets", [body])).json()
    page.open(f"{server.url}/console/portfolio?sets={made['id']}")
    drawn(page, [])
    dollars = number(page.text("#averages dd"))
    put(page, ".controls [name=currency]", "EUR", "change")
    page.wait("document.getElementById('problem').innerText.includes('USD')")
    put(page, ".controls [name=rates]", "USD 0.5", "change")
    page.wait(f"document.querySelector('#averages dd').innerText !== '{dollars:,.0f}'")
    assert number(page.text("#averages dd")) == pytest.approx(dollars / 2, abs=1)
    assert page.run("document.getElementById('problem').hidden")
    page.errors[:] = [error for error in page.errors if "422" not in error]
