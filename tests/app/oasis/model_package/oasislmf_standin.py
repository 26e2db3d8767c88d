"""Stand-ins for the modules of oasislmf that the runner imports.

The script that they build has the parts of the peer's that matter: fifos, a pipeline of losses for
each process, whose streams are saved ones, and a wait for them.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.oasis_runs import RUN

HEADER = "#!/bin/bash\nset -euET -o pipefail\ntrap 'exit 77' ERR\n"


class Bash(types.ModuleType):
    """Stands in for ``oasislmf.execution.bash``.

    Attributes:
        losses: command that writes the stream of a partition, with ``{stream}`` in it.
    """

    losses = "cat {stream}"

    @staticmethod
    def print_command(filename: str, line: str) -> None:
        with Path(filename).open("a") as file:
            file.write(f"{line}\n")

    @staticmethod
    def get_fifo_name(folder: str, name: str, process: int, consumer: str = "") -> str:
        return f"{folder}{name}_{consumer}_P{process}" if consumer else f"{folder}{name}_P{process}"

    @staticmethod
    def get_ri_inuring_priorities(settings: dict[str, Any], layers: int) -> list[dict[str, Any]]:
        between = [{"text": "IP1_"}] if settings.get("ri_inuring_priorities") else []
        return [*between, {"text": "", "level": layers}]

    @staticmethod
    def get_rl_inuring_priorities(layers: int) -> list[dict[str, Any]]:
        return [{"text": f"IP{level}_"} for level in range(1, layers + 1)]

    @staticmethod
    def get_getmodel_cmd(**_arguments: object) -> str:
        return "true"

    @contextlib.contextmanager
    def bash_wrapper(
        self, filename: str, *_args: object, log_sub_dir: object = None, **_kw: object
    ) -> Iterator[None]:
        folder = f"log/{log_sub_dir}" if log_sub_dir else "log"
        text = f"{HEADER}LOG_DIR={folder}\nmkdir -p $LOG_DIR\nrm -R -f $LOG_DIR/*\n"
        Path(filename).write_text(text)
        yield

    @staticmethod
    def bash_params(
        analysis_settings: dict[str, Any], filename: str, max_process_id: int
    ) -> dict[str, Any]:
        outputs = {
            f"{name}_output": bool(analysis_settings.get(f"{name}_output"))
            for name in ("gul", "il", "ri", "rl")
        }
        return {
            "analysis_settings": analysis_settings,
            "bash_trace": False,
            "stderr_guard": True,
            "fifo_queue_dir": "fifo/",
            "num_reinsurance_iterations": 2,
            "process_number": None,
            "filename": filename,
            "max_process_id": max_process_id,
            **outputs,
        }

    def create_bash_analysis(self, **params: Any) -> None:  # noqa: ANN401 - as the peer's
        filename, folder = params["filename"], params["fifo_queue_dir"]
        number = params["process_number"]
        processes = [number] if number else range(1, params["max_process_id"] + 1)
        fifos: list[tuple[Path, str]] = []
        settings = json.loads(Path("output/analysis_settings.json").read_text())
        for name in [n for n in ("gul", "il", "ri", "rl") if params[f"{n}_output"]]:
            texts = [""]
            if name == "ri":
                found = self.get_ri_inuring_priorities(settings, 2)
                texts = [entry["text"].rstrip("_") for entry in found]
            for text in texts:
                for process in processes:
                    stream = f"{name}_{text}_P{process}" if text else f"{name}_P{process}"
                    path = RUN / "streams" / f"{stream}.bin"
                    fifos.append((path, self.get_fifo_name(folder, name, process, text)))
        self.print_command(filename, f"rm -rf {folder}; mkdir -p {folder} {folder}x")
        for _, fifo in fifos:
            self.print_command(filename, f"mkfifo {fifo}")
        params["_get_getmodel_cmd"]()
        for index, (path, fifo) in enumerate(fifos, 1):
            losses = self.losses.format(stream=path)
            self.print_command(filename, f"( {{ {losses}; }} > {fifo} ) & pid{index}=$!")
        pids = " ".join(f"$pid{index}" for index in range(1, len(fifos) + 1))
        self.print_command(filename, f"exec_wait {pids}")


def load_runner(path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:  # noqa: ANN401 - a module
    """Import a runner as Oasis does, as a module of its folder, with stand-ins for Oasis' own."""
    parent, bash = types.ModuleType("execution"), Bash("bash")
    standard = types.ModuleType("runner")
    parent.bash, parent.runner = bash, standard  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "oasislmf", types.ModuleType("oasislmf"))
    monkeypatch.setitem(sys.modules, "oasislmf.execution", parent)
    monkeypatch.setitem(sys.modules, "oasislmf.execution.bash", bash)
    monkeypatch.setitem(sys.modules, "oasislmf.execution.runner", standard)
    package = path.parent.name
    for name in [n for n in sys.modules if n.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(str(path.parent.parent))
    return importlib.import_module(f"{package}.{path.stem}")
