"""The filter, run call by call as the kernel runs it."""

from __future__ import annotations

import errno
import os
import struct

import pytest

from app.decoding.worker.seccomp import MACHINES, Machine, program

PID = 4711
ALLOW, ERROR = 0x7FFF0000, 0x00050000
DENIED = ERROR | errno.EPERM


def run(octets: bytes, audit: int, number: int, arguments: tuple[int, ...] = ()) -> int:
    """Interpret a filter for one call; returns what it returns."""
    padded = (*arguments, *(0,) * (6 - len(arguments)))
    call = struct.pack("<IIQ6Q", number, audit, 0, *padded)
    steps = [struct.unpack_from("<HBBI", octets, at) for at in range(0, len(octets), 8)]
    at = word = 0
    while True:
        code, if_true, if_false, value = steps[at]
        at += 1
        if code == 0x06:
            return int(value)
        if code == 0x20:
            (word,) = struct.unpack_from("<I", call, value)
            continue
        true = {0x15: word == value, 0x35: word >= value, 0x45: bool(word & value)}[code]
        at += if_true if true else if_false


@pytest.fixture(params=[*MACHINES.values()], ids=[*MACHINES])
def machine(request: pytest.FixtureRequest) -> Machine:
    found: Machine = request.param
    return found


def test_only_calls_on_the_list_are_allowed(machine: Machine) -> None:
    octets = program(machine, PID)
    conditional = {"mmap", "mprotect", "clone", "newfstatat", "fcntl", "tgkill"}
    plain = {number for name, number in machine.calls.items() if name not in conditional}
    allowed = {n for n in range(600) if run(octets, machine.audit, n) == ALLOW}
    # Without arguments, no memory is asked to be executable.
    assert allowed == plain | {machine.calls["mmap"], machine.calls["mprotect"]}
    assert run(octets, machine.audit, 435) == ERROR | errno.ENOSYS


def test_arguments_decide(machine: Machine) -> None:
    octets = program(machine, PID)

    def allowed(name: str, *arguments: int) -> bool:
        result = run(octets, machine.audit, machine.calls[name], arguments)
        assert result in {ALLOW, DENIED}
        return result == ALLOW

    assert allowed("mmap", 0, 4096, 3)
    assert not allowed("mmap", 0, 4096, 5)
    assert not allowed("mprotect", 0, 4096, 4)
    assert allowed("clone", 0x3D0F00)  # a thread, as the C library makes it
    assert not allowed("clone", 17)  # a process
    assert allowed("newfstatat", 3, 0, 0, 0x1000)
    assert not allowed("newfstatat", 3, 0, 0, 0)
    assert allowed("fcntl", 3, 1030)
    assert not allowed("fcntl", 3, 8)  # the owner, who gets signals
    assert allowed("tgkill", PID, PID, 6)
    assert not allowed("tgkill", PID + 1, PID + 1, 9)


def test_other_architectures_are_denied(machine: Machine) -> None:
    octets = program(machine, PID)
    read = machine.calls["read"]
    assert run(octets, machine.audit, read) == ALLOW
    assert run(octets, machine.audit ^ 1, read) == DENIED
    assert run(octets, machine.audit, read | 0x40000000) == DENIED


def test_numbers_are_those_of_this_machine() -> None:
    machine = MACHINES.get(os.uname().machine)
    if machine is None:
        pytest.skip("no filter for this machine")
    table = {"x86_64": {"openat": 257, "execve": 59, "socket": 41}, "aarch64": {"openat": 56}}
    for number in table[os.uname().machine].values():
        assert number not in machine.calls.values()
