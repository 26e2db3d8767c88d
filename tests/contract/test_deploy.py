"""What is deployed: the image's recipe, compose, nginx and the locks, as far as files show."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.metadata import requires
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from ruamel.yaml import YAML

from app.settings import Settings
from core._jit import CACHE_VARIABLE

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
BIN = Path(sys.executable).parent
DOCKERFILE = (ROOT / "Dockerfile").read_text()
COMPOSE, CLUSTER = DEPLOY / "compose.yaml", DEPLOY / "cluster.yaml"
NGINX = (DEPLOY / "nginx.conf").read_text()
NGINX_TLS = (DEPLOY / "nginx-tls.conf").read_text()
README = (DEPLOY / "README.md").read_text()
LOCKS = [
    DEPLOY / f"requirements{name}.lock"
    for name in ("", "-build", "-dev", "-docs", "-image", "-plot")
]


def check(*command: str | Path) -> None:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def instruction(name: str) -> str:
    """The last instruction of this name, its continued lines joined."""
    joined = DOCKERFILE.replace("\\\n", " ")
    return re.findall(rf"^{name}\s+(.*)", joined, re.MULTILINE)[-1]  # type: ignore[no-any-return]


def compose(path: Path = COMPOSE) -> dict[str, Any]:
    loaded: dict[str, Any] = YAML(typ="safe").load(path)
    return loaded


def seconds(text: str) -> float:
    number, unit = re.fullmatch(r"(\d+)([smh])", text).groups()  # type: ignore[union-attr]
    return int(number) * {"s": 1, "m": 60, "h": 3600}[unit]


def directive(name: str) -> str:
    return re.search(rf"\b{name} ([^;]+);", NGINX)[1]  # type: ignore[index]


# --- the image ---


def test_the_dockerfile_passes_hadolint() -> None:
    check(BIN / "hadolint", "Dockerfile")


def test_the_server_gets_the_signal_and_is_not_root() -> None:
    assert json.loads(instruction("ENTRYPOINT")) == ["thalweg-server"]
    assert json.loads(instruction("CMD")) == ["serve"]
    assert instruction("STOPSIGNAL") == "SIGTERM"
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", instruction("USER"))


def test_what_builds_the_wheel_is_complete() -> None:
    """The lock of what builds wheels is hatchling, editables and all they need."""
    needed = set[str]()
    waiting = ["hatchling", "editables"]
    while waiting:
        name = waiting.pop()
        needed.add(name)
        direct = map(Requirement, requires(name) or [])
        waiting += [r.name for r in direct if r.marker is None or r.marker.evaluate()]
    lock = (DEPLOY / "requirements-build.lock").read_text()
    assert set(re.findall(r"^([a-z-]+)==", lock, re.MULTILINE)) == needed
    assert "-r deploy/requirements-build.lock" in DOCKERFILE


@contextmanager
def answering(status: HTTPStatus) -> Iterator[int]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/healthz" else HTTPStatus.NOT_FOUND)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("status", "healthy"), [(HTTPStatus.OK, True), (HTTPStatus.SERVICE_UNAVAILABLE, False)]
)
def test_the_health_check_says_what_the_server_says(status: HTTPStatus, healthy: bool) -> None:
    command = json.loads(instruction("HEALTHCHECK").split(" CMD ", 1)[1])
    with answering(status) as port:
        command[0] = sys.executable
        done = subprocess.run(command, env={"THALWEG_PORT": str(port)}, check=False)
    assert (done.returncode == 0) is healthy


def test_the_health_check_fails_where_nobody_listens() -> None:
    command = json.loads(instruction("HEALTHCHECK").split(" CMD ", 1)[1])
    command[0] = sys.executable
    with answering(HTTPStatus.OK) as port:
        pass
    done = subprocess.run(
        command, env={"THALWEG_PORT": str(port)}, capture_output=True, check=False
    )
    assert done.returncode != 0


# --- what is sent to the builder ---


def is_sent(path: str) -> bool:
    """Whether .dockerignore lets a path through: the last pattern that matches decides."""
    sent = True
    steps = Path(path).parts
    parents = ["/".join(steps[:n]) for n in range(1, len(steps) + 1)]
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        pattern = line.strip()
        if not pattern or pattern.startswith("#"):
            continue
        negated = pattern.startswith("!")
        expression = re.escape(pattern.removeprefix("!"))
        expression = expression.replace(r"\*\*/", "(?:.*/)?").replace(r"\*", "[^/]*")
        if any(re.fullmatch(expression, parent) for parent in parents):
            sent = negated
    return sent


@pytest.mark.parametrize(
    "path",
    [
        ".git/HEAD",
        ".venv/bin/python",
        ".env",
        ".coverage",
        ".mypy_cache/3.11/cache.db",
        ".pytest_cache/README.md",
        ".hypothesis/examples/1",
        "tests/contract/test_deploy.py",
        "tests/__pycache__/scale.pyc",
        "app/__pycache__/cli.cpython-311.pyc",
        "core/losses/__pycache__/reader.cpython-311.pyc",
        "app/.env",
        "deploy/compose.yaml",
        "thalweg-data/token.key",
        "dist/thalweg.whl",
    ],
)
def test_what_the_image_does_not_need_is_not_sent(path: str) -> None:
    assert not is_sent(path)


def test_what_the_dockerfile_copies_is_sent() -> None:
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE)
    sources = " ".join(copied).split()
    assert {"app", "core", "pyproject.toml", "deploy/requirements-image.lock"} <= set(sources)
    for source in sources:
        assert (ROOT / source).exists()
        assert is_sent(source)
    assert is_sent("app/command/main.py")
    assert is_sent("core/losses/_kernels/scan.py")


# --- settings, compose, nginx ---


def test_every_setting_named_exists() -> None:
    known = {f"THALWEG_{name.upper()}" for name in Settings.model_fields} | {CACHE_VARIABLE}
    documents = [
        DEPLOY / name for name in ("nginx.conf", "nginx-tls.conf", "README.md", "SECURITY.md")
    ]
    for path in [ROOT / "Dockerfile", COMPOSE, CLUSTER, *documents]:
        assert set(re.findall(r"THALWEG_[A-Z_]+", path.read_text())) <= known


def test_compose_follows_its_schema() -> None:
    check(BIN / "check-jsonschema", "--builtin-schema", "vendor.compose-spec", COMPOSE, CLUSTER)


@pytest.mark.parametrize("path", [COMPOSE, CLUSTER], ids=lambda path: path.name)
def test_compose_services_have_no_more_rights_than_they_need(path: Path) -> None:
    for service in compose(path)["services"].values():
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert "mem_limit" in service


def test_compose_publishes_on_loopback_only() -> None:
    """The service without keys has one user: who is on this machine."""
    services = compose()["services"]
    assert services["thalweg"]["environment"]["THALWEG_ALLOW_ANONYMOUS"] == "true"
    ports = [port for service in services.values() for port in service["ports"]]
    assert len(ports) == len(services) == 4
    assert all(port.startswith("127.0.0.1:") for port in ports)
    (run,) = re.findall(r"docker run --init.*?thalweg-server\n", README, re.DOTALL)
    assert " -p 127.0.0.1:" in run
    assert "THALWEG_ALLOW_ANONYMOUS=true" in run


@pytest.mark.parametrize(("path", "name"), [(COMPOSE, "thalweg"), (CLUSTER, "node-1")])
def test_compose_waits_longer_than_the_service_drains(path: Path, name: str) -> None:
    services = compose(path)["services"]
    drain = float(services[name]["environment"]["THALWEG_DRAIN_SECONDS"])
    grace = seconds(services[name]["stop_grace_period"])
    assert grace >= drain + Settings().drain_delay + 10
    assert seconds(services["nginx"]["stop_grace_period"]) > grace


@pytest.mark.parametrize(("path", "name"), [(COMPOSE, "thalweg"), (CLUSTER, "node-1")])
def test_only_nginx_is_trusted_with_forwarded_headers(path: Path, name: str) -> None:
    services = compose(path)["services"]
    address = services["nginx"]["networks"]["front"]["ipv4_address"]
    assert services[name]["environment"]["THALWEG_TRUSTED_PROXIES"] == address


def test_a_cluster_has_two_equal_nodes_that_only_nginx_publishes() -> None:
    services = compose(CLUSTER)["services"]
    nodes = [services[name] for name in ("node-1", "node-2")]
    # The configuration of nginx names one host, which is both.
    assert all(node["networks"]["front"].pop("aliases") == ["thalweg"] for node in nodes)
    assert len({node["networks"]["front"].pop("ipv4_address") for node in nodes}) == 2
    assert nodes[0] == nodes[1]
    environment = Settings(
        **{
            name.removeprefix("THALWEG_").lower(): value
            for name, value in nodes[0]["environment"].items()
            if name in {"THALWEG_STATE", "THALWEG_BLOBS"}
        }
    )
    assert "database" in services
    assert "@database/" in environment.state
    assert environment.blobs.startswith("s3://")
    assert set(services["nginx"]["depends_on"]) == {"node-1", "node-2"}
    published = [port for service in services.values() for port in service.get("ports", [])]
    assert published == ["127.0.0.1:8080:8080"]
    for name in ("database", "objects"):
        assert services[name]["networks"] == ["back"]
    assert compose(CLUSTER)["networks"]["back"]["internal"] is True


def test_nginx_is_told_where_the_service_is() -> None:
    port = re.search(r"THALWEG_PORT=(\d+)", DOCKERFILE)
    assert port is not None
    assert re.search(rf"server thalweg:{port[1]};", NGINX)
    assert instruction("EXPOSE") == port[1]


def test_nginx_is_more_patient_than_the_service() -> None:
    """Time limits are the service's: its answer says which one was reached."""
    settings = Settings()
    assert seconds(directive("client_body_timeout")) > settings.idle_seconds
    assert seconds(directive("send_timeout")) > settings.write_seconds
    # the other way round: whoever reuses a connection must give it up first
    upstream = re.search(r"upstream service \{.*?\n    \}", NGINX, re.DOTALL)
    assert upstream is not None
    kept = re.search(r"keepalive_timeout (\w+);", upstream[0])
    assert kept is not None
    assert seconds(kept[1]) < settings.keep_alive_seconds


