import os
from pathlib import Path

import pytest

from relaxd.loader.machine.topology import (
    cpu_quota,
    default_threads,
    group_by_core,
    parse_cpu_list,
    usable_cores,
)


def write(root: Path, **files: str) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def siblings(root: Path, *cores: str) -> Path:
    for core in cores:
        for cpu in parse_cpu_list(core):
            write(
                root,
                **{f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list": core + "\n"},
            )
    return root


@pytest.mark.parametrize(
    ("text", "cpus"), [("0", {0}), ("0-2,8\n", {0, 1, 2, 8}), ("0,4", {0, 4}), ("", set())]
)
def test_cpu_lists(text, cpus):
    assert parse_cpu_list(text) == cpus


def test_siblings_are_one_core(tmp_path):
    assert group_by_core({0, 1, 2, 3}, siblings(tmp_path, "0,2", "1,3")) == ((0, 2), (1, 3))


def test_only_allowed_cpus_count(tmp_path):
    assert group_by_core({1, 2}, siblings(tmp_path, "0,2", "1,3")) == ((1,), (2,))


def test_a_core_is_read_once(tmp_path):
    siblings(tmp_path, "0,2", "1")
    (tmp_path / "sys/devices/system/cpu/cpu2/topology/thread_siblings_list").write_text("2")
    assert group_by_core({0, 1, 2}, tmp_path) == ((0, 2), (1,))


def test_without_sys_every_cpu_is_a_core(tmp_path):
    assert group_by_core({3, 5}, tmp_path) == ((3,), (5,))


def test_here():
    cores = usable_cores()
    assert {cpu for core in cores for cpu in core} == os.sched_getaffinity(0)


@pytest.mark.parametrize(
    ("leaf", "parent", "quota"),
    [
        ("max 100000", "max 100000", None),
        ("150000 100000", "max 100000", 1.5),
        ("400000 100000", "50000 100000", 0.5),
    ],
)
def test_cgroup_v2_takes_the_tightest(tmp_path, leaf, parent, quota):
    files = {
        "proc/self/cgroup": "0::/pod/box\n",
        "sys/fs/cgroup/pod/box/cpu.max": leaf + "\n",
        "sys/fs/cgroup/pod/cpu.max": parent + "\n",
    }
    assert cpu_quota(write(tmp_path, **files)) == quota


@pytest.mark.parametrize("controllers", ["cpu", "cpu,cpuacct"])
@pytest.mark.parametrize(("microseconds", "quota"), [("-1", None), ("200000", 2.0)])
def test_cgroup_v1(tmp_path, controllers, microseconds, quota):
    group = f"sys/fs/cgroup/{controllers}/box"
    files = {
        "proc/self/cgroup": f"4:{controllers}:/box\n",
        f"{group}/cpu.cfs_quota_us": microseconds,
        f"{group}/cpu.cfs_period_us": "100000",
    }
    assert cpu_quota(write(tmp_path, **files)) == quota


def test_a_container_sees_only_the_root_of_its_group(tmp_path):
    files = {"proc/self/cgroup": "0::/host/path/of/it\n", "sys/fs/cgroup/cpu.max": "300000 100000"}
    assert cpu_quota(write(tmp_path, **files)) == 3.0


def test_no_cgroup(tmp_path):
    assert cpu_quota(tmp_path) is None


@pytest.mark.parametrize(("quota", "threads"), [(None, 4), (2.9, 2), (0.5, 1), (64.0, 4)])
def test_whole_cpus_of_quota_bound_the_threads(quota, threads):
    assert default_threads(((0, 4), (1, 5), (2, 6), (3, 7)), quota) == threads
