"""Landlock: which files a process and its children may read and write, with no privilege needed."""

import contextlib
import ctypes
import os
from collections.abc import Iterator
from enum import IntFlag
from pathlib import Path

from compiler.isolation.linux import kernel
from compiler.isolation.linux.visible_paths import VisiblePaths

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_ASK_VERSION = 1
_PATH_BENEATH = 1
_LEAST_ABI = 2
"""The first version that can let files move between folders, which linking does."""

_SCOPES_ABI = 6
_BIND_AND_CONNECT_TCP = 0b11
_SOCKETS_AND_SIGNALS = 0b11


class Right(IntFlag):
    """LANDLOCK_ACCESS_FS_*."""

    EXECUTE = 1 << 0
    WRITE_FILE = 1 << 1
    READ_FILE = 1 << 2
    READ_DIR = 1 << 3
    REMOVE_DIR = 1 << 4
    REMOVE_FILE = 1 << 5
    MAKE_CHAR = 1 << 6
    MAKE_DIR = 1 << 7
    MAKE_REG = 1 << 8
    MAKE_SOCK = 1 << 9
    MAKE_FIFO = 1 << 10
    MAKE_BLOCK = 1 << 11
    MAKE_SYM = 1 << 12
    REFER = 1 << 13
    TRUNCATE = 1 << 14
    IOCTL_DEV = 1 << 15


_SINCE = {Right.TRUNCATE: 3, Right.IOCTL_DEV: 5}
_OF_FILES = Right.EXECUTE | Right.WRITE_FILE | Right.READ_FILE | Right.TRUNCATE | Right.IOCTL_DEV
_READ = Right.EXECUTE | Right.READ_FILE | Right.READ_DIR
# No program is run from where untrusted code writes.
_WRITE = (
    Right.WRITE_FILE | Right.READ_FILE | Right.READ_DIR | Right.REMOVE_DIR | Right.REMOVE_FILE
) | (Right.MAKE_DIR | Right.MAKE_REG | Right.MAKE_SYM | Right.REFER | Right.TRUNCATE)
_DEVICE = Right.READ_FILE | Right.WRITE_FILE | Right.IOCTL_DEV


class _Ruleset(ctypes.Structure):
    _fields_ = (("fs", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def version() -> int:
    """The kernel's version of Landlock, 0 where it is missing, refused or too old to be used."""
    try:
        abi = kernel.call(_CREATE_RULESET, None, 0, _ASK_VERSION)
    except OSError:
        return 0
    return abi if abi >= _LEAST_ABI else 0


def has_scopes(abi: int) -> bool:
    """True if that version keeps signals and abstract sockets inside as well."""
    return abi >= _SCOPES_ABI


def restrict(visible: VisiblePaths, abi: int) -> None:
    """Leave this process nothing but the visible paths, no TCP, and signals to none but its own
    children; raises OSError. It must have set no_new_privs.
    """
    with _ruleset(_rights(abi), abi) as ruleset:
        for rights, paths in (
            (_READ, visible.readable),
            (Right.READ_DIR, visible.listable),
            (_WRITE, visible.writable),
            (_DEVICE, visible.devices),
        ):
            for path in paths:
                _allow(ruleset, path, rights & _rights(abi))
        kernel.call(_RESTRICT_SELF, ruleset, 0)


def keep_from_writing(writable: tuple[Path, ...], devices: tuple[Path, ...], abi: int) -> None:
    """Take the right to write elsewhere, on top of what is denied already, and what `restrict`
    takes beside files; raises OSError.
    """
    rights = _rights(abi) & ~_READ & ~Right.IOCTL_DEV
    with _ruleset(rights, abi) as ruleset:
        for path in (*writable, *devices):
            _allow(ruleset, path, rights & (_WRITE | _DEVICE))
        kernel.call(_RESTRICT_SELF, ruleset, 0)


def _rights(abi: int) -> Right:
    known = Right(0)
    for right in Right:
        if _SINCE.get(right, 0) <= abi:
            known |= right
    return known


@contextlib.contextmanager
def _ruleset(rights: Right, abi: int) -> Iterator[int]:
    attributes = _Ruleset(
        rights,
        _BIND_AND_CONNECT_TCP if abi >= 4 else 0,
        _SOCKETS_AND_SIGNALS if has_scopes(abi) else 0,
    )
    size = 8 * (1 + (abi >= 4) + (abi >= _SCOPES_ABI))
    descriptor = kernel.call(_CREATE_RULESET, ctypes.byref(attributes), size, 0)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _allow(ruleset: int, path: Path, rights: Right) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except (FileNotFoundError, PermissionError):
        # What this user cannot open needs no rule.
        return
    try:
        allowed = rights if path.is_dir() else rights & _OF_FILES
        rule = _PathBeneath(allowed, descriptor)
        kernel.call(_ADD_RULE, ruleset, _PATH_BENEATH, ctypes.byref(rule), 0)
    finally:
        os.close(descriptor)
