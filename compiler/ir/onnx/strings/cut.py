"""Cuts what computes on strings off an ONNX model."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import TensorProto, helper

from compiler.errors import ImportFailed
from compiler.ir.files.node_labels import label_of, op_of
from compiler.ir.graph.signature import identifier
from compiler.ir.onnx.model.dtypes import DTYPES
from compiler.ir.onnx.strings.moving import constant_step
from compiler.ir.onnx.strings.operand import OUTSIDE, Axes, Converted, Operand
from compiler.ir.onnx.strings.parts import (
    LABELS,
    STRING,
    Parts,
    find_parts,
    has_strings,
    read_names,
)
from compiler.ir.strings import StringPart
from relaxd.contract.bundle.strings import Step, Steps
from relaxd.contract.dims.tensors import TEXT, TensorSpec
from relaxd.contract.request import CompileRequest
from relaxd.loader.strings import encoding, patterns

_ELEMENT_TYPES = {name: number for number, name in DTYPES.items()}
_EXAMPLES, _MOST_ELEMENTS = 64, 1 << 20
"""How many rows of examples there are, and how many elements they have at most."""
_KEYS = ("cats_strings", "keys_strings", "keys_tensor")
"""Attributes that name strings of which the library has the positions."""


@dataclass
class _Cut:
    """The parts of the new model and its steps, as they come about."""

    parts: Parts
    before: list[Step] = field(default_factory=list)
    after: list[Step] = field(default_factory=list)
    inputs: dict[str, Operand] = field(default_factory=dict)
    """The new inputs of the library."""
    examples: dict[str, np.ndarray] = field(default_factory=dict)
    changed: dict[int, onnx.NodeProto] = field(default_factory=dict)
    removed: set[int] = field(default_factory=set)
    read: set[str] = field(default_factory=set)
    """Values of the library that steps after it read."""


def cut_strings(
    model: onnx.ModelProto, request: CompileRequest
) -> tuple[onnx.ModelProto, StringPart] | None:
    """The model without its nodes on strings, and these as steps; None for a model without
    strings. Raises ImportFailed for one of which this cannot be.
    """
    if not has_strings(model):
        return None
    cut = _Cut(find_parts(model, request))
    _cut_before(cut)
    _cut_labels(cut)
    _cut_after(cut)
    if not cut.parts.inputs and not cut.after:
        return None
    _drop_constants(cut)
    result = _model_of(cut)
    return result, _part_of(cut, result)


def _cut_before(cut: _Cut) -> None:
    parts = cut.parts
    wanted = _readers(cut)
    for index in sorted(parts.before):
        node, converted = parts.nodes[index], parts.known[index]
        inside = any(reader in parts.before or reader in parts.after for reader in wanted[index])
        outside = any(
            reader not in parts.before and reader not in parts.after for reader in wanted[index]
        )
        if converted.keys is not None and (outside or not converted.op) and not inside:
            _select(cut, index, converted)
            continue
        if not converted.op:
            raise _refused(node, "a node on strings reads what it encodes")
        cut.removed.add(index)
        cut.before.append(_step(cut, index, converted, cut.before))
        if outside:
            _give(cut, index, converted)


def _readers(cut: _Cut) -> dict[int, set[int]]:
    """By node, those that read its outputs; -1 for an output of the model."""
    makers = {name: i for i, node in enumerate(cut.parts.nodes) for name in node.output if name}
    readers: dict[int, set[int]] = {i: set() for i in range(len(cut.parts.nodes))}
    for index, node in enumerate(cut.parts.nodes):
        for name in read_names(node):
            if name in makers:
                readers[makers[name]].add(index)
    for output in cut.parts.model.graph.output:
        if output.name in makers:
            readers[makers[output.name]].add(-1)
    return readers


def _step(cut: _Cut, index: int, converted: Converted, steps: list[Step]) -> Step:
    """The node as a step, behind steps for the constants that it reads."""
    node = cut.parts.nodes[index]
    chosen = converted.inputs if converted.inputs is not None else range(len(node.input))
    names = [node.input[i] for i in chosen]
    _add_constants(cut, names, steps)
    outputs = [name for name in node.output if name][: len(converted.results)]
    try:
        json.dumps(dict(converted.attributes), allow_nan=False)
    except ValueError as error:
        raise _refused(node, "one of its values is not finite") from error
    return Step(converted.op, tuple(names), tuple(outputs), dict(converted.attributes))


def _add_constants(cut: _Cut, names: list[str], steps: list[Step]) -> None:
    """Initialisers among the names, once for the steps before and once for those after."""
    there = {name for step in steps for name in step.outputs}
    for name in names:
        operand = cut.parts.operands.get(name)
        if operand is None or operand.constant is None or name in there:
            continue
        converted = constant_step(operand.constant)
        steps.append(Step("constant", (), (name,), dict(converted.attributes)))
        there.add(name)


def _give(cut: _Cut, index: int, converted: Converted) -> None:
    """The node's outputs become inputs of the library."""
    node = cut.parts.nodes[index]
    if converted.op == "constant":
        cut.removed.discard(index)
        return
    read = _read_by_library(cut)
    for name, result in zip(node.output, converted.results, strict=False):
        if name not in read:
            continue
        if result.dtype == TEXT:
            raise _refused(node, "the model gives its strings as they are, without any arithmetic")
        cut.inputs[name] = Operand(name, result.dtype, _named_axes(node, result.axes))
        if converted.op == "ngrams":
            cut.examples[name] = _counts(converted)


