"""The cores that this process may use: affinity, SMT siblings and cgroup CPU quotas."""

import os
from collections.abc import Iterable
from pathlib import Path

Cores = tuple[tuple[int, ...], ...]


def usable_cores(root: Path = Path("/")) -> Cores:
    """Logical CPUs that this thread may run on, grouped by physical core; cores and CPUs in
    ascending order.
    """
    return group_by_core(os.sched_getaffinity(0), root)


def group_by_core(cpus: Iterable[int], root: Path = Path("/")) -> Cores:
    """SMT siblings grouped together, from /sys; a CPU that /sys does not list is a core of its
    own.
    """
    allowed = frozenset(cpus)
    cores, left = [], set(allowed)
    while left:
        core = _siblings(min(left), root) & allowed
        cores.append(tuple(sorted(core)))
        left -= core
    return tuple(cores)


def cpu_quota(root: Path = Path("/")) -> float | None:
    """CPUs' worth of time that the tightest enclosing cgroup (v1 or v2) grants, None where none
    limits.
    """
    quotas = [quota for group in _groups(root) if (quota := _quota(group)) is not None]
    return min(quotas, default=None)


def default_threads(cores: Cores, quota: float | None) -> int:
    """One thread a physical core, but no more than whole CPUs of quota: a throttled spinning team
    stalls together.
    """
    return max(1, len(cores) if quota is None else min(len(cores), int(quota)))


def _siblings(cpu: int, root: Path) -> frozenset[int]:
    topology = f"{root}/sys/devices/system/cpu/cpu{cpu}/topology"
    for name in ("core_cpus_list", "thread_siblings_list"):
        try:
            with open(f"{topology}/{name}") as file:
                return parse_cpu_list(file.read()) | {cpu}
        except FileNotFoundError:
            continue
    return frozenset({cpu})


def parse_cpu_list(text: str) -> frozenset[int]:
    """Linux's list form: `0-2,8` is {0, 1, 2, 8}."""
    spans = [span.partition("-") for span in text.strip().split(",") if span]
    return frozenset(cpu for low, _, high in spans for cpu in range(int(low), int(high or low) + 1))


def _groups(root: Path) -> list[Path]:
    """Directories of this process's CPU cgroup and its parents.

    Inside a container the path may be the host's, of which only the mount's root is visible: that
    root is the last parent.
    """
    listing = root / "proc/self/cgroup"
    groups = []
    for line in listing.read_text().splitlines() if listing.is_file() else ():
        _, controllers, path = line.split(":", 2)
        mounts = (
            [f"sys/fs/cgroup/{name}" for name in (controllers, "cpu")]
            if "cpu" in controllers.split(",")
            else []
        )
        mounts += [] if controllers else ["sys/fs/cgroup", "sys/fs/cgroup/unified"]
        for mount in mounts:
            leaf = root / mount / path.lstrip("/")
            groups += [
                leaf,
                *(parent for parent in leaf.parents if parent.is_relative_to(root / mount)),
            ]
    return groups


def _quota(group: Path) -> float | None:
    if (group / "cpu.max").is_file():
        quota, period = (group / "cpu.max").read_text().split()
    elif (group / "cpu.cfs_quota_us").is_file():
        quota, period = (
            (group / "cpu.cfs_quota_us").read_text(),
            (group / "cpu.cfs_period_us").read_text(),
        )
    else:
        return None
    return None if quota.strip() in ("max", "-1") else int(quota) / int(period)
