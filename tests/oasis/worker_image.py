"""The images of the project and of a worker, built without Docker as far as that goes.

``python -m tests.oasis.worker_image`` executes the instructions of both Dockerfiles, word for word,
in copies of this machine's root directory: each stage is an overlay, so that nothing outside of
them changes. It shows that every RUN line works and every COPY finds its source. It cannot show
that the platform's base image fits: this machine, with a Python of the same version in
``/usr/local``, takes its place. It needs root, for mounts in a namespace of its own.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass, field
from pathlib import Path

from tests.server_process import ROOT

DOCKERFILES = ("Dockerfile", "deploy/oasis/Dockerfile.worker")
TOP = Path("/dev/shm/thalweg-images")  # noqa: S108 - in memory, as an overlay cannot be on "/"
SHARED = ("dev", "proc", "sys")
PYTHON = Path(sys.base_prefix)


@dataclass
class Stage:
    """A stage: the folder of its root directory, and what instructions have set."""

    root: Path
    lowers: list[Path]
    environ: dict[str, str] = field(default_factory=dict)
    folder: str = "/"


class Builder:
    """Executes Dockerfiles below a folder.

    Args:
        top: of all stages; on another file system than the root, as overlays need it.
    """

    def __init__(self, top: Path) -> None:
        self._top = top
        self._stages: dict[str, Stage] = {}
        self._stage: Stage | None = None
        self._base = self._overlay("base", [Path("/")])
        self._install_python(self._base)

    def build(self, name: str, path: Path) -> None:
        """Execute a Dockerfile; its last stage is known as ``name`` to those after it."""
        text = re.sub(r"^#.*\n", "", path.read_text(), flags=re.MULTILINE)
        lines = re.sub(r"\\\n(#.*\n)*", " ", text).splitlines()
        arguments: dict[str, str] = {}
        for line in filter(str.strip, lines):
            word, _, rest = line.partition(" ")
            if word == "ARG" and self._stage is None:
                key, _, value = rest.partition("=")
                arguments[key] = value
            elif word == "FROM":
                self._from(rest, arguments)
            else:
                self._execute(word, rest.strip())
        assert self._stage is not None
        self._stages[arguments.get("name", name)] = self._stage
        self._stage = None

    def run(self, name: str, command: str) -> str:
        """Run a command in a stage; return what it says."""
        return self._run(self._stages[name], command, capture=True)

    def _from(self, rest: str, arguments: dict[str, str]) -> None:
        image, _, name = rest.partition(" AS ")
        image = re.sub(r"\$\{(\w+)\}", lambda m: arguments[m[1]], image.strip())
        known = {"thalweg:latest": "thalweg"}.get(image, image)
        parent = self._stages.get(known, self._base)
        stage = self._overlay(name or f"stage{len(self._stages)}", [parent.root, *parent.lowers])
        stage.environ, stage.folder = dict(parent.environ), parent.folder
        self._stage = self._stages[name or "last"] = stage

    def _execute(self, word: str, rest: str) -> None:
        stage = self._stage
        assert stage is not None
        print(f"{word} {rest[:110]}", flush=True)
        if word == "RUN":
            self._run(stage, re.sub(r"--mount=\S+\s+", "", rest))
        elif word == "COPY":
            self._copy(stage, rest)
        elif word == "WORKDIR":
            stage.folder = rest
            (self._merged(stage) / rest.lstrip("/")).mkdir(parents=True, exist_ok=True)
        elif word == "ENV":
            stage.environ |= dict(pair.split("=", 1) for pair in shlex.split(rest))

    def _copy(self, stage: Stage, rest: str) -> None:
        words = rest.split()
        source = ROOT
        if words[0].startswith("--from="):
            source = self._merged(self._stages[words.pop(0).partition("=")[2]])
        *names, target = words
        place = self._merged(stage) / str(Path(stage.folder) / target).lstrip("/")
        for name in names:
            found = source / name.lstrip("/")
            assert found.exists(), f"COPY {rest}: there is no {name}"
            to = place / found.name if found.is_file() and target.endswith("/") else place
            if len(names) > 1 or target == "./":
                to = place / found.name
            to.parent.mkdir(parents=True, exist_ok=True)
            if found.is_dir():
                shutil.copytree(found, to, symlinks=True, dirs_exist_ok=True)
            else:
                shutil.copy2(found, to)

    def _run(self, stage: Stage, command: str, *, capture: bool = False) -> str:
        environ = os.environ | {"HOME": "/root"}
        environ = {k: v for k, v in environ.items() if not k.startswith("PYTHON")}
        environ["PATH"] = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
        for key, value in stage.environ.items():
            environ[key] = value.replace("$PATH", environ["PATH"])
        done = subprocess.run(
            [
                *("chroot", str(self._merged(stage)), "/bin/sh", "-c"),
                f"cd {shlex.quote(stage.folder)} && {command}",
            ],
            env=environ,
            stdout=subprocess.PIPE if capture else None,
            text=True,
            check=True,
        )
        return done.stdout or ""

    def _overlay(self, name: str, lowers: list[Path]) -> Stage:
        """Mount a root directory of its own above others."""
        folder = self._top / name
        for part in ("upper", "work", "merged"):
            (folder / part).mkdir(parents=True)
        layers = ":".join(str(path) for path in lowers)
        options = f"lowerdir={layers},upperdir={folder}/upper,workdir={folder}/work"
        mount = ["mount", "-t", "overlay", "overlay", "-o", options, str(folder / "merged")]
        subprocess.run(mount, check=True)
        for part in SHARED:
            target = folder / "merged" / part
            subprocess.run(["mount", "--rbind", f"/{part}", str(target)], check=True)
        return Stage(folder / "upper", lowers)

    def _merged(self, stage: Stage) -> Path:
        return stage.root.with_name("merged")

    def _install_python(self, stage: Stage) -> None:
        """This interpreter in ``/usr/local``, as in the image of Python."""
        local = self._merged(stage) / "usr/local"
        version = f"python{sysconfig.get_python_version()}"
        (local / "bin").mkdir(exist_ok=True)
        shutil.copy2(PYTHON / "bin" / version, local / "bin" / version)
        for link in ("python3", "python"):
            (local / "bin" / link).unlink(missing_ok=True)
            (local / "bin" / link).symlink_to(version)
        ignored = shutil.ignore_patterns("site-packages", "test", "__pycache__")
        shutil.rmtree(local / "lib" / version, ignore_errors=True)
        shutil.copytree(PYTHON / "lib" / version, local / "lib" / version, ignore=ignored)
        (local / "lib" / version / "site-packages").mkdir()
        library = PYTHON / "lib" / f"lib{version}.so.1.0"
        place = local / "lib" / library.name
        shutil.copy2(library, place) if library.exists() else place.touch()


def main() -> int:
    """Build both; run the command of the worker; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--top", type=Path, default=TOP)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if not args.inside:
        shutil.rmtree(args.top, ignore_errors=True)
        try:
            # The namespace takes all mounts along when it ends.
            own = ["unshare", "--mount", "--propagation", "private", sys.executable, "-m"]
            words = ["tests.oasis.worker_image", "--inside", "--top", str(args.top)]
            return subprocess.run([*own, *words], cwd=ROOT, check=False).returncode
        finally:
            shutil.rmtree(args.top, ignore_errors=True)
    builder = Builder(args.top)
    for name, path in zip(("thalweg", "worker"), DOCKERFILES, strict=True):
        builder.build(name, ROOT / path)
    said = builder.run("worker", "/opt/thalweg/bin/thalweg-server --version")
    runner = builder.run("worker", "cat /home/worker/model/thalweg_runner/supplier_model_runner.py")
    (server,) = re.findall(r"^SERVER = (.*)$", runner, re.MULTILINE)
    assert ast.literal_eval(server) == "/opt/thalweg/bin/thalweg-server"
    print(f"built: {said.strip()}; the worker's runner calls /opt/thalweg/bin/thalweg-server")
    return 0


if __name__ == "__main__":
    sys.exit(main())
