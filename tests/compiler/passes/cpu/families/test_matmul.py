from typing import Any

import numpy as np
import pytest
import tvm_ffi
from tvm import relax, tirx

from compiler import targets
from compiler.passes.cpu.families.matmul.match import Matmul, match_matmul
from compiler.passes.cpu.schedule import ScheduleKernels
from compiler.passes.pack.conv import PackConv
from compiler.passes.pack.matmul import PackMatmul
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.stages import inline_stages, read_program
from tests.compiler.conftest import build_module

op = relax.op


def test_rows_one_more_than_dims_multiplied(compile_graph, draw):
    """Relax writes such an extent of a concatenation as 1 + n, tensor programs as n + 1."""
    weight = draw.standard_normal((8, 16)).astype("float32")

    def graph(builder, token, patches):
        b, h, w, depth = patches.ty.shape.values
        rows = op.concat([token, op.reshape(patches, relax.ShapeExpr([b, h * w, depth]))], axis=1)
        normal = op.nn.layer_norm(
            rows, relax.const(np.ones(8, "float32")), relax.const(np.zeros(8, "float32")), axes=[-1]
        )
        return op.add(op.matmul(normal, relax.const(weight)), relax.const(np.ones(16, "float32")))

    model = compile_graph(
        graph, {"token": (("b", 1, 8), "float32"), "patches": (("b", "h", "w", 8), "float32")}
    )
    for b, h, w in [(1, 1, 1), (2, 3, 5), (3, 7, 1)]:
        token, patches = (
            draw.standard_normal((b, 1, 8)).astype("float32"),
            draw.standard_normal((b, h, w, 8)).astype("float32"),
        )
        rows = np.concatenate([token, patches.reshape(b, h * w, 8)], 1).astype("float64")
        normal = (rows - rows.mean(-1, keepdims=True)) / np.sqrt(rows.var(-1, keepdims=True) + 1e-5)
        np.testing.assert_allclose(model(token, patches), normal @ weight + 1, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("columns", [192, 200, 600])
def test_rows_around_the_two_blocks_at_which_tasks_change(columns, compile_graph, draw):
    """Below them a task has fewer panels; `matmul.txt` of the golden loops shows that."""
    weight = (draw.standard_normal((1152, columns)) * 0.05).astype("float32")
    model = compile_graph(
        lambda builder, x: op.nn.relu(op.matmul(x, relax.const(weight))),
        {"x": (("n", "m", 1152), "float32")},
    )
    for n, m in [(1, 1), (1, 7), (1, 49), (5, 51), (1, 127), (2, 128), (1, 255), (1, 257)]:
        x = draw.standard_normal((n, m, 1152)).astype("float32")
        want = np.maximum(x.astype("float64") @ weight, 0)
        np.testing.assert_allclose(model(x), want, rtol=1e-4, atol=1e-4)


def test_the_panels_of_a_task_are_found_once():
    """A choice between two quotients inside every address of weights took half of a build."""
    unit = VectorUnit(vector_bits=64, registers=8, fma=True, unroll=2)
    weights = relax.const(np.ones((64, 512), "float32"))
    module = build_module(
        lambda builder, x: op.matmul(x, weights), {"x": (("rows", 64), "float32")}
    )
    steps: tuple[Any, ...] = (
        PackMatmul(unit),
        relax.transform.LegalizeOps(),
        ScheduleKernels(unit),
    )
    for step in steps:
        module = step.apply(module) if hasattr(step, "apply") else step(module)
    remainders = []
    for func in module.functions.values():
        if isinstance(func, tirx.PrimFunc):
            tvm_ffi.structural_walk(func.body, (tirx.Mod, remainders.append))
    of_tasks = [one for one in remainders if getattr(one.b, "name", "") == "inside"]
    assert len(of_tasks) == 2, "for rows and for panels"


@pytest.mark.parametrize("columns", [8, 20, 24, 40, 72, 80, 112, 120, 200])
@pytest.mark.parametrize("depth", [16, 96])
def test_small_images_by_panels_that_columns_do_not_fill(depth, columns, compile_graph, draw):
    """Blocks of a few tiles, tiles for the last rows, vectors that the last panel needs."""
    weight = (draw.standard_normal((columns, depth, 1, 1)) * 0.1).astype("float32")
    bias = draw.standard_normal((1, columns, 1, 1)).astype("float32")

    def graph(builder, x, y):
        z = builder.emit(op.add(op.nn.conv2d(x, relax.const(weight)), relax.const(bias)))
        return op.nn.relu(op.add(z, y))

    shapes = {
        name: (("n", size, "h", "w"), "float32") for name, size in (("x", depth), ("y", columns))
    }
    model = compile_graph(graph, shapes)
    for n, h, w in [
        (0, 3, 3),
        (1, 1, 1),
        (1, 1, 13),
        (1, 7, 7),
        (1, 5, 10),
        (1, 8, 8),
        (3, 7, 7),
        (1, 14, 14),
        (2, 19, 23),
    ]:
        x, y = (
            draw.standard_normal((n, size, h, w)).astype("float32") for size in (depth, columns)
        )
        want = np.einsum("nchw,oc->nohw", x.astype("float64"), weight[:, :, 0, 0]) + bias + y
        np.testing.assert_allclose(model(x, y), np.maximum(want, 0), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("columns", "width"), [(24, 24), (20, 24), (28, 32), (40, 40), (80, 32), (112, 48), (1000, 48)]
)
def test_the_last_panel_is_as_wide_as_saves_something(columns, width):
    unit = VectorUnit.of(targets.resolve("x86-64-v4"))
    weights = relax.const(np.ones((columns, 1, 1, 48), "float32"))
    module = build_module(
        lambda builder, x: op.nn.conv2d(x, weights, data_layout="NHWC", kernel_layout="OHWI"),
        {"x": (("n", "h", "w", 48), "float32")},
    )
    module = relax.transform.LegalizeOps()(PackConv(unit).apply(module))
    [program] = [
        read_program(func) for func in module.functions.values() if isinstance(func, tirx.PrimFunc)
    ]
    matmul = match_matmul(inline_stages(program), unit)
    assert isinstance(matmul, Matmul)
    assert matmul.last_width(unit.lanes(32)) == width
