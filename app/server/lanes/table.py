"""Which lane a request belongs to, by the first bytes of its connection.

The table is derived from the routes of the application, which the acceptor does not import: it
gets the table as data. It decides by the request line alone, as soon as its path is there::

    GET http://host:8000/zarr/view/0.0?x=1 HTTP/1.1
    method     (left out) └── path ──┘

What is not HTTP, and paths that no route has, belong to the front, which answers so.
"""

import json
import re
import urllib.parse
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Self

FRONT = "front"
QUICK = "quick"
LONG = "long"
LANES = (FRONT, QUICK, LONG)

_MOST = 256
"""Processes of a lane at most."""
PEEK_BYTES = 4096
"""Bytes within which the path must end; a longer one belongs to the front."""
_LONGEST_METHOD = 32
_ORIGIN = re.compile(rb"(?i:https?)://[^/?# ]*")
"""What comes before the path in the absolute form of a target."""
_PATH_END = re.compile(rb"[?# \r\n]")
_NAMED = re.compile(r"\(\?P<[^>]+>")


class Rule(NamedTuple):
    """Lanes of the methods of one path.

    Attributes:
        pattern: a regular expression for the whole path, decoded, without numbered groups.
        lanes: lane by method.
    """

    pattern: str
    lanes: Mapping[str, str]


class Table:
    """The lanes of all routes.

    Args:
        rules: one for each path.
    """

    def __init__(self, rules: Iterable[Rule]) -> None:
        self.rules = tuple(rules)
        # One expression with a group for each rule, so that no path is tried in Python.
        patterns = (_NAMED.sub("(?:", rule.pattern) for rule in self.rules)
        self._any = re.compile("|".join(f"({pattern})" for pattern in patterns))

    @classmethod
    def from_bytes(cls, octets: bytes) -> Self:
        """Return the table that ``to_bytes`` has encoded."""
        return cls(Rule(*rule) for rule in json.loads(octets))

    def to_bytes(self) -> bytes:
        """Encode the table for another process."""
        return json.dumps(self.rules).encode()

    def lane(self, method: str, path: str) -> str:
        """Return the lane of a request.

        Args:
            method: its method.
            path: its path, decoded.
        """
        match = self._any.match(path)
        if match is None or match.lastindex is None:
            return FRONT
        lanes = self.rules[match.lastindex - 1].lanes
        return lanes.get(method) or (lanes.get("GET", FRONT) if method == "HEAD" else FRONT)

    def lane_of_bytes(self, octets: bytes) -> str | None:
        """Return the lane of the request that begins with these bytes; None if more are needed."""
        line = octets.lstrip(b"\r\n")
        method, space, target = line.partition(b" ")
        if not space:
            return FRONT if len(line) > _LONGEST_METHOD or len(octets) >= PEEK_BYTES else None
        origin = _ORIGIN.match(target)
        start = origin.end() if origin else 0
        end = _PATH_END.search(target, start)
        if end is None:
            return FRONT if len(octets) >= PEEK_BYTES else None
        path = target[start : end.start()].decode("ascii", "replace")
        return self.lane(method.decode("ascii", "replace"), urllib.parse.unquote(path))


def table_of(routes: Iterable[Any]) -> Table:
    """Return the lanes of routes, as their endpoints declare them.

    Args:
        routes: routes of Starlette.
    """
    rules: dict[str, dict[str, str]] = {}
    for route in routes:
        lanes = rules.setdefault(route.path_regex.pattern, {})
        lanes.update(dict.fromkeys(route.methods, getattr(route.endpoint, "lane", FRONT)))
    return Table(Rule(pattern, lanes) for pattern, lanes in rules.items())


def parse_lanes(text: str, workers: int | None = None, cores: int = 1) -> list[str]:
    """Return the lane of each process, as a setting says it: ``front=1,quick=1,long=2``.

    Args:
        text: the setting; ``auto`` is a process for long work for each core.
        workers: processes for long work, whatever the setting says of them; None if it does.
        cores: number of cores.

    Returns:
        The lanes; ``one`` has a single one without a name.

    Raises:
        ValueError: it is malformed, leaves a lane without a process, or wants more workers than
            ``one`` has.
    """
    if text == "one":
        if workers not in {None, 1}:
            raise ValueError(f"THALWEG_LANES: one is a single process, not {workers}: use auto")
        return [""]
    if text == "auto":
        text = f"{FRONT}=1,{QUICK}=1,{LONG}={cores}"
    counts: dict[str, int] = {}
    for part in text.split(","):
        name, _, count = part.strip().partition("=")
        known = name in LANES and name not in counts
        if not (known and count.isdecimal() and 0 < int(count) <= _MOST):
            raise ValueError(f"THALWEG_LANES: {part.strip()!r} is not a lane and a number")
        counts[name] = int(count)
    if workers is not None:
        counts[LONG] = workers
    if missing := [lane for lane in LANES if lane not in counts]:
        raise ValueError(f"THALWEG_LANES: the lane {missing[0]} has no process")
    return [lane for lane in LANES for _ in range(counts[lane])]
