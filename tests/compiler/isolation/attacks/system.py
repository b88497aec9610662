"""Attacks on the kernel and the machine, and those of TorchScript models."""

import struct
from typing import Any

from tests.compiler.isolation.attacks.scene import ATTACKS, SECRET, Scene, attack, call


@attack
def mount_a_file_system(scene: Scene) -> Any:
    return call("mount", b"none", bytes(scene.inside), b"tmpfs", 0, None)


@attack
def change_the_root(scene: Scene) -> Any:
    return call("chroot", bytes(scene.inside))


@attack
def load_a_module(scene: Scene) -> Any:
    return call("init_module", b"x", 1, b"")


@attack
def restart_the_machine(scene: Scene) -> Any:
    # Without its magic numbers the call fails for everybody, but not with this error.
    try:
        return call("reboot", 0, 0, 0, None)
    except PermissionError:
        return False
    except OSError:
        return True


def kernel_surface(name: str, *arguments: object) -> None:
    def reach(scene: Scene) -> Any:
        return call(name, *arguments)

    ATTACKS[f"reach_{name}"] = reach


SURFACE = (
    ("unshare", 0x10000000),
    ("io_uring_setup", 4, bytes(120)),
    ("bpf", 0, bytes(64), 64),
    ("perf_event_open", struct.pack("II", 1, 112) + bytes(104), 0, -1, -1, 0),
    ("userfaultfd", 1),
    ("add_key", b"user", b"k", b"v", 1, -5),
    ("personality", 0x0400000),
    ("memfd_secret", 0),
)
"""Ways into the kernel that lead to nobody's files: seccomp closes them, and nothing else does."""
for entry in SURFACE:
    kernel_surface(*entry)


def torchscript(name: str) -> None:
    def load(scene: Scene) -> Any:
        import torch

        loot = torch.jit.load(scene.models[name]).loot
        if name.startswith("reads"):
            return bytes(loot.to(torch.uint8).tolist()) == SECRET
        # torch does not notice when it cannot save.
        saved = scene.record if name == "saves_over" else scene.outside / "torch-new-saved"
        return not name.startswith("saves") or saved.stat().st_size > 100

    ATTACKS[f"torchscript_{name}"] = load


TORCHSCRIPT = (
    *("reads", "reads_an_environment", "reads_shared", "reads_by_climbing"),
    *("reads_through_the_root", "reads_through_another_root"),
    *("overwrites", "overwrites_through_the_root", "creates", "creates_by_climbing"),
    *("saves", "saves_over", "saves_through_the_root", "saves_through_another_root"),
)
for entry_name in TORCHSCRIPT:
    torchscript(entry_name)
