import pytest

from compiler import runtimes, targets
from compiler.host import capabilities, machine
from compiler.targets import TargetStatus, gpu
from relaxd.loader.machine.check import check_machine
from relaxd.loader.machine.devices import Driver
from relaxd.loader.machine.host import this_host


def with_driver(monkeypatch: pytest.MonkeyPatch, driver: Driver | None) -> None:
    monkeypatch.setattr(machine, "probe", lambda device: driver)
    monkeypatch.setattr(
        machine,
        "check_machine",
        lambda need, host: check_machine(need, host, lambda device: driver),
    )


@pytest.mark.skipif(this_host().arch != "x86_64", reason="OpenCL's target has an x86-64 host")
@pytest.mark.parametrize(
    ("driver", "status"),
    [
        (None, TargetStatus.COMPILED_ONLY),
        (Driver("", ()), TargetStatus.COMPILED_ONLY),
        (Driver("", ((0, 0),), software=True), TargetStatus.EMULATED),
        (Driver("", ((0, 0),)), TargetStatus.EXECUTED),
    ],
    ids=["no driver", "no device", "the processor", "a GPU"],
)
def test_how_a_device_verifies(monkeypatch, driver, status):
    with_driver(monkeypatch, driver)
    assert capabilities.verification(targets.resolve("opencl")) is status


def test_a_toolkit_that_is_missing_takes_raw_targets_of_its_kind_along(monkeypatch, tmp_path):
    monkeypatch.setenv("ROCM_PATH", str(tmp_path))
    assert not {"rocm", "raw-rocm"} & set(capabilities.capabilities().compiles)
    assert {"opencl", "raw-opencl", "raw-llvm"} <= set(capabilities.capabilities().compiles)
    (tmp_path / "amdgcn" / "bitcode").mkdir(parents=True)
    assert gpu.equip(targets.resolve("rocm")).device.lacking is None
    assert {"rocm", "raw-rocm"} <= set(capabilities.capabilities().compiles)


def test_a_runtime_that_was_not_fetched_takes_targets_along_that_need_it(monkeypatch, tmp_path):
    monkeypatch.setattr(runtimes, "folder", lambda: tmp_path / "nothing")
    able = set(capabilities.capabilities().compiles)
    assert {"aarch64", "macos-arm64", "windows-x86-64", "opencl"} <= able
    assert not {"opencl-mali", "metal"} & able
