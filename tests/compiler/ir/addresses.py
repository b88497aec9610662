"""Which inputs of a tensor program decide where it reads or writes, and how often its loops run."""

from collections import defaultdict
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir.expr import TensorLoad, Var
from tvm.tirx.stmt import Bind, BufferStore, For

_ROUNDS = 4
"""Of steps from one local variable to the next that are followed."""


def _nodes(root: Any, kind: Any) -> list[Any]:
    nodes: list[Any] = []
    tvm_ffi.structural_walk(root, (kind, nodes.append))
    return nodes


class _Sources:
    """The parameters that each variable and buffer of a program gets values from."""

    def __init__(self, program: tirx.PrimFunc) -> None:
        self._variables: dict[Any, set[int]] = defaultdict(set)
        self._buffers: dict[Any, set[int]] = defaultdict(set)
        for number, parameter in enumerate(program.params):
            if isinstance(parameter.ty, tirx.BufferType):
                self._buffers[parameter] = {number}
        stores = _nodes(program.body, BufferStore)
        bindings = [*_nodes(program.body, Bind), *_nodes(program.body, tirx.Let)]
        for _ in range(_ROUNDS):
            for binding in bindings:
                self._variables[binding.var] |= self.of(binding.value)
            for store in stores:
                self._buffers[store.buffer] |= self.of(store.value)

    def of(self, value: Any) -> set[int]:
        """The parameters that an expression reads."""
        loads = [self._buffers[load.source] for load in _nodes(value, TensorLoad)]
        return set().union(*loads, *(self._variables[name] for name in _nodes(value, Var)))


def addressing_parameters(program: tirx.PrimFunc) -> set[int]:
    """The positions of the parameters whose elements reach an address or a bound of a loop."""
    sources = _Sources(program)
    accesses = [*_nodes(program.body, TensorLoad), *_nodes(program.body, BufferStore)]
    addresses = [index for access in accesses for index in access.indices]
    bounds = [end for loop in _nodes(program.body, For) for end in (loop.min, loop.extent)]
    return set().union(*(sources.of(expression) for expression in (*addresses, *bounds)))
