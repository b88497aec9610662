"""Writes `main` of a library whose tensors lie in a device's memory."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import tvm

from compiler.codegen.standalone.function import SHAPE_READS, VIEWS, Function, callee_of
from compiler.codegen.standalone.memory import Size
from compiler.codegen.standalone.model import Driver
from compiler.codegen.standalone.values import ShapeValue, TensorValue, TupleValue, Value
from compiler.codegen.webgpu.launches import Launcher
from compiler.errors import CodegenError
from compiler.passes.framework.bindings import bindings_within
from compiler.passes.lower.functions.c_interface import fill_size
from compiler.tir.exprs import op_name
from compiler.tir.ranges import OF_TENSORS, Range

LATE = "late"
"""The array of numbers that a page reads back from the device after a run."""
_UNKNOWN = re.compile(rf"(?<!c->)\b{LATE}\[\d+\]")
_CALLED = re.compile(r'RD_CALL\("(\w+)"')


@dataclass
class DeviceDriver(Driver):
    """A driver that launches shaders.

    late: of each tensor of which a check needs the numbers, how many it has, and their type;
    checks: of each check, which of all these numbers it is for, and what is wrong where the number
    is another one than the driver wants.
    """

    takes_outputs = False
    late: list[tuple[int, str]] = field(default_factory=list)
    checks: list[tuple[int, str]] = field(default_factory=list)
    _workspaces: dict[str, int] = field(default_factory=dict)

    def slot(self, size: str) -> int:
        """A buffer of so many bytes; bind states how many."""
        self.bind.append(f"  c->at[{self.slots}] = {size};")
        self.slots += 1
        return self.slots - 1

    def weight(self, position: int) -> str:
        """A buffer that holds a weight."""
        return f"RD_BUFFER(RD_WEIGHT, {position})"

    def need_heap(self, var: Any) -> None:
        """Raises CodegenError: the driver would have to know how large a tensor is."""
        kernel = self.user(var) or "an output"
        names = ", ".join(self.nodes.get(kernel, [kernel]))
        raise refusal(f"a tensor of {names}, of which only a run knows how large it is")

    def workspace(self, size: str) -> int:
        """A buffer between the shaders of one tensor program. Launches run in order, so that
        programs share those of one size.
        """
        if size not in self._workspaces:
            self._workspaces[size] = self.slot(size)
        return self._workspaces[size]


@dataclass
class DeviceFunction(Function):
    """A `Function` for devices: what the host would have to read from the device is checked after
    the run, or refused.
    """

    _read_late: set[Any] = field(default_factory=set)

    def note_shapes(self, function: Any) -> None:
        """Remember, too, which allocations are read after the run."""
        super().note_shapes(function)
        bound: dict[Any, Any] = dict(bindings_within(function.body))

        def origin(var: Any) -> Any:
            value: Any = bound.get(var)
            if op_name(value) in VIEWS:
                return origin(value.args[0])
            return origin(value) if isinstance(value, tvm.ir.Var) else var

        reads = [value for value in bound.values() if callee_of(value) in SHAPE_READS]
        self._read_late = {origin(value.args[0]) for value in reads}

    def _allocation(self, var: Any, call: Any, planned: bool) -> Value:
        """A buffer that no other tensor gets, for what is read after the run."""
        if var not in self._read_late:
            return super()._allocation(var, call, planned)
        shape, dtype = (call.args[2], call.args[3]) if planned else (call.args[0], call.args[1])
        extents = self.extents(shape)
        lines, data = self.memory.allocate(var, Size.of(extents, str(dtype.value)))
        self.lines += lines
        return TensorValue(data, tuple(map(self.text, extents)))

    @property
    def _device(self) -> DeviceDriver:
        assert isinstance(self.driver, DeviceDriver)
        return self.driver

    def define(self, dim: Any, text: str, early: bool = False, within: Range = OF_TENSORS) -> None:
        """A dim whose value only the device knows has no name: checks alone may use it."""
        if text.startswith(LATE):
            self.names[dim] = text
        else:
            super().define(dim, text, early, within)

    def _read_shape(self, var: Any, call: Any) -> Value:
        source, device = self.tensor(call.args[0]), self._device
        before = sum(count for count, _ in device.late)
        count = int(var.ty.ndim) if int(var.ty.ndim) >= 0 else int(source.shape[0])
        self.lines.append(f"  c->late[{len(device.late)}] = RD_NUMBER({source.data});")
        device.late.append((count, str(call.args[0].ty.dtype)))
        return ShapeValue(tuple(f"{LATE}[{before + i}]" for i in range(count)))

    def _check(self, have: str, want: Any, ty: Any, axis: int) -> None:
        if not have.startswith(LATE):
            super()._check(have, want, ty, axis)
            return
        device, wanted = self._device, self.text(want)
        self.lines.append(f"  c->wanted[{len(device.checks)}] = {wanted};")
        what = "extents that the model computes differ from those that it needs"
        position = int(have.removeprefix(f"{LATE}[").removesuffix("]"))
        device.checks.append((position, self.driver.messages.get(wanted, what)))

    def _kernel(self, var: Any, call: Any) -> Value:
        kernel = self.driver.kernels[call.op.name_hint]
        assert isinstance(kernel, Launcher)
        arguments = [
            self.tensor(arg).data if kind is None else self.text(arg)
            for kind, arg in zip(kernel.params, call.args, strict=True)
        ]
        extents = [self.tensor(call.args[index]).shape[axis] for index, axis in kernel.dims]
        workspaces = [
            self._workspace(kernel, *fill_size(size, extents, arguments))
            for size in kernel.workspaces
        ]
        text = f"{kernel.symbol}({', '.join([*arguments, *extents, *workspaces])})"
        self._write([f'  RD_CALL("{call.op.name_hint}", {text});'], call.op.name_hint)
        return TupleValue(())

    def _workspace(self, kernel: Launcher, size: str, needed: Sequence[str]) -> str:
        if not all(map(self.is_early, needed)):
            raise refusal(f"{kernel.symbol}, whose memory depends on what a run computes")
        return f"RD_AT({self._device.workspace(size)})"

    def _view(self, var: Any, call: Any) -> Value:
        offset = call.args[3] if op_name(call) == "relax.memory.view" and len(call.args) > 3 else 0
        if int(getattr(offset, "value", 0)) != 0:
            raise refusal("a tensor that begins inside of another one")
        return super()._view(var, call)

    def _write_shape(self, var: Any, call: Any) -> Value:
        raise refusal("a tensor that holds a shape")

    def _branch(self, var: Any, node: Any) -> Value:
        raise refusal("a branch on a value that a run computes")

    def _private(self, var: Any, call: Any) -> Value:
        raise refusal(f"the function {call.op.name_hint}, of a branch or a loop")


def check_settled(lines: Sequence[str]) -> None:
    """Raises CodegenError where a statement uses a number that only the device knows."""
    for line in lines:
        if unknown := _UNKNOWN.search(line):
            kernel = _CALLED.search(line)
            where = f", which {kernel[1]} takes" if kernel else ""
            raise refusal(f"an extent that a run computes{where} ({unknown[0]})")


def refusal(what: str) -> CodegenError:
    """That a library for WebGPU cannot have something: its driver never reads what the device
    computes before the run has ended.
    """
    return CodegenError(
        f"a library for WebGPU has no form of {what}",
        reason="webgpu",
        hint="build it for wasm32-simd, or leave out of the model what comes of its inputs' values",
    )
