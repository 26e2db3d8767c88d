"""Write the blocking client from the asynchronous one, or check that it was written.

Everything but the channels is written once, for asyncio; the blocking twin of a module differs by
the substitutions below. One that no module needs is an error, so that they stay true.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
CLIENT = ROOT / "app" / "client"

MODULES = {
    "transport/async_channel.py": "transport/channel.py",
    "transport/async_streams.py": "transport/streams.py",
    "files/async_downloads.py": "files/downloads.py",
    "tiles/async_streams.py": "tiles/streams.py",
    "tiles/asynchronous.py": "tiles/blocking.py",
    "datasets/asynchronous.py": "datasets/blocking.py",
    "losses/async_posting.py": "losses/posting.py",
    "losses/asynchronous.py": "losses/blocking.py",
    "portfolios/asynchronous.py": "portfolios/blocking.py",
    "pipelines/async_streams.py": "pipelines/streams.py",
    "pipelines/asynchronous.py": "pipelines/blocking.py",
    "runs/async_streams.py": "runs/streams.py",
    "runs/async_upload.py": "runs/upload.py",
    "runs/asynchronous.py": "runs/blocking.py",
    "async_client.py": "client.py",
}

SUBSTITUTIONS = [
    (r"# blocking: (self.+)  # noqa: ERA001", r"\1"),
    (
        r"async def (\w+)\(self\)( -> .+):  # blocking: a property\n",
        r"@property\n    def \1(self)\2:\n",
    ),
    (r"(\()?await self\.(id|info|nav_shape|plan|sig_shape)\(\)(?(1)\))", r"self.\2"),
    (
        r"async with aclosing\((.+)\) as items:\n +async for item in items:\n +yield item\n",
        r"yield from \1\n",
    ),
    (r"\[(\w+) async for \1 in (.+)\]", r"list(\2)"),
    (r"    def __iter__\(self\) -> NoReturn:\n(?: {8}.+\n)+\n", ""),
    (r"async (def|for|with) ", r"\1 "),
    (r"await ", ""),
    (r"for (\w+) in (.+):\n +yield \1\n", r"yield from \2\n"),
    (r"__a(iter|next|enter|exit)__", r"__\1__"),
    (r"\ba(close|closing|next)\b", r"\1"),
    (r"StopAsyncIteration", "StopIteration"),
    (r"AsyncGenerator\[(.+), None\]", r"Generator[\1, None, None]"),
    (r"Awaitable\[(\w+)\]", r"\1"),
    (r"HttpxConnector\(url, address, retries, transport\)", "SocketConnector(address, retries)"),
    (r"HttpxConnector", "SocketConnector"),
    (r"import httpx\n| +transport: .+\n", ""),
    (r"\bAsync([A-Z]\w+)", r"\1"),
    (r"\.asynchronous\b", ".blocking"),
    (r"\basync_(channel|downloads|posting|sources|streams|upload)\b", r"\1"),
    (r"\bopen_async_source\b", "open_source"),
    (r"with asyncio", "with blocking calls"),
    (r", for asyncio\.", "; any thread may use it."),
    (r"asynchronous client", "blocking client"),
    (r"An asynchronous context", "A context"),
    (r"\basynchronous iterator", "iterator"),
    (r"\(asynchronous\) ", ""),
    (r", away from the event loop", ""),
    (r"\bconnections(?=: (int|how)| > 1|, (1|array)\))", "threads"),
]


def blocking(path: Path, unused: set[str]) -> str:
    """Return the blocking twin of a module, and strike out the patterns that it needs."""
    text = path.read_text()
    for pattern, replacement in SUBSTITUTIONS:
        text, count = re.subn(pattern, replacement, text)
        if count:
            unused.discard(pattern)
    return f"# Made from {path.name} by deploy/unasync.py (make fmt): change that one.\n{text}"


def tidied(text: str, path: Path) -> str:
    """Return a module with its imports in order, formatted."""
    ruff = str(Path(sys.executable).with_name("ruff"))
    name = f"--stdin-filename={path}"
    for command in (["check", "--fix", "--exit-zero", "--quiet"], ["format"]):
        run = [ruff, *command, name, "-"]
        text = subprocess.run(run, input=text, capture_output=True, text=True, check=True).stdout  # noqa: S603 - ours
    return text


def main(*, check: bool) -> int:
    """Write the twins, or with check only say which differ; the exit code."""
    unused = {pattern for pattern, _ in SUBSTITUTIONS}
    wrong = []
    for source, twin in MODULES.items():
        path = CLIENT / twin
        text = tidied(blocking(CLIENT / source, unused), path)
        if path.exists() and path.read_text() == text:
            continue
        if check:
            wrong.append(f"{path.relative_to(ROOT)} differs from its source: make fmt")
        else:
            path.write_text(text)
    wrong += [f"no module needs the substitution {pattern}" for pattern in sorted(unused)]
    sys.stderr.write("".join(f"{line}\n" for line in wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(check="--check" in sys.argv[1:]))
