"""Functions of the C library that libraries for Linux call, at versions that old systems have."""

import ctypes
import re
import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest

from compiler import compile_model, targets
from compiler.errors import LinkError
from compiler.runtimes import linux, threads
from compiler.targets import Target
from compiler.targets.target import GLIBC
from compiler.toolchain import zig
from relaxd.loader.opening import load

PLATFORMS = ["x86-64-v2", "aarch64"]
HOST = targets.resolve("native")


def compile_unit(folder: Path, source: str, target: Target) -> Path:
    (folder / "unit.c").write_text(source)
    unit = folder / "unit.o"
    zig.compile_with_zig(
        *("-c", "-O1", "-fPIC", "-fno-builtin", "-o", str(unit), str(folder / "unit.c")),
        triple=target.platform.linker,
    )
    return unit


def link(folder: Path, source: str, target: Target) -> Path:
    linux.link([compile_unit(folder, source, target)], folder / "unit.so", target)
    return folder / "unit.so"


def calling(names: list[str]) -> str:
    calls = "".join(f"extern void {name}(void); {name}();" for name in names)
    return f"void all(void) {{ {calls} }}"


def functions(target: Target) -> list[str]:
    lacking = linux._ABIS[target.arch].lacking
    return [n for library, each in linux.LIBRARIES.items() if library not in lacking for n in each]


def needs(library: Path) -> dict[str, set[str]]:
    """The versions that a library asks for, by the library that has them."""
    printed = subprocess.check_output(["readelf", "-W", "-V", library], text=True)
    versions_by_library: dict[str, set[str]] = {}
    for line in printed.splitlines():
        if file := re.search(r"File: (\S+)", line):
            versions = versions_by_library.setdefault(file[1], set())
        elif name := re.search(r"Name: GLIBC_([\d.]+)", line):
            versions.add(name[1])
    return versions_by_library


def number(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def test_this_machine_has_every_function_at_its_version(tmp_path: Path) -> None:
    """The loader looks all of them up when the library is opened."""
    library = link(tmp_path, calling(functions(HOST)), HOST)
    assert ctypes.CDLL(str(library)).all
    assert needs(library).keys() == linux.LIBRARIES.keys() - linux._ABIS[HOST.arch].lacking


@pytest.mark.parametrize("name", PLATFORMS)
def test_no_version_is_newer_than_the_contract(name: str, tmp_path: Path) -> None:
    target = targets.resolve(name)
    asked = needs(link(tmp_path, calling(functions(target)), target))
    assert {"libc.so.6", "libm.so.6", "libpthread.so.0"} <= asked.keys()
    assert all(number(one) <= number(GLIBC) for versions in asked.values() for one in versions)


def test_a_library_asks_for_what_it_calls_and_no_more(tmp_path: Path) -> None:
    source = calling(["memcpy", "memset", "expf"])
    assert needs(link(tmp_path, source, targets.resolve("x86-64-v2"))) == {
        "libc.so.6": {"2.2.5", "2.14"},
        "libm.so.6": {"2.27"},
    }


def test_an_unknown_function_is_a_typed_error(tmp_path: Path) -> None:
    with pytest.raises(LinkError, match="calls __divti3, nothing_has_this, which") as caught:
        link(tmp_path, calling(["nothing_has_this", "TVMFFIFunctionCall", "__divti3"]), HOST)
    assert caught.value.code == "link.failed"
    assert not (tmp_path / "unit.so").exists()


def test_the_interface_of_the_runtime_is_for_who_loads_the_library(tmp_path: Path) -> None:
    assert needs(link(tmp_path, calling(["TVMFFIFunctionCall"]), HOST)) == {}


def test_an_empty_cache_is_filled_without_a_c_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which takes ten seconds for each platform."""
    monkeypatch.setenv("RELAXD_CACHE_DIR", str(tmp_path / "cache"))
    link(tmp_path, calling(["memcpy"]), targets.resolve("aarch64"))
    names = {path.name for path in (tmp_path / "cache").rglob("*") if path.is_file()}
    assert {"libc.so.6", "libm.so.6", "libpthread.so.0"} <= names
    assert [name for name in names if name.endswith((".a", ".o", ".warm"))] == ["conversions.o"]


@pytest.mark.parametrize("name", PLATFORMS)
def test_threads_come_from_the_c_library(name: str) -> None:
    target = targets.resolve(name)
    for library in (threads.threads(target), threads.helpers(target)):
        assert {"libc.so.6", "libpthread.so.0"} <= needs(library).keys()
        assert all(number(one) <= (2, 17) for each in needs(library).values() for one in each)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_conversions_that_no_library_has_come_with_the_library(dtype: str, tmp_path: Path) -> None:
    kind = onnx.TensorProto.DataType.Value(dtype.upper())
    values = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Cast", ["x"], ["y"], to=kind)],
        "cast",
        [values("x", onnx.TensorProto.DOUBLE, ["n"])],
        [values("y", kind, ["n"])],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)])
    quick = {"verify": False, "profile": False}
    compile_model(model, output=tmp_path / "out", target="x86-64-v3", options=quick)
    x = np.array([0.1, -1 / 3, 65519.9, 65520.0, 2.0**-25, 3 * 2.0**-26, np.inf, np.nan])
    converted = load(tmp_path / "out").run({"x": x})["y"]
    with np.errstate(over="ignore"):
        wanted = x.astype(onnx.helper.tensor_dtype_to_np_dtype(kind))
    np.testing.assert_array_equal(np.asarray(converted).astype("f4"), wanted.astype("f4"))
