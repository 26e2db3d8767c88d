"""Connections that break and servers that die: the tables are those of an uncut post."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from functools import cache
from typing import Literal, NamedTuple, Self

import numpy as np
import pytest

from app.client import Client, LossOptions
from core.losses.analysis import aggregate
from core.losses.policy import Policy
from tests.e2e.samples import large_stream, twenty_thousand_bytes
from tests.e2e.service import Answer, Connection, Service
from tests.fault_proxy import Cut, FaultProxy, Faults, How, Way
from tests.frames import FrameReader, Received
from tests.scale import SOAK
from tests.streams import Stream, random_stream

CUTS = 1000 if SOAK else 24
SECONDS = 10.0
QUANTILES = "0.1,0.5,0.9"
Tables = dict[str, bytes]
Mode = Literal["parts", "duplex"]


class Case(NamedTuple):
    """A stream, what is wanted of it, and the tables that must come."""

    data: bytes
    part: int
    """Bytes of the largest part; small beside the stream."""
    tables: Tables
    width: Literal[4, 8] = 4

    @property
    def options(self) -> str:
        options = "" if self.width == 4 else f"&float_width={self.width}"
        return options + (f"&quantiles={QUANTILES}" if "qelt" in self.tables else "")

    def target(self, form: str, token: str | None = None) -> str:
        """For one report its own route, for several the common one."""
        names = ",".join(self.tables)
        path = f"{names}?" if len(self.tables) == 1 else f"?reports={names}&"
        path = "/v1/losses" + ("/" if len(self.tables) == 1 else "") + path
        return f"{path}format={form}{self.options}" + ("" if token is None else f"&after={token}")


def make_case(stream: Stream, reports: tuple[str, ...], part: int) -> Case:
    data = stream.encode()
    quantiles = np.array([float(q) for q in QUANTILES.split(",")], np.float32)
    options = {"quantiles": quantiles} if "qelt" in reports else {}
    rows = aggregate(data, reports, policy=Policy(float_width=stream.width), **options)
    tables = {name: rows[name].tobytes() for name in reports}
    return Case(data, part, tables, 8 if stream.width == 8 else 4)


def make_cases() -> dict[str, Case]:
    rng = np.random.default_rng(1970)
    plain = random_stream(rng, events=60, blocks=6, samples=60)
    gul = random_stream(rng, kind="gul", events=60, blocks=6, samples=60)
    wide = random_stream(rng, width=8, events=40, blocks=5, samples=60)
    big = random_stream(rng, events=6, blocks=60, samples=200)
    return {
        "sorted": make_case(plain.sorted(), ("melt",), 20_000),
        "unsorted": make_case(plain, ("selt",), 20_000),
        "events larger than a part": make_case(big, ("selt",), 8000),
        "losses of 8 bytes": make_case(wide, ("qelt",), 20_000),
        "gul": make_case(gul, ("events",), 20_000),
        "all reports": make_case(plain, ("events", "selt", "melt", "qelt"), 20_000),
    }


NAMES = (
    "sorted",
    "unsorted",
    "events larger than a part",
    "losses of 8 bytes",
    "gul",
    "all reports",
)


@cache
def cases() -> dict[str, Case]:
    """Every case by its name, computed when the first is needed."""
    found = make_cases()
    assert tuple(found) == NAMES
    return found


# -- a client that does nothing but resume -------------------------------------------


class Poster:
    """Posts a stream until it is through.

    Args:
        port: where to.
        case: what.
        rng: decides on the sizes of parts.
        patience: seconds without a byte after which a connection counts as broken.
        pause: seconds between a fault and the next try.
    """

    def __init__(
        self,
        port: int,
        case: Case,
        rng: np.random.Generator,
        patience: float = SECONDS,
        pause: float = 0.0,
    ) -> None:
        self._port = port
        self._case = case
        self._rng = rng
        self._patience = patience
        self._pause = pause
        self._connection: Connection | None = None

    def post(self, mode: Mode) -> Tables:
        try:
            return self._in_parts() if mode == "parts" else self._in_duplex()
        finally:
            self._hang_up()

    def _connected(self) -> Connection:
        if self._connection is None:
            self._connection = Connection(self._port, timeout=self._patience)
        return self._connection

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _failed(self) -> None:
        self._hang_up()
        time.sleep(self._pause)

    # Parts: a request each, on one connection while it holds.

    def _in_parts(self) -> Tables:
        data = self._case.data
        table, received = b"", Received()
        form = "bin" if len(self._case.tables) == 1 else "frames"
        token, offset, seen = None, 0, 0
        while True:
            # A part begins with what the server saw of an unfinished event, and goes on.
            end = seen + int(self._rng.integers(1, self._case.part))
            last = end >= len(data)
            headers = () if last else ("Upload-Complete: ?0",)
            part = data[offset:end]
            try:
                target = self._case.target(form, token)
                answer = self._connected().request("POST", target, part, *headers)
            except OSError:
                self._failed()
                continue
            assert answer.status == 200, answer.body
            if answer.headers.get("connection") == "close":
                self._hang_up()
            table += answer.body
            if form == "frames":
                take_all(received, answer.body)
            if last:
                return (
                    received.tables if form == "frames" else {next(iter(self._case.tables)): table}
                )
            token, seen = answer.headers["thalweg-token"], end
            offset = int(answer.headers["thalweg-offset"])

    # Duplex: all of the rest, frames meanwhile.

    def _in_duplex(self) -> Tables:
        received = Received()
        while received.end is None or received.end["reason"] != "complete":
            try:
                self._go_on(received)
            except OSError:
                received.drop_group()
                self._failed()
            assert received.problem is None, received.problem
        return received.tables

    def _go_on(self, received: Received) -> None:
        rest = self._case.data[received.offset :]
        target = self._case.target("frames", received.token) + "&duplex=true"
        connection, reader = self._connected(), FrameReader()
        connection.begin("POST", target, size=len(rest))
        with connection.sending(lambda: connection.send(rest)):
            head = connection.read_head()
            pieces = connection.pieces()
            assert head.status == 200, b"".join(pieces)
            for piece in pieces:
                for frame in reader.feed(piece):
                    received.take(frame)
        reader.close()
        self._hang_up()


def take_all(received: Received, body: bytes) -> None:
    reader = FrameReader()
    for frame in reader.feed(body):
        received.take(frame)
    reader.close()


def post_with_client(url: str, case: Case, mode: Mode) -> Tables:
    """The client that users have."""
    options: LossOptions = {"float_width": case.width}
    if "qelt" in case.tables:
        options["quantiles"] = QUANTILES
    tables: Tables = {}
    with Client(url, timeout=SECONDS, retries=100) as client:
        reports = tuple(case.tables)
        answer = client.losses.post(reports, case.data, mode=mode, part_size=case.part, **options)
        for report, rows in answer:
            tables[report] = tables.get(report, b"") + rows.tobytes()
    assert answer.end is not None
    assert answer.end.reason == "complete"
    return tables


# -- servers and faults --------------------------------------------------------------


Pair = tuple[Service, Service]


@pytest.fixture
def pair(service: Service, spare: Service) -> Pair:
    """Two servers that share nothing but the key."""
    return service, spare


HOWS: tuple[How, ...] = ("reset", "reset", "close", "half")


class RandomCuts:
    """Cuts most connections somewhere, in one of several ways.

    Args:
        seed: of the choices.
        up: bytes sent after which they are cut at the latest.
        down: bytes answered after which they are.
    """

    def __init__(self, seed: int, up: int, down: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._sizes: dict[Way, int] = {"up": up, "down": down}

    def __call__(self, _number: int) -> Faults:
        rng = self._rng
        slice_bytes = int(rng.choice([0, 0, 0, 3000]))
        if rng.random() < 0.1:
            return Faults(slice_bytes=slice_bytes)
        way: Way = "up" if rng.random() < 0.6 else "down"
        after = int(rng.integers(1, self._sizes[way]))
        how = HOWS[int(rng.integers(len(HOWS)))]
        pause = float(rng.choice([0.0, 0.002, 0.01]))
        return Faults(slice_bytes=slice_bytes, cut=Cut(way, after, how, pause))


Post = Callable[[FaultProxy, Case, Mode, int], Tables]


def by_poster(proxy: FaultProxy, case: Case, mode: Mode, seed: int) -> Tables:
    return Poster(proxy.port, case, np.random.default_rng(seed)).post(mode)


def by_client(proxy: FaultProxy, case: Case, mode: Mode, _seed: int) -> Tables:
    return post_with_client(proxy.url, case, mode)


def post_until_cut(
    pair: Pair,
    case: Case,
    mode: Mode,
    post: Post,
    cuts: int,
    plan: Callable[[int], Faults] | None = None,
) -> str:
    """Post a stream until so many connections were cut; each answer must be whole.

    Returns how much was sent.
    """
    times = 0
    plan = plan or RandomCuts(cuts, len(case.data), len(case.data) // 2)
    with FaultProxy([server.port for server in pair], plan) as proxy:
        while proxy.cuts < cuts:
            assert post(proxy, case, mode, times) == case.tables
            times += 1
        whole = times * len(case.data)
        again = proxy.up - whole
        return (
            f"{proxy.cuts} cuts in {times} posts: {whole:,} bytes, {again:,} sent again or around"
            f" ({proxy.up / whole:.2f}x, {again / proxy.cuts:,.0f} a cut)"
        )


modes = pytest.mark.parametrize("mode", ["parts", "duplex"])


@modes
@pytest.mark.parametrize("name", NAMES)
def test_cuts_anywhere_change_no_byte(
    pair: Pair,
    name: str,
    mode: Mode,
    record_property: Callable[[str, object], None],
) -> None:
    found = post_until_cut(pair, cases()[name], mode, by_poster, CUTS)
    record_property("sent", found)
    print(f"{name}, {mode}: {found}")


@modes
@pytest.mark.parametrize("name", ["unsorted", "events larger than a part", "all reports"])
def test_cuts_anywhere_change_no_byte_for_the_client(
    pair: Pair,
    name: str,
    mode: Mode,
    record_property: Callable[[str, object], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("app.client.transport.retry._FIRST_DELAY", 1e-3)
    monkeypatch.setattr("app.client.transport.retry._LONGEST_DELAY", 4e-3)
    found = post_until_cut(pair, cases()[name], mode, by_client, CUTS if SOAK else CUTS // 2)
    record_property("sent", found)
    print(f"client, {name}, {mode}: {found}")


@modes
def test_cuts_of_a_long_stream_cost_little(
    pair: Pair, mode: Mode, record_property: Callable[[str, object], None]
) -> None:
    data = large_stream(16)
    table = aggregate(data, ["melt"])["melt"].tobytes()
    plan = RandomCuts(16, 2 * len(data), 2 * len(table))
    case = Case(data, 1 << 20, {"melt": table})
    found = post_until_cut(pair, case, mode, by_poster, CUTS // 10, plan)
    record_property("sent", found)
    print(f"16 MiB, {mode}: {found}")


def test_parts_of_csv_cut_anywhere_join_to_the_table(pair: Pair) -> None:
    case = cases()["sorted"]
    whole = pair[0].post(case.target("csv"), case.data).body
    rng = np.random.default_rng(3)
    with FaultProxy(
        [server.port for server in pair], RandomCuts(3, len(case.data), len(case.data) // 2)
    ) as proxy:
        table, token, offset, end = b"", None, 0, 0
        while True:
            end += int(rng.integers(1, case.part))
            headers = ("Upload-Complete: ?0",) if end < len(case.data) else ()
            target = case.target("csv", token)
            answer = insist(proxy, target, case.data[offset:end], *headers)
            table += answer.body
            if not headers:
                break
            token = answer.headers["thalweg-token"]
            offset = int(answer.headers["thalweg-offset"])
    assert table == whole


def insist(proxy: FaultProxy, target: str, body: bytes, *headers: str) -> Answer:
    while True:
        with contextlib.suppress(OSError), Connection(proxy.port, timeout=SECONDS) as connection:
            answer = connection.request("POST", target, body, *headers)
            assert answer.status == 200
            return answer


# -- bad lines -----------------------------------------------------------------------


def small_case() -> Case:
    data = twenty_thousand_bytes()
    return Case(data, 3000, {"selt": aggregate(data, ["selt"])["selt"].tobytes()})


@modes
@pytest.mark.parametrize(
    "faults",
    [Faults(latency=5e-4, slice_bytes=500), Faults(bytes_per_second=2e5)],
    ids=["tiny late pieces", "narrow"],
)
def test_a_bad_line_changes_no_byte(service: Service, faults: Faults, mode: Mode) -> None:
    case = small_case()
    with FaultProxy([service.port], lambda _: faults) as proxy:
        assert by_poster(proxy, case, mode, 0) == case.tables
        assert post_with_client(proxy.url, case, mode) == case.tables


@modes
def test_a_silent_line_costs_a_timeout_and_nothing_else(service: Service, mode: Mode) -> None:
    case = small_case()
    with FaultProxy([service.port], lambda number: Faults(blackhole=number == 0)) as proxy:
        poster = Poster(proxy.port, case, np.random.default_rng(0), patience=0.3)
        assert poster.post(mode) == case.tables
        assert len(proxy.seen) == 2


# -- servers that die ----------------------------------------------------------------

Member = tuple[str, Mode]
MEMBERS: tuple[Member, ...] = (
    ("poster", "parts"),
    ("poster", "duplex"),
    ("client", "parts"),
    ("client", "duplex"),
)


class Crowd:
    """Four posts at once, two clients in two modes, each through a line that can be held.

    Args:
        server: where they begin.
    """

    def __init__(self, server: Service) -> None:
        data = large_stream(1, samples=50)
        reports = ("melt", "selt")
        rows = aggregate(data, reports)
        self.case = Case(data, 50_000, {name: rows[name].tobytes() for name in reports})
        self.got: dict[Member, Tables] = {}
        self.proxies = {member: FaultProxy([server.port]) for member in MEMBERS}
        for member, proxy in self.proxies.items():
            proxy.plan = self._plan(member)
        self._threads = [threading.Thread(target=self._run, args=(who,)) for who in MEMBERS]
        self._all_held = threading.Barrier(len(MEMBERS) + 1)
        self._let_go = threading.Event()
        self._to_hold: set[Member] = set()

    def _plan(self, member: Member) -> Callable[[int], Faults]:
        after = len(self.case.data) // 3
        cut = Cut("up", after, "call", call=lambda: self._hold(member))
        return lambda _: Faults(cut=cut)

    def _hold(self, member: Member) -> None:
        if member in self._to_hold:
            self._to_hold.remove(member)
            self._all_held.wait(SECONDS)
            self._let_go.wait(SECONDS)

    def _run(self, member: Member) -> None:
        who, mode = member
        proxy = self.proxies[member]
        if who == "client":
            self.got[member] = post_with_client(proxy.url, self.case, mode)
        else:
            poster = Poster(proxy.port, self.case, np.random.default_rng(5), pause=0.02)
            self.got[member] = poster.post(mode)

    def __enter__(self) -> Self:
        self._to_hold.update(MEMBERS)
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._all_held.abort()
        self._let_go.set()
        for thread in self._threads:
            thread.join(60)
        for proxy in self.proxies.values():
            proxy.__exit__()

    def kill(self, server: Service, *, again: bool = False) -> None:
        """Kill a server when each has sent a third of the stream to it.

        With ``again``, each is held once more after that.
        """
        self._all_held.wait(20)
        server.kill()
        let_go, self._let_go = self._let_go, threading.Event()
        self._to_hold.update(MEMBERS if again else ())
        let_go.set()

    def check(self) -> None:
        for member in MEMBERS:
            assert self.got[member] == self.case.tables, member


def test_servers_killed_and_started_again_or_replaced_lose_nothing(
    service: Service, spare: Service
) -> None:
    with Crowd(spare) as crowd:
        crowd.kill(spare, again=True)
        spare.start()
        # The second time another server with the same key takes over.
        crowd.kill(spare)
        for proxy in crowd.proxies.values():
            proxy.targets[:] = [service.port]
    crowd.check()
