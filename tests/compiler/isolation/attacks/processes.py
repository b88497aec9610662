"""Attacks on other processes."""

import ctypes
import os
import resource
import signal
import struct
from pathlib import Path
from typing import Any

from compiler.isolation.linux import kernel
from tests.compiler.isolation.attacks.scene import SECRET, Scene, attack, call


@attack
def read_an_environment(scene: Scene) -> Any:
    return SECRET in Path(f"/proc/{scene.victim}/environ").read_bytes()


@attack
def open_the_memory_of_a_process(scene: Scene) -> Any:
    os.close(os.open(f"/proc/{scene.victim}/mem", os.O_RDWR))
    return True


@attack
def read_the_memory_of_a_process(scene: Scene) -> Any:
    buffer = ctypes.create_string_buffer(8)
    vector = struct.pack("PN", ctypes.addressof(buffer), 8)
    return call("process_vm_readv", scene.victim, vector, 1, vector, 1, 0)


@attack
def trace_a_process(scene: Scene) -> Any:
    return call("ptrace", 0x4206, scene.victim, 0, 0)


@attack
def signal_a_process(scene: Scene) -> Any:
    os.kill(scene.victim, signal.SIGCONT)
    return True


@attack
def signal_all_processes(scene: Scene) -> Any:
    os.kill(scene.victim, 0)
    os.kill(-1, signal.SIGCONT)
    return True


@attack
def signal_by_descriptor(scene: Scene) -> Any:
    descriptor = kernel.call(434, scene.victim, 0)
    return call("pidfd_send_signal", descriptor, signal.SIGCONT, None, 0)


@attack
def have_the_kernel_signal(scene: Scene) -> Any:
    import fcntl

    reader, _writer = os.pipe()
    fcntl.fcntl(reader, 8, scene.victim)
    os.kill(scene.victim, 0)
    return True


@attack
def limit_a_process(scene: Scene) -> Any:
    resource.prlimit(scene.victim, resource.RLIMIT_NOFILE, (64, 64))
    return True


@attack
def enter_a_namespace(scene: Scene) -> Any:
    descriptor = os.open(f"/proc/{scene.victim}/ns/net", os.O_RDONLY)
    return call("setns", descriptor, 0)
