"""Attacks on files of others, and on the disk."""

import ctypes
import os
import signal
import struct
from pathlib import Path
from typing import Any

from compiler.isolation import sandbox
from tests.compiler.isolation.attacks.scene import SECRET, Scene, attack, call


@attack
def read_a_secret(scene: Scene) -> Any:
    return SECRET in scene.secret.read_bytes()


@attack
def list_a_folder(scene: Scene) -> Any:
    return os.listdir(scene.outside)


@attack
def overwrite_a_record(scene: Scene) -> Any:
    with scene.record.open("r+b") as file:
        return file.write(b"poison")


@attack
def create_a_file(scene: Scene) -> Any:
    return (scene.outside / "new").write_bytes(b"x")


@attack
def create_a_folder(scene: Scene) -> Any:
    (scene.outside / "folder").mkdir()
    return True


@attack
def truncate_a_record(scene: Scene) -> Any:
    os.truncate(scene.record, 0)
    return True


@attack
def empty_a_file_that_may_be_read(scene: Scene) -> Any:
    os.close(os.open(scene.model, os.O_RDONLY | os.O_TRUNC))
    return scene.model.stat().st_size == 0


@attack
def delete_a_record(scene: Scene) -> Any:
    scene.record.unlink()
    return True


@attack
def move_a_record(scene: Scene) -> Any:
    scene.record.rename(scene.inside / "record")
    return True


@attack
def replace_a_record(scene: Scene) -> Any:
    (scene.inside / "forged").write_bytes(b"poison")
    (scene.inside / "forged").rename(scene.record)
    return True


@attack
def read_through_a_link(scene: Scene) -> Any:
    (scene.inside / "link").symlink_to(scene.secret)
    return SECRET in (scene.inside / "link").read_bytes()


@attack
def read_through_a_hard_link(scene: Scene) -> Any:
    os.link(scene.secret, scene.inside / "hard")
    return SECRET in (scene.inside / "hard").read_bytes()


@attack
def read_through_the_root_of_another_process(scene: Scene) -> Any:
    return SECRET in Path(f"/proc/{scene.victim}/root{scene.secret}").read_bytes()


@attack
def read_by_a_handle(scene: Scene) -> Any:
    handle = ctypes.create_string_buffer(struct.pack("Ii", 128, 0) + bytes(128))
    mount = ctypes.c_int()
    call("name_to_handle_at", -100, bytes(scene.secret), handle, ctypes.byref(mount), 0)
    return call("open_by_handle_at", -100, handle, os.O_RDONLY)


@attack
def change_a_mode(scene: Scene) -> Any:
    scene.model.chmod(0)
    return scene.model.stat().st_mode & 0o777 == 0


@attack
def change_a_time(scene: Scene) -> Any:
    os.utime(scene.model, (0, 0))
    return scene.model.stat().st_mtime == 0


@attack
def set_an_attribute(scene: Scene) -> Any:
    os.setxattr(scene.model, "user.evil", b"x")
    return True


@attack
def reopen_a_descriptor_for_writing(scene: Scene) -> Any:
    descriptor = os.open(scene.model, os.O_RDONLY)
    return os.write(os.open(f"/proc/self/fd/{descriptor}", os.O_RDWR), b"poison")


@attack
def poison_the_linkers_cache(scene: Scene) -> Any:
    return (scene.cache / "crt1.o").write_bytes(b"poison")


@attack
def poison_the_compiler(scene: Scene) -> Any:
    with Path(sandbox.__file__).open("a") as file:
        return file.write("") == 0


@attack
def run_a_program_of_its_own(scene: Scene) -> Any:
    program = scene.inside / "program"
    descriptor = os.open(program, os.O_CREAT | os.O_WRONLY, 0o755)
    os.write(descriptor, Path("/bin/true").read_bytes())
    os.close(descriptor)
    return os.spawnv(os.P_WAIT, str(program), [str(program)]) == 0


@attack
def open_a_device(scene: Scene) -> Any:
    for device in ("/dev/mem", "/dev/kmsg", "/dev/vda", "/dev/sda", "/dev/tty", "/dev/ptmx"):
        if Path(device).exists():
            os.close(os.open(device, os.O_RDWR))
            return True
    return False


@attack
def make_a_device(scene: Scene) -> Any:
    os.mknod(scene.inside / "disk", 0o600 | 0o060000, os.makedev(254, 0))
    return True


@attack
def set_a_kernel_parameter(scene: Scene) -> Any:
    # Written as it is: where this succeeds, it changes nothing.
    parameter = Path("/proc/sys/kernel/core_pattern")
    return parameter.write_text(parameter.read_text())


@attack
def write_a_file_without_end(scene: Scene) -> Any:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    os.truncate(os.open(scene.inside / "huge", os.O_CREAT | os.O_RDWR), 1 << 40)
    return True
