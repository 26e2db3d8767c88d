"""Files of tests side by side: ``--processes 6``.

Each process is forked from the one that has collected all tests and loaded the kernels, which
takes longer than most files do. So a process more costs next to nothing, and there can be as many
as keep all cores busy while some wait for servers. A file is run from its first test to its last
by one of them: whichever is free takes the next.
"""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import signal
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import chain, pairwise
from multiprocessing.connection import Connection, wait
from typing import Any

import pytest
from _pytest.capture import CaptureManager
from _pytest.tmpdir import TempPathFactory

from core.warmup import warm_up
from tests.forked import share_forkserver
from tests.scale import PURE_PYTHON

_FORK = multiprocessing.get_context("fork")

_PR_SET_PDEATHSIG = 1
_DISMISSAL_SECONDS = 10.0

Tests = list[int]
"""Places of tests among those that were collected."""
Report = dict[str, Any]
"""What is known of a phase of a test, in types that can be sent."""

AT_START: list[Callable[[], None]] = []
"""What each of the processes does first, for what it must not have in common with others."""


def pytest_addoption(parser: pytest.Parser) -> None:
    text = "run files of tests side by side, in as many processes"
    parser.addoption("--processes", type=int, default=1, help=text)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run the tests in several processes, if there are to be any."""
    processes = session.config.option.processes
    if processes < 2 or session.testsfailed or session.config.option.collectonly:
        return None  # pytest does it
    _factory(session).getbasetemp()  # in which those of all processes are
    if not PURE_PYTHON:
        warm_up()
    share_forkserver()
    # What is there stays: a collection of garbage that looked at it would copy its pages.
    gc.collect()
    gc.freeze()
    _Desk(session).run(processes)
    if session.shouldfail:
        raise session.Failed(session.shouldfail)
    if session.shouldstop:
        raise session.Interrupted(session.shouldstop)
    return True


def _factory(session: pytest.Session) -> TempPathFactory:
    factory: TempPathFactory = session.config._tmp_path_factory  # type: ignore[attr-defined]
    return factory


# -- the process that collected the tests ----------------------------------------------


class _Worker:
    """A process that runs tests.

    Attributes:
        process: the process.
        channel: to it, and from it.
        files: those it was given, without those that were finished.
        done: reports of each test of the first of these that ended.
    """

    def __init__(self, session: pytest.Session, name: str) -> None:
        self.channel, its_end = _FORK.Pipe()
        self.process = _FORK.Process(target=_work, args=(session, its_end, name), name=name)
        with warnings.catch_warnings():
            # Threads of libraries, which begin anew in the child.
            warnings.simplefilter("ignore", DeprecationWarning)
            self.process.start()
        its_end.close()
        self.files: deque[Tests] = deque()
        self.done: list[list[Report]] = []


class _Desk:
    """Hands out files, and shows what came of each when it is finished."""

    def __init__(self, session: pytest.Session) -> None:
        files: dict[object, Tests] = {}
        for place, item in enumerate(session.items):
            files.setdefault(item.path, []).append(place)
        self._session = session
        self._waiting = deque(files.values())
        self._workers: dict[Connection, _Worker] = {}
        self._hired = 0

    def run(self, processes: int) -> None:
        try:
            for _ in range(min(processes, len(self._waiting))):
                self._hire()
            while self._workers:
                for channel in wait(list(self._workers), timeout=10):
                    assert isinstance(channel, Connection)
                    self._serve(self._workers[channel])
                # A process that a test left may keep the channel of a dead one open.
                for worker in list(self._workers.values()):
                    if not worker.process.is_alive() and not worker.channel.poll():
                        self._part(worker)
        finally:
            self._dismiss()

    def _dismiss(self) -> None:
        """End all processes, after an interrupt; they may end what they started."""
        for worker in self._workers.values():
            worker.channel.close()
        for worker in self._workers.values():
            worker.process.join(_DISMISSAL_SECONDS)
            worker.process.kill()

    def _hire(self) -> None:
        self._hired += 1
        worker = _Worker(self._session, f"process-{self._hired}")
        self._workers[worker.channel] = worker

    def _serve(self, worker: _Worker) -> None:
        try:
            reports = worker.channel.recv()
        except (EOFError, ConnectionResetError):
            reports = []  # there are some of every test
        if reports is None:
            self._give_next(worker)
        elif reports:
            self._enter(worker, reports)
        else:
            self._part(worker)

    def _stops(self) -> bool:
        return bool(self._session.shouldfail or self._session.shouldstop)

    def _give_next(self, worker: _Worker) -> None:
        tests = self._waiting.popleft() if self._waiting and not self._stops() else None
        if tests is not None:
            worker.files.append(tests)
        with suppress(ConnectionError):  # it died, which will be noticed
            worker.channel.send(tests)

    def _enter(self, worker: _Worker, reports: list[Report]) -> None:
        worker.done.append(reports)
        if len(worker.done) == len(worker.files[0]):
            self._show(worker.files.popleft(), worker.done)
            worker.done = []

    def _show(self, tests: Tests, done: list[list[Report]]) -> None:
        hook, config = self._session.config.hook, self._session.config
        for place, reports in zip(tests, done, strict=True):
            item = self._session.items[place]
            hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
            for data in reports:
                report = hook.pytest_report_from_serializable(config=config, data=data)
                hook.pytest_runtest_logreport(report=report)
            hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)

    def _part(self, worker: _Worker) -> None:
        """See a process off; if it died, its test has failed, and another does what it left."""
        del self._workers[worker.channel]
        worker.process.join()
        worker.channel.close()
        if worker.files:
            self._take_over(worker)
        elif worker.process.exitcode:
            self._session.shouldfail = f"{_fate(worker)} after its last test"

    def _take_over(self, worker: _Worker) -> None:
        tests, done = worker.files.popleft(), len(worker.done)
        self._show(tests[:done], worker.done)
        if not self._stops():  # else it stopped after the same failure
            self._show(tests[done : done + 1], [[self._failed(tests[done], _fate(worker))]])
            self._waiting.extendleft(reversed(worker.files))
            if tests[done + 1 :]:
                self._waiting.appendleft(tests[done + 1 :])
            self._hire()

    def _failed(self, place: int, why: str) -> Report:
        item = self._session.items[place]
        report = pytest.TestReport(item.nodeid, item.location, {}, "failed", why, "call")
        data: Report = self._session.config.hook.pytest_report_to_serializable(
            config=self._session.config, report=report
        )
        return data


def _fate(worker: _Worker) -> str:
    return f"the process of the tests ended with {worker.process.exitcode}"


# -- the processes that run them -------------------------------------------------------


class _Reports:
    """Collects the reports of a test; a plugin in the place of the one that prints them."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._made: list[Report] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        hook = self._config.hook
        data = hook.pytest_report_to_serializable(config=self._config, report=report)
        self._made.append(data)

    def take(self) -> list[Report]:
        made, self._made = self._made, []
        return made


