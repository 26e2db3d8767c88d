"""Chromium without a screen, driven by its DevTools protocol."""

from __future__ import annotations

import base64
import http.client
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from websockets.sync.client import ClientConnection, connect

SECONDS = 60.0
"""Longer than anything takes on a machine that is busy with other tests."""
_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--remote-debugging-port=0",
    # No host but the service can be reached.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)
_KEYS = {
    "ArrowUp": 38,
    "ArrowDown": 40,
    "ArrowLeft": 37,
    "ArrowRight": 39,
    "Tab": 9,
    "Enter": 13,
    "+": 187,
    "-": 189,
}


class Page:
    """A page of a browser, in a window of its own.

    Attributes:
        errors: what its console said that is an error, and exceptions.
    """

    def __init__(self, connection: ClientConnection, socket: str) -> None:
        self._connection = connection
        self._socket = socket
        self._number = 0
        self.errors: list[str] = []
        for domain in ("Page", "Runtime", "Log"):
            self.send(f"{domain}.enable")

    @contextmanager
    def another(self) -> Iterator[Page]:
        """Open a window beside this one, which is seen as well."""
        made = self.send("Target.createTarget", url="about:blank", newWindow=True)
        socket = f"{self._socket.rpartition('/')[0]}/{made['targetId']}"
        with connect(socket, max_size=None, ping_interval=None) as connection:
            yield Page(connection, socket)
        self.send("Target.closeTarget", targetId=made["targetId"])

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
        """Call a method of the protocol."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        self._connection.send(json.dumps(message))
        while True:
            answer = json.loads(self._connection.recv(SECONDS))
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise AssertionError(f"{method}: {answer['error']}")
                return dict(answer["result"])
            self._note(answer)

    def _note(self, event: dict[str, Any]) -> None:
        method, parameters = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.errors.append(str(parameters["exceptionDetails"]))
        elif method == "Log.entryAdded" and parameters["entry"]["level"] == "error":
            entry = parameters["entry"]
            self.errors.append(f"{entry['text']} {entry.get('url', '')}")
        elif method == "Runtime.consoleAPICalled" and parameters["type"] == "error":
            self.errors.append(str(parameters["args"]))

    def open(self, url: str) -> Self:
        """Load a page, which may have changed the query of its address by then."""
        self.run("window.isLeft = true")
        self.send("Page.navigate", url=url)
        is_there = (
            f"!window.isLeft && location.href.startsWith({json.dumps(url.partition('?')[0])})"
        )
        self.wait(f"{is_there} && document.readyState === 'complete'")
        return self

    def run(self, script: str) -> Any:  # noqa: ANN401 - JSON
        """Evaluate an expression; promises are awaited."""
        result = self.send(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in result:
            raise AssertionError(str(result["exceptionDetails"]))
        return result["result"].get("value")

    def wait(self, condition: str, seconds: float = SECONDS) -> Any:  # noqa: ANN401 - JSON
        """Wait until an expression is true; return its value.

        It may fail until then: parts of the page are not there yet.
        """
        end = time.monotonic() + seconds
        while not (value := self.run(f"(() => {{ try {{ return {condition} }} catch {{}} }})()")):
            if time.monotonic() > end:
                text = self.run("document.querySelector('main')?.innerText")
                raise AssertionError(f"not true: {condition}\n{text}\n{self.errors}")
            time.sleep(0.02)
        return value

    def text(self, selector: str) -> str:
        """Return the text that is seen of an element."""
        return str(self.run(f"document.querySelector({json.dumps(selector)}).innerText"))

    def mouse(self, kind: str, x: float, y: float, modifiers: int = 0) -> None:
        """Send ``mousePressed``, ``mouseMoved`` or ``mouseReleased``; modifiers 8 is Shift."""
        pressed = {
            "button": "left",
            "buttons": int(kind != "mouseReleased"),
            "modifiers": modifiers,
        }
        self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, clickCount=1, **pressed)

    def key(self, name: str, modifiers: int = 0) -> None:
        """Press a key; modifiers 8 is Shift."""
        code = {"key": name, "windowsVirtualKeyCode": _KEYS.get(name, 0), "modifiers": modifiers}
        text = {"Enter": "\r"}.get(name, name if len(name) == 1 else "")
        self.send("Input.dispatchKeyEvent", type="keyDown", text=text, **code)
        self.send("Input.dispatchKeyEvent", type="keyUp", **code)

    def drop(self, area: str, files: dict[str, bytes]) -> None:
        """Drop files on an element, as from a file manager."""
        contents = json.dumps({name: list(content) for name, content in files.items()})
        self.run(
            f"(() => {{ const dropped = new DataTransfer(), files = {contents};"
            "for (const name in files) dropped.items.add("
            "new File([Uint8Array.from(files[name])], name));"
            f"document.querySelector({json.dumps(area)}).dispatchEvent("
            "new DragEvent('drop', {dataTransfer: dropped})) })()"
        )

    def saved(self, button: str) -> bytes:
        """Click a button that saves, given as an expression; return what the file holds."""
        self.run(
            "(() => { const make = URL.createObjectURL; window.saved = null;"
            "URL.createObjectURL = (blob) => { window.saved = blob; return make(blob) };"
            f"({button}).click() }})()"
        )
        self.wait("window.saved !== null")
        return bytes(self.run("window.saved.arrayBuffer().then((a) => [...new Uint8Array(a)])"))

    def resize(self, width: int, height: int, *, dark: bool = False) -> None:
        """Change the size of the window, and whether the user prefers a dark page."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.send("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        # Nothing is between two colours when it is looked at.
        still = {"name": "prefers-reduced-motion", "value": "reduce"}
        self.send("Emulation.setEmulatedMedia", features=[scheme, still])

    def save(self, path: Path) -> None:
        """Write a picture of the whole page."""
        shot = self.send("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))


@contextmanager
def chromium(browser: str) -> Iterator[Page]:
    """Start a browser of its own; give its page."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        profile = Path(name)
        command = [browser, *_FLAGS, f"--user-data-dir={profile}", "about:blank"]
        output = subprocess.DEVNULL
        # What it leaves behind when it is ended goes with its profile.
        environ = {**os.environ, "TMPDIR": name}
        process = subprocess.Popen(command, stdout=output, stderr=output, env=environ)
        try:
            socket = _address(profile)
            with connect(socket, max_size=None, ping_interval=None) as connection:
                yield Page(connection, socket)
        finally:
            process.terminate()
            process.wait()


def _address(profile: Path) -> str:
    """Return where the page of a browser is driven, once it has started."""
    active, end = profile / "DevToolsActivePort", time.monotonic() + SECONDS
    while not (active.exists() and len(active.read_text().split()) == 2):
        assert time.monotonic() < end, "the browser does not start"
        time.sleep(0.05)
    port = int(active.read_text().split()[0])
    while True:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
        connection.request("GET", "/json")
        pages = json.loads(connection.getresponse().read())
        connection.close()
        for page in pages:
            if page["type"] == "page":
                return str(page["webSocketDebuggerUrl"])
        assert time.monotonic() < end, "the browser has no page"
        time.sleep(0.05)