def _read_by_library(cut: _Cut) -> set[str]:
    parts = cut.parts
    left = [
        node
        for index, node in enumerate(parts.nodes)
        if index not in parts.before and index not in parts.after
    ]
    outputs = {one.name for one in parts.model.graph.output}
    return outputs | {name for node in left for name in read_names(node)}


def _named_axes(node: onnx.NodeProto, axes: Axes | None) -> Axes | None:
    """The axes, with a name for one that only a call knows: all outputs of a tokenizer have it."""
    name = identifier(node.output[0])
    return axes and tuple(
        f"{name}_{index}" if axis is None else axis for index, axis in enumerate(axes)
    )


def _select(cut: _Cut, index: int, converted: Converted) -> None:
    """The step finds positions among keys; the node selects by them in the library."""
    node = cut.parts.nodes[index]
    keys = list(converted.keys or ())
    attributes = {"keys": keys, "strict": converted.strict}
    name = _position_name(cut, node.input[0], attributes)
    if name not in cut.inputs:
        _add_constants(cut, [node.input[0]], cut.before)
        cut.before.append(Step("index", (node.input[0],), (name,), attributes))
        axes = cut.parts.operands[node.input[0]].axes
        cut.inputs[name] = Operand(name, "int64", axes)
        cut.examples[name] = _positions(len(keys), axes or (), strict=converted.strict)
    cut.changed[index] = _by_position(node, name, len(keys))


def _position_name(cut: _Cut, name: str, attributes: dict[str, object]) -> str:
    """`city_index`, and another name where this has other keys."""
    steps = {step.outputs[0]: step for step in cut.before}
    taken = cut.parts.operands.keys() | {one.name for one in cut.parts.model.graph.input}
    taken |= {output for node in cut.parts.nodes for output in node.output}
    count, unused = 0, f"{name}_index"
    while unused in taken or (unused in steps and steps[unused].attributes != attributes):
        count += 1
        unused = f"{name}_index_{count}"
    return unused


def _by_position(node: onnx.NodeProto, name: str, count: int) -> onnx.NodeProto:
    """The same node for positions in place of strings."""
    result = onnx.NodeProto()
    result.CopyFrom(node)
    result.input[0] = name
    retained = [
        one
        for one in node.attribute
        if one.name not in ("cats_strings", "keys_strings", "keys_tensor")
    ]
    del result.attribute[:]
    result.attribute.extend(retained)
    positions = np.arange(count, dtype=np.int64)
    if node.op_type == "OneHotEncoder":
        result.attribute.append(helper.make_attribute("cats_int64s", positions.tolist()))
    elif any(one.name == "values_tensor" for one in node.attribute):
        tensor = onnx.numpy_helper.from_array(positions)
        result.attribute.append(helper.make_attribute("keys_tensor", tensor))
    else:
        result.attribute.append(helper.make_attribute("keys_int64s", positions.tolist()))
    return result


