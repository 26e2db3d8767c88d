"""The Helm chart: what its files show, and with Helm (``make kubernetes``) what it renders."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

import app
from app.datasets.files.addresses import split_roots
from app.errors import OriginRefusedError
from app.http.identity import is_open, outlives_drain
from app.http.origins import Origins
from app.server.place import SLACK_BYTES
from app.server.supervisor import END_SECONDS
from app.settings import MIB, SECRETS, Settings

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "kubernetes"
TEMPLATES = {path.name: path.read_text() for path in (CHART / "templates").iterdir()}
HELPERS, DEPLOYMENT = TEMPLATES["_helpers.tpl"], TEMPLATES["deployment.yaml"]
SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())
EXAMPLES = [
    CHART / "examples" / f"{name}.yaml" for name in ("small", "platform", "cluster", "trial")
]
README = (ROOT / "deploy" / "README.md").read_text()
DOCKERFILE = (ROOT / "Dockerfile").read_text()
ENOUGH: dict[str, Any] = {"secret": {"name": "keys"}, "blobs": {"address": "s3://losses"}}
"""The least that the chart has to be told."""


def load(path: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = YAML(typ="safe").load(path)
    return loaded


def check_values(*paths: Path) -> set[str]:
    """Check files against the schema of values; return the names of those that it refuses."""
    command: list[str | Path] = [
        Path(sys.executable).parent / "check-jsonschema",
        "--output-format",
        "json",
    ]
    command += ["--schemafile", CHART / "values.schema.json", *paths]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    report = json.loads(done.stdout)
    assert not report.get("parse_errors"), done.stdout
    return {Path(error["filename"]).name for error in report.get("errors", [])}


VALUES = load(CHART / "values.yaml")


# --- values ---


def test_values_follow_their_schema() -> None:
    assert check_values(CHART / "values.yaml", *EXAMPLES) == set()


REFUSED: list[dict[str, Any]] = [
    {"replicaCount": 3},
    {"drain": {"second": 60}},
    {"cpus": "2"},
    {"cpus": 0},
    {"memory": {"spareMiB": 512}},
    {"blobs": {"address": "file:"}},
    {"secret": {"holds": ["api-keys"]}},
    {"secret": {"values": {"state": "sqlite:"}}},
    {"settings": {"THALWEG_DRAIN_SECONDS": "3600"}},
    {"settings": {"AWS_REGION": "eu-central-1"}},
    {"settings": {"THALWEG_OWNER_RATE": 5}},
    {"environment": {"THALWEG_STATE": "sqlite:"}},
    {"datasets": [{"name": "a", "claim": "a", "path": "/data/scans"}]},
    {"ingress": {"enabled": True, "hosts": []}},
    {"httpRoute": {"enabled": True, "parentRefs": []}},
    {"networkPolicy": {"enabled": True, "from": []}},
    {"networkPolicy": {"from": [{}]}},
    {"dask": {"enabled": True, "workers": 0}},
    {"dask": {"enabled": True, "memoryMiB": 512}},
    {"dask": {"scheduler": "tcp://elsewhere:8786"}},
    {"datasetBuckets": ["/datasets/scans"]},
    {"datasetBuckets": ["s3://key:secret@scans"]},
    {"datasetBuckets": ["s3://scans?region=eu-central-1"]},
    {"settings": {"THALWEG_ENGINE": "dask:tcp://elsewhere:8786"}},
    {"settings": {"THALWEG_DATASET_ROOTS": "s3://scans"}},
    {"autoscaling": {"memoryRatio": "0.7 of it"}},
    {"metrics": {"serviceMonitor": {"interval": "often"}}},
]


def test_values_that_cannot_be_are_refused(tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.yaml" for number in range(len(REFUSED))]
    for path, values in zip(paths, REFUSED, strict=True):
        path.write_text(json.dumps(values))
    assert check_values(*paths) == {path.name for path in paths}


def test_the_schema_has_no_value_without_a_default() -> None:
    assert SCHEMA["additionalProperties"] is False
    assert set(SCHEMA["properties"]) == set(VALUES) | {"global"}
    for name, value in VALUES.items():
        part = SCHEMA["properties"][name]
        if isinstance(value, dict) and "properties" in part:
            assert part["additionalProperties"] is False
            assert name == "secret" or set(part["properties"]) == set(value)


# --- names of the service ---


def test_every_setting_named_exists() -> None:
    known = {f"THALWEG_{name.upper()}" for name in Settings.model_fields}
    for path in CHART.rglob("*"):
        if path.is_file():
            assert set(re.findall(r"THALWEG_[A-Z_]*[A-Z]", path.read_text())) <= known


def test_settings_of_the_chart_are_not_set_beside_it() -> None:
    own = set(re.findall(r'set \$settings "(THALWEG_\w+)"', DEPLOYMENT))
    assert len(own) >= 10
    assert own <= set(SCHEMA["properties"]["settings"]["propertyNames"]["not"]["enum"])


def test_the_secret_holds_what_settings_read_from_files() -> None:
    held = SCHEMA["properties"]["secret"]["properties"]
    assert {name.replace("-", "_") for name in held["holds"]["items"]["enum"]} == set(SECRETS)
    assert set(held["values"]["properties"]) == set(held["holds"]["items"]["enum"])


def test_probes_ask_what_answers_without_a_key_while_the_service_drains() -> None:
    probes = dict(re.findall(r"(\w+)Probe:\n\s+httpGet: \{path: ([/a-z]+), port", DEPLOYMENT))
    assert probes == {"startup": "/healthz", "liveness": "/healthz", "readiness": "/readyz"}
    assert all(is_open(path) and outlives_drain(path) for path in probes.values())


def test_the_chart_fits_the_image() -> None:
    chart = load(CHART / "Chart.yaml")
    assert chart["appVersion"] == chart["version"] == app.__version__
    for pattern, setting in (
        (r"^USER (\d+):(\d+)$", r"runAsUser: {}\n\s+runAsGroup: {}\n"),
        (r"THALWEG_PORT=(\d+)", '"THALWEG_PORT" "{}"'),
        (r"^EXPOSE (\d+)$", "containerPort: {}\n"),
        (r"THALWEG_DATA_DIR=(\S+)", "name: data, mountPath: {}}"),
    ):
        found = re.search(pattern, DOCKERFILE, re.MULTILINE)
        assert found is not None
        assert re.search(setting.replace("{}", "%s") % found.groups(), DEPLOYMENT)


def test_metrics_that_nodes_are_added_for_exist() -> None:
    (rule,) = load(CHART / "examples" / "prometheus-adapter.yaml")["rules"]["custom"]
    telemetry = (ROOT / "app" / "telemetry.py").read_text()
    for name in set(re.findall(r"thalweg_(\w+)\{", rule["metricsQuery"] + rule["seriesQuery"])):
        assert re.search(rf"^    {name} = _gauge\(", telemetry, re.MULTILINE)
    assert f"name: {rule['name']['as']}\n" in TEMPLATES["autoscaler.yaml"]


# --- time and memory ---


def test_a_node_has_longer_than_its_drain() -> None:
    found = re.search(r"add \.preStopSeconds \.delaySeconds \.seconds (\d+) ", HELPERS)
    assert found is not None
    assert int(found[1]) > END_SECONDS
    drain = VALUES["drain"]
    assert drain["seconds"] >= Settings().drain_seconds
    grace = sum(drain.values()) + int(found[1])
    assert VALUES["autoscaling"]["scaleDownSeconds"] >= grace


def test_the_limit_of_memory_is_the_one_documented() -> None:
    documented = re.search(
        r"at most about (\d+) MiB for the supervisor, (\d+) MiB for each worker,\s"
        r"`THALWEG_MEMORY_LIMIT`, (\d+) MiB more for each that computes a run[^.]* and\s"
        r"(\d+) MiB for each decoder in use plus what it decodes",
        README,
    )
    assert documented is not None
    supervisor, worker, alone, decoder = documented.groups()
    assert (
        f"add {supervisor} (mul {worker} $workers) .limitMiB (mul 24 .uploads)"
        f" (mul {alone} $.Values.cpus) (mul .decoders (add {decoder} .decoderMiB)) .spareMiB"
    ) in HELPERS
    memory = VALUES["memory"]
    assert memory["spareMiB"] * MIB >= SLACK_BYTES
    # the sum in the chart's own page
    processes = (2 + VALUES["cpus"]) * int(worker) + VALUES["cpus"] * int(alone)
    decoders = memory["decoders"] * (int(decoder) + memory["decoderMiB"])
    held = memory["limitMiB"] + 24 * memory["uploads"] + memory["spareMiB"]
    most = int(supervisor) + processes + decoders + held
    assert f"| | | {most:,} |" in (CHART / "README.md").read_text()
    for name, unit, value in (
        ("memory_limit", MIB, memory["limitMiB"]),
        ("decoder_memory", MIB, memory["decoderMiB"]),
        ("decoders", 1, memory["decoders"]),
    ):
        assert Settings.model_fields[name].default == value * unit


# --- what Helm renders ---


HELM = os.environ.get("THALWEG_KUBERNETES_PYTHON")
helm = pytest.mark.skipif(not HELM, reason="THALWEG_KUBERNETES_PYTHON names no environment")
MODULES = os.environ.get("THALWEG_NODE_MODULES")
EVERYTHING: dict[str, Any] = {
    "secret": {
        "values": {
            "state": "postgres://thalweg:secret@database/thalweg",
            "api-keys": f"alice:{'a1' * 32}\n",
            "token-keys": f"1:sign:{'b2' * 32}\n",
        }
    },
    "blobs": {"address": "az://container/prefix", "credentialsSecret": "objects"},
    "serviceAccount": {"create": False, "name": "losses"},
    "autoscaling": {"enabled": False},
    "podDisruptionBudget": {"enabled": False},
    "drain": {"preStopSeconds": 0},
    "metrics": {"open": True, "serviceMonitor": {"enabled": True}},
    "datasetBuckets": ["az://scans"],
    "affinity": {"nodeAffinity": {}},
}
SLOW: dict[str, Any] = ENOUGH | {
    "drain": {"preStopSeconds": 300, "delaySeconds": 600, "seconds": 2400},
    "autoscaling": {"scaleDownSeconds": 3600},
}
WORKERS: dict[str, Any] = ENOUGH | {
    "dask": {"enabled": True, "workers": 3, "cpus": 4, "memoryMiB": 4096},
    "datasets": [{"name": "scans", "claim": "scans", "path": "/datasets/scans"}],
    "networkPolicy": {"enabled": True, "from": [{"podSelector": {}}]},
}
CASES = [ENOUGH, *(load(path) for path in EXAMPLES), EVERYTHING, SLOW, WORKERS]


def render(*cases: dict[str, Any]) -> list[dict[str, Any]]:
    """What Helm says of values, and makes of them; see the program."""
    assert HELM is not None
    program = ROOT / "tests" / "kubernetes" / "render.py"
    done = subprocess.run(
        [HELM, program, CHART], input=json.dumps(cases), capture_output=True, text=True, check=True
    )
    results: list[dict[str, Any]] = json.loads(done.stdout)
    return results


@pytest.fixture(scope="module")
def rendered() -> list[dict[str, Any]]:
    return render(*CASES)


def kinds(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The objects by kind; those of workers come after those of nodes, and do not count here."""
    return {manifest["kind"]: manifest for manifest in reversed(result["manifests"])}