def _work(session: pytest.Session, channel: Connection, name: str) -> None:
    """Run the tests that the channel names, until it names no more."""
    # Be interrupted if the desk is killed.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGINT)
    for begin in AT_START:
        begin()
    factory, plugins = _factory(session), session.config.pluginmanager
    factory._basetemp = factory.getbasetemp() / name
    factory._basetemp.mkdir(mode=0o700)
    # Output is captured in a file, which would be that of all processes.
    capture = plugins.getplugin("capturemanager")
    assert isinstance(capture, CaptureManager)
    capture.stop_global_capturing()
    capture.start_global_capturing()
    capture.suspend_global_capture()
    plugins.unregister(name="terminalreporter")
    reports = _Reports(session.config)
    plugins.register(reports)
    try:
        with suppress(KeyboardInterrupt, EOFError, ConnectionError):  # the desk tells why
            _run(session, channel, reports)
    finally:
        session._setupstate.teardown_exact(None)


def _run(session: pytest.Session, channel: Connection, reports: _Reports) -> None:
    # The next file is asked for before the last test of one: what both use is not made anew.
    for item, following in pairwise(chain(_tests(session, channel), [None])):
        assert item is not None
        # What all tests of a folder share ends with them: servers that nobody asks take time, too.
        stays = following is not None and _folder(following) == _folder(item)
        nextitem = following if stays else None
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=nextitem)
        channel.send(reports.take())
        if session.shouldfail or session.shouldstop:
            break


def _folder(item: pytest.Item) -> tuple[str, ...]:
    """The folder of the tests that a test is in."""
    return item.path.relative_to(item.config.rootpath).parts[:2]


def _tests(session: pytest.Session, channel: Connection) -> Iterator[pytest.Item | None]:
    while True:
        channel.send(None)
        tests = channel.recv()
        if tests is None:
            return
        yield from (session.items[place] for place in tests)
