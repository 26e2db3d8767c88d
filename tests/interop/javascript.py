"""Uploads by JavaScript clients to a server of our own: ``python -m tests.interop.javascript``.

Needs Node, and the clients in ``--modules``; ``make interop`` installs them. Each of the three
protocols of tus-js-client uploads plainly, aborts and resumes, and sends data with the creation.
Then Uppy uploads from a page in Chromium, if that is installed, while its connection is cut. The
exit code is 1 if one of them fails, or does not store what it sent.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from app.client import Client
from tests.interop.browser import BROWSERS, find_browser, upload_by_uppy
from tests.interop.suite import loss_stream
from tests.server_process import ServerProcess

UPLOADS = 9


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--modules", type=Path, required=True, help="node_modules with the client")
    args = parser.parse_args()
    content = loss_stream(events=4_000)
    with tempfile.TemporaryDirectory() as name:
        file = Path(name) / "stream.bin"
        file.write_bytes(content)
        server = ServerProcess(Path(name) / "service")
        try:
            with Client(server.url) as client:
                run = client.runs.create("gul", ["melt"])
                url = f"{server.url}/v1/runs/{run.id}/streams?partition={{n}}"
                script = Path(__file__).with_name("uploads.mjs")
                command = ["node", str(script), str(args.modules.resolve()), str(file), url]
                failed = subprocess.run(command, check=False, timeout=300).returncode
                streams = client.runs.streams(run)
        finally:
            server.kill()
    whole = [s.partition for s in streams if s.complete and s.offset == len(content)]
    print(f"complete and whole: {len(whole)} of {UPLOADS}", flush=True)
    wrong = None
    if find_browser() is None:
        print(f"skipped Uppy: there is none of {', '.join(BROWSERS)}")
    else:
        wrong = upload_by_uppy(args.modules, content)
        print(f"failed  Uppy: {wrong}" if wrong else "ok      Uppy in a browser, cut and resumed")
    return 1 if failed or len(whole) < UPLOADS or wrong else 0


if __name__ == "__main__":
    sys.exit(main())