def pod(result: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = kinds(result)["Deployment"]["spec"]["template"]["spec"]
    return found


@helm
def test_what_is_rendered_follows_the_schemas_of_kubernetes(rendered: list[dict[str, Any]]) -> None:
    for result in rendered:
        assert (result["error"], result["lint"], result["problems"]) == (None, [], [])
        assert set(result["unknown"]) <= {"ServiceMonitor", "HTTPRoute"}
        assert "rollout status deployment/demo-thalweg" in result["notes"]
    assert {kind for result in rendered for kind in kinds(result)} == {
        *("Deployment", "HorizontalPodAutoscaler", "PodDisruptionBudget", "Service"),
        *("ServiceAccount", "Secret", "NetworkPolicy", "Ingress", "HTTPRoute", "ServiceMonitor"),
    }


@helm
def test_custom_resources_follow_the_schemas_of_their_definitions(
    rendered: list[dict[str, Any]],
) -> None:
    node = shutil.which("node")
    if node is None or MODULES is None or not Path(MODULES, "@kubernetes-models").exists():
        pytest.skip("THALWEG_NODE_MODULES has no @kubernetes-models")
    program = ROOT / "tests" / "kubernetes" / "custom.mjs"
    done = subprocess.run(
        [node, program, Path(MODULES).resolve()],
        input=json.dumps(rendered),
        capture_output=True,
        text=True,
        check=True,
    )
    assert set(done.stdout.splitlines()) == {"HTTPRoute ok", "ServiceMonitor ok"}


@helm
def test_the_service_takes_its_settings(
    rendered: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for result in rendered:
        (container,) = pod(result)["containers"]
        items = pod(result)["volumes"][2]["secret"]["items"]
        settings = settings_of(result, tmp_path, monkeypatch)
        assert settings.state == EVERYTHING["secret"]["values"]["state"]
        assert bool(settings.token_keys) is ("token-keys" in {item["path"] for item in items})
        limit = container["resources"]["limits"]
        assert settings.workers is not None
        processes = 300 * (2 + settings.workers) + 300 * settings.workers
        decoders = settings.decoders * (200 * MIB + settings.decoder_memory)
        most = 55 * MIB + processes * MIB + settings.memory_limit + decoders + SLACK_BYTES
        assert int(limit["memory"].removesuffix("Mi")) * MIB >= most
        hook = container.get("lifecycle", {"preStop": {"sleep": {"seconds": 0}}})["preStop"]
        drain = hook["sleep"]["seconds"] + settings.drain_delay + settings.drain_seconds
        grace = pod(result)["terminationGracePeriodSeconds"]
        assert grace > drain + END_SECONDS
        if "HorizontalPodAutoscaler" in kinds(result):
            behaviour = kinds(result)["HorizontalPodAutoscaler"]["spec"]["behavior"]["scaleDown"]
            # Schemas do not know the most that Kubernetes takes: an hour, and half an hour.
            assert grace <= behaviour["stabilizationWindowSeconds"] <= 3600
            assert [p["periodSeconds"] for p in behaviour["policies"]] == [min(grace, 1800)]


@helm
def test_pods_keep_to_the_restricted_standard(rendered: list[dict[str, Any]]) -> None:
    for result in rendered:
        (container,) = pod(result)["containers"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert pod(result)["securityContext"]["runAsNonRoot"] is True
        assert pod(result)["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod(result)["enableServiceLinks"] is False
        assert pod(result)["automountServiceAccountToken"] is False
        mounted = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
        writable = {path for path, mount in mounted.items() if not mount.get("readOnly")}
        assert writable == {"/data", "/tmp"}  # noqa: S108 - named, not used


@helm
def test_selectors_find_the_pods(rendered: list[dict[str, Any]]) -> None:
    for result in rendered:
        found = kinds(result)
        labels = found["Deployment"]["spec"]["template"]["metadata"]["labels"].items()
        selectors = [found["Service"]["spec"]["selector"]]
        selectors += [
            found[kind]["spec"]["selector"]["matchLabels"]
            for kind in ("Deployment", "PodDisruptionBudget")
            if kind in found
        ]
        if "NetworkPolicy" in found:
            selectors.append(found["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"])
        assert all(selector.items() <= labels for selector in selectors)
        assert ("replicas" in found["Deployment"]["spec"]) is (
            "HorizontalPodAutoscaler" not in found
        )


@helm
@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"secret": {"name": ""}}, "no Secret holds the address of the database"),
        ({"blobs": {"address": ""}}, "blobs.address names no object store"),
        ({"secret": {"name": "a", "values": {"state": "postgres://db/t"}}}, "set one of them"),
        ({"drain": {"seconds": 900}}, "set it to at least 920"),
        ({"autoscaling": {"minReplicas": 9}}, "is more than autoscaling.maxReplicas"),
        (
            {"metrics": {"open": True}, "ingress": {"enabled": True, "hosts": ["a.example"]}},
            "would publish /metrics",
        ),
        (
            {"metrics": {"open": True}, "service": {"type": "LoadBalancer"}},
            "would publish /metrics",
        ),
        ({"metrics": {"serviceMonitor": {"enabled": True}}}, "/metrics needs a key"),
        ({"memory": {"spareMiB": 0}}, "minimum: got 0, want 1,024"),
    ],
)
def test_values_that_do_not_go_together_are_refused(values: dict[str, Any], message: str) -> None:
    (result,) = render(ENOUGH | values)
    assert message in result["error"]


