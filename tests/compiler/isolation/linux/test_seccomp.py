"""The filter on processes: calls of other kinds, and the numbers it knows."""

import errno
import subprocess
import sys

import pytest

from compiler.isolation.linux import kernel, seccomp
from compiler.isolation.linux.kernel import Machine
from compiler.isolation.linux.syscalls import NEWEST, REFUSED, SIGNALS, TABLE

PRELUDE = """
import os, socket, sys
from compiler.isolation.linux import kernel, privileges, seccomp
privileges.forgo_privileges()
seccomp.restrict(os.getpid())
def attempt(function, *arguments):
    try:
        function(*arguments)
        print("done")
    except OSError as error:
        print(error.errno)
"""


def run_filtered(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PRELUDE + script], capture_output=True, text=True, check=False
    )


def test_every_refused_call_has_a_number() -> None:
    names = {name for group in (*REFUSED, SIGNALS) for name in group.names}
    assert names <= TABLE.keys()
    assert {check.name for check in seccomp.CHECKS} <= TABLE.keys()
    for column in (0, 1):
        numbers = [entry[column] for entry in TABLE.values() if entry[column] is not None]
        assert len(set(numbers)) == len(numbers)
        assert max(number for number in numbers if number is not None) <= NEWEST


@pytest.mark.parametrize("machine", Machine)
def test_a_program_is_short_enough_for_the_kernel(machine: Machine) -> None:
    program = seccomp.program(machine, REFUSED, seccomp.CHECKS)
    assert len(program) % 8 == 0
    assert len(program) // 8 < 4096


@pytest.mark.skipif(sys.platform != "linux", reason="Linux's")
def test_a_call_that_nobody_knows_yet_does_not_exist() -> None:
    assert run_filtered("attempt(kernel.call, 500)").stdout == f"{errno.ENOSYS}\n"


def test_a_call_of_another_kind_kills() -> None:
    if kernel.machine() is not Machine.X86_64:
        pytest.skip("x32 is x86-64's")
    assert run_filtered("kernel.call(0x40000000 + 39)").returncode == -31


@pytest.mark.parametrize(
    ("script", "output"),
    [
        ("attempt(socket.socketpair)", "done"),
        ("attempt(socket.socketpair, socket.AF_UNIX, socket.SOCK_SEQPACKET)", "done"),
        ("attempt(socket.socketpair, socket.AF_UNIX, socket.SOCK_DGRAM)", str(errno.EPERM)),
        ("attempt(socket.socket)", str(errno.EPERM)),
        ("attempt(os.kill, os.getpid(), 0)", "done"),
        ("attempt(os.kill, os.getppid(), 0)", str(errno.EPERM)),
        ("attempt(os.kill, -1, 0)", str(errno.EPERM)),
        ("import threading; thread = threading.Thread(); thread.start(); print('done')", "done"),
    ],
)
def test_what_is_left(script: str, output: str) -> None:
    assert run_filtered(script).stdout == f"{output}\n"
