"""Runs a command with mounts, a network and processes of its own: what it mounts, writes under /run
and /var and leaves running is gone when it ends.
"""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
GROUP = "relaxd-cluster"
"""The cgroup under which Kubernetes puts its containers."""
_GROUP_OF_PODMAN = "libpod_parent"
_NAMESPACES = [
    "--mount",
    "--net",
    "--pid",
    "--mount-proc",
    "--propagation",
    "private",
    "--kill-child",
    "--fork",
]
# Where cgroups are of both versions, the second is taken away: runtimes refuse to start beside it.
_SCRIPT = """
ip link set lo up
if mountpoint -q /sys/fs/cgroup/unified; then umount /sys/fs/cgroup/unified; fi
mkdir "$1/var" "$1/work"
mount -t overlay -o "lowerdir=/var,upperdir=$1/var,workdir=$1/work" var /var
mount -t tmpfs run /run
mkdir /run/lock
shift
exec catatonit -- "$@"
"""


def enter(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> int:
    """The exit status of the command; what it writes under /var goes to the folder."""
    words = ["unshare", *_NAMESPACES, "sh", "-ec", _SCRIPT, "sh", str(folder), *command]
    before = _list_groups()
    try:
        return subprocess.run(words, env=environment, check=False).returncode
    finally:
        for group in _list_groups() - before:
            _remove_group(group)


def make_group() -> None:
    """Make the cgroup for containers in every hierarchy."""
    unified = (CGROUPS / "cgroup.controllers").exists()
    for root in [CGROUPS] if unified else CGROUPS.iterdir():
        group = root / GROUP
        group.mkdir(exist_ok=True)
        # Without these no process can be in a group of the first version.
        for name in ("cpuset.cpus", "cpuset.mems"):
            if (root / name).exists() and not unified:
                (group / name).write_text((root / name).read_text())


def _list_groups() -> set[Path]:
    patterns = [f"{above}{name}" for above in ("", "*/") for name in (GROUP, _GROUP_OF_PODMAN)]
    return {path for pattern in patterns for path in CGROUPS.glob(pattern)}


def _remove_group(group: Path) -> None:
    for path in group.iterdir():
        if path.is_dir():
            _remove_group(path)
    group.rmdir()