def _cut_labels(cut: _Cut) -> None:
    """Classifiers give positions of labels, which a step makes labels."""
    parts = cut.parts
    used = {name for node in parts.nodes for name in read_names(node)}
    used |= {output.name for output in parts.model.graph.output}
    for index, labels in parts.labels.items():
        node = parts.nodes[index]
        name = node.output[0]
        changed = onnx.NodeProto()
        changed.CopyFrom(node)
        retained = [one for one in node.attribute if one.name != "classlabels_strings"]
        del changed.attribute[:]
        changed.attribute.extend(retained)
        numbers = list(range(len(labels)))
        changed.attribute.append(helper.make_attribute(LABELS[node.op_type], numbers))
        if name in used:
            position = _position_name(cut, name, {})
            changed.output[0] = position
            cut.read.add(position)
            cut.after.append(Step("map", (position,), (name,), _table_of(labels)))
        cut.changed[index] = changed


def _table_of(labels: list[str]) -> dict[str, object]:
    return {
        "keys": list(range(len(labels))),
        "values": labels,
        "default": "",
        "dtype": TEXT,
    }


def _cut_after(cut: _Cut) -> None:
    parts = cut.parts
    before = {name for step in cut.before for name in step.outputs if step.op != "constant"}
    for index in sorted(parts.after):
        node, converted = parts.nodes[index], parts.after[index]
        step = _step(cut, index, converted, cut.after)
        earlier = {name for one in cut.after for name in one.outputs}
        for name in step.inputs:
            if name in before:
                raise _refused(node, "it reads both what the library makes and what it is given")
        cut.read.update({*step.inputs} - earlier)
        cut.removed.add(index)
        cut.after.append(step)


def _drop_constants(cut: _Cut) -> None:
    for index, node in enumerate(cut.parts.nodes):
        operand = cut.parts.operands.get(node.output[0]) if node.output else None
        if node.op_type == "Constant" and operand is not None and operand.is_text:
            cut.removed.add(index)


def _model_of(cut: _Cut) -> onnx.ModelProto:
    """The model without its strings."""
    result = onnx.ModelProto()
    result.CopyFrom(cut.parts.model)
    graph = result.graph
    nodes = [
        cut.changed.get(index, node)
        for index, node in enumerate(cut.parts.nodes)
        if index not in cut.removed
    ]
    del graph.node[:]
    graph.node.extend(nodes)
    texts = {name for name, operand in cut.parts.operands.items() if operand.is_text}
    inputs = [one for one in graph.input if one.type.tensor_type.elem_type != STRING]
    inputs += [_declaration(one) for one in cut.inputs.values()]
    outputs = list(_outputs(cut))
    read = {name for node in nodes for name in read_names(node)} | {one.name for one in outputs}
    constants = [one for one in graph.initializer if one.name in read and one.name not in texts]
    known = [
        one for one in graph.value_info if one.name not in texts and one.name not in cut.inputs
    ]
    for field_, values in (
        (graph.input, inputs),
        (graph.output, outputs),
        (graph.initializer, constants),
        (graph.value_info, known),
    ):
        copies = [type(one).FromString(one.SerializeToString()) for one in values]
        del field_[:]
        field_.extend(copies)
    if not nodes or not outputs:
        raise ImportFailed(
            "the model computes on strings alone: nothing of it is left for a library",
            reason="strings",
            hint="run it as it is, in front of the models that it prepares inputs for",
        )
    return result


def _declaration(operand: Operand) -> onnx.ValueInfoProto:
    number = _ELEMENT_TYPES[operand.dtype or "float32"]
    return helper.make_tensor_value_info(operand.name, number, operand.axes)


