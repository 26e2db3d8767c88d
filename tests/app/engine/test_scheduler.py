"""Reaching a scheduler: certificates of a test's own authority, and what is wrong with others."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from distributed import LocalCluster, Security

from app import tasks
from app.command import serving, worker
from app.command.doctor import CHECKS, run_check
from app.command.main import main
from app.engine.cluster import DaskCluster
from app.engine.scheduler import Scheduler
from app.settings import Settings
from app.tasks import check_scheduler, make_cluster, store_resource
from tests.app.state.memory import MemoryStateStore
from tests.certificates import Certificate, certificate
from tests.dask_cluster import free_port, threads_of_dask
from tests.dask_tasks import REGISTRY, Acts
from tests.scale import PURE_PYTHON

pytestmark = [
    pytest.mark.once,
    pytest.mark.skipif(PURE_PYTHON, reason="shows the same however kernels run"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


class Authorities:
    """The authority of a cluster, and another one, each with a certificate of its own."""

    def __init__(self, directory: Path) -> None:
        self.ours, self.other = certificate(directory, "ours"), certificate(directory, "other")
        self.member = certificate(directory, "member", self.ours)
        self.stranger = certificate(directory, "stranger", self.other)

    def scheduler(
        self, address: str, ca: Certificate | None = None, member: Certificate | None = None
    ) -> Scheduler:
        ca, member = ca or self.ours, member or self.member
        return Scheduler(address, ca.certificate, member.certificate, member.key)

    def settings(self, address: str, ca: Certificate, **more: Any) -> dict[str, Any]:  # noqa: ANN401
        named = {"ca": ca.certificate, "cert": self.member.certificate, "key": self.member.key}
        files = {f"engine_tls_{name}": path for name, path in named.items()}
        return {"engine": f"dask:{address}", **files, **more}


@pytest.fixture(scope="module")
def authorities(tmp_path_factory: pytest.TempPathFactory) -> Authorities:
    return Authorities(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def dask(authorities: Authorities) -> Iterator[LocalCluster]:
    files = {
        f"tls_{role}_{part}": str(getattr(authorities.member, name))
        for role in ("client", "scheduler", "worker")
        for part, name in (("cert", "certificate"), ("key", "key"))
    }
    ca = str(authorities.ours.certificate)
    security = Security(tls_ca_file=ca, require_encryption=True, **files)
    with threads_of_dask(REGISTRY, protocol="tls://", security=security) as cluster:
        yield cluster


def test_tasks_are_done_over_tls(
    dask: LocalCluster, authorities: Authorities, tmp_path: Path
) -> None:
    assert dask.scheduler_address.startswith("tls://")
    scheduler = authorities.scheduler(dask.scheduler_address)
    scheduler.reach()
    work = Acts(tmp_path, {"a": "", "b": ""})
    with closing(DaskCluster(scheduler, REGISTRY, "", 20)) as cluster:
        assert list(cluster.spread(work, work.acts)) == ["a", "b"]
    assert all(map(work.is_done, work.acts))


def test_certificates_of_others_are_refused_by_name(
    dask: LocalCluster, authorities: Authorities
) -> None:
    address, other = dask.scheduler_address, authorities.other
    with pytest.raises(
        ValueError, match=f"THALWEG_ENGINE_TLS_CA, {other.certificate}: .*certificate"
    ):
        check_scheduler(authorities.scheduler(address, other))
    stranger = authorities.stranger
    said = f"{address} refuses THALWEG_ENGINE_TLS_CERT, {stranger.certificate}, or .*UNKNOWN_CA"
    with pytest.raises(ValueError, match=said):
        check_scheduler(authorities.scheduler(address, member=stranger))


def test_files_that_cannot_be_used_are_named(authorities: Authorities, tmp_path: Path) -> None:
    for bad in (Certificate(tmp_path / "a", tmp_path / "b"), authorities.other):
        mixed = Certificate(authorities.member.certificate, bad.key)
        with pytest.raises(ValueError, match=r"_TLS_CERT and \.\.\._TLS_KEY cannot be used"):
            authorities.scheduler("tls://127.0.0.1:1", member=mixed).reach()


def test_whoever_does_not_encrypt_or_answer(
    authorities: Authorities, capfd: pytest.CaptureFixture[str]
) -> None:
    check_scheduler(authorities.scheduler(f"tls://127.0.0.1:{free_port()}"))
    assert "the scheduler of the cluster cannot be reached yet" in "".join(capfd.readouterr())
    with socket.create_server(("127.0.0.1", 0)) as silent:
        begun = time.monotonic()
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(TimeoutError):
            authorities.scheduler(f"tls://{address}").reach(0.2)
        assert time.monotonic() - begun < 10
        Scheduler(f"tcp://{address}").reach()
    with socket.create_server(("127.0.0.1", 0)) as plain:
        speaking = threading.Thread(target=lambda: plain.accept()[0].sendall(bytes(64)))
        speaking.start()
        with pytest.raises(ValueError, match="or does not encrypt"):
            authorities.scheduler(f"tls://127.0.0.1:{plain.getsockname()[1]}").reach()
        speaking.join()


def test_a_service_and_a_worker_refuse_to_start(
    dask: LocalCluster,
    authorities: Authorities,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    # Nothing is forked from a process with threads.
    for module in (serving, worker):
        monkeypatch.setattr(module, "in_child", lambda function: function())
    monkeypatch.setattr(worker, "configure_logging", lambda _level: None)
    address, named = dask.scheduler_address, "none of the authority in THALWEG_ENGINE_TLS_CA"
    given = authorities.settings(address, authorities.other, data_dir=tmp_path)
    with pytest.raises(ValueError, match=named):
        serving._prepared(Settings(**given))
    serving._prepared(
        Settings(**authorities.settings(address, authorities.ours, data_dir=tmp_path))
    )
    for name, value in given.items():
        monkeypatch.setenv(f"THALWEG_{name.upper()}", str(value))
    assert main(["worker"]) == 2
    assert named in capsys.readouterr().err


def test_doctor_says_what_is_wrong_with_a_cluster(
    dask: LocalCluster, authorities: Authorities, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = dask.scheduler_address

    def look(ca: Certificate, address: str = address) -> Any:  # noqa: ANN401 - a Finding
        settings = Settings(**authorities.settings(address, ca, data_dir=tmp_path / "data"))
        return run_check(CHECKS["engine"], settings)

    finding = look(authorities.other)
    assert finding.verdict == "wrong"
    assert str(authorities.other.certificate) in finding.found
    monkeypatch.setattr(tasks, "REGISTRY", REGISTRY)
    finding = look(authorities.ours)
    assert finding.verdict == "wrong"
    assert "workers that do tasks of this service: 0; tls://" in finding.found
    assert "uses another store than this service" in finding.found
    assert str(finding.mend).startswith("Start thalweg-server worker with the settings of this")
    monkeypatch.setattr(tasks, "store_resource", lambda *_: "store-here")
    finding = look(authorities.ours)
    assert (finding.verdict, finding.mend) == ("ok", None)
    assert finding.found.endswith("is reached; workers that do tasks of this service: 2")
    assert look(authorities.ours, f"tls://127.0.0.1:{free_port()}").verdict == "wrong"
    assert not (tmp_path / "data").exists()


def test_the_cluster_of_a_service_counts_what_its_metrics_tell(
    dask: LocalCluster, authorities: Authorities, tmp_path: Path
) -> None:
    settings = Settings(**authorities.settings(dask.scheduler_address, authorities.ours))
    records = MemoryStateStore()
    with ExitStack() as resources:
        cluster = make_cluster(settings, records, resources)
        assert cluster is not None
        assert cluster.describe()[0] == 0
        assert store_resource(records, settings) in cluster.needs(Acts(tmp_path, {}, kind="seal"))
