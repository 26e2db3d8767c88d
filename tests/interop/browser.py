"""An upload by Uppy in Chromium, from a page of another origin, through a connection that is cut.

The page uploads by itself and tells its own server how that ended, so nothing drives the browser.
The server of runs allows the origin of the page, as its operator would for a real one.
"""

from __future__ import annotations

import http.server
import json
import queue
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from app.client import Client
from tests.fault_proxy import GOOD, Cut, FaultProxy, Faults
from tests.server_process import HOST, ServerProcess

SECONDS = 120.0
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def find_browser() -> str | None:
    """Path of a browser that needs no screen; None if there is none."""
    return next((found for name in BROWSERS if (found := shutil.which(name))), None)


def bundle(modules: Path, target: Path) -> bytes:
    """Make one script of the page's and of Uppy's modules."""
    source = target / "page.mjs"
    source.write_bytes(Path(__file__).with_name("uppy.mjs").read_bytes())
    (target / "node_modules").symlink_to(modules.resolve())
    out = target / "page.js"
    command = [str(modules / ".bin" / "esbuild"), str(source), "--bundle", "--format=esm"]
    subprocess.run([*command, "--log-level=error", f"--outfile={out}"], check=True, timeout=SECONDS)
    return out.read_bytes()


@contextmanager
def page(script: bytes, content: bytes) -> Iterator[tuple[str, queue.Queue[Any]]]:
    """Serve the page; its origin, and what it says in the end."""
    outcomes: queue.Queue[Any] = queue.Queue()
    html = b'<!doctype html><meta charset="utf-8"><script type="module" src="/page.js"></script>'
    files = {
        "/": ("text/html", html),
        "/page.js": ("text/javascript", script),
        "/stream.bin": ("application/octet-stream", content),
    }

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            kind, body = files.get(self.path.partition("?")[0], ("", b""))
            self.send_response(200 if kind else 404)
            self.send_header("Content-Type", kind or "text/plain")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            outcomes.put(json.loads(self.rfile.read(length)))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_args: object) -> None:
            """Say nothing."""

    server = http.server.ThreadingHTTPServer((HOST, 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://{HOST}:{server.server_port}", outcomes
    finally:
        server.shutdown()
        server.server_close()


def upload_by_uppy(modules: Path, content: bytes) -> str | None:
    """Upload a stream with Uppy; what is wrong with the result, None if nothing is.

    The first connection that carries half of the stream is reset.
    """
    browser = find_browser()
    assert browser is not None
    cut = Faults(cut=Cut("up", len(content) // 2))
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        script = bundle(modules, folder)
        with page(script, content) as (origin, outcomes):
            server = ServerProcess(folder / "service", cors_origins=origin)
            try:
                return _upload(browser, folder, server, cut, origin, outcomes, content)
            finally:
                server.kill()


def _upload(
    browser: str,
    folder: Path,
    server: ServerProcess,
    cut: Faults,
    origin: str,
    outcomes: queue.Queue[Any],
    content: bytes,
) -> str | None:
    def plan(_number: int) -> Faults:
        # A browser opens connections ahead: whichever carries the bytes is the one that is cut.
        return GOOD if proxy.cuts else cut

    with Client(server.url) as client, FaultProxy([server.port], plan) as proxy:
        run = client.runs.create("gul", ["selt"])
        endpoint = f"http://{HOST}:{proxy.port}/v1/runs/{run.id}/streams?partition=1"
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        profile = f"--user-data-dir={folder / 'profile'}"
        address = f"{origin}/?endpoint={endpoint.replace('?', '%3F')}"
        process = subprocess.Popen(
            [browser, *flags, profile, address],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            outcome = outcomes.get(timeout=SECONDS)
        except queue.Empty:
            return "the page said nothing"
        finally:
            process.terminate()
            process.wait()
        if outcome["errors"] or len(outcome["uploaded"]) != 1:
            return f"Uppy: {outcome}"
        if not proxy.cuts:
            return "no connection was cut"
        (stream,) = client.runs.streams(run)
        if not stream.complete or stream.offset != len(content):
            return f"the server has {stream}"
        stored = np.concatenate([table.rows for table in client.runs.rows(run, "selt")])
        same = np.array_equal(stored, client.losses.read("selt", content).rows)
    return None if same else "the server has other losses"
