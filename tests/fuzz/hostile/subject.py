"""A small model around one operator, and what to feed it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tests.fuzz.case import Array
from tests.fuzz.hostile.values import Drawing, Mood, Sample, normal

MOODS = (Mood.NONE, Mood.SINGLE, Mood.SINGLE, Mood.ALL)
DOMAINS = {"": 21, "ai.onnx.ml": 3, "com.microsoft": 1}


class BaseSubject:
    """inputs: spelled as requests do (`float32[n,3]`), every dim of 1 to 5 unless `dims` say
    otherwise; hostile: how inputs are drawn whose values are an operator's positions, extents,
    lengths or divisors, the others being harmless.

    reference: whether the answer of ONNX Runtime, or torch, is the defined one, where it gives one.
    """

    name: str
    inputs: Mapping[str, str]
    hostile: Mapping[str, Drawing]
    dims: Mapping[str, tuple[int, int]]
    reference: bool

    @property
    def content(self) -> bytes | str:
        """The model: an ONNX file's bytes, or the source of a TorchScript method."""
        raise NotImplementedError

    @property
    def ranges(self) -> dict[str, tuple[int, int]]:
        """Each dim of the inputs: its least and its greatest extent."""
        named = {
            axis for spec in self.inputs.values() for axis in _axes(spec) if isinstance(axis, str)
        }
        return {name: self.dims.get(name, (1, 5)) for name in sorted(named)}

    def feed(self, seed: int, number: int) -> dict[str, Array]:
        """The inputs of a draw."""
        random = np.random.default_rng((seed, number, *self.name.encode()))
        dims = {
            name: int(random.integers(low, high + 1)) for name, (low, high) in self.ranges.items()
        }
        return {name: self._draw(name, random, dims) for name in self.inputs}

    def _draw(self, name: str, random: np.random.Generator, dims: Mapping[str, int]) -> Array:
        spec = self.inputs[name]
        shape = tuple(dims[axis] if isinstance(axis, str) else axis for axis in _axes(spec))
        dtype = np.dtype(spec.partition("[")[0])
        mood = MOODS[random.integers(len(MOODS))]
        draw = self.hostile.get(name, normal)
        return np.asarray(draw(Sample(random, dims, shape, dtype, mood)), dtype).reshape(shape)


@dataclass(frozen=True)
class Program(BaseSubject):
    """A TorchScript method; source: its body's lines, of which the last is what it gives."""

    name: str
    source: str
    inputs: Mapping[str, str]
    hostile: Mapping[str, Drawing]
    dims: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    reference: bool = True

    @property
    def content(self) -> str:
        """The method."""
        *before, result = self.source.splitlines()
        lines = "".join(f"    {line}\n" for line in (*before, f"return {result}"))
        return f"def forward(self, {', '.join(self.inputs)}):\n{lines}"


@dataclass(frozen=True)
class Subject(BaseSubject):
    """An ONNX graph of those nodes."""

    name: str
    nodes: Sequence[onnx.NodeProto]
    inputs: Mapping[str, str]
    hostile: Mapping[str, Drawing]
    constants: Mapping[str, Array] = field(default_factory=dict)
    dims: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    outputs: Sequence[str] | None = None
    opset: int = DOMAINS[""]
    reference: bool = True

    @property
    def content(self) -> bytes:
        """The graph with its inputs' symbolic shapes."""
        names = self.outputs or [name for node in self.nodes for name in node.output if name]
        infos = [_info(name, spec) for name, spec in self.inputs.items()]
        graph = helper.make_graph(
            list(self.nodes),
            "hostile",
            infos,
            [helper.make_empty_tensor_value_info(name) for name in names],
            [numpy_helper.from_array(array, name) for name, array in self.constants.items()],
        )
        versions = {**DOMAINS, "": self.opset}
        opsets = [helper.make_opsetid(domain, version) for domain, version in versions.items()]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


def subject(
    op: str, inputs: Mapping[str, str], hostile: Mapping[str, Drawing], **more: Any
) -> Subject:
    """One node that takes the inputs in order; more: attributes of the node, and of Subject.

    given: the node's inputs, where they are not the graph's; makes: how many outputs it has, of
    which the graph has all; domain: of the operator; label: what is added to the subject's name.
    """
    fields = {key: more.pop(key) for key in Subject.__dataclass_fields__ if key in more}
    arguments, makes = more.pop("given", list(inputs)), more.pop("makes", 1)
    label, domain = more.pop("label", ""), more.pop("domain", "")
    new = [f"y{i}" for i in range(makes)]
    node = helper.make_node(op, arguments, new, "node", domain=domain, **more)
    return Subject(f"{op}{label and '-' + label}", [node], inputs, hostile, **fields)


def _axes(spec: str) -> list[str | int]:
    inner = spec.partition("[")[2].rstrip("]")
    return [int(axis) if axis.isdigit() else axis for axis in inner.split(",") if axis]


def _info(name: str, spec: str) -> onnx.ValueInfoProto:
    dtype = np.dtype(spec.partition("[")[0])
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(dtype), _axes(spec))
