"""Splits scheduled tensor programs into what the host runs and the shaders that it launches."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import tvm
from tvm import s_tir, tirx
from tvm.tirx.build import split_host_device_mods

from compiler.codegen import host_code
from compiler.codegen.bfloats import without_bfloats
from compiler.targets import Target

_FUNCTION = re.compile(r"(?m)^// Function: (\w+)\n(?=//-----)")
_COMMENTS = re.compile(r"(?m)^//.*\n")
_SIZE = re.compile(r"@workgroup_size\((\d+), (\d+), (\d+)\)")
_SHARED = re.compile(r"var<workgroup> \w+ ?: ?array<(?:vec(\d)<)?\w(\d+)>?, (\d+)>;")
_BINDING = "var<storage"
_NUMBERS = re.compile(r"struct PODArgs \{([^}]*)\}")


@dataclass(frozen=True)
class Shader:
    """A compute shader; size: threads of a workgroup along each axis; shared: bytes that they
    share; buffers: how many storage buffers it binds; numbers: how many numbers it takes, before
    that of its last block along the first axis.
    """

    name: str
    code: str
    size: tuple[int, ...]
    shared: int
    buffers: int
    numbers: int

    @classmethod
    def of(cls, name: str, code: str) -> "Shader":
        """Reads from the code what an adapter has to grant."""
        size, numbers = _SIZE.search(code), _NUMBERS.search(code)
        if size is None or numbers is None:
            raise AssertionError(f"TVM writes shaders in another way than it did: {code}")
        shared = sum(
            int(lanes or 1) * int(bits) // 8 * int(count)
            for lanes, bits, count in _SHARED.findall(code)
        )
        return cls(
            name,
            code,
            tuple(map(int, size.groups())),
            shared,
            code.count(_BINDING),
            numbers[1].count(":") - 1,
        )


@dataclass(frozen=True)
class Split:
    """hosts: by the name of a tensor program, the function that launches its shaders; shaders: by
    name.
    """

    hosts: Mapping[str, tirx.PrimFunc]
    shaders: Mapping[str, Shader]


@dataclass
class _Hosts:
    """Takes the functions for the host out of a module, in place of TVM's own interface."""

    found: dict[str, tirx.PrimFunc] = field(default_factory=dict)

    def take(self, module: tvm.IRModule) -> tvm.IRModule:
        """The module with its device functions alone."""
        device = {}
        for gvar, func in module.functions.items():
            if "tirx.is_global_func" in func.attrs and "calling_conv" in func.attrs:
                device[gvar] = func
            else:
                self.found[gvar.name_hint] = func
        return tvm.IRModule(device, attrs=module.attrs)


def split(module: tvm.IRModule, target: Target) -> Split:
    """The tensor programs of a module, each bound to a grid; raises CodegenError."""
    machine, hosts = tvm.target.Target(target.to_tvm()), _Hosts()
    programs = {
        gvar: func.with_attr("global_symbol", gvar.name_hint)
        for gvar, func in module.functions.items()
        if isinstance(func, tirx.PrimFunc)
    }
    with host_code.failures(target), tvm.transform.PassContext(opt_level=3):
        bound = tirx.transform.BindTarget(machine)(tvm.IRModule(programs))
        lowered = tvm.ir.transform.Sequential(_steps(hosts))(bound)
        texts = ""
        for device, functions in split_host_device_mods(lowered)[1].items():
            finished = tvm.ir.transform.Sequential(_last_steps())(functions)
            texts += tvm.get_global_func("target.build.webgpu")(finished, device).inspect_source()
    return Split(hosts.found, _separated(texts))


def _separated(texts: str) -> dict[str, Shader]:
    """The shaders of a text, by name; TVM writes the name of each twice."""
    parts = _FUNCTION.split(texts)
    found: dict[str, str] = {}
    for name, code in zip(parts[1::2], parts[2::2], strict=True):
        found[name] = found.get(name, "") + code
    return {name: Shader.of(name, _COMMENTS.sub("", code).strip()) for name, code in found.items()}


def _steps(hosts: _Hosts) -> list[Any]:
    """TVM's passes for grids, without those for other devices, up to functions of their own for
    the host.

    UnrollLoop is left out: the schedules' pragmas made shaders of 90 kB, one of which Chromium's
    software adapter compiled for more than a minute; as a loop it takes a third of a second.
    """
    schedule, lower = s_tir.transform, tirx.transform
    taken = tvm.ir.transform.module_pass(
        lambda module, _context: hosts.take(module), opt_level=0, name="take_hosts"
    )
    return [
        schedule.CanonicalizeLoop(),
        schedule.LowerCrossThreadReduction(),
        schedule.LowerInitBlock(),
        schedule.PlanAndUpdateBufferAllocationLocation(),
        schedule.ConvertBlocksToOpaque(),
        schedule.LiftThreadBinding(),
        schedule.ManifestSharedMemoryLocalStage(),
        schedule.CompactBufferAllocation(),
        schedule.UnifyThreadBinding(),
        schedule.LowerMatchBuffer(),
        schedule.StmtSimplify(),
        schedule.AnnotateIrregularLoop(),
        schedule.InjectSoftwarePipeline(),
        schedule.LowerOpaqueBlock(),
        lower.FlattenBuffer(),
        host_code.step_of(without_bfloats),
        lower.NarrowDataType(32),
        schedule.LoopPartition(),
        lower.VectorizeLoop(True),
        schedule.InjectVirtualThread(),
        schedule.InjectDoubleBuffer(),
        lower.StorageRewrite(),
        schedule.HoistIfThenElse(),
        schedule.RenormalizeSplitPattern(),
        lower.StmtSimplify(),
        lower.RemoveNoOp(),
        schedule.RewriteUnsafeSelect(),
        lower.CommonSubexprElim(),
        lower.VerifyMemory(),
        schedule.ThreadSync("shared"),
        schedule.ThreadSync("shared.dyn"),
        schedule.ThreadSync("warp"),
        schedule.LowerThreadAllreduce(),
        schedule.MergeSharedMemoryAllocations(),
        lower.SplitHostDevice(),
        taken,
        lower.FP8StorageLegalize(),
        lower.BF16StorageLegalize(),
    ]


def _last_steps() -> list[Any]:
    """TVM's last passes but StmtSimplify, which writes out what expressions share."""
    return [tirx.transform.LowerWarpMemory(), tirx.transform.LowerIntrin()]
