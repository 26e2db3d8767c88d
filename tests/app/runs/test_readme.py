"""The commands of the page about runs, executed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.app.harness import Service
from tests.app.runs.requests import stream
from tests.server_process import ROOT

JQ = """
import json, sys
value = json.load(sys.stdin)
for name in sys.argv[2].strip(".").split("."):
    value = value[name]
print(value)
"""


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_plain_curl_uploads_and_continues(service: Service, tmp_path: Path) -> None:
    page = (ROOT / "app" / "README.md").read_text()
    block = page[page.index("$ RUN=$(curl") :]
    lines = block[: block.index("```")].replace("\n$ ", "\n").removeprefix("$ ").splitlines()
    create, add, ask, send = "\n".join(lines).split("\n", 3)
    (tmp_path / "stream.bin").write_bytes(stream())
    (tmp_path / "jq").write_text(f"#!{sys.executable}\n{JQ}")
    (tmp_path / "jq").chmod(0o755)
    environment = {**os.environ, "URL": service.url, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    # A first request sends a part of it, and the next asks how much that was.
    part = "head -c 999 stream.bin > whole; mv stream.bin all; mv whole stream.bin"
    first = send.replace("?1", "?0")
    script = [create, add, ask, part, first, "mv all stream.bin", ask, "echo $OFFSET >&2", send]
    done = subprocess.run(
        ["bash", "-e", "-c", "\n".join(script)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.strip() == b"999"
    found = json.loads(done.stdout)
    assert (found["state"], found["offset"]) == ("complete", len(stream()))
