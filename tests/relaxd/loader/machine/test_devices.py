"""Drivers as they are found: none, one that does not start, one with devices."""

import ctypes
from types import SimpleNamespace
from typing import Any

import pytest

from relaxd.loader.machine import devices
from relaxd.loader.machine.devices import Driver, cuda_runtime, probe


class Cuda(SimpleNamespace):
    """libcuda with one device of compute capability 9.0."""

    status, count, version = 0, 1, 12_040

    def cuInit(self, flags: int) -> int:  # noqa: N802
        return self.status

    def cuDeviceGetCount(self, count: Any) -> int:  # noqa: N802
        count._obj.value = self.count
        return 0

    def cuDriverGetVersion(self, version: Any) -> int:  # noqa: N802
        version._obj.value = self.version
        return 0

    def cuDeviceGetAttribute(self, value: Any, attribute: int, device: int) -> int:  # noqa: N802
        value._obj.value = {75: 9, 76: 0}[attribute]
        return 0


class OpenCl(SimpleNamespace):
    """libOpenCL whose one platform has `all` devices, `cpus` of them processors."""

    def clGetPlatformIDs(self, entries: Any, platforms: Any, count: Any) -> int:  # noqa: N802
        if count is not None:
            count._obj.value = 1
        return 0

    def clGetDeviceIDs(  # noqa: N802
        self, platform: Any, kind: Any, entries: int, result: Any, count: Any
    ) -> int:
        count._obj.value = self.cpus if kind.value == 1 << 1 else self.all
        return 0


def with_library(monkeypatch: pytest.MonkeyPatch, library: object | None) -> None:
    monkeypatch.setattr(devices, "_library", lambda name: library)


@pytest.mark.parametrize("device", ["cuda", "rocm", "opencl"])
def test_a_machine_without_the_driver(monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    with_library(monkeypatch, None)
    assert probe(device) is None


def test_an_unknown_device_has_no_driver() -> None:
    assert probe("webgpu") is None
    assert probe("cpu") is None


def test_cudas_version_and_capabilities(monkeypatch: pytest.MonkeyPatch) -> None:
    with_library(monkeypatch, Cuda())
    assert probe("cuda") == Driver("12.4", ((9, 0),))
    with_library(monkeypatch, Cuda(count=0))
    assert probe("cuda") == Driver("12.4", ())


def test_a_driver_that_does_not_start_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    with_library(monkeypatch, Cuda(status=100))
    assert probe("cuda") is None


@pytest.mark.parametrize(("every", "processors", "software"), [(2, 1, False), (1, 1, True)])
def test_an_opencl_device_that_is_the_processor(
    monkeypatch: pytest.MonkeyPatch, every: int, processors: int, software: bool
) -> None:
    with_library(monkeypatch, OpenCl(all=every, cpus=processors))
    assert probe("opencl") == Driver("", ((0, 0),) * every, software=software)


def test_a_library_that_is_not_there() -> None:
    assert devices._library("libno_such_library.so.1") is None
    assert isinstance(devices._library("libc.so.6"), ctypes.CDLL)
    assert cuda_runtime("1.0") is None
