"""How well a sandbox holds: the layers that are in place, and the level that they add up to."""

from collections.abc import Iterable
from enum import Enum, StrEnum


class Layer(Enum):
    """One mechanism of the kernel that was put in place."""

    NAMESPACES = "namespaces"
    LANDLOCK = "landlock"
    LANDLOCK_SCOPES = "landlock_scopes"
    SECCOMP = "seccomp"
    LIMITS = "limits"
    GROUP = "group"


CONFINING = frozenset(Layer) - {Layer.GROUP}
"""What untrusted code has to overcome; a group bounds what it uses, and few machines allow one."""


class Level(StrEnum):
    """The reach of untrusted code, from worst to best.

    NONE: whatever the user who runs it can reach. LIMITS: no network, no other process and a
    limited share of the machine, but every file of the user. FILESYSTEM: besides, only the files of
    its own build. FULL: the same, with files, processes and the network kept by two layers or more.
    METERED: besides, the kernel holds all processes of the build together to their memory and
    number.
    """

    NONE = "none"
    LIMITS = "limits"
    FILESYSTEM = "filesystem"
    FULL = "full"
    METERED = "metered"

    @property
    def rank(self) -> int:
        """Greater where the sandbox holds better."""
        return list(Level).index(self)

    @property
    def isolates_files(self) -> bool:
        """True if code that reads and writes files by itself, as TorchScript does, may run."""
        return self.rank >= Level.FILESYSTEM.rank


def level_of(layers: Iterable[Layer]) -> Level:
    """The level that the layers add up to."""
    there = frozenset(layers)
    if not {Layer.SECCOMP, Layer.LIMITS} <= there:
        return Level.NONE
    isolating = {Layer.NAMESPACES, Layer.LANDLOCK} & there
    if not isolating:
        return Level.LIMITS
    if len(isolating) == 1:
        return Level.FILESYSTEM
    return Level.METERED if Layer.GROUP in there else Level.FULL