def _outputs(cut: _Cut) -> Iterator[onnx.ValueInfoProto]:
    """The library's: in place of strings, what they are made of."""
    listed = set()
    needed = _sources(cut)
    for output in cut.parts.model.graph.output:
        if output.name not in needed:
            listed.add(output.name)
            yield output
            continue
        for name in needed[output.name]:
            if name not in listed:
                listed.add(name)
                yield helper.make_tensor_value_info(name, _element_type(cut, name), None)


def _element_type(cut: _Cut, name: str) -> int:
    """The type of a value that a step after the library reads: a condition, a cast's, or else a
    position's.
    """
    for node in cut.parts.nodes:
        if name in node.output and node.op_type == "Cast":
            return next(one.i for one in node.attribute if one.name == "to")
    if any(step.op == "where" and step.inputs[0] == name for step in cut.after):
        return int(TensorProto.BOOL)
    return int(TensorProto.INT64)


def _sources(cut: _Cut) -> dict[str, list[str]]:
    """By output of strings, the values of the library that it is made of."""
    behind: dict[str, list[str]] = {name: [name] for name in cut.read}
    for step in cut.after:
        names = [one for name in step.inputs for one in behind.get(name, [])]
        behind.update({name: [*dict.fromkeys(names)] for name in step.outputs})
    strings = {name for step in cut.after for name in step.outputs}
    outputs = [one.name for one in cut.parts.model.graph.output]
    return {name: behind[name] for name in outputs if name in strings}


def _part_of(cut: _Cut, result: onnx.ModelProto) -> StringPart:
    parts = cut.parts
    constants = {tensor.name for tensor in parts.model.graph.initializer}
    inputs: list[str | TensorSpec] = [
        parts.inputs.get(one.name, one.name)
        for one in parts.model.graph.input
        if one.name not in constants
    ]
    own = {one.name for one in result.graph.input}
    return StringPart(
        Steps(tuple(cut.before), tuple(cut.after)),
        tuple(one for one in inputs if not isinstance(one, str) or one in own),
        tuple(one.name for one in parts.model.graph.output),
        tuple(cut.inputs),
        tuple(dict.fromkeys(name for names in _sources(cut).values() for name in names)),
        cut.examples,
        _packages(cut),
    )


def _packages(cut: _Cut) -> tuple[str, ...]:
    """List the packages that the steps import beside numpy, by their names on PyPI."""
    used = {
        encoding.PACKAGE: any(step.op == "encode" for step in cut.before),
        patterns.PACKAGE: any(_has_pattern(step) for step in (*cut.before, *cut.after)),
    }
    return tuple(package for package, is_used in used.items() if is_used)


def _has_pattern(step: Step) -> bool:
    return "pattern" in step.attributes or bool(step.attributes.get("separators"))


def _positions(count: int, axes: tuple[object, ...], *, strict: bool) -> np.ndarray:
    """Examples of positions among so many keys."""
    shape = [one if isinstance(one, int) else _EXAMPLES for one in axes]
    return np.random.default_rng(0).integers(0 if strict else -1, count, shape)


def _counts(converted: Converted) -> np.ndarray:
    """Examples of weighted counts of n-grams."""
    size = int(converted.attributes["size"])
    rows = max(1, min(_EXAMPLES, _MOST_ELEMENTS // max(size, 1)))
    axes = converted.results[0].axes or ()
    shape = (size,) if len(axes) == 1 else (rows, size)
    counts = np.random.default_rng(0).poisson(0.5, shape).astype(np.float32)
    return counts * np.array(converted.attributes.get("weights", 1), np.float32)


def _refused(node: onnx.NodeProto, why: str) -> ImportFailed:
    return ImportFailed(
        f"the strings of node {label_of(node)!r} ({op_of(node)}) cannot be steps around the "
        f"library: {why}",
        reason="strings",
        node=label_of(node),
        op=op_of(node),
        hint=OUTSIDE,
    )
