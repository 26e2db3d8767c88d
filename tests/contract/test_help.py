"""Every argument of every command says what it is."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Iterator

import pytest

from app.client.command.main import build_parser as build_client
from app.command.parser import build_parser as build_server


def arguments(parser: argparse.ArgumentParser, name: str) -> Iterator[tuple[str, argparse.Action]]:
    """Arguments of a command and of those below it."""
    for action in parser._actions:
        if isinstance(action.choices, dict):
            for verb, below in action.choices.items():
                yield from arguments(below, f"{name} {verb}")
        else:
            yield name, action


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """A parser and those below it."""
    yield parser
    for action in parser._actions:
        for below in action.choices.values() if isinstance(action.choices, dict) else ():
            yield from parsers(below)


@pytest.mark.parametrize("build", [build_client, build_server], ids=["client", "server"])
def test_every_argument_has_help(build: Callable[[], argparse.ArgumentParser]) -> None:
    found = list(arguments(build(), ""))
    assert [(name, action.dest) for name, action in found if not action.help] == []
    assert len(found) > 100


COMMANDS = next(action for action in build_server()._actions if isinstance(action.choices, dict))


@pytest.mark.parametrize("name", list(COMMANDS.choices or {}))
def test_the_example_of_a_command_of_the_server_is_one_of_it(name: str) -> None:
    (command,) = [below for below in parsers(build_server()) if below.prog.split()[1:] == [name]]
    text = " ".join(command.format_help().partition("example: ")[2].split())
    program, *words = shlex.split(text.partition(" > ")[0])
    assert program == "thalweg-server"
    assert build_server().parse_args(words).command == words[0] == name


@pytest.mark.parametrize("build", [build_client, build_server], ids=["client", "server"])
def test_no_option_can_be_abbreviated(build: Callable[[], argparse.ArgumentParser]) -> None:
    """One that is added later would change what an abbreviation means."""
    found = list(parsers(build()))
    assert [parser.prog for parser in found if parser.allow_abbrev] == []
    assert len(found) > 10
