"""Confines a process that is about to read what nobody has vouched for: one layer of the kernel's
after the other, as far as the machine has them.
"""

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from compiler.isolation import guardian
from compiler.isolation.level import Layer, Level, level_of
from compiler.isolation.linux import cgroups, landlock, namespaces, privileges, seccomp
from compiler.isolation.linux.privileges import Shares
from compiler.isolation.linux.visible_paths import VisiblePaths, devices, find_closed


class ParentDied(Exception):
    """The process that wanted the result is gone."""


@dataclass(frozen=True)
class Confinement:
    """The layers that are in place, and remarks on what the kernel refused.

    unlimited: the kernel lets this process start any number of others.
    """

    layers: tuple[Layer, ...]
    remarks: tuple[str, ...]
    unlimited: bool = False

    @property
    def level(self) -> Level:
        """The level that the layers add up to."""
        return level_of(self.layers)

    @property
    def keeps_code(self) -> bool:
        """True if code of a model may run: the files of others and the machine are kept from it."""
        return self.level.isolates_files and not self.unlimited


def confine(
    parent: int, visible: VisiblePaths, shares: Shares, folder: Path, group: Path | None = None
) -> Confinement:
    """Go on in a confined child of this process, which must have one thread and stays behind to end
    whatever is left of the child; raises ParentDied.

    parent: the process id of the one who started us; when it ends, so do we. folder: an empty
    folder that the sandbox may use. group: the cgroup to enter, None where there is none.
    """
    layers: list[Layer] = []
    remarks: list[str] = []

    def put(layer: Layer, what: str, apply: Callable[[], object]) -> bool:
        try:
            there = apply() is not False
        except OSError as error:
            remarks.append(f"{what}: {error}")
            return False
        if there:
            layers.append(layer)
        return there

    if group is not None:
        put(Layer.GROUP, "no group of its own", partial(cgroups.join, group))
    unlimited = Layer.GROUP not in layers and namespaces.is_root()
    namespaced, other_user = _fork(parent, remarks, unlimited)
    if namespaced is not None:
        put(
            Layer.NAMESPACES,
            "the files of others stay visible",
            lambda: namespaces.see_only(visible, folder),
        )
        guardian.fork_from_first(namespaced)
    # Without a root of its own, another user could not enter the folders above its files.
    if other_user and Layer.NAMESPACES in layers:
        unlimited = not _become_other_user(visible, remarks)
    unlimited = unlimited and not cgroups.limits_processes()
    if unlimited:
        remarks.append(
            "the kernel does not limit how many processes root has: run the service as another user"
        )
    _forgo(remarks)
    abi = landlock.version()
    if not abi:
        remarks.append("the kernel has no Landlock, or an old one")
    elif put(Layer.LANDLOCK, "Landlock", lambda: landlock.restrict(visible, abi)) and (
        landlock.has_scopes(abi)
    ):
        layers.append(Layer.LANDLOCK_SCOPES)
    put(Layer.LIMITS, "limits", lambda: privileges.limit(shares))
    signals_stay = namespaced is not None or Layer.LANDLOCK_SCOPES in layers
    put(
        Layer.SECCOMP,
        "system calls are not filtered",
        lambda: seccomp.restrict(None if signals_stay else os.getpid()),
    )
    return Confinement(tuple(layers), tuple(remarks), unlimited)


def confine_further(folders: tuple[Path, ...]) -> None:
    """Take from this process what it may still have to itself: writing anywhere but to the folders,
    the network, and whatever else seccomp and Landlock refuse. What the kernel lacks is left out,
    with a line on standard output.
    """
    privileges.forgo_privileges()
    steps: list[tuple[str, Callable[[], object]]] = [("system calls", seccomp.restrict)]
    if abi := landlock.version():
        keep = partial(landlock.keep_from_writing, folders, devices(), abi)
        steps.insert(0, ("Landlock", keep))
    for what, step in steps:
        try:
            step()
        except OSError as error:
            print(f"sandbox: {what}: {error}", flush=True)


def _fork(parent: int, remarks: list[str], other_user: bool) -> tuple[int | None, bool]:
    """Go on in a child that cannot outlive us; what `fork_from_first` takes where that child is the
    first process of a namespace, and whether it may become the other user that was wanted.
    """
    try:
        other_user = namespaces.leave(other_user=other_user)
        namespaced = True
    except OSError as error:
        remarks.append(f"no namespaces of its own: {error}")
        namespaced = other_user = False
    try:
        privileges.prefer_for_oom_kill()
    except OSError as error:
        remarks.append(f"the kernel may kill others first when memory runs out: {error}")
    # The kernel forgets the death signal when credentials change, so it comes after the namespaces.
    privileges.end_with_parent(signal.SIGTERM)
    if os.getppid() != parent:
        raise ParentDied(parent)
    if namespaced:
        return guardian.fork_first_of_namespace(), other_user
    guardian.fork_guarded()
    return None, False


def _become_other_user(visible: VisiblePaths, remarks: list[str]) -> bool:
    if closed := find_closed(visible):
        remarks.append(f"no user of its own: others may not read {closed}")
        return False
    try:
        namespaces.become_other_user(visible.writable)
        # The kernel hides the memory of a process whose user changed, from itself as well.
        privileges.show_memory()
    except OSError as error:
        remarks.append(f"no user of its own: {error}")
        return False
    return True


def _forgo(remarks: list[str]) -> None:
    for step in (privileges.forgo_privileges, privileges.drop_capabilities):
        try:
            step()
        except OSError as error:
            remarks.append(f"{step.__name__.replace('_', ' ')}: {error}")