def settings_of(
    result: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Settings:
    """The settings that a node takes from its variables."""
    for name, text in EVERYTHING["secret"]["values"].items():
        (tmp_path / name).write_text(text)
    (container,) = pod(result)["containers"]
    with monkeypatch.context() as environment:
        for variable in container["env"]:
            value = variable["value"].replace("/etc/thalweg", str(tmp_path))
            environment.setenv(variable["name"], value)
        return Settings()


@helm
def test_nodes_read_datasets_of_volumes_and_of_buckets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (result,) = render(load(CHART / "examples" / "cluster.yaml"))
    settings = settings_of(result, tmp_path, monkeypatch)
    directories, buckets = split_roots(settings.dataset_roots)
    assert directories == [Path("/datasets/scans")]
    assert buckets == ["s3://scans/2026", "gs://archive"]
    # Buckets are shared anyway.
    assert settings.shared_roots == "/datasets/scans"


@helm
def test_nodes_without_keys_answer_their_own_names_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = load(CHART / "examples" / "trial.yaml")
    routes = {"httpRoute": {"enabled": True, "parentRefs": [{"name": "a"}]}}
    routes["httpRoute"]["hostnames"] = ["*.example", "losses.example"]
    named = {"settings": {"THALWEG_HOSTS": "only.example"}}
    with_keys = trial | {"allowAnonymous": False}
    found = [
        settings_of(result, tmp_path, monkeypatch)
        for result in render(trial, trial | routes, trial | named, with_keys)
    ]
    inside = [f"demo-thalweg.losses{end}" for end in ("", ".svc", ".svc.cluster.local")]
    outside = "thalweg.intranet.example"
    assert list(found[0].hosts) == [*inside, outside]
    assert list(found[1].hosts) == [*inside, outside, "losses.example"]
    assert list(found[2].hosts) == ["only.example"]
    assert list(found[3].hosts) == []
    origins = Origins(found[0].hosts, found[0].public_url, found[0].cors_origins)
    for name in (*inside, outside, "10.1.2.3:8000", "demo-thalweg"):
        origins.check_host({"host": name})
    with pytest.raises(OriginRefusedError):
        origins.check_host({"host": "rebound.example"})


@helm
def test_workers_have_the_settings_of_nodes(rendered: list[dict[str, Any]]) -> None:
    result = rendered[-1]
    found = {m["metadata"]["name"]: m for m in result["manifests"] if m["kind"] == "Deployment"}
    assert set(found) == {"demo-thalweg", "demo-thalweg-scheduler", "demo-thalweg-worker"}
    pods = {name: each["spec"]["template"]["spec"] for name, each in found.items()}
    (node,), (worker,) = (pods[f"demo-thalweg{n}"]["containers"] for n in ("", "-worker"))
    of_node, of_worker = ({v["name"]: v["value"] for v in c["env"]} for c in (node, worker))
    address = "tcp://demo-thalweg-scheduler:8786"
    assert of_node["THALWEG_ENGINE"] == f"dask:{address}"
    assert of_node["THALWEG_SHARED_ROOTS"] == of_node["THALWEG_DATASET_ROOTS"] == "/datasets/scans"
    assert of_worker == of_node | {"THALWEG_MEMORY_LIMIT": "4096MiB"}
    assert worker["args"] == ["worker", "--scheduler", address]
    assert worker["volumeMounts"][-1] == node["volumeMounts"][-1]
    assert found["demo-thalweg-worker"]["spec"]["replicas"] == 3
    for each in pods.values():
        (container,) = each["containers"]
        assert each["securityContext"]["runAsNonRoot"] is True
        assert container["securityContext"] == node["securityContext"]
    # No Service of the nodes, and no budget of theirs, selects workers.
    labels = found["demo-thalweg-worker"]["spec"]["template"]["metadata"]["labels"]
    for kind in ("Service", "PodDisruptionBudget", "NetworkPolicy"):
        spec = kinds(result)[kind]["spec"]
        chosen = spec.get("podSelector") or spec["selector"]
        assert not (chosen.get("matchLabels") or chosen).items() <= labels.items()
