"""The driver's C source of a library for WebGPU, and what a page must know of its shaders."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import tvm

from compiler.codegen.standalone import source as standalone
from compiler.codegen.standalone.main import Main, main_function
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
        _context(driver, main, signature),
        standalone.run_function(main),
        entry_points(main, signature, prefix),
        _device_entries(prefix),
    ]
    table = {
        "shaders": [asdict(shader) for shader in split.shaders.values()],
        "buffers": driver.slots,
        "late": [{"count": count, "dtype": dtype} for count, dtype in driver.late],
        "checks": [{"at": at, "message": message} for at, message in driver.checks],
    }
    return Source("\n\n".join(parts) + "\n", json.dumps(table, separators=(",", ":")).encode())


def _context(driver: DeviceDriver, main: Main, signature: Signature) -> str:
    """As that of any driver; at: bytes of each buffer."""
    shapes = "".join(f"  int64_t shape{i}[{max(rank, 1)}];\n" for i, rank in enumerate(main.ranks))
    return f"""struct P {{
  rd_context own;
  int64_t dims[{max(len(signature.bound), 1)}];
  int64_t at[{max(driver.slots, 1)}];
  rd_growing growing[1];
  void *out[{max(len(main.ranks), 1)}];
  int32_t late[{max(len(driver.late), 1)}];
  int64_t wanted[{max(len(driver.checks), 1)}];
{shapes}}};"""


def _device_entries(prefix: str) -> str:
    return f"""const int64_t *{prefix}_buffers(const P *c) {{ return c->at; }}

const int32_t *{prefix}_late(const P *c) {{ return c->late; }}

const int64_t *{prefix}_wanted(const P *c) {{ return c->wanted; }}"""
