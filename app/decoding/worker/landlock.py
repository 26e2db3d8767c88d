"""Landlock: a process takes from itself the right to open files, by path or otherwise.

Open descriptors stay usable, which is all a worker needs. There is no rule that allows
anything, so the ruleset is one structure of rights that are handled, and thereby denied.
"""

from __future__ import annotations

import ctypes
import os
import struct

_CREATE_RULESET, _RESTRICT_SELF = 444, 446
"""System calls, of the same number on all architectures."""
_VERSION_FLAG = 1
_FILES = {1: 0x1FFF, 2: 0x3FFF, 3: 0x7FFF, 5: 0xFFFF}
"""Rights on files by the version that brought the last of them."""
_NETWORK_SINCE, _NETWORK = 4, 0x3
"""Binding and connecting TCP sockets."""
_SCOPES_SINCE, _SCOPES = 6, 0x3
"""Abstract Unix sockets and signals beyond the sandbox."""


def restrict() -> int | None:
    """Deny this process all files; return the version of the interface, None without Landlock.

    Raises:
        OSError: the kernel has Landlock, but refuses the ruleset.
    """
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    version = call(_CREATE_RULESET, None, ctypes.c_size_t(0), _VERSION_FLAG)
    if version < 1:
        return None
    attributes = ruleset(version)
    descriptor = call(_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0)
    if descriptor < 0 or call(_RESTRICT_SELF, int(descriptor), 0):
        raise OSError(ctypes.get_errno(), "the kernel refuses the Landlock ruleset")
    os.close(descriptor)
    return int(version)


def ruleset(version: int) -> bytes:
    """Return the attributes of a ruleset that denies all this version can deny."""
    words = [_FILES[max(since for since in _FILES if since <= version)]]
    if version >= _NETWORK_SINCE:
        words.append(_NETWORK)
    if version >= _SCOPES_SINCE:
        words.append(_SCOPES)
    return struct.pack(f"={len(words)}Q", *words)
