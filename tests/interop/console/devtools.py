"""A page in Chromium without a screen, driven by its DevTools protocol."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

from tests.interop.browser import find_browser
from tests.server_process import HOST

SECONDS = 10.0
_FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")
_PORT = re.compile(r"ws://[^ ]+:(\d+)/")
_OFFLINE = "net::ERR_"


@contextmanager
def chromium(profile: Path, *, dark: bool = False, size: tuple[int, int]) -> Iterator[Page]:
    """A page in a browser of its own.

    Args:
        profile: directory for the browser's files.
        dark: whether its user likes it dark.
        size: width and height of the window.
    """
    browser = find_browser()
    assert browser is not None
    command = [browser, *_FLAGS, "--remote-debugging-port=0", f"--user-data-dir={profile}"]
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        try:
            port = next(filter(None, map(_PORT.search, process.stderr)))[1]
            with connect(_address(port), max_size=None) as socket:
                yield Page(socket, dark=dark, size=size)
        finally:
            process.terminate()


def _address(port: str) -> str:
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        with urllib.request.urlopen(f"http://{HOST}:{port}/json") as answer:
            pages = [target for target in json.load(answer) if target["type"] == "page"]
        if pages:
            return str(pages[0]["webSocketDebuggerUrl"])
    raise AssertionError("the browser has no page")


class Page:
    """A page; it keeps what its console says."""

    def __init__(self, socket: ClientConnection, *, dark: bool, size: tuple[int, int]) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self._events: list[dict[str, Any]] = []
        for domain in ("Page", "Runtime", "Log", "Network", "DOM"):
            self.do(f"{domain}.enable")
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.do("Emulation.setEmulatedMedia", features=[scheme])
        width, height = size
        view = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.do("Emulation.setDeviceMetricsOverride", **view)

    def do(self, method: str, /, **params: object) -> Any:  # noqa: ANN401 - JSON
        """Send a command; return its result."""
        number = next(self._numbers)
        self._socket.send(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            message = json.loads(self._socket.recv(timeout=SECONDS))
            if message.get("id") == number:
                assert "error" not in message, message
                return message["result"]
            self._events.append(message)
            if message["method"] == "Page.javascriptDialogOpening":
                self._socket.send(
                    '{"id":0,"method":"Page.handleJavaScriptDialog","params":{"accept":true}}'
                )

    def open(self, address: str) -> None:
        self.do("Page.navigate", url=address)

    def run(self, script: str) -> Any:  # noqa: ANN401 - JSON
        """The value of an expression in the page, once it has one."""
        result = self.do(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def wait(self, script: str, seconds: float = SECONDS) -> Any:  # noqa: ANN401 - JSON
        """Wait until an expression is true, through pages that load; return its value."""
        deadline = time.monotonic() + seconds
        # In a page that is not there yet, parts of it are missing.
        guarded = f"(() => {{ try {{ return {script} }} catch {{ return null }} }})()"
        while not (value := self.run(guarded)):
            assert time.monotonic() < deadline, (script, self.run("document.body.innerText"))
            time.sleep(0.05)
        return value

    def choose(self, selector: str, files: Sequence[Path]) -> None:
        """Choose files in an input."""
        root = self.do("DOM.getDocument")["root"]["nodeId"]
        node = self.do("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self.do("DOM.setFileInputFiles", files=[str(file) for file in files], nodeId=node)

    def complaints(self) -> list[str]:
        """What the console said of errors, but for a service that was away."""
        self.run("0")
        found = []
        for event in self._events:
            params = event.get("params", {})
            if event["method"] == "Runtime.exceptionThrown":
                found.append(json.dumps(params["exceptionDetails"]))
            if event["method"] == "Log.entryAdded" and params["entry"]["level"] == "error":
                found.append(params["entry"]["text"])
            if event["method"] == "Runtime.consoleAPICalled" and params["type"] == "error":
                found.append(json.dumps(params["args"]))
        return [text for text in found if _OFFLINE not in text]
