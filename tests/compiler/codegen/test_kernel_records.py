"""Libraries of kernels whose scheduling earlier builds remember, against those scheduled now."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import tvm
from tvm import relax

from compiler.codegen.generate import generate
from compiler.codegen.kernel_cache import KernelCache
from compiler.codegen.kernel_records import decode, encode
from compiler.link.library import link_library
from compiler.passes.cpu.recall import StoredKernel
from compiler.passes.cpu.schedule import ScheduleKernels
from compiler.passes.framework.attributes import OBJECT
from compiler.passes.framework.kernel_notes import KernelNote, kernel_table
from compiler.passes.manager import to_kernels, to_machine
from compiler.runtimes import canonical
from compiler.targets import Target, resolve
from compiler.toolchain import versions
from compiler.toolchain.objects import KernelObjects, Objects
from relaxd.contract.dims.dims import Dim
from tests.compiler.conftest import HOST, build_module
from tests.compiler.ranges import ranges_of

INPUTS = {"x": (("n", 33), "float32"), "w": ((33, 17), "float32")}
DIM = Dim("n", 1, 64)


def softmax_of_matmul() -> tvm.IRModule:
    def graph(builder: Any, x: Any, w: Any) -> Any:
        return builder.emit(relax.op.nn.softmax(builder.emit(relax.op.matmul(x, w))))

    return build_module(graph, INPUTS)


@dataclass
class Builds:
    """Builds of one owner by one worker; made: the programs that the last one scheduled, and all
    its kernels.
    """

    folder: Path
    worker: str = "one"
    counts: list[tuple[int, int]] = field(default_factory=list)
    work: tuple[int, int] = (0, 0)

    @property
    def stored(self) -> KernelObjects:
        return KernelObjects(self.folder / "kept", "owner", 1 << 30)

    def files(self, *, records: bool) -> list[Path]:
        paths = [path for path in self.stored.objects.folder.glob("*/*") if path.is_file()]
        return [p for p in paths if (decode(self.content(p)) is not None) == records]

    def content(self, path: Path) -> bytes:
        return self.stored.objects.get(path.name) or b""

    def run(
        self, target: Target = HOST, dim: Dim = DIM, between: Callable[[], None] = lambda: None
    ) -> tuple[bytes, Any]:
        """The library, and the table of its kernels.

        between: runs when kernels have been recalled, and before they are linked.
        """
        fresh = self.folder / f"{self.worker}{len(self.counts)}"
        report = lambda kernels, reused: self.counts.append((kernels, reused))  # noqa: E731
        cache = KernelCache(self.stored.objects, Objects(fresh), canonical.library(), report)
        result = library(self.folder, target, dim, cache, self.note, between)
        self.stored.take(fresh)
        return result

    def note(self, scheduled: tvm.IRModule) -> None:
        kernels = [f for f in scheduled.functions.values() if isinstance(f, tvm.tirx.PrimFunc)]
        self.work = sum(OBJECT not in f.attrs for f in kernels), len(kernels)


@pytest.fixture
def builds(tmp_path: Path) -> Builds:
    return Builds(tmp_path)


def library(
    folder: Path,
    target: Target = HOST,
    dim: Dim = DIM,
    cache: KernelCache | None = None,
    see: Callable[[tvm.IRModule], None] = lambda scheduled: None,
    between: Callable[[], None] = lambda: None,
) -> tuple[bytes, Any]:
    module = softmax_of_matmul()
    ranges = ranges_of(module, dim)
    scheduled = to_kernels(module, target, ranges, recall=cache)
    see(scheduled)
    between()
    table = kernel_table(scheduled)
    code = generate(to_machine(scheduled, target, ranges), target, cache)
    return link_library(code, folder, target).read_bytes(), table


@pytest.mark.parametrize("target", [HOST, resolve("aarch64")], ids=lambda target: target.name)
def test_nothing_is_scheduled_and_all_is_equal(
    target: Target, builds: Builds, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = library(tmp_path, target)
    assert builds.run(target) == expected
    kernels = builds.work[1]
    assert builds.work == (kernels, kernels)

    def scheduled(*_: Any) -> None:
        raise AssertionError("a kernel was scheduled")

    monkeypatch.setattr(ScheduleKernels, "_emit", scheduled)
    assert builds.run(target) == expected
    assert builds.work == (0, kernels)
    (counted, none), (again, reused) = builds.counts
    assert none == 0 < counted == again == reused


def test_records_and_objects_are_the_last_to_go(builds: Builds, tmp_path: Path) -> None:
    builds.run()
    builds.run()
    used = (tmp_path / "one1" / "used").read_text().split()
    assert set(used) == {p.name for records in (True, False) for p in builds.files(records=records)}


def test_workers_share_kernels(builds: Builds, tmp_path: Path) -> None:
    """Two that compile the same model at once, and then take what either left."""
    other = Builds(tmp_path, "other")
    at_once: list[Any] = []
    result = builds.run(between=lambda: at_once.append(other.run()))
    assert at_once == [result]
    assert builds.work == other.work == (builds.work[1], builds.work[1])
    assert builds.run() == other.run() == result
    assert builds.work[0] == other.work[0] == 0


def test_what_decides_loops_makes_others(builds: Builds, monkeypatch: pytest.MonkeyPatch) -> None:
    builds.run()
    kernels = builds.work[1]
    builds.run(dim=Dim("n", 1, 1 << 20))
    assert builds.work == (kernels, kernels)
    builds.run(resolve("x86-64-v3"))
    assert builds.work == (kernels, kernels)
    here = versions.versions()
    for part in ("llvm", "pipeline", "tvm", "tvm_ffi"):
        monkeypatch.setattr(versions, "versions", lambda part=part: {**here, part: "other"})
        builds.run()
        assert builds.work == (kernels, kernels)


def test_without_its_record_a_kernel_is_scheduled_and_its_object_taken(builds: Builds) -> None:
    result = builds.run()
    for path in builds.files(records=True):
        path.unlink()
    assert builds.run() == result
    kernels = builds.work[1]
    assert builds.work == (kernels, kernels)
    assert builds.counts[-1][0] == builds.counts[-1][1]
    assert builds.run() == result
    assert builds.work == (0, kernels)


@pytest.mark.parametrize("records", [True, False], ids=["records", "objects"])
def test_a_flipped_bit_is_scheduled_again(builds: Builds, records: bool) -> None:
    result = builds.run()
    files = builds.files(records=records)
    assert files
    for path in files:
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)
    kernels = builds.work[1]
    assert builds.run() == result
    assert builds.work == (kernels, kernels)
    assert builds.run() == result
    assert builds.work == (0, kernels)


def test_a_record_that_is_none_is_passed_over(builds: Builds) -> None:
    result = builds.run()
    for path in builds.files(records=True):
        builds.stored.objects.put(path.name, b'{"note": []}')
    assert builds.run() == result
    assert builds.work[0] == builds.work[1]


def test_an_object_that_goes_once_it_is_recalled_is_linked(builds: Builds) -> None:
    result = builds.run()

    def remove() -> None:
        for path in builds.files(records=False):
            path.unlink()

    assert builds.run(between=remove)[0] == result[0]
    assert builds.work[0] == 0


def test_a_program_without_a_form_is_scheduled_each_time(
    builds: Builds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(canonical, "form_of", lambda subject, library: None)
    assert builds.run() == builds.run()
    assert builds.work[0] == builds.work[1]


def test_records() -> None:
    kernel = StoredKernel(KernelNote("matmul", "6x32", {"int8": "floats: all"}), "ab" * 32)
    assert decode(encode(kernel)) == kernel
    document = json.loads(encode(kernel))
    for content in (
        b"",
        b"\xff",
        b"[]",
        b"{}",
        json.dumps({**document, "note": {}}).encode(),
        json.dumps({**document, "note": {**document["note"], "declined": []}}).encode(),
    ):
        assert decode(content) is None
