"""The smallest graph that still fails: fewer nodes, fewer points, smaller extents and channels."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import onnx
from onnx import numpy_helper

from tests.fuzz.case import Array, Case, Inputs, taken_by
from tests.fuzz.engines import Failed

Values = Callable[[Case], list[dict[str, Array]] | Failed]
Fails = Callable[[Case], bool]


def shrink(case: Case, fails: Fails, values: Values, seconds: float) -> Case:
    """Takes the first smaller case that fails, again and again, for about so many seconds."""
    end = time.monotonic() + seconds
    progress = True
    while progress:
        progress = False
        for smaller in _smaller(case, values):
            if time.monotonic() > end:
                return case
            if fails(smaller):
                case, progress = smaller, True
                break
    return case


def _smaller(case: Case, values: Values) -> Iterator[Case]:
    """Smaller cases, those that lack most first."""
    yield from _one_output(case)
    yield from _fewer_points(case)
    known = values(case)
    if isinstance(known, list):
        yield from _cut_off(case, known)
        yield from _bypassed(case, known)
    yield from _ended_early(case)
    yield from _smaller_points(case)
    yield from _fewer_channels(case)


def _one_output(case: Case) -> Iterator[Case]:
    names = [output.name for output in case.model.graph.output]
    if len(names) > 1:
        yield from (case.with_graph(case.model.graph.node, [name]) for name in names)


def _ended_early(case: Case) -> Iterator[Case]:
    """With an earlier value for the output."""
    nodes, outputs = case.model.graph.node, {output.name for output in case.model.graph.output}
    for node in list(nodes)[:-1]:
        for name in node.output:
            if name and name not in outputs:
                yield case.with_graph(nodes, [name])


def _fewer_points(case: Case) -> Iterator[Case]:
    if len(case.points) > 1:
        yield from (replace(case, points=(point,)) for point in case.points)
    if len(case.points) > 2:
        for left in range(len(case.points)):
            yield replace(case, points=case.points[:left] + case.points[left + 1 :])


def _cut_off(case: Case, known: list[dict[str, Array]]) -> Iterator[Case]:
    """With a float value for an input, the last one first: what made it is gone."""
    nodes, outputs = list(case.model.graph.node), [one.name for one in case.model.graph.output]
    for node in reversed(nodes):
        for name in node.output:
            results = [values[name] for values in known] if name else []
            if not results or name in outputs or results[0].dtype != np.float32:
                continue
            axes, points = _axes(case, results)
            rest = [other for other in nodes if name not in other.output]
            yield case.with_graph(rest, outputs, {**case.inputs, name: axes}, points=points)


def _axes(case: Case, result: list[Array]) -> tuple[tuple[str | int, ...], list[dict[str, int]]]:
    """The axes of a value as those of an input, by what they are at every point."""
    points = [dict(point) for point in case.points]
    axes: list[str | int] = []
    for axis in range(result[0].ndim):
        extents = [array.shape[axis] for array in result]
        alike = [dim for dim in points[0] if [point[dim] for point in points] == extents]
        if len(set(extents)) == 1 and (len(points) > 1 or not alike):
            axes.append(extents[0])
            continue
        name = (
            alike[0]
            if alike
            else next(fresh for number in range(99) if (fresh := f"d{number}") not in points[0])
        )
        for point, extent in zip(points, extents, strict=True):
            point[name] = extent
        axes.append(name)
    return tuple(axes), points


def _bypassed(case: Case, known: list[dict[str, Array]]) -> Iterator[Case]:
    """Without a node whose result is of the shape and dtype of one of its operands."""
    nodes, outputs = list(case.model.graph.node), [one.name for one in case.model.graph.output]
    types = [
        {name: (a.shape, a.dtype) for name, a in {**case.feed(point), **values}.items()}
        for point, values in zip(case.points, known, strict=True)
    ]
    for node in nodes:
        if len(node.output) != 1 or node.output[0] in outputs:
            continue
        for name in sorted(taken_by(node)):
            if all(index.get(name) == index[node.output[0]] for index in types):
                yield case.with_graph(
                    [_renamed(one, node.output[0], name) for one in nodes if one is not node],
                    outputs,
                )


def _renamed(node: onnx.NodeProto, old: str, new: str) -> onnx.NodeProto:
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    for position, name in enumerate(copy.input):
        if name == old:
            copy.input[position] = new
    return copy


def _smaller_points(case: Case) -> Iterator[Case]:
    for position, point in enumerate(case.points):
        for name, extent in point.items():
            for less in sorted({1, 2, extent // 2, extent - 1}):
                if 0 < less < extent:
                    points = list(case.points)
                    points[position] = {**point, name: less}
                    yield replace(case, points=tuple(points))


def _fewer_channels(case: Case) -> Iterator[Case]:
    """With another number wherever an extent of inputs and constants has a certain one."""
    constants = {one.name: numpy_helper.to_array(one) for one in case.model.graph.initializer}
    extents = {size for array in constants.values() for size in array.shape}
    extents |= {axis for axes in case.inputs.values() for axis in axes if isinstance(axis, int)}
    for old in sorted(extents, reverse=True):
        for new in sorted({1, 2, 4, 8, old // 2, old - 1}):
            if 0 < new < old and old > 2:
                yield _narrowed(case, constants, old, new)


def _narrowed(case: Case, constants: dict[str, Array], old: int, new: int) -> Case:
    inputs: Inputs = {
        name: tuple(new if axis == old else axis for axis in axes)
        for name, axes in case.inputs.items()
    }
    smaller = [
        numpy_helper.from_array(_cut(array, old, new), name) for name, array in constants.items()
    ]
    nodes = []
    for node in case.model.graph.node:
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        for attribute in copy.attribute:
            if attribute.name in ("group", "hidden_size") and attribute.i == old:
                attribute.i = new
        nodes.append(copy)
    return case.with_graph(
        nodes, [one.name for one in case.model.graph.output], inputs, constants=smaller
    )


def _cut(array: Array, old: int, new: int) -> Array:
    if array.dtype == np.int64 and array.ndim == 1:
        # Shapes, sizes and pads: extents stand in the numbers.
        return np.where(array == old, new, array)
    return np.ascontiguousarray(
        array[tuple(slice(new) if size == old else slice(None) for size in array.shape)]
    )
