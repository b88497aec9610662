"""Splits scheduled tensor programs into what the host runs and the shaders that it launches."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import tirx
from tvm.tirx.build import split_host_device_mods

from compiler.codegen.failing import failures
from compiler.passes.framework.observers import Observer
from compiler.passes.manager import Lowering
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


def split(module: tvm.IRModule, target: Target, observers: Sequence[Observer] = ()) -> Split:
    """The tensor programs of a module, each bound to a grid; raises CodegenError."""
    programs = {g: f for g, f in module.functions.items() if isinstance(f, tirx.PrimFunc)}
    lowering, texts = Lowering(target, observers=observers), ""
    with failures(target):
        hosts, device_functions = _separate_hosts(lowering.lower_loops(tvm.IRModule(programs)))
        for device, functions in split_host_device_mods(device_functions)[1].items():
            finished = lowering.finish_device(functions)
            with tvm.transform.PassContext(opt_level=3):
                build = tvm.get_global_func("target.build.webgpu")
                texts += build(finished, device).inspect_source()
    return Split(hosts, _separate(texts))


def _separate_hosts(module: tvm.IRModule) -> tuple[dict[str, tirx.PrimFunc], tvm.IRModule]:
    """The functions that launch shaders, by name, and the module of those of the device."""
    device: dict[Any, tirx.PrimFunc] = {}
    hosts: dict[str, tirx.PrimFunc] = {}
    for gvar, func in module.functions.items():
        if "tirx.is_global_func" in func.attrs and "calling_conv" in func.attrs:
            device[gvar] = func
        else:
            hosts[gvar.name_hint] = func
    return hosts, tvm.IRModule(device, attrs=module.attrs)


def _separate(texts: str) -> dict[str, Shader]:
    """The shaders of a text, by name; TVM writes the name of each twice."""
    parts = _FUNCTION.split(texts)
    codes: dict[str, str] = {}
    for name, code in zip(parts[1::2], parts[2::2], strict=True):
        codes[name] = codes.get(name, "") + code
    return {name: Shader.of(name, _COMMENTS.sub("", code).strip()) for name, code in codes.items()}
