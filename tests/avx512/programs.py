"""Libraries for x86-64-v4 and the driver that calls them, as programs and files of the emulated
machine.
"""

import re
import subprocess
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from compiler.runtimes import archives
from compiler.targets import Target
from compiler.toolchain import zig
from compiler.verify.emulation import program, tensors
from compiler.verify.emulation.tensors import Array
from tests.avx512 import machine
from tests.avx512.machine import Outcome, Processor

_LOADED = re.compile(r"(/\S+) \(0x")
RUNTIME = "libtvm_runtime.so"


def build_driver(runtimes: Sequence[Path], output: Path, target: Target) -> None:
    """The program that calls libraries with these libraries of TVM's runtime; raises LinkError."""
    interface = package("tvm_ffi") / "lib" / "libtvm_ffi.so"
    folders = dict.fromkeys(str(path.parent) for path in (interface, *runtimes))
    zig.compile_with_zig(
        "-O1",
        *(f"-I{path}" for path in archives.include_folders()),
        *("-o", str(output), str(program.DRIVER)),
        *("-Wl,--allow-shlib-undefined", "-Wl,--no-as-needed", f"-Wl,-rpath,{':'.join(folders)}"),
        *map(str, (interface, *runtimes)),
        triple=target.platform.linker,
    )


def start(
    processor: Processor,
    driver: Path,
    library: Path,
    calls: Sequence[Sequence[Array]],
    *,
    weights: Sequence[Array] = (),
    room: int = 16 << 20,
    seconds: int,
) -> Outcome:
    """Call the library's `main` with each list of inputs, in a process of its own; room: for one
    call's results, in bytes.

    seconds: of processor time for all of them.
    """
    scratch = driver.parent
    tensors.write(scratch / "weights", weights)
    files = loaded_by(driver) | {"/model.so": library, "/weights": scratch / "weights"}
    for index, inputs in enumerate(calls):
        tensors.write(scratch / f"inputs{index}", inputs)
        files[f"/inputs{index}"] = scratch / f"inputs{index}"
    commands = [
        [str(driver), "/model.so", "/weights", f"/inputs{index}", f"/outputs{index}"]
        for index in range(len(calls))
    ]
    return machine.run(
        processor, commands, files, {command[-1]: room for command in commands}, seconds=seconds
    )


def results(outcome: Outcome, scratch: Path) -> list[list[Array]]:
    """Return each call's result; raises AssertionError with what was said where one did not end
    well.
    """
    for index, ended in enumerate(outcome.ended):
        assert ended.status == 0, f"call {index} ended with {ended.status}: {outcome.printed}"
    return [_read(content, scratch) for content in outcome.written.values()]


def _read(content: bytes, scratch: Path) -> list[Array]:
    (scratch / "outputs").write_bytes(content)
    return tensors.read(scratch / "outputs")


def loaded_by(binary: Path) -> dict[str, Path]:
    """The program and every library that its start loads, where the loader looks for them."""
    message = subprocess.run(
        ["ldd", str(binary)], check=True, capture_output=True, text=True
    ).stdout
    return {path: Path(path) for path in [str(binary), *_LOADED.findall(message)]}


def package(name: str) -> Path:
    """The folder of an installed package."""
    spec = find_spec(name)
    assert spec is not None
    assert spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0])
