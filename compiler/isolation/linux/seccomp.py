"""A filter of system calls: what no build needs is refused, for this process and all it starts."""

import ctypes
import errno
import os
import struct
from collections.abc import Iterable
from dataclasses import dataclass

from compiler.isolation.linux import kernel
from compiler.isolation.linux.kernel import Machine
from compiler.isolation.linux.syscalls import NEWEST, REFUSED, SIGNALS, TABLE, Refused

_SET_SECCOMP, _FILTER = 22, 2
_LOAD, _AND, _RETURN, _JUMP = 0x20, 0x54, 0x06, 0x05
_IF_EQUAL, _IF_GREATER, _IF_AT_LEAST = 0x15, 0x25, 0x35
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
_ALLOW, _KILL, _FAIL = 0x7FFF0000, 0x80000000, 0x00050000
_X32 = 0x40000000

_NEW_NAMESPACES = 0x7E020000
_WRITABLE, _TRUNCATE = os.O_ACCMODE, os.O_TRUNC
_AF_UNIX, _SOCK_STREAM, _SOCK_SEQPACKET, _SOCK_TYPES = 1, 1, 5, 0xF
_SET_OWNER = (8, 10, 15)
_TERMINAL_INPUT_AND_OWNER = (0x5412, 0x541C, 0x8901, 0x8902)
_ASK_PERSONALITY = 0xFFFFFFFF
_ALL_BITS = 0xFFFFFFFF


@dataclass(frozen=True)
class Check:
    """Refuses a call by the low half of one argument: where `argument & mask` is one of `values`,
    or where it is none of them.
    """

    name: str
    argument: int
    values: tuple[int, ...]
    mask: int = _ALL_BITS
    refuse_others: bool = False
    error: int = errno.EPERM


CHECKS = (
    *(Check("clone", 0, (1 << bit,), 1 << bit) for bit in range(32) if _NEW_NAMESPACES >> bit & 1),
    # Opening for reading and emptying at once is writing, which old versions of Landlock let pass.
    Check("open", 1, (_TRUNCATE,), _WRITABLE | _TRUNCATE),
    Check("openat", 2, (_TRUNCATE,), _WRITABLE | _TRUNCATE),
    # A pair of datagram sockets could still send to a socket in the file system. What keeps packets
    # apart but stays connected cannot: the kernel ignores the address.
    Check("socketpair", 0, (_AF_UNIX,), refuse_others=True),
    Check("socketpair", 1, (_SOCK_STREAM, _SOCK_SEQPACKET), _SOCK_TYPES, refuse_others=True),
    # Typing into a terminal, and having the kernel send a signal to another process.
    Check("ioctl", 1, _TERMINAL_INPUT_AND_OWNER),
    Check("fcntl", 1, _SET_OWNER),
    Check("personality", 0, (_ASK_PERSONALITY,), refuse_others=True),
    # Limits and priorities of other processes of the same user.
    *(
        Check(name, index, (0,), refuse_others=True)
        for name, index in (
            ("prlimit64", 0),
            ("setpriority", 1),
            ("sched_setattr", 0),
            ("sched_setparam", 0),
            ("sched_setscheduler", 0),
        )
    ),
)


def restrict(signals_to: int | None = None) -> bool:
    """Install the filter; False on an architecture it does not know; raises OSError. This process
    must have set no_new_privs.

    signals_to: where nothing else keeps signals inside, the process that alone may be sent any:
    this one.
    """
    machine = kernel.machine()
    if machine is None:
        return False
    refused: tuple[Refused, ...] = REFUSED
    checks: tuple[Check, ...] = CHECKS
    if signals_to is not None:
        refused = (*REFUSED, SIGNALS)
        own = (0, signals_to)
        checks += tuple(Check(name, 0, own, refuse_others=True) for name in ("kill", "tgkill"))
    install(program(machine, refused, checks))
    return True


def install(instructions: bytes) -> None:
    """Hand an assembled filter to the kernel; raises OSError."""
    buffer = ctypes.create_string_buffer(instructions, len(instructions))
    count = len(instructions) // 8
    header = struct.pack("HxxxxxxP", count, ctypes.addressof(buffer))
    kernel.prctl(_SET_SECCOMP, _FILTER, header)


def program(machine: Machine, refused: Iterable[Refused], checks: Iterable[Check]) -> bytes:
    """The filter's instructions: any other architecture is killed, what is not refused is
    allowed.
    """
    instructions = [
        _instruction(_LOAD, _ARCHITECTURE),
        _instruction(_IF_EQUAL, machine.audit, true=1),
        _instruction(_RETURN, _KILL),
        _instruction(_LOAD, _NUMBER),
    ]
    if machine.has_x32:
        instructions += [_instruction(_IF_AT_LEAST, _X32, false=1), _instruction(_RETURN, _KILL)]
    instructions += [_instruction(_IF_GREATER, NEWEST, false=1), _fail(errno.ENOSYS)]
    for group in refused:
        for number in _numbers(machine, group.names):
            instructions += [_instruction(_IF_EQUAL, number, false=1), _fail(group.error)]
    for check in checks:
        for number in _numbers(machine, (check.name,)):
            instructions += _check(check, number)
    return b"".join([*instructions, _instruction(_RETURN, _ALLOW)])


def _numbers(machine: Machine, names: Iterable[str]) -> list[int]:
    numbers = (TABLE[name][machine.column] for name in names)
    return [number for number in numbers if number is not None]


def _check(check: Check, number: int) -> list[bytes]:
    """The check, which leaves the call's number loaded where it refuses nothing."""
    count = len(check.values)
    body = [
        _instruction(_LOAD, _ARGUMENTS + 8 * check.argument),
        _instruction(_AND, check.mask),
        *(
            _instruction(_IF_EQUAL, value, true=count - position)
            for position, value in enumerate(check.values)
        ),
        *([] if check.refuse_others else [_instruction(_JUMP, 1)]),
        _fail(check.error),
        _instruction(_LOAD, _NUMBER),
    ]
    return [_instruction(_IF_EQUAL, number, false=len(body)), *body]


def _fail(error: int) -> bytes:
    return _instruction(_RETURN, _FAIL | error)


def _instruction(code: int, value: int, *, true: int = 0, false: int = 0) -> bytes:
    return struct.pack("HBBI", code, true, false, value)
