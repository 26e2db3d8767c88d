"""Pages of runs in Chromium: curves, progress and uploads, as people use them."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.client import Client
from core.losses.samples import SampleSpec, generate_inputs, generate_stream
from tests.interop.browser import find_browser
from tests.interop.console.chromium import Page, chromium
from tests.scale import PURE_PYTHON
from tests.server_process import ServerProcess

BROWSER = find_browser()
pytestmark = [
    pytest.mark.skipif(BROWSER is None, reason="no browser (apt-get install chromium)"),
    pytest.mark.skipif(PURE_PYTHON, reason="the server is a process of its own"),
]
SPEC = SampleSpec(events=600, summaries=3, samples=10)
HOSTILE = "<img src=x onerror=alert(1)>"
DRAWN = "document.querySelector('#curves .canvas').dataset.milliseconds"
TABLE = (
    "[...document.querySelectorAll('#ep-table tr')]"
    ".map((row) => [...row.cells].map((cell) => cell.innerText))"
)
LAST = "document.getElementById('transfers').lastChild"


@pytest.fixture(scope="module")
def client(server: ServerProcess) -> Iterator[Client]:
    with Client(server.url) as client:
        yield client


@pytest.fixture
def wide() -> Iterator[Page]:
    with chromium(str(BROWSER)) as page:
        page.resize(1280, 900)
        for domain in ("DOM", "Network"):
            page.send(f"{domain}.enable")
        yield page


@pytest.fixture(params=[False, True], ids=["light", "dark-and-narrow"])
def page(wide: Page, request: pytest.FixtureRequest) -> Page:
    if request.param:
        wide.resize(420, 800, dark=True)
    return wide


def choose(page: Page, selector: str, file: Path) -> None:
    """Choose a file in an input."""
    root = page.send("DOM.getDocument")["root"]["nodeId"]
    node = page.send("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
    page.send("DOM.setFileInputFiles", files=[str(file)], nodeId=node)


def complaints(page: Page) -> list[str]:
    """What the console said of errors."""
    page.run("0")
    return page.errors


def make_run(
    client: Client,
    reports: list[str],
    *extra: str,
    **options: Any,  # noqa: ANN401
) -> str:
    """A run that is done, with ``extra`` inputs; its summaries have names that would be markup."""
    files = generate_inputs(SPEC)
    info = f'summary_id,Name\n1,"{HOSTILE}"\n2,Coast\n3,Hills\n'.encode()
    inputs = {"occurrence": files["occurrence.bin"], "summary_info": info}
    inputs |= {name: files[f"{name}.bin"] for name in extra}
    run = client.runs.create("gul", reports, inputs=inputs, **options)
    client.runs.upload(run, b"".join(generate_stream(SPEC)))
    client.runs.seal(run)
    return run.id


@pytest.fixture(scope="module")
def points(client: Client) -> str:
    """A run whose curves have a few return periods."""
    reports = ["ept", "aal", "alct", "mplt"]
    return make_run(client, reports, return_periods=[500, 250, 100, 50])


@pytest.fixture(scope="module")
def whole(client: Client) -> str:
    """A run whose curves have every point."""
    return make_run(client, ["ept"])


def plain(value: float) -> str:
    return f"{value:,.0f}"


def number(text: str) -> float:
    return float(text.replace(",", ""))


def test_curves_are_drawn_and_the_table_beside_them_has_their_numbers(
    page: Page, server: ServerProcess, client: Client, points: str
) -> None:
    page.open(f"{server.url}/console/runs/{points}?types=1,2,3,4&summaries=2&currency=EUR&plt=1")
    page.wait("document.querySelectorAll('.canvas[data-milliseconds]').length === 2")
    header, *rows = page.run(TABLE)
    assert header[1:] == ["OEP", "OEP TVaR", "AEP", "AEP TVaR"]
    ept = client.runs.read(points, "ept", summary_ids="2").rows
    for period, *losses in rows:
        at = ept[(ept["EPCalc"] == 2) & (ept["ReturnPeriod"] == int(period))]
        wanted = [float(at[at["EPType"] == kind]["Loss"][0]) for kind in (1, 2, 3, 4)]
        assert [number(loss) for loss in losses] == pytest.approx(wanted, abs=0.5)
    assert [row[0] for row in rows] == ["500", "250", "100", "50"]
    caption = page.run("document.querySelector('figcaption').innerText")
    for part in (points, "gul", "10 samples", "6,000 periods", "full uncertainty", "EUR", "OEP"):
        assert part in caption
    means = page.run("document.getElementById('averages').innerText")
    assert "Convergence" in means
    assert plain(client.runs.read(points, "aal", summary_ids="2").rows["MeanLoss"][0]) in means
    assert page.run("document.documentElement.scrollWidth <= innerWidth")
    assert complaints(page) == []
    for form in ("csv", "svg", "png"):
        link = page.run(
            f"[...document.querySelectorAll('.links a')].find((a) => a.text === '{form}').href"
        )
        assert page.run(f"fetch({json.dumps(link)}).then((answer) => answer.status)") == 200


def test_what_is_shown_is_in_the_address_and_found_by_keyboard(
    wide: Page, server: ServerProcess, whole: str
) -> None:
    wide.open(f"{server.url}/console/runs/{whole}")
    wide.wait(DRAWN)
    wide.run("document.querySelector('.picker input').focus()")
    wide.send("Input.insertText", text="coa")
    wide.wait("document.querySelector('.found button').innerText.includes('Coast')")
    for key in ("Tab", "Enter"):
        wide.key(key)
    wide.wait("location.search.includes('summaries=1%2C2')")
    wide.wait("document.querySelector('.picker').innerText.includes('2 · Coast')")
    wide.run(
        "(() => { const input = document.querySelectorAll('fieldset')[2].querySelector('input');"
        "input.value = '20'; input.dispatchEvent(new Event('change')) })()"
    )
    wide.wait("location.search.includes('from=20')")
    wide.send("Page.reload")
    wide.wait("document.querySelector('.canvas').chart.scales.x.min === 20")
    assert wide.run("document.querySelectorAll('.chip').length") == 2
    assert HOSTILE in wide.run("document.querySelector('.picker').innerText")
    assert wide.run("document.querySelectorAll('main img').length") == 0
    assert complaints(wide) == []


def test_back_undoes_each_choice(wide: Page, server: ServerProcess, points: str) -> None:
    wide.open(f"{server.url}/console/runs/{points}?types=1")
    wide.wait(DRAWN)
    headers = f"{TABLE}[0].slice(1).join()"
    wide.run("document.querySelector('[name=types][value=\"3\"]').click()")
    wide.wait(f"{headers} === 'OEP,AEP'")
    wide.wait("document.getElementById('busy').textContent === ''")
    put(wide, "[name=from]", 100)
    wide.wait("document.querySelector('.canvas').chart.scales.x.min === 100")
    wide.run("history.back()")
    wide.wait("document.querySelector('.canvas').chart.scales.x.min === 50")
    assert wide.run("document.querySelector('[name=from]').value") == ""
    wide.run("history.back()")
    wide.wait(f"{headers} === 'OEP'")
    wide.run("history.forward()")
    wide.wait(f"{headers} === 'OEP,AEP'")
    assert complaints(wide) == []


def test_a_long_curve_is_thinned_where_no_screen_shows_it(
    wide: Page, server: ServerProcess, client: Client, whole: str
) -> None:
    wide.open(f"{server.url}/console/runs/{whole}?types=1&summaries=3")
    wide.wait(DRAWN)
    drawn = wide.run("(({data: [x, y]}) => [[...x], y])(document.querySelector('.canvas').chart)")
    ept = client.runs.read(whole, "ept", summary_ids="3").rows
    curve = ept[(ept["EPCalc"] == 2) & (ept["EPType"] == 1) & (ept["ReturnPeriod"] > 0)]
    known = {
        (float(p), float(loss))
        for p, loss in zip(curve["ReturnPeriod"], curve["Loss"], strict=True)
    }
    assert set(zip(*drawn, strict=True)) <= known
    assert len(drawn[0]) < len(curve)
    assert (drawn[0][0], drawn[0][-1]) == (curve["ReturnPeriod"].min(), curve["ReturnPeriod"].max())
    gaps = [high / low for low, high in zip(drawn[0], drawn[0][1:], strict=False)]
    dense = [gap for low, gap in zip(drawn[0], gaps, strict=False) if low < 100]
    assert max(dense) < 1.03


def test_runs_are_laid_over_each_other_and_subtracted(
    wide: Page, server: ServerProcess, points: str, whole: str
) -> None:
    query = f"runs={whole}&summaries=2&types=1"
    wide.open(f"{server.url}/console/runs/{points}?{query}")
    wide.wait(DRAWN)
    header = wide.run(TABLE)[0]
    assert header[1:] == [f"OEP, run {points[:8]}", f"OEP, run {whole[:8]}"]
    wide.open(f"{server.url}/console/runs/{points}?{query}&diff=1")
    second = "document.querySelectorAll('#ep-table th')[1].innerText"
    wide.wait(f"{DRAWN} && / . {points[:8]}$/.test({second})")
    # What one run has as a point, the other has between two of all of its points.
    usual = {"500", "250", "100", "50"}
    rows = [(period, loss) for period, loss in wide.run(TABLE)[1:] if loss[0] in "0123456789≈-"]
    differences = [number(loss) for period, loss in rows if period in usual]
    assert differences == pytest.approx([0] * 4, abs=1)
    # Both have a point there, or the loss is read between two.
    assert not [period for period, loss in rows if loss.startswith("≈") == (period in usual)]
    read = "document.querySelectorAll('.u-value')[1].innerText"
    for year in (500, 300):
        x, y = wide.run(
            "(() => { const c = document.querySelector('.canvas').chart;"
            "c.over.scrollIntoView({block: 'center'});"
            f"return [c.over.getBoundingClientRect().left + c.valToPos({year}, 'x'),"
            " c.over.getBoundingClientRect().top + 50] })()"
        )
        wide.mouse("mouseMoved", x, y)
        wide.wait(f"/[0-9]/.test({read}) && {read}.startsWith('≈') === {json.dumps(year == 300)}")
    saved = wide.saved("document.querySelector('.links button')").decode()
    header, *lines = csv.reader(saved.splitlines())
    assert header[0] == "Return period"
    assert header[-1].endswith("is between two points")
    table = dict(wide.run(TABLE)[1:])
    for period, loss, between in lines:
        shown = table[plain(int(period))]
        assert number(shown.removeprefix("≈ ")) == pytest.approx(float(loss), abs=0.5)
        assert shown.startswith("≈") == (between == "1")
    assert wide.saved("document.querySelectorAll('.links button')[1]").startswith(b"\x89PNG")
    assert complaints(wide) == []


def test_runs_whose_periods_weigh_differently_say_so(
    wide: Page, server: ServerProcess, client: Client, points: str, whole: str
) -> None:
    weighted = make_run(client, ["ept"], "periods")
    for other, is_told in ((weighted, True), (points, False)):
        wide.open(f"{server.url}/console/runs/{whole}?runs={other}&diff=1")
        wide.wait(f"{DRAWN} && document.querySelector('#laid-over .chip') !== null")
        caption = wide.text("#curves figcaption")
        assert ("weigh differently: a difference mixes" in caption) == is_told
        assert caption.count("6,000 weighted periods") == int(is_told)


def test_a_range_that_is_none_is_told_at_its_field(
    wide: Page, server: ServerProcess, points: str
) -> None:
    told = "document.querySelector('[name=%s]').closest('label').innerText"
    least = "document.querySelector('.canvas').chart.scales.x.min"
    for query, name, said in (
        ("from=0", "from", "above 0"),
        ("to=-5", "to", "above 0"),
        ("to=abc", "to", "above 0"),
        ("from=100&to=50", "to", "100 to 50 is no range"),
        ("from=9000", "from", "9000 to 500 is no range"),
    ):
        wide.open(f"{server.url}/console/runs/{points}?{query}")
        wide.wait(f"{DRAWN} && {told % name}.includes({json.dumps(said)}) && {least} === 50")
        assert len(wide.run(TABLE)) == 5
    wide.open(f"{server.url}/console/runs/{points}?from=100&to=50")
    wide.wait(f"{told % 'to'}.includes('no range')")
    put(wide, "[name=from]", 20)
    wide.wait(f"!{told % 'to'}.includes('no range') && {least} === 20")
    assert [row[0] for row in wide.run(TABLE)[1:]] == ["50"]
    wide.run("document.getElementById('all').click()")
    wide.wait(f"{least} === 50")


def test_the_table_and_its_csv_are_of_the_range_that_is_seen(
    wide: Page, server: ServerProcess, points: str
) -> None:
    wide.open(f"{server.url}/console/runs/{points}")
    wide.wait(DRAWN)
    x, y, to = wide.run(
        "(() => { const c = document.querySelector('.canvas').chart;"
        "c.over.scrollIntoView({block: 'center'}); const box = c.over.getBoundingClientRect();"
        "const left = (year) => box.left + c.valToPos(year, 'x');"
        "return [left(80), box.top + 50, left(300)] })()"
    )
    wide.mouse("mouseMoved", x, y)
    wide.mouse("mousePressed", x, y)
    wide.mouse("mouseMoved", to, y)
    wide.mouse("mouseReleased", to, y)
    wide.wait(f"{TABLE}.length === 3 && location.search.includes('from=')")
    assert [row[0] for row in wide.run(TABLE)[1:]] == ["250", "100"]
    assert "in the range that is seen" in wide.text("#ep-table caption")
    saved = wide.saved("document.querySelector('.links button')").decode()
    assert [row[0] for row in csv.reader(saved.splitlines())] == ["Return period", "250", "100"]


def test_another_run_is_chosen_from_a_list(
    wide: Page, server: ServerProcess, points: str, whole: str
) -> None:
    wide.open(f"{server.url}/console/runs/{points}")
    option = f"document.querySelector('#lay-over option[value=\"{whole}\"]')"
    wide.wait(f"{DRAWN} && {option}.text.startsWith('{whole[:8]} · gul, 20')")
    wide.run(f"{option}.selected = true")
    wide.run("document.getElementById('lay-over').dispatchEvent(new Event('change'))")
    wide.wait(f"{DRAWN} && document.querySelectorAll('#ep-table thead th').length === 5")
    assert f"OEP, run {whole[:8]}" in wide.run(TABLE)[0]
    assert f"runs={whole}" in wide.run("location.search")
    assert wide.run(option) is None
    swatches = wide.run(
        "[...document.querySelectorAll('.u-series .u-marker')].slice(1)"
        ".map((marker) => marker.style.background.includes('gradient'))"
    )
    assert swatches == [False, True, False, True]  # OEP is solid, AEP dashed


def test_what_is_missing_is_told_in_the_terms_of_the_page(
    wide: Page, server: ServerProcess, client: Client
) -> None:
    run = client.runs.create("gul", ["ept"])
    client.runs.upload(run, b"".join(generate_stream(SPEC)))
    wide.open(f"{server.url}/console/runs/{run.id}")
    wide.wait("document.getElementById('lacks').innerText.includes('the input occurrence')")
    # As if the page did not know yet.
    wide.run("document.getElementById('seal').disabled = false")
    wide.run("document.getElementById('seal').click()")
    wide.wait("document.getElementById('problem').innerText.includes('under Auxiliary files')")
    assert "/v1/" not in wide.text("#problem")
    client.runs.put_input(run, "occurrence", generate_inputs(SPEC)["occurrence.bin"])
    wide.send("Page.reload")
    wide.wait("document.getElementById('lacks').innerText === 'Nothing is missing.'")
    wide.run("document.getElementById('return-periods').value = '20, 10'")
    wide.run("document.getElementById('seal').click()")
    wide.wait(f"document.getElementById('state').innerText === 'done' && {DRAWN}")
    assert [row[0] for row in wide.run(TABLE)[1:]] == ["20", "10"]


def test_a_run_that_is_not_there_is_named_and_left_out(
    wide: Page, server: ServerProcess, points: str, whole: str
) -> None:
    wide.send("Page.navigate", url=f"{server.url}/console/runs/{points}?runs=deadbeef,{whole}")
    wide.wait(f"{DRAWN} && !location.search.includes('deadbeef')")
    assert "there is no run 'deadbeef'" in wide.text("#curves")
    assert f"OEP, run {whole[:8]}" in wide.run(TABLE)[0]


def test_a_report_that_was_not_made_is_offered(
    wide: Page, server: ServerProcess, client: Client
) -> None:
    run = make_run(client, ["melt"])
    wide.open(f"{server.url}/console/runs/{run}")
    wide.wait("document.querySelector('form.card').innerText.includes('no EPT')")
    wide.run("document.querySelector('form.card input').value = '100, 50'")
    wide.run("document.querySelector('form.card').requestSubmit()")
    wide.wait(DRAWN)
    assert [row[0] for row in wide.run(TABLE)[1:]] == ["100", "50"]
    assert "variant=" in wide.run("location.search")


def test_the_list_shows_what_others_do_and_keeps_the_focus(
    wide: Page, server: ServerProcess, client: Client
) -> None:
    first = client.runs.create("gul", ["melt"])
    wide.open(f"{server.url}/console/runs")
    wide.wait(f"!!document.querySelector('#run-{first.id} a')")
    wide.run(f"document.querySelector('#run-{first.id} a').focus()")
    second = client.runs.create("il", ["melt"])
    wide.wait(f"!!document.getElementById('run-{second.id}')")
    assert wide.run("document.activeElement.closest('tr').id") == f"run-{first.id}"


def test_a_run_is_created_filled_and_sealed_through_the_page(
    wide: Page, server: ServerProcess, client: Client, tmp_path: Path
) -> None:
    files = generate_inputs(SPEC)
    content = b"".join(generate_stream(SPEC))
    (tmp_path / "occurrence.bin").write_bytes(files["occurrence.bin"])
    (tmp_path / "summary_P1.bin").write_bytes(content)
    wide.open(f"{server.url}/console/runs/new")
    wide.wait("document.querySelector('#new button').disabled === false")
    wide.run("document.querySelector('#new').requestSubmit()")
    run = wide.wait("document.getElementById('run').dataset.run")
    wide.wait(
        "document.getElementById('lacks').innerText.includes('the input occurrence; a stream')",
    )
    assert wide.run("document.getElementById('seal').disabled")
    choose(wide, "#choose-inputs", tmp_path / "occurrence.bin")
    wide.wait(f"{LAST}.innerText.includes('bound as occurrence')")
    choose(wide, "#choose-streams", tmp_path / "summary_P1.bin")
    wide.wait("document.getElementById('lacks').innerText === 'Nothing is missing.'")
    wide.run("document.getElementById('seal').click()")
    wide.wait("document.getElementById('state').innerText === 'done'")
    wide.wait(DRAWN)
    assert client.runs.status(run).state == "done"
    assert complaints(wide) == []


def csv_of(occurrences: bytes) -> bytes:
    records = np.frombuffer(occurrences[8:], "<i4").reshape(-1, 3)
    lines = [",".join(map(str, record)) for record in records.tolist()]
    return "\n".join(["event_id,period_no,occ_date_id", *lines, ""]).encode()


def put(page: Page, selector: str, value: object) -> None:
    page.run(
        f"(() => {{ const input = document.querySelector({json.dumps(selector)});"
        f"input.value = '{value}'; input.dispatchEvent(new Event('change')) }})()"
    )


def test_a_number_of_periods_is_corrected_and_files_that_are_left_out_are_named(
    wide: Page, server: ServerProcess
) -> None:
    """By the first page, and by that of a run."""
    stream = b"".join(generate_stream(SPEC))
    packed = generate_inputs(SPEC)["occurrence.bin"]
    occurrences, periods = csv_of(packed), int(np.frombuffer(packed, "<i4")[1])
    wide.open(f"{server.url}/")
    wide.wait("!document.getElementById('drop-files').hidden")
    files = {"p1.bin": stream, "occurrence.csv": occurrences, "local.npy": b"\x93NUMPY"}
    wide.drop("#drop-files", {**files, "foo.csv": b"a,b\n"})
    wide.wait("document.getElementById('unknown').children.length === 3")
    put(wide, "#periods", 5)
    wide.wait("document.querySelector('#transfers .failed').innerText.includes('not in 1 to 5')")
    assert "Correct the number of periods" in wide.text("#transfers .failed")
    put(wide, "#periods", periods)
    wide.wait("document.getElementById('made').innerText.includes('but not the files')")
    left_out = re.findall(r"(\S+)\s+is not sent", wide.text("#unknown"))
    assert left_out == ["local.npy", "foo.csv"]
    wide.open(wide.run("document.querySelector('#made a').href"))
    wide.wait("document.getElementById('lacks').innerText === 'Nothing is missing.'")
    assert wide.run("document.getElementById('periods').value") == str(periods)
    wide.run("document.getElementById('periods').value = 7")
    wide.drop("#drop-inputs", {"occurrence.bin": packed})
    wide.wait("document.querySelector('#transfers .failed').innerText.includes('7 were given')")
    put(wide, "#periods", periods)
    wide.wait(f"{LAST}.innerText.includes('bound as occurrence')")
    asked = wide.run("document.getElementById('return-periods').value")
    assert asked.startswith("1000, 500")
    put(wide, "#return-periods", "")
    wide.run("document.getElementById('seal').click()")
    wide.wait("document.getElementById('state').innerText === 'done'")
    described = "fetch(location.pathname.replace('console', 'v1')).then((run) => run.json())"
    assert wide.run(f"{described}.then(({{ options }}) => options.return_periods ?? null)") is None
    wide.errors[:] = [error for error in complaints(wide) if " 40" not in error]
    assert wide.errors == []


def test_an_upload_survives_a_killed_service_and_a_reload(wide: Page, tmp_path: Path) -> None:
    """And another file of the same length is told from the one that began."""
    # Two commits of the service at least.
    spec = SampleSpec(events=12_000, summaries=4, samples=50)
    content = b"".join(generate_stream(spec))
    file, other = tmp_path / "stream.bin", tmp_path / "other.bin"
    file.write_bytes(content)
    other.write_bytes(content[:100] + bytes(4) + content[104:])
    server = ServerProcess(tmp_path / "service")
    try:
        with Client(server.url) as client:
            run = client.runs.create("gul", ["selt"])
            wide.open(f"{server.url}/console/runs/{run.id}")
            wide.wait("!document.getElementById('uploads').hidden")
            throttle = {"offline": False, "latency": 0, "downloadThroughput": -1}
            wide.send("Network.emulateNetworkConditions", **throttle, uploadThroughput=700_000)
            choose(wide, "#choose-streams", file)
            wide.wait(
                "!document.querySelector('#streams tbody tr').cells[2].innerText.startsWith('0')",
            )
            server.kill()
            wide.wait(f"{LAST}.innerText.includes('does not answer')")
            wide.wait("!document.getElementById('offline').hidden")
            server.start()
            wide.wait("document.getElementById('offline').hidden")
            wide.send("Page.reload")
            wide.wait(
                "document.querySelector('[data-again]').innerText === 'Choose stream.bin again'",
            )
            (before,) = client.runs.streams(run)
            assert 0 < before.offset < len(content)
            # The dialog of a file input cannot be driven: it is put into the page instead.
            wide.run(
                "HTMLInputElement.prototype.click = function () {"
                " this.id = 'again'; document.body.append(this) };"
                "document.querySelector('[data-again]').click()"
            )
            choose(wide, "#again", other)
            wide.wait("document.getElementById('problem').innerText.includes('begins otherwise')")
            wide.send("Network.emulateNetworkConditions", **throttle, uploadThroughput=-1)
            choose(wide, "#choose-streams", file)
            wide.wait(f"{LAST}.innerText.includes('complete')")
            (stream,) = client.runs.streams(run)
            again = client.runs.create("gul", ["selt"])
            client.runs.upload(again, content)
            (sent,) = client.runs.streams(again)
            assert (stream.digest, stream.complete) == (sent.digest, True)
    finally:
        server.kill()


def test_a_run_that_was_deleted_meanwhile(
    wide: Page, server: ServerProcess, client: Client
) -> None:
    run = client.runs.create("gul", ["melt"])
    wide.open(f"{server.url}/console/runs/{run.id}")
    wide.wait("document.getElementById('lacks').innerText !== ''")
    client.runs.delete(run)
    wide.wait("document.getElementById('problem').innerText.startsWith('This run is gone')")
    assert wide.run("document.getElementById('uploads')") is None


def test_rows_are_shown_as_they_come(wide: Page, server: ServerProcess, client: Client) -> None:
    run = client.runs.create("gul", ["selt"])
    wide.open(f"{server.url}/console/runs/{run.id}")
    wide.wait("!document.getElementById('rows').hidden")
    wide.run("document.getElementById('show-rows').click()")
    content = b"".join(generate_stream(SPEC))
    client.runs.upload(run, content)
    rows = client.losses.read("selt", content).rows
    wide.wait(f"document.getElementById('rows-said').innerText.startsWith('{len(rows):,} rows')")
    shown = wide.run(
        "[...document.querySelectorAll('#rows-table tbody tr')].map((r) => r.cells[0].innerText)"
    )
    assert shown == [plain(row["EventId"]) for row in rows[-50:]]


def test_files_are_dropped_where_storage_is_blocked(
    wide: Page, server: ServerProcess, client: Client
) -> None:
    """A faulty one is named with its place, and the others go on."""
    run = client.runs.create("gul", ["selt"])
    blocked = (
        "Object.defineProperty(window, 'localStorage', {get() { throw new Error('blocked') }});"
        # Nor is there a worker to share.
        "window.SharedWorker = class { constructor() { throw new Error('blocked') } }"
    )
    wide.send("Page.addScriptToEvaluateOnNewDocument", source=blocked)
    wide.open(f"{server.url}/console/runs/{run.id}")
    wide.wait("!document.getElementById('uploads').hidden")
    content = b"".join(generate_stream(SPEC))
    wide.drop("#drop-streams", {"p2.bin": content[:1000], "p1.bin": content})
    wide.wait("document.querySelector('#streams .state.complete') !== null")
    wide.wait("document.querySelector('#streams .state.failed') !== null")
    first = "document.querySelector('#streams tbody tr').cells[0].innerText"
    wide.wait(f"/1\\s+p1.bin/.test({first})")
    good, bad = client.runs.streams(run)
    assert (good.partition, good.offset, bad.partition) == (1, len(content), 2)
    fault = bad.fault
    assert fault is not None
    shown = wide.run("document.querySelectorAll('#streams tbody tr')[1].cells[6].innerText")
    assert f"event {fault['event']}" in shown
    assert f"offset {fault['offset']:,}" in shown
    assert fault["detail"] in wide.run(f"{LAST}.innerText")
    assert "partition 2, which is faulty: delete it" in wide.text("#lacks")
    wide.run("document.querySelectorAll('#streams tbody tr')[1].querySelector('button').click()")
    wide.run("document.querySelectorAll('#streams tbody tr')[1].querySelector('button').click()")
    wide.wait("document.getElementById('lacks').innerText === 'Nothing is missing.'")
    wide.drop("#drop-streams", {"p3.bin": content})
    wide.wait("document.querySelectorAll('#streams .state.complete').length === 2")
    wide.wait("!document.getElementById('seal').disabled")
    wide.run("document.getElementById('seal').click()")
    wide.wait("document.getElementById('problem').innerText.includes('Delete one of the two')")
    said = wide.text("#problem")
    assert said.count("the same bytes") == 1
    assert "Auxiliary" not in said
