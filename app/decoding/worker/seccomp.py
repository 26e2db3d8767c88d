"""A filter on system calls: reading open files, memory, time, threads; nothing else.

The filter is a small program that the kernel runs at each call. It looks at the number of the
call and at its arguments, though not at what they point to. A call that is not on the list fails
with EPERM instead of ending the process: libraries try things they can do without, and a worker
that goes on gives a better answer than one that is dead.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Mapping
from dataclasses import dataclass

_SET_MODE_FILTER, _ALL_THREADS = 1, 1
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000
_LOAD, _EQUAL, _GREATER, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
"""Instructions: load a word of the call, jump on a comparison with it, return."""
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
"""Offsets in what describes a call."""
_X32 = 0x40000000
_PROT_EXEC, _CLONE_THREAD, _AT_EMPTY_PATH, _DUPLICATE = 0x4, 0x10000, 0x1000, 1030


@dataclass(frozen=True, slots=True)
class Machine:
    """System calls of a processor architecture."""

    audit: int
    """What the kernel calls the architecture."""
    seccomp: int
    """Number of seccomp(2)."""
    calls: Mapping[str, int]
    """Numbers of the calls that are allowed."""


_X86_64 = (
    "read=0 write=1 close=3 fstat=5 poll=7 lseek=8 mmap=9 mprotect=10 munmap=11 brk=12 "
    "rt_sigaction=13 rt_sigprocmask=14 rt_sigreturn=15 pread64=17 readv=19 writev=20 "
    "sched_yield=24 mremap=25 madvise=28 nanosleep=35 getpid=39 sendto=44 recvfrom=45 sendmsg=46 "
    "recvmsg=47 clone=56 exit=60 uname=63 fcntl=72 gettimeofday=96 getrusage=98 sysinfo=99 "
    "times=100 sigaltstack=131 gettid=186 futex=202 sched_getaffinity=204 restart_syscall=219 "
    "clock_gettime=228 clock_nanosleep=230 exit_group=231 tgkill=234 newfstatat=262 ppoll=271 "
    "set_robust_list=273 preadv=295 getcpu=309 getrandom=318 membarrier=324 preadv2=327 rseq=334"
)
_AARCH64 = (
    "dup=23 fcntl=25 close=57 lseek=62 read=63 write=64 readv=65 writev=66 pread64=67 preadv=69 "
    "ppoll=73 newfstatat=79 fstat=80 exit=93 exit_group=94 futex=98 set_robust_list=99 "
    "nanosleep=101 clock_gettime=113 clock_nanosleep=115 sched_getaffinity=123 sched_yield=124 "
    "restart_syscall=128 tgkill=131 sigaltstack=132 rt_sigaction=134 rt_sigprocmask=135 "
    "rt_sigreturn=139 times=153 uname=160 getrusage=165 getcpu=168 gettimeofday=169 getpid=172 "
    "gettid=178 sysinfo=179 sendto=206 recvfrom=207 sendmsg=211 recvmsg=212 brk=214 munmap=215 "
    "mremap=216 clone=220 mmap=222 mprotect=226 madvise=233 getrandom=278 membarrier=283 "
    "preadv2=286 rseq=293"
)


def _numbers(text: str) -> dict[str, int]:
    return {name: int(number) for name, _, number in (p.partition("=") for p in text.split())}


MACHINES = {
    "x86_64": Machine(0xC000003E, 317, _numbers(_X86_64)),
    "aarch64": Machine(0xC00000B7, 277, _numbers(_AARCH64)),
}
_CLONE3 = 435
"""Number of the call on all architectures. Its flags are in memory, which a filter cannot see; told
that there is no such call, the C library uses clone."""


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def restrict() -> bool:
    """Put the filter on all threads of this process; return whether the kernel could.

    Needs ``no_new_privs``.
    """
    machine = MACHINES.get(platform.machine())
    if machine is None:
        return False
    octets = program(machine, os.getpid())
    filters = _Program(len(octets) // 8, octets)
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    status = call(machine.seccomp, _SET_MODE_FILTER, _ALL_THREADS, ctypes.byref(filters))
    return bool(status == 0)


def program(machine: Machine, pid: int) -> bytes:
    """Assemble the filter.

    Args:
        machine: the architecture.
        pid: the process, which may send signals to itself: abort(3) does.
    """
    denied = _instruction(_RETURN, _ERROR | errno.EPERM)
    allowed = _instruction(_RETURN, _ALLOW)
    conditions = {
        "mmap": _none_of(2, _PROT_EXEC),
        "mprotect": _none_of(2, _PROT_EXEC),
        "clone": _any_of(0, _CLONE_THREAD),
        "newfstatat": _any_of(3, _AT_EMPTY_PATH),
        "fcntl": _equal_to(1, _DUPLICATE),
        "tgkill": _equal_to(0, pid),
    }
    steps = [
        _instruction(_LOAD, _ARCHITECTURE),
        _instruction(_EQUAL, machine.audit, 1, 0),
        denied,
        _instruction(_LOAD, _NUMBER),
        _instruction(_GREATER, _X32, 0, 1),
        denied,
        _instruction(_EQUAL, _CLONE3, 0, 1),
        _instruction(_RETURN, _ERROR | errno.ENOSYS),
    ]
    for name, number in machine.calls.items():
        rule = [allowed]
        if name in conditions:
            rule = [*conditions[name], allowed, denied]
        steps += [_instruction(_EQUAL, number, 0, len(rule)), *rule]
    return b"".join([*steps, denied])


def _none_of(argument: int, bits: int) -> list[bytes]:
    """Allow if none of the bits are set: the next instruction allows, the one after denies."""
    return [_load(argument), _instruction(_ANY_BIT, bits, 1, 0)]


def _any_of(argument: int, bits: int) -> list[bytes]:
    return [_load(argument), _instruction(_ANY_BIT, bits, 0, 1)]


def _equal_to(argument: int, value: int) -> list[bytes]:
    return [_load(argument), _instruction(_EQUAL, value, 0, 1)]


def _load(argument: int) -> bytes:
    """Load the lower half of an argument; both architectures are little-endian."""
    return _instruction(_LOAD, _ARGUMENTS + 8 * argument)


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("<HBBI", code, if_true, if_false, value)
