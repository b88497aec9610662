"""System calls that Python's own modules do not offer, by number, for the architectures that the
sandbox knows.
"""

import ctypes
import os
import platform
from enum import Enum
from functools import cache


class Machine(Enum):
    """An architecture: the column of its numbers in `syscalls.TABLE`, its name in seccomp's audit,
    and whether its kernel takes a second set of numbers (x32) under the same name.
    """

    X86_64 = (0, 0xC000003E, True)
    AARCH64 = (1, 0xC00000B7, False)

    @property
    def column(self) -> int:
        """Index into an entry of `syscalls.TABLE`."""
        return self.value[0]

    @property
    def audit(self) -> int:
        """The value of `seccomp_data.arch`."""
        return self.value[1]

    @property
    def has_x32(self) -> bool:
        """True if numbers with bit 30 set are calls of another kind."""
        return self.value[2]


def machine() -> Machine | None:
    """The machine of this processor, None for one that the sandbox has no numbers for."""
    names = {"x86_64": Machine.X86_64, "aarch64": Machine.AARCH64}
    return names.get(platform.machine())


@cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    return libc


def call(number: int, *arguments: object) -> int:
    """The result of a system call; raises OSError. Arguments are ints, bytes, None or what ctypes
    passes by reference.
    """
    passed = [ctypes.c_long(item) if isinstance(item, int) else item for item in arguments]
    result = int(_libc().syscall(ctypes.c_long(number), *passed))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def prctl(option: int, *arguments: object) -> int:
    """`call`, for prctl, whose numbers are the same everywhere."""
    passed = [ctypes.c_ulong(item) if isinstance(item, int) else item for item in arguments]
    result = int(_libc().prctl(option, *passed, *([ctypes.c_ulong(0)] * (4 - len(passed)))))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def mount(source: str | None, target: str, kind: str | None, flags: int, options: str = "") -> None:
    """Mount a file system; raises OSError."""
    texts = [None if text is None else text.encode() for text in (source, target, kind, options)]
    if _libc().mount(texts[0], texts[1], texts[2], ctypes.c_ulong(flags), texts[3]):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), target)


def unmount(target: str, flags: int) -> None:
    """Unmount a file system; raises OSError."""
    if _libc().umount2(target.encode(), flags):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), target)


def unshare(flags: int) -> None:
    """Leave shared namespaces; raises OSError."""
    if _libc().unshare(flags):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
