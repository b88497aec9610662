"""Kernels, constants, slots in the arena and texts that the functions of one driver share."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import tvm
from tvm import relax

from compiler.errors import CodegenError
from compiler.passes.framework.bindings import bindings_within
from compiler.passes.lower.functions.c_interface import Kernel
from compiler.tir.c_text import C_TYPES, octets

_WRITTEN_OUT = 4096
"""Bytes of a constant that the source holds itself at most: of one of 40 MB, as branches and loops
may have, a compiler would read 200 MB of text.
"""


@dataclass
class Driver:
    """The parts of a driver as they grow.

    offsets: of each weight in the file of weights. messages: of checks, by number. heap: whether
    the library may ask its host for memory while it runs; takes_outputs: whether a caller may say
    where an output goes; nodes: by kernel, names of the model's nodes that it computes.
    bind: statements that place things in the arena. statics: constants. files: of the larger ones,
    which the source includes by their names. functions: private ones,
    finished, and prototypes: of these. slots, growing: how many there are of either kind.
    """

    module: tvm.IRModule
    kernels: Mapping[str, Kernel]
    prefix: str
    offsets: tuple[int, ...]
    messages: Mapping[str, str]
    heap: bool = True
    takes_outputs: ClassVar[bool] = True
    nodes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    bind: list[str] = field(default_factory=list)
    statics: list[str] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)
    functions: list[str] = field(default_factory=list)
    prototypes: dict[str, str] = field(default_factory=dict)
    slots: int = 0
    growing: int = 0
    counter: int = 0
    _constants: dict[tuple[str, bytes], str] = field(default_factory=dict)

    def fresh(self, start: str) -> str:
        """A name that the driver has not yet."""
        self.counter += 1
        return f"{start}{self.counter}"

    def slot(self, size: str) -> int:
        """A place in the arena for so many bytes, over the dims that bind takes."""
        self.bind.append(f"  c->at[{self.slots}] = at, at += RD_ROUND({size});")
        self.slots += 1
        return self.slots - 1

    def weight(self, position: int) -> str:
        """The address of a weight."""
        return f"((void *)(c->own.weights + {self.offsets[position]}))"

    def grower(self, var: Any) -> int:
        """A place outside of the arena, whose size only a run knows, for a variable; raises
        CodegenError where there is no heap.
        """
        self.need_heap(var)
        self.growing += 1
        return self.growing - 1

    def need_heap(self, var: Any) -> None:
        """Raises CodegenError, which names the nodes that use the variable's memory first, where
        there is no heap.
        """
        if self.heap:
            return
        kernel = self.user(var) or "an output"
        nodes = ", ".join(self.nodes.get(kernel, [kernel]))
        raise CodegenError(
            f"only a run knows how large a tensor of {nodes} is, and the target has no heap",
            reason="heap",
            node=nodes,
            hint="leave out of the model what comes of its inputs' values, such as NonZero or a "
            "loop, or build for a target with an operating system",
        )

    def user(self, var: Any) -> str:
        """The first kernel that gets a variable, or what is made of it without a kernel; empty
        where none does.
        """
        return self._users.get(var, "")

    @functools.cached_property
    def _users(self) -> dict[Any, str]:
        users: dict[Any, str] = {}
        for function in self.module.functions.values():
            if not isinstance(function, relax.Function):
                continue
            for bound, value in reversed(list(bindings_within(function.body))):
                is_call = isinstance(value, tvm.ir.Call)
                is_kernel = is_call and isinstance(value.op, tvm.ir.GlobalVar)
                user = str(value.op.name_hint) if is_kernel else users.get(bound)
                for used in value.args if is_call else [value]:
                    if user and isinstance(used, tvm.ir.Var):
                        users[used] = user
        return users

    def scratch(self, size: str) -> None:
        """At least so much working memory for each thread."""
        line = f"  each = rd_max(each, {size});"
        if line not in self.bind:
            self.bind.append(line)

    def constant(self, node: Any) -> str:
        """The address of a constant in the library."""
        values = np.ascontiguousarray(node.value.numpy())
        key = (str(node.value.dtype), values.tobytes())
        if key not in self._constants:
            name = f"constant{len(self._constants)}"
            head, size = f"static const _Alignas(64) uint8_t {name}", len(key[1])
            if size > _WRITTEN_OUT:
                self.files[f"{name}.bin"] = key[1]
                self.statics.append(f'{head}[] = {{\n#embed "{name}.bin"\n}};')
            else:
                self.statics.append(f"{head}[{max(size, 1)}] = {octets(key[1])};")
            self._constants[key] = name
        return f"((void *){self._constants[key]})"

    @functools.cached_property
    def rank(self) -> int:
        """The highest rank of a tensor."""
        ranks = [1]

        def visit(node: Any) -> None:
            ty = getattr(node, "ty", None)
            if isinstance(ty, relax.TensorType):
                ranks.append(int(ty.ndim))

        for function in self.module.functions.values():
            if isinstance(function, relax.Function):
                for param in function.params:
                    visit(param)
                relax.analysis.post_order_visit(function, visit)
        return max(ranks)

    def kernel_prototypes(self) -> list[str]:
        """Declarations of every kernel and of its tasks."""
        return [line for kernel in self.kernels.values() for line in _prototypes(kernel)]


def _prototypes(kernel: Kernel) -> list[str]:
    head = ["void *"] * (kernel.needs_context + kernel.needs_scratch)
    own = [c_type(kind) for kind in (*kernel.params, *kernel.dim_types)]
    lines = [f"int {kernel.symbol}({', '.join([*head, *own]) or 'void'});"]
    for task in kernel.tasks:
        types = ", ".join(["int64_t", "int64_t", "void *", *map(c_type, task.params)])
        lines.append(f"int {task.symbol}({types});")
    return lines


def c_type(kind: str | None) -> str:
    """The C type of a kernel's parameter."""
    return "void *" if kind is None else C_TYPES[kind]