def test_nginx_takes_the_configuration(tmp_path: Path) -> None:
    nginx = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
    if nginx is None:
        pytest.skip("no nginx on this machine (apt-get install nginx-light)")
    config = NGINX.replace("server thalweg:8000", "server 127.0.0.1:8000")
    config = config.replace("/tmp/", f"{tmp_path}/")  # noqa: S108 - replaced, not used
    path = tmp_path / "nginx.conf"
    path.write_text(config)
    check(nginx, "-t", "-q", "-p", tmp_path, "-c", path)


def test_nginx_takes_the_configuration_with_tls(tmp_path: Path) -> None:
    nginx = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
    openssl = shutil.which("openssl")
    if nginx is None or openssl is None:
        pytest.skip("no nginx or openssl on this machine (apt-get install nginx-light openssl)")
    for name in ("certificate.pem", "key.pem"):
        assert f"/etc/nginx/tls/{name};" in NGINX_TLS
    check(
        *(openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-batch"),
        *("-keyout", tmp_path / "key.pem", "-out", tmp_path / "certificate.pem"),
    )
    config = NGINX_TLS.replace("server thalweg:8000", "server 127.0.0.1:8000")
    config = config.replace("/tmp/", f"{tmp_path}/")  # noqa: S108 - replaced, not used
    config = config.replace("/etc/nginx/tls/", f"{tmp_path}/")
    path = tmp_path / "nginx.conf"
    path.write_text(config)
    check(nginx, "-t", "-q", "-p", tmp_path, "-c", path)


def test_what_strangers_reach_is_limited() -> None:
    for directive_ in ("limit_conn connections", "limit_req zone=requests", "ssl_certificate_key"):
        assert directive_ in NGINX_TLS
    # What the service trusts is what the operator wrote, not what a client did.
    assert "$http_host" not in NGINX_TLS
    for config in (NGINX, NGINX_TLS):
        for name in ("Host", "For", "Proto"):
            assert re.search(rf"proxy_set_header X-Forwarded-{name} [^;]+;", config)
    # Both pass bodies on in the same way.
    for setting in re.findall(r"proxy_(?!set_header)\w+ [^;]+;", NGINX):
        assert setting in NGINX_TLS


# --- the audit ---


def run_audit(tmp_path: Path, script: str | None) -> tuple[int, str]:
    """Run it with a pip-audit that is this script; exit code and last line."""
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "python").symlink_to(sys.executable)
    if script is not None:
        (tools / "pip-audit").write_text(f"#!/bin/sh\n{script}\n")
        (tools / "pip-audit").chmod(0o755)
    done = subprocess.run(
        [tools / "python", DEPLOY / "audit.py"],
        env={"PATH": str(tools)},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout.splitlines()[-1]


def report(*ids: str, skipped: bool = False) -> str:
    vulns = [{"id": ident, "fix_versions": ["2.0"], "aliases": []} for ident in ids]
    packages: list[dict[str, Any]] = [{"name": "numpy", "version": "1.0", "vulns": vulns}]
    if skipped:
        packages.append({"name": "pandas", "skip_reason": "not found and could not be audited"})
    return f"echo '{json.dumps({'dependencies': packages, 'fixes': []})}'; exit {len(ids)}"


@pytest.mark.parametrize(
    ("script", "code", "line"),
    [
        (None, 0, "not audited: there is no pip-audit"),
        ("echo offline >&2; exit 1", 0, "not audited: pip-audit has no report"),
        (report(), 0, "no known vulnerability"),
        (report("PYSEC-1"), 1, "2 known vulnerabilities"),
        (report(skipped=True), 0, "not audited: 2 packages could not be looked up"),
        (report("PYSEC-1", skipped=True), 1, "2 known vulnerabilities"),
    ],
)
def test_the_audit_says_what_it_could_find_out(
    tmp_path: Path, script: str | None, code: int, line: str
) -> None:
    found, last = run_audit(tmp_path, script)
    assert (found, last[: len(line)]) == (code, line)


# --- the locks ---


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.name)
def test_locked_versions_have_hashes_and_no_origin(path: Path) -> None:
    text = path.read_text()
    assert "://" not in text
    requirements = re.split(r"^(?=\S)", text, flags=re.MULTILINE)[1:]
    assert requirements
    for requirement in requirements:
        first, *hashes = requirement.replace("\\", "").split("\n    ")
        assert re.match(r"[a-z0-9.-]+(\[[a-z0-9,-]+\])?==\S+", first)
        assert hashes
        assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", each.strip()) for each in hashes)


def locked(name: str) -> set[str]:
    """Names and versions in a lock; the lock names the libraries of their extras, too."""
    text = (DEPLOY / f"requirements{name}.lock").read_text()
    found = re.findall(r"^([a-z0-9.-]+)(?:\[[a-z0-9,-]+\])?(==.*?) \\$", text, re.MULTILINE)
    return {library + version for library, version in found}


def test_locks_of_extras_add_to_that_of_the_service() -> None:
    assert locked("") < locked("-plot") < locked("-image")
    assert locked("-plot") < locked("-dev")


def test_the_demo_and_the_image_can_draw() -> None:
    for name in ("-plot", "-image"):
        assert any(line.startswith("matplotlib==") for line in locked(name))
    assert "-r deploy/requirements-image.lock" in DOCKERFILE
    makefile = (ROOT / "Makefile").read_text()
    assert re.search(r"^demo: .*\n.*\$\(PLOT\)", makefile, re.MULTILINE)


def test_no_file_names_a_package_index() -> None:
    assert "://" not in DOCKERFILE
    for option in ("index-url", "trusted-host", "find-links"):
        for path in [ROOT / "Dockerfile", COMPOSE, *LOCKS]:
            assert option not in path.read_text()
