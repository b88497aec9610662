from typing import Any

import numpy as np
import pytest
from tvm import relax

op = relax.op


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_concatenations_along_any_axis(axis, compile_graph, draw):
    shapes = [["n", "m", 24] for _ in range(3)]
    for position, extent in enumerate(["a", "b", "c"] if axis < 2 else [8, 3, 21]):
        shapes[position][axis] = extent

    model = compile_graph(
        lambda builder, *parts: op.concat(parts, axis),
        {f"x{i}": (tuple(shape), "float32") for i, shape in enumerate(shapes)},
    )
    for extents in ((1, 1, 1), (0, 5, 2), (7, 0, 33), (16, 17, 0)):
        sizes: dict[Any, int] = {"n": 3, "m": 5, **dict(zip("abc", extents, strict=True))}
        parts = [
            draw.standard_normal([sizes.get(extent, extent) for extent in shape]).astype("float32")
            for shape in shapes
        ]
        np.testing.assert_array_equal(model(*parts), np.concatenate(parts, axis))


def test_the_parts_are_copied_in_vectors(assembly_for):
    from tests.compiler.conftest import HOST

    text = assembly_for(
        lambda builder, x, y: op.concat([x, y], 1),
        {"x": (("n", 64), "float32"), "y": (("n", 64), "float32")},
        HOST,
    )
    assert text.count("movups") >= 4
