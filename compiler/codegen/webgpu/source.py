"""The driver's C source of a library for WebGPU, and what a page must know of its shaders."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import tvm

from compiler.codegen.standalone import source as standalone
from compiler.codegen.standalone.main import main_function
from compiler.codegen.standalone.source import Signature, entry_points, interface_table
from compiler.codegen.webgpu.function import LATE, DeviceDriver, DeviceFunction, check_settled
from compiler.codegen.webgpu.launches import launchers
from compiler.codegen.webgpu.shaders import Split

_FOLDER = Path(__file__).parent
_SUPPORT = Path(standalone.__file__).with_name("support.h")

EXPORTS = ("buffers", LATE, "wanted")
"""What the module exports, beside the functions of any library."""


@dataclass(frozen=True)
class Source:
    """driver: in C; table: JSON for the page."""

    driver: str
    table: bytes


def device_source(
    module: tvm.IRModule,
    split: Split,
    signature: Signature,
    prefix: str,
    messages: Mapping[str, str],
    nodes: Mapping[str, Sequence[str]],
) -> Source:
    """The sources of a module that `split` was made of; raises CodegenError."""
    kernels = launchers(prefix, split.hosts, list(split.shaders))
    driver = DeviceDriver(module, kernels, prefix, (), messages, heap=False, nodes=nodes)
    main = main_function(driver, signature.inputs, signature.dims, DeviceFunction)
    check_settled(main.run)
    parts = [
        f'#include "model.h"\n#define P {prefix}\n#define RD_RANK {driver.rank}',
        _SUPPORT.read_text(),
        (_FOLDER / "device.h").read_text(),
        *(kernel.text for kernel in kernels.values()),
        interface_table(signature, parallel=False),
        standalone.context(main, signature, driver.slots, 1, _members(driver)),
        standalone.run_function(main),
        entry_points(main, signature, prefix),
        _device_entries(prefix),
    ]
    table = {
        "shaders": [asdict(shader) for shader in split.shaders.values()],
        "buffers": driver.slots,
        "late": [{"count": count, "dtype": dtype} for count, dtype in driver.late],
        "checks": [{"at": number, "message": message} for number, message in driver.checks],
    }
    return Source("\n\n".join(parts) + "\n", json.dumps(table, separators=(",", ":")).encode())


def _members(driver: DeviceDriver) -> str:
    """The members of a run for the page beside any driver's; member `at` is in bytes of each
    buffer.
    """
    return (
        f"  int32_t late[{max(len(driver.late), 1)}];\n"
        f"  int64_t wanted[{max(len(driver.checks), 1)}];\n"
    )


def _device_entries(prefix: str) -> str:
    return f"""const int64_t *{prefix}_buffers(const P *c) {{ return c->at; }}

const int32_t *{prefix}_late(const P *c) {{ return c->late; }}

const int64_t *{prefix}_wanted(const P *c) {{ return c->wanted; }}"""
