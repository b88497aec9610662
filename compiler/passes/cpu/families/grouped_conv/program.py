"""Convolutions in groups, and those over more than two axes, as tensor programs over padded images
with channels last.
"""

from typing import Any

import numpy as np
from tvm import sym, te, tirx

from compiler.passes.cpu.families.grouped_conv.match import STAGE
from compiler.passes.cpu.shared.register_tile import narrowest, panel_width
from compiler.targets.vector_unit import VectorUnit


def groups_to_merge(unit: VectorUnit, groups: int, columns: int) -> int:
    """The number of groups to compute as one, with zeros between them: as many as fill vectors
    better without more multiplications.
    """
    lanes = narrowest(unit)
    counts = [count for count in range(1, lanes + 1) if groups % count == 0]
    return min(counts, key=lambda count: (-(-count * columns // lanes), -count))


def pack_blocks(weight: np.ndarray, groups: int, unit: VectorUnit) -> np.ndarray:
    """Pack [O, *window, C / groups] into [blocks, panels, depth, width]: some groups a block, its
    columns in panels padded with zeros.
    """
    columns, window, channels = weight.shape[0] // groups, weight.shape[1:-1], weight.shape[-1]
    # Four groups of four columns fill 16 lanes; three quarters of what they multiply is zeros,
    # but a group alone would leave as many lanes empty.
    merged = groups_to_merge(unit, groups, columns)
    parts = weight.reshape(groups // merged, merged, columns, -1, channels)
    spread = np.zeros(
        (groups // merged, int(np.prod(window)), merged, channels, merged, columns), weight.dtype
    )
    for group in range(merged):
        spread[:, :, group, :, group, :] = parts[:, group].transpose(0, 2, 3, 1)
    # In the kernel's order of the window: one run of memory for each panel.
    flat = spread.reshape(groups // merged, -1, merged * columns)
    width = panel_of(unit, merged * columns)
    padded = np.zeros((*flat.shape[:2], -(-flat.shape[2] // width) * width), weight.dtype)
    padded[..., : flat.shape[2]] = flat
    return np.ascontiguousarray(padded.reshape(*flat.shape[:2], -1, width).transpose(0, 2, 1, 3))


def panel_of(unit: VectorUnit, columns: int) -> int:
    """Columns of a panel: one vector, or half of one, if a block has no more."""
    fitting = [lanes for lanes in (narrowest(unit), unit.lanes(32)) if columns <= lanes]
    return fitting[0] if fitting else panel_width(unit, columns)


def direct_conv(
    data: Any,
    weights: Any,
    columns: int,
    window: tuple[int, ...],
    strides: tuple[int, ...],
    dilation: tuple[int, ...],
) -> Any:
    """The convolution [N, *out, columns] of padded data [N, *extents, C]; weights: of
    `pack_blocks`, float32 or int8.
    """
    blocks, _panels, depth, width = (int(extent) for extent in weights.shape)
    block, taps = (
        columns // blocks,
        [te.reduce_axis((0, extent), name=f"k{i}") for i, extent in enumerate(window)],
    )
    channels = depth // int(np.prod(window))
    c = te.reduce_axis((0, channels), name="c")
    extents = [
        sym.Analyzer().simplify((have - ((k - 1) * d + 1)) // s + 1)
        for have, k, d, s in zip(data.shape[1:-1], window, dilation, strides, strict=True)
    ]

    def compute(n: Any, *axes: Any) -> Any:
        *outer, o = axes
        inside = [p * s + k * d for p, s, k, d in zip(outer, strides, taps, dilation, strict=True)]
        position: Any = tirx.const(0, "int64")
        for k, extent in zip(taps, window, strict=True):
            position = position * extent + k
        # The padding of the last panel of a block is never read.
        within = o % block
        weight = weights[o // block, within // width, position * channels + c, within % width]
        weight = weight if str(weights.dtype) == "float32" else weight.astype("float32")
        return te.sum(data[(n, *inside, o // block * channels + c)] * weight, axis=[*taps, c])

    return te.compute((data.shape[0], *extents, tirx.IntImm("int64", columns)), compute, name=STAGE)
