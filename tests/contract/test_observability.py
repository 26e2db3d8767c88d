"""Rules and dashboard: every query is about metrics and labels that /metrics has."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from ruamel.yaml import YAML

from app.main import create_app
from app.settings import Settings
from app.telemetry import Metrics
from tests.contract.promql import Selector, parse

DEPLOY = Path(__file__).parents[2] / "deploy"
RULES = DEPLOY / "prometheus" / "rules.yml"
RULES_TEST = DEPLOY / "prometheus" / "rules.test.yml"
TARGET = {"instance", "job"}
"""Labels that Prometheus adds."""
OTHERS = {"up": set[str](), "ALERTS": {"alertname", "alertstate"}}


def loaded(path: Path) -> Any:  # noqa: ANN401 - YAML
    return YAML(typ="safe").load(path)


RULE_LIST = [rule for group in loaded(RULES)["groups"] for rule in group["rules"]]
DASHBOARD = json.loads((DEPLOY / "grafana" / "dashboard.json").read_text())
TARGETS = [
    (panel["title"], target) for panel in DASHBOARD["panels"] for target in panel.get("targets", [])
]
QUERIES = [
    *((rule.get("alert") or rule["record"], rule["expr"]) for rule in RULE_LIST),
    *((title, target["expr"]) for title, target in TARGETS),
]


def samples(metrics: Metrics) -> dict[str, set[str]]:
    """Labels of every sample name that /metrics can have."""
    found: dict[str, set[str]] = {}
    for metric in metrics._registry.collect():
        found[metric.name] = set()
    # A labelled metric has samples once it has values of its labels.
    for member in vars(metrics).values():
        names = getattr(member, "_labelnames", ())
        if names:
            member.labels(*("x" for _ in names))
    for family in text_string_to_metric_families(metrics.text().decode()):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """Metrics of an assembled service, of Prometheus, and those that rules record."""
    app = create_app(Settings(data_dir=tmp_path_factory.mktemp("data")))
    board = app.parts.readiness._board
    board.supervisor.publish({"ends": {"SIGKILL": 1}})
    app.parts.monitor._prober._checks["disk"]()
    found = {**samples(app.parts.metrics), **OTHERS}
    for rule in RULE_LIST:
        if "record" in rule:
            found[rule["record"]] = parse(rule["expr"]).grouped - {"le"}
    return found


def selectors() -> Iterator[tuple[str, Selector]]:
    for title, query in QUERIES:
        for selector in parse(query).selectors:
            yield title, selector


def test_every_metric_of_a_query_exists_with_its_labels(known: dict[str, set[str]]) -> None:
    for title, selector in selectors():
        assert selector.name in known, (title, selector)
        assert set(selector.labels) <= known[selector.name] | TARGET, (title, selector)


def test_every_label_that_a_query_groups_by_exists(known: dict[str, set[str]]) -> None:
    for title, query in QUERIES:
        parsed = parse(query)
        labels = set[str]().union(*(known[selector.name] for selector in parsed.selectors))
        assert parsed.grouped <= labels | TARGET, (title, query)


def test_legends_and_texts_show_labels_that_their_queries_have(known: dict[str, set[str]]) -> None:
    for title, target in TARGETS:
        shown = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
        assert shown <= parse(target["expr"]).grouped, (title, target["legendFormat"])
    for rule in RULE_LIST:
        for text in rule.get("annotations", {}).values():
            parsed = parse(rule["expr"])
            labels = parsed.grouped or set().union(*(known[s.name] for s in parsed.selectors))
            shown = set(re.findall(r"\$labels\.(\w+)", text))
            assert shown <= labels | TARGET, (rule["alert"], text)


def test_every_metric_is_on_the_dashboard(known: dict[str, set[str]]) -> None:
    shown = {selector.name for _, target in TARGETS for selector in parse(target["expr"]).selectors}
    metrics = {name for name in known if name.startswith("thalweg_")}
    metrics = {name for name in metrics if not name.endswith(("_created", "_sum", "_count"))}
    families = {
        name for name in metrics if f"{name}_total" in metrics or f"{name}_bucket" in metrics
    }
    assert metrics - families == shown


def test_metrics_have_no_label_of_owners_or_paths(known: dict[str, set[str]]) -> None:
    labels = set[str]().union(*(names for name, names in known.items() if name not in OTHERS))
    assert not labels & {"owner", "key", "path", "dataset", "address", "id"}


def test_codes_that_queries_name_are_problems() -> None:
    from app.errors import KINDS

    for _, selector in selectors():
        if "code" in selector.labels:
            codes = selector.labels["code"].lstrip("=~!").strip('"').split("|")
            assert set(codes) <= set(KINDS)


def promtool(*arguments: str | Path) -> None:
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("no promtool on this machine (apt-get install prometheus)")
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_takes_rules_and_configuration() -> None:
    promtool("check", "rules", RULES)
    promtool("check", "config", "--syntax-only", DEPLOY / "prometheus" / "prometheus.yml")


def test_alerts_fire_when_they_should_and_only_then() -> None:
    promtool("test", "rules", RULES_TEST)


def test_every_rule_is_tested() -> None:
    tested = [test for group in loaded(RULES_TEST)["tests"] for test in group["promql_expr_test"]]
    fired = {
        name
        for test in tested
        for sample in test["exp_samples"]
        for name in re.findall(r'alertname="(\w+)"', sample["labels"])
    }
    assert fired == {rule["alert"] for rule in RULE_LIST if "alert" in rule}
    recorded = {selector.name for test in tested for selector in parse(test["expr"]).selectors}
    assert recorded - {"ALERTS"} == {rule["record"] for rule in RULE_LIST if "record" in rule}


def test_every_panel_reads_the_provisioned_source() -> None:
    (source,) = loaded(DEPLOY / "grafana" / "datasource.yaml")["datasources"]
    for _, target in TARGETS:
        assert target["datasource"] == {"type": "prometheus", "uid": source["uid"]}
    idents = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(idents) == len(set(idents))


def test_prometheus_finds_the_service_and_the_rules_where_compose_puts_them() -> None:
    services = loaded(DEPLOY / "compose.yaml")["services"]
    config = loaded(DEPLOY / "prometheus" / "prometheus.yml")
    (scrape,) = config["scrape_configs"]
    (static,) = scrape["static_configs"]
    assert static["targets"] == ["thalweg:8000"]
    mounted = dict(volume.split(":")[:2][::-1] for volume in services["prometheus"]["volumes"])
    assert config["rule_files"] == ["/etc/prometheus/rules.yml"]
    assert mounted["/etc/prometheus/rules.yml"] == "./prometheus/rules.yml"
    for name in ("prometheus", "grafana"):
        for volume in services[name]["volumes"]:
            source = volume.split(":")[0]
            assert not source.startswith("./") or (DEPLOY / source).is_file()


@pytest.mark.parametrize(
    "query", ["sum(rate(a[5m])", "a{b=c}", "a ? b", "sum by (a (b)", "a{b='c'}}"]
)
def test_what_is_no_query_is_refused(query: str) -> None:
    with pytest.raises((ValueError, StopIteration)):
        parse(query)
