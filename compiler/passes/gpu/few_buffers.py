"""Keeps the kernels of WebGPU within the buffers that every adapter lets a shader bind."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import ir, relax, tirx, topi

from compiler.passes.framework.base import ModulePass, Phase
from compiler.passes.framework.bindings import bindings_within
from compiler.passes.framework.properties import Property
from compiler.passes.fusion.apart import marked_apart
from compiler.passes.match.op_patterns import MARK, OPAQUE
from compiler.tir.exprs import op_name

MOST_BUFFERS = 8
"""`maxStorageBuffersPerShaderStage` of an adapter that grants no more than it has to."""


def concat_of_few(builder: relax.BlockBuilder, call: Any) -> Any:
    """The tensor program of a `relax.concat`, of concatenations where it joins many tensors."""
    parts = call.args[0]
    while isinstance(parts, relax.Var):
        parts = builder.lookup_binding(parts)
    axis, fields = int(call.attrs.axis or 0), list(parts.fields)
    at_once = MOST_BUFFERS - 1
    while len(fields) > at_once:
        groups = [fields[i : i + at_once] for i in range(0, len(fields), at_once)]
        fields = [_join(builder, group, axis) for group in groups]
    return builder.call_te(topi.concatenate, fields, axis, primfunc_name_hint="concatenate")


def _join(builder: relax.BlockBuilder, group: list[Any], axis: int) -> Any:
    if len(group) == 1:
        return group[0]
    return builder.emit_te(topi.concatenate, group, axis, primfunc_name_hint="concatenate")


@dataclass(frozen=True)
class FewBuffers(ModulePass):
    """Marks as opaque, so that FuseOps starts a kernel behind it, each program that would read more
    tensors with what is fused into it.
    """

    most: int = MOST_BUFFERS
    name = "few_buffers"
    phase = Phase.TENSOR_PROGRAMS
    requires = (Property.OP_PATTERNS,)

    def apply(self, module: tvm.IRModule) -> tvm.IRModule:
        """Gives such calls a copy of their PrimFunc; returns the same module if there are none."""
        return marked_apart(module, _wide(module, self.most), OPAQUE)


def _wide(module: tvm.IRModule, most: int) -> set[Any]:
    """The variables whose programs are to stay apart."""
    wide: set[Any] = set()
    for func in module.functions.values():
        if isinstance(func, relax.Function):
            shared, reads = _read_often(func), dict[Any, set[Any]]()
            for var, value in bindings_within(func.body):
                if op_name(value) != "relax.call_tir" or not _is_fusable(module[value.args[0]]):
                    continue
                tensors: set[Any] = set()
                for arg in _parts(value.args[1]):
                    # What others read too may be a kernel of its own.
                    tensors |= reads.get(arg, {arg}) | ({arg} if arg in shared else set())
                if len(tensors) + 1 > most:
                    wide.add(var)
                else:
                    reads[var] = tensors
    return wide


def _is_fusable(func: Any) -> bool:
    return isinstance(func, tirx.PrimFunc) and int((func.attrs or {}).get(MARK, OPAQUE)) < OPAQUE


def _read_often(func: relax.Function) -> set[Any]:
    """The tensors that more than one call reads."""
    readers = Counter(
        arg
        for _, value in bindings_within(func.body)
        if isinstance(value, ir.Call)
        for arg in {part for operand in value.args for part in _parts(operand)}
    )
    return {arg for arg, count in readers.items() if count > 1}


def _parts(arg: Any) -> list[Any]:
    return list(arg.fields) if isinstance(arg, relax.Tuple) else [arg]
