import numpy as np
import pytest
from tvm import relax

from compiler.passes.cpu.families.grouped_conv.program import groups_to_merge, pack_blocks
from compiler.targets.vector_unit import VectorUnit

op = relax.op
AVX2 = VectorUnit(vector_bits=256, registers=16, fma=True)
AVX512 = VectorUnit(vector_bits=512, registers=32, fma=True)


def reference(x, w, stride, pad, groups):
    """A convolution of any rank by its definition, in float64."""
    rank, (out, depth, *kernel) = w.ndim - 2, w.shape
    padded = np.pad(x.astype("float64"), ((0, 0), (0, 0), *[(pad, pad)] * rank))
    every = np.lib.stride_tricks.sliding_window_view(padded, kernel, axis=tuple(range(2, 2 + rank)))
    windows = every[(slice(None),) * 2 + (slice(None, None, stride),) * rank]
    grouped = windows.reshape(x.shape[0], groups, depth, *windows.shape[2:])
    weights = w.astype("float64").reshape(groups, out // groups, depth, *kernel)
    axes = [1, *range(2 + rank, 2 + 2 * rank)], [1, *range(2, 2 + rank)]
    summed = [np.tensordot(grouped[:, g], weights[g], axes) for g in range(groups)]
    return np.concatenate([np.moveaxis(part, -1, 1) for part in summed], 1)


CASES = {
    "3x3x3": (8, 24, 3, 1, 1, 1),
    "few channels": (3, 17, 3, 1, 1, 1),
    "strided": (16, 16, 3, 2, 1, 1),
    "1x1x1": (24, 40, 1, 1, 0, 1),
    "grouped": (16, 24, 2, 1, 1, 4),
    "depthwise": (13, 13, 3, 1, 1, 13),
}


@pytest.mark.parametrize("name", CASES)
def test_volumes_of_every_extent(name, compile_graph, draw):
    channels, out, kernel, stride, pad, groups = CASES[name]
    w = draw.standard_normal((out, channels // groups, *[kernel] * 3)).astype("float32")
    bias = draw.standard_normal((1, out, 1, 1, 1)).astype("float32")

    def graph(builder, x):
        y = op.nn.conv3d(x, relax.const(w), (stride,) * 3, (pad,) * 6, 1, groups)
        return op.nn.relu(op.add(y, relax.const(bias)))

    model = compile_graph(graph, {"x": (("n", channels, "d", "h", "w"), "float32")})
    for n, *extents in [(1, 3, 3, 3), (2, 3, 4, 5), (1, 5, 3, 13)]:
        x = draw.standard_normal((n, channels, *extents)).astype("float32")
        np.testing.assert_allclose(
            model(x),
            np.maximum(reference(x, w, stride, pad, groups) + bias, 0),
            rtol=1e-4,
            atol=1e-4,
        )


@pytest.mark.parametrize(
    ("groups", "columns", "merged"),
    [(32, 4, 2), (32, 8, 1), (3, 80, 1), (64, 1, 8), (10, 3, 2), (6, 5, 1)],
)
def test_small_groups_share_a_vector(groups, columns, merged):
    assert groups_to_merge(AVX2, groups, columns) == merged


@pytest.mark.parametrize(
    ("groups", "columns", "blocks", "width"),
    [
        (55, 8, 55, 8),
        (26, 8, 26, 8),
        (32, 4, 16, 8),
        (13, 4, 13, 8),
        (8, 12, 8, 16),
        (4, 16, 4, 16),
    ],
)
def test_groups_of_eight_fill_half_of_a_wide_vector(groups, columns, blocks, width):
    packed = pack_blocks(np.ones((groups * columns, 3, 3, columns), "float32"), groups, AVX512)
    assert (packed.shape[0], packed.shape[-1]) == (blocks, width)


def test_blocks_hold_zeros_between_groups():
    weight = np.arange(1, 1 + 8 * 9 * 2, dtype="float32").reshape(8, 3, 3, 2)
    blocks = pack_blocks(weight, 4, AVX2)
    assert blocks.shape == (1, 1, 9 * 8, 8)
    taps = blocks.reshape(9, 4, 2, 4, 2)
    for tap in range(9):
        for group in range(4):
            np.testing.assert_array_equal(
                taps[tap, group, :, group], weight.reshape(4, 2, 9, 2)[group, :, tap].T
            )
            assert not taps[tap, group][:, [other for other in range(4) if other != group]].any()
