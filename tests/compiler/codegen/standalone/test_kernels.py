"""Kernels as objects of their own, and those that earlier builds left."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from compiler.codegen.kernel_cache import KernelCache
from compiler.codegen.standalone.kernels import Kernels, compile_apart, compile_kernels
from compiler.passes.cpu.schedule import ScheduleKernels
from compiler.passes.manager import to_kernels, to_plan
from compiler.runtimes import canonical
from compiler.targets import Target, resolve
from compiler.toolchain.objects import KernelObjects, Objects
from relaxd.contract.dims.dims import Dim
from relaxd.contract.options import Flavour
from tests.compiler.codegen.test_kernel_records import softmax_of_matmul
from tests.compiler.conftest import HOST
from tests.compiler.ranges import ranges_of


@dataclass
class Builds:
    """Builds of one owner; counts: of kernels, and of those that were there."""

    folder: Path
    counts: list[tuple[int, int]] = field(default_factory=list)

    def run(self, target: Target = HOST, flavour: Flavour = Flavour.STANDALONE) -> Kernels:
        stored = KernelObjects(self.folder / "kept", "owner", 1 << 30)
        fresh = self.folder / f"fresh{len(self.counts)}"
        report = lambda kernels, reused: self.counts.append((kernels, reused))  # noqa: E731
        result = compile_planned(
            target,
            KernelCache(stored.objects, Objects(fresh), canonical.library(), report, flavour),
        )
        stored.take(fresh)
        return result


def plan(target: Target, cache: KernelCache | None = None) -> Any:
    module = softmax_of_matmul()
    ranges = ranges_of(module, Dim("n", 1, 64))
    return to_plan(to_kernels(module, target, ranges, recall=cache), target, ranges)


def compile_planned(target: Target, cache: KernelCache | None = None) -> Kernels:
    return compile_apart(plan(target, cache), target, "kernels", cache)


@pytest.mark.parametrize("target", [HOST, resolve("aarch64")], ids=lambda target: target.name)
def test_nothing_is_scheduled_and_all_is_equal(
    target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, builds = compile_planned(target), Builds(tmp_path)
    assert len(expected.objects) == len(expected.table) > 1
    assert builds.run(target) == expected

    def scheduled(*_: Any) -> None:
        raise AssertionError("a kernel was scheduled")

    monkeypatch.setattr(ScheduleKernels, "_emit", scheduled)
    assert builds.run(target) == expected
    (counted, none), (again, reused) = builds.counts
    assert none == 0 < counted == again == reused


def test_no_flavour_takes_the_kernels_of_another(tmp_path: Path) -> None:
    builds = Builds(tmp_path)
    builds.run()
    builds.run(flavour=Flavour.VM)
    assert builds.counts[-1][1] == 0


def test_what_a_kernel_takes_is_the_same_in_one_object() -> None:
    kernels = compile_kernels(plan(HOST), HOST, "kernels", threads=True)
    assert kernels.table == compile_planned(HOST).table
    assert len(kernels.objects) == 1
