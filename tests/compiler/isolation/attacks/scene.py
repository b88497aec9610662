"""The place of an attack, and the register of all attacks."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from compiler.isolation.linux import kernel

Attack = Callable[["Scene"], Any]
ATTACKS: dict[str, Attack] = {}
SECRET = b"the secret"


class Scene:
    """outside: a folder of others with `secret`, `record` and sockets; victim: a process with the
    secret in its environment; models: TorchScript files by the name of their attack.
    """

    def __init__(self, spec: dict[str, Any]) -> None:
        self.outside, self.inside = Path(spec["outside"]), Path(spec["inside"])
        self.cache, self.model = Path(spec["cache"]), Path(spec["model"])
        self.victim, self.tcp, self.udp = spec["victim"], spec["tcp"], spec["udp"]
        self.abstract, self.models = spec["abstract"], spec["models"]
        self._entries = set(os.listdir(self.outside))

    def restore(self) -> None:
        """Undo what an attack that succeeded has changed, but inside of the build: from where
        nothing is denied.
        """
        for path in self.outside.iterdir():
            if path.name not in self._entries:
                path.rmdir() if path.is_dir() else path.unlink()
        self.secret.write_bytes(SECRET)
        self.record.write_bytes(b"record")
        self.model.unlink()
        self.model.write_bytes(b"a model")

    @property
    def secret(self) -> Path:
        return self.outside / "secret"

    @property
    def record(self) -> Path:
        return self.outside / "record"


def attack(function: Attack) -> Attack:
    """The attack succeeds where the function returns a true value."""
    ATTACKS[function.__name__] = function
    return function


def call(name: str, *arguments: object) -> bool:
    numbers = {
        "ptrace": (101, 117),
        "process_vm_readv": (310, 270),
        "mount": (165, 40),
        "unshare": (272, 97),
        "setns": (308, 268),
        "pidfd_open": (434, 434),
        "pidfd_send_signal": (424, 424),
        "io_uring_setup": (425, 425),
        "bpf": (321, 280),
        "perf_event_open": (298, 241),
        "userfaultfd": (323, 282),
        "add_key": (248, 217),
        "personality": (135, 92),
        "open_by_handle_at": (304, 265),
        "chroot": (161, 51),
        "init_module": (175, 105),
        "reboot": (169, 142),
        "clone3": (435, 435),
        "kcmp": (312, 272),
        "name_to_handle_at": (303, 264),
        "memfd_secret": (447, 447),
    }
    machine = kernel.machine()
    assert machine is not None
    return kernel.call(numbers[name][machine.column], *arguments) >= 0
