"""Libraries of kernels that earlier builds compiled, against those of kernels compiled now."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tvm import relax

from compiler.codegen.generate import generate
from compiler.codegen.kernel_cache import KernelCache
from compiler.link.library import link_library
from compiler.passes.manager import lower
from compiler.runtimes import canonical
from compiler.targets import Target, resolve
from compiler.toolchain import versions
from compiler.toolchain.objects import KernelObjects, Objects
from tests.compiler.conftest import HOST, build_module

INPUTS = {"x": (("n", 33), "float32"), "w": ((33, 17), "float32")}


def net(last: Any) -> Any:
    """A matmul, and what `last` makes of its result."""
    return lambda builder, x, w: builder.emit(last(builder.emit(relax.op.matmul(x, w))))


SOFTMAX, LOG_SOFTMAX = net(relax.op.nn.softmax), net(relax.op.nn.log_softmax)


@dataclass
class Builds:
    """Builds that share their kernels."""

    folder: Path
    counts: list[tuple[int, int]] = field(default_factory=list)
    compiled: list[tuple[int, int]] = field(default_factory=list)

    @property
    def stored(self) -> KernelObjects:
        return KernelObjects(self.folder / "kept", "owner", 1 << 30)

    def cache(self, fresh: Path) -> KernelCache:
        def report(taken: int, compiled: int) -> None:
            self.counts.append((taken, compiled))

        def count(done: int, total: int) -> None:
            self.compiled.append((done, total))

        form = canonical.library()
        return KernelCache(self.stored.objects, Objects(fresh), form, report, on_compiled=count)

    def run(self, graph: Any, target: Target = HOST) -> bytes:
        """The library."""
        fresh = self.folder / f"fresh{len(self.counts)}"
        result = library(graph, self.folder, target, self.cache(fresh))
        self.stored.take(fresh)
        return result


@pytest.fixture
def builds(tmp_path: Path) -> Builds:
    return Builds(tmp_path)


def library(
    graph: Any, folder: Path, target: Target = HOST, cache: KernelCache | None = None
) -> bytes:
    code = generate(lower(build_module(graph, INPUTS), target, {}), target, cache)
    return link_library(code, folder, target).read_bytes()


@pytest.mark.parametrize("target", [HOST, resolve("aarch64")], ids=lambda target: target.name)
def test_libraries_are_equal_byte_for_byte(target: Target, builds: Builds, tmp_path: Path) -> None:
    uncached = library(SOFTMAX, tmp_path, target)
    assert builds.run(SOFTMAX, target) == uncached
    assert builds.run(SOFTMAX, target) == uncached
    (kernels, none), (again, all_of_them) = builds.counts
    assert none == 0 < kernels == again == all_of_them
    assert builds.compiled == [(done, kernels) for done in range(1, kernels + 1)]


def test_what_changed_is_compiled(builds: Builds, tmp_path: Path) -> None:
    builds.run(SOFTMAX)
    assert builds.run(LOG_SOFTMAX) == library(LOG_SOFTMAX, tmp_path)
    kernels, reused = builds.counts[-1]
    assert 0 < reused < kernels


def test_another_target_has_other_kernels(builds: Builds) -> None:
    builds.run(SOFTMAX)
    builds.run(SOFTMAX, resolve("x86-64-v3"))
    assert builds.counts[-1][1] == 0


def test_another_compiler_has_other_kernels(
    builds: Builds, monkeypatch: pytest.MonkeyPatch
) -> None:
    builds.run(SOFTMAX)
    here = versions.versions()
    for part in ("llvm", "pipeline", "tvm"):
        monkeypatch.setattr(versions, "versions", lambda part=part: {**here, part: "other"})
        builds.run(SOFTMAX)
        assert builds.counts[-1][1] == 0


def test_a_flipped_bit_is_compiled_again(builds: Builds) -> None:
    first = builds.run(SOFTMAX)
    for path in builds.stored.objects.folder.glob("*/*"):
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    assert builds.run(SOFTMAX) == first
    assert builds.run(SOFTMAX) == first
    kernels = builds.counts[0][0]
    assert builds.counts == [(kernels, 0), (kernels, 0), (kernels, kernels)]


def test_a_program_without_a_form_is_compiled_each_time(
    builds: Builds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(canonical, "form_of", lambda subject, library: None)
    assert builds.run(SOFTMAX) == builds.run(SOFTMAX)
    assert [reused for _, reused in builds.counts] == [0, 0]


def test_within_a_build_the_next_module_takes_them_too(builds: Builds, tmp_path: Path) -> None:
    cache = builds.cache(tmp_path / "fresh")
    parts = [library(SOFTMAX, tmp_path, HOST, cache) for _ in range(2)]
    assert parts[0] == parts[1]
    assert builds.counts[1][0] == builds.counts[1][1]
