"""What hostile code tries, each attempt in a process of its own behind the sandbox:
`python -m tests.compiler.isolation.attacks SPEC` prints the outcome of every one as JSON.
"""

import ctypes
import json
import os
import resource
import signal
import socket
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from compiler.isolation import kernel, sandbox
from compiler.isolation.places import places
from compiler.isolation.privileges import Shares

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


# Files of others


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


# Other processes


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


# The network


@attack
def connect_by_tcp(scene: Scene) -> Any:
    return socket.create_connection(("127.0.0.1", scene.tcp), timeout=5)


@attack
def send_by_udp(scene: Scene) -> Any:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        return sender.sendto(b"x", ("127.0.0.1", scene.udp))


@attack
def listen_by_tcp(scene: Scene) -> Any:
    return socket.create_server(("0.0.0.0", 0))


@attack
def open_a_raw_socket(scene: Scene) -> Any:
    return socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)


@attack
def connect_to_a_socket_file(scene: Scene) -> Any:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(scene.outside / "stream"))
        return True


@attack
def send_from_a_pair_to_a_socket_file(scene: Scene) -> Any:
    one, _other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    return one.sendto(b"x", str(scene.outside / "datagrams"))


@attack
def connect_to_an_abstract_socket(scene: Scene) -> Any:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect("\0" + scene.abstract)
        return True


# The system


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


TORCHSCRIPT = ("reads", "reads_an_environment", "overwrites", "creates", "saves", "saves_over")
for entry_name in TORCHSCRIPT:
    torchscript(entry_name)


def outcome(name: str, scene: Scene) -> str:
    """`succeeded`, or what the attempt ended with."""
    reader, writer = os.pipe()
    if not (child := os.fork()):
        try:
            said = "succeeded" if ATTACKS[name](scene) else "came to nothing"
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"[:300]
        os.write(writer, said.encode())
        os._exit(0)
    os.close(writer)
    status = os.waitpid(child, 0)[1]
    with open(reader, "rb") as stream:
        return stream.read().decode() or f"ended with {status}"


def main() -> None:
    spec = json.loads(sys.argv[1])
    scene = Scene(spec)
    (scene.inside / "spare").mkdir()
    readable = (scene.model, scene.cache, *(Path(path) for path in scene.models.values()))
    root = Path(__file__).parents[3]
    confinement = sandbox.confine(
        os.getppid(),
        places((*readable, root / "tests"), (scene.inside,)),
        Shares(memory_bytes=8 << 30, file_bytes=1 << 24),
        scene.inside / "spare",
    )
    os.chdir(scene.inside)
    import torch

    torch.set_num_threads(1)
    outcomes = {name: outcome(name, scene) for name in spec.get("only", ATTACKS)}
    layers = [layer.value for layer in confinement.layers]
    print(json.dumps({"layers": layers, "level": confinement.level, "outcomes": outcomes}))


if __name__ == "__main__":
    main()
