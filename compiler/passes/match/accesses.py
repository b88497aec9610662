"""Follows the access of a tensor program through the call that computes its tensor, so that the
program reads what the call reads.

Each function returns the same elements as an access of the call's input, or None if no access of
that form gives them.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import tvm_ffi
from tvm import relax

from compiler.passes.cpu.families.attention.program import Access, AxisAccess
from compiler.passes.match.axis_parts import Part
from compiler.passes.match.axis_repeats import Repeat


def through_permutation(access: Access, source: Any, axes: Sequence[int]) -> Access:
    """Follows `permute_dims(source, axes)`."""
    positions = dict(zip(axes, access.axes, strict=True))
    return replace(access, tensor=source, axes=tuple(positions[axis] for axis in range(len(axes))))


def through_part(access: Access, source: Any, part: Part) -> Access:
    """Follows a slice of `source`."""
    positions = list(access.axes)
    position = positions[part.axis]
    positions[part.axis] = replace(
        position,
        first=position.first + part.first,
        count=part.count if position.count is None else position.count,
    )
    return replace(access, tensor=source, axes=tuple(positions))


def through_prefix(access: Access, source: Any, axis: int, count: Any) -> Access | None:
    """Follows the first positions of one axis of `source`, of which only a run knows how many; None
    if the access has a part of them.
    """
    positions = list(access.axes)
    if positions[axis].count is not None or positions[axis].axis is None:
        return None
    positions[axis] = replace(positions[axis], count=count)
    return replace(access, tensor=source, axes=tuple(positions))


def through_repeat(access: Access, source: Any, repeat: Repeat) -> Access | None:
    """Follows a repeat of one axis of `source`; None if the access has a part of that axis."""
    positions = list(access.axes)
    position = positions[repeat.axis]
    if (
        position.axis is None
        or position != AxisAccess(position.axis)
        or repeat.axis == len(positions) - 1
    ):
        return None
    positions[repeat.axis : repeat.axis + 1] = [
        replace(position, times=repeat.times),
        AxisAccess(None),
    ]
    return replace(access, tensor=source, axes=tuple(positions))


def through_reshape(access: Access, source: Any) -> Access | None:
    """Follows a reshape of `source` that only adds or removes axes of extent 1; None for others."""
    shapes = source.ty.shape, access.tensor.ty.shape
    if not all(isinstance(shape, relax.ShapeExpr) for shape in shapes):
        return None
    left = list(zip(access.axes, access.tensor.ty.shape.values, strict=True))
    positions = []
    for extent in source.ty.shape.values:
        # Extents of 1 on either side are skipped or added until the others line up.
        while left and _is_added(*left[0]) and not tvm_ffi.structural_equal(extent, left[0][1]):
            left.pop(0)
        if left and tvm_ffi.structural_equal(extent, left[0][1]):
            positions.append(left.pop(0)[0])
        elif getattr(extent, "value", None) == 1:
            positions.append(AxisAccess(None))
        else:
            return None
    lost = any(not _is_added(*each) for each in left)
    return None if lost else replace(access, tensor=source, axes=tuple(positions))


def _is_added(position: AxisAccess, extent: Any) -> bool:
    """True if the axis has extent 1 and no axis of the view belongs to it."""
    return position.axis is None and getattr(extent, "value", None) == 1
