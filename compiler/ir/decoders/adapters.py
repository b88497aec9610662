"""Inputs of a decoder for low-rank adapters, and the nodes that add them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import onnx
from onnx import TensorProto, helper

from compiler.ir.decoders.adapter_functions import add_function, index_function
from compiler.ir.decoders.design import Design, Part
from compiler.ir.decoders.graph import Graph
from relaxd.contract.bundle.adapters import Adapters, Module
from relaxd.contract.options import MODULES

_PARTS = dict(
    zip(
        (Part.QUERY, Part.KEY, Part.VALUE, Part.MIXED, Part.GATE, Part.UP, Part.DOWN),
        MODULES,
        strict=True,
    )
)
_INDEX, _CHECKED, _COUNT, _RANKS = "adapter", "adapter.checked", "adapters", "adapters.ranks"
_SPREAD = 4
"""How much smaller than a matmul's result is what adapters of unit size add to it."""


@dataclass(frozen=True)
class AdapterForm:
    """The adapters that a decoder takes: the greatest rank, and the names of the matmuls."""

    rank: int
    modules: frozenset[str]


@dataclass(frozen=True)
class Slice:
    """The columns of a tensor that come of one matrix [width, depth], from `start` on."""

    part: Part
    start: int
    width: int
    depth: int


class AdapterSites:
    """Adds adapters to results of matmuls, and lists the inputs that this takes.

    described: once a decoder is complete, its adapters.
    """

    def __init__(self, form: AdapterForm) -> None:
        self.described: Adapters | None = None
        self._form = form
        self._modules: list[Module] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._checked = ""

    def targets(self, part: Part) -> bool:
        """True if the matmul has adapters."""
        return _PARTS.get(part) in self._form.modules

    def add(
        self, graph: Graph, x: str, base: str, layer: int, slices: Sequence[Slice], output: str
    ) -> str:
        """base, the result of matmuls of x by a layer's matrices, plus what adapters add."""
        first = len(self._modules)
        modules = [self._module(layer, each) for each in slices]
        if not self._checked:
            self._checked = graph.call(index_function(), [_INDEX, modules[0].down], _CHECKED)
        stacks = [name for module in modules for name in (module.down, module.up)]
        return graph.call(
            add_function(len(slices)),
            [base, x, self._checked, _RANKS, *stacks],
            output,
            modules=list(range(first, first + len(modules))),
            starts=[each.start for each in slices],
            scales=[module.scale for module in modules],
        )

    def _module(self, layer: int, part: Slice) -> Module:
        """The inputs of a matmul's adapters."""
        name, rank = _PARTS[part.part], self._form.rank
        down, up = (f"{_COUNT}.{layer}.{name}.{half}" for half in ("down", "up"))
        scale = 0.5 ** math.ceil(math.log2(_SPREAD * math.sqrt(part.depth * rank)))
        module = Module(layer, name, down, up, scale)
        for stack, shape in (down, (rank, part.depth)), (up, (rank, part.width)):
            info = helper.make_tensor_value_info(stack, TensorProto.FLOAT, [_COUNT, *shape])
            self._inputs.append(info)
        self._modules.append(module)
        return module

    def close(self, design: Design) -> list[onnx.ValueInfoProto]:
        """Describe the adapters of the whole decoder, and give the graph's inputs for them."""
        self.described = Adapters(
            _INDEX,
            _RANKS,
            self._form.rank,
            tuple(self._modules),
            design.heads,
            design.groups,
            design.neighbours,
        )
        index = helper.make_tensor_value_info(_INDEX, TensorProto.INT32, ["batch_size"])
        ranks = [_COUNT, len(self._modules)]
        return [
            index,
            helper.make_tensor_value_info(_RANKS, TensorProto.INT32, ranks),
            *self._inputs,
        ]
