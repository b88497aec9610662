"""Low-rank adapters of batch entries beside ONNX Runtime, and in float64."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from compiler.errors import ImportFailed
from compiler.ir import import_model
from compiler.ir.decoders.adapter_functions import (
    DOMAIN,
    INDEX,
    add_function,
    add_name,
    index_function,
)
from relaxd.contract.request import CompileRequest
from tests.compiler.ir.onnx.running import build, model_of, normal, session_of

Arrays = dict[str, np.ndarray]


def model_with(*widths: int, depth: int = 13, rank: int = 8, gap: int = 0) -> onnx.ModelProto:
    """A model that adds to parts of these widths, `gap` columns apart."""
    starts = [sum(widths[:i]) + gap * (i + 1) for i in range(len(widths))]
    columns = starts[-1] + widths[-1] + gap
    inputs = {
        "base": f"float32[b,s,{columns}]",
        "x": f"float32[b,s,{depth}]",
        "adapter": "int32[b]",
        "ranks": f"int32[n,{len(widths) + 1}]",
    }
    for i, width in enumerate(widths):
        inputs |= {f"down{i}": f"float32[n,{rank},{depth}]", f"up{i}": f"float32[n,{rank},{width}]"}
    stacks = [name for name in inputs if name[-1].isdigit()]
    scales = [0.5**i for i in range(len(widths))]
    nodes = [
        helper.make_node(INDEX, ["adapter", "down0"], ["index"], domain=DOMAIN),
        helper.make_node(
            add_name(len(widths)),
            ["base", "x", "index", "ranks", *stacks],
            ["y"],
            domain=DOMAIN,
            starts=starts,
            scales=scales,
            modules=list(range(len(widths), 0, -1)),
        ),
    ]
    model = model_of(nodes, inputs, opset=21, outputs=["y"])
    model.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    model.functions.extend([index_function(), add_function(len(widths))])
    return model


def feed_of(model: onnx.ModelProto, adapters: list[int], rows: int, count: int) -> Arrays:
    sizes = {"b": len(adapters), "s": rows, "n": count}
    feed = {}
    for seed, info in enumerate(model.graph.input):
        shape = [
            sizes.get(axis.dim_param, axis.dim_value) for axis in info.type.tensor_type.shape.dim
        ]
        feed[info.name] = normal(*shape, seed=seed)
    rank = feed["down0"].shape[1]
    ranks = np.random.default_rng(rank).integers(-1, rank + 2, feed["ranks"].shape)
    return feed | {"adapter": np.array(adapters, np.int32), "ranks": ranks.astype(np.int32)}


def exactly(model: onnx.ModelProto, feed: Arrays) -> np.ndarray:
    """Compute the model's result in float64."""
    attributes = {a.name: helper.get_attribute_value(a) for a in model.graph.node[1].attribute}
    exact = {name: array.astype(np.float64) for name, array in feed.items()}
    result = exact["base"].copy()
    settings = (attributes[name] for name in ("starts", "scales", "modules"))
    for i, (start, scale, module) in enumerate(zip(*settings, strict=True)):
        down, up = exact[f"down{i}"], exact[f"up{i}"]
        for entry, adapter in enumerate(feed["adapter"]):
            if adapter:
                rank = max(feed["ranks"][adapter - 1, module], 0)
                low = exact["x"][entry] @ down[adapter - 1, :rank].T
                delta = low @ up[adapter - 1, :rank]
                result[entry, :, start : start + up.shape[2]] += scale * delta
    return result


@pytest.mark.parametrize(
    ("widths", "depth", "rank", "gap"),
    [((5,), 13, 8, 0), ((64, 32, 33), 48, 16, 0), ((7, 129), 4, 24, 3), ((16,), 3, 40, 1)],
)
def test_entries_get_what_their_adapters_add(
    widths: tuple[int, ...], depth: int, rank: int, gap: int
) -> None:
    model = model_with(*widths, depth=depth, rank=rank, gap=gap)
    built, session = build(model), session_of(model)
    for adapters, rows, count in (
        ([0], 1, 1),
        ([1], 1, 1),
        ([3, 0, 1, 3, 2], 1, 3),
        ([2, 0], 17, 2),
        ([1, 2, 1], 33, 2),
        ([0, 0, 0], 4, 1),
        ([], 3, 2),
        ([1, 0], 0, 2),
    ):
        feed = feed_of(model, adapters, rows, count)
        (got,) = built.run(feed)
        assert got.shape == feed["base"].shape
        if got.size:
            wanted: Any = session.run(None, dict(feed))[0]
            np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-3)
            assert np.abs(got - exactly(model, feed)).max() < 1e-4 * (1 + np.abs(wanted).max())


def test_entries_without_an_adapter_see_nothing_of_others() -> None:
    model = model_with(24, depth=9)
    feed = feed_of(model, [0, 1, 2, 0], 5, 2)
    feed["ranks"][:] = 5
    feed["down0"][1], feed["up0"][1] = np.nan, np.inf
    # Nor do ranks of an adapter see rows behind the last one.
    feed["down0"][0, 5:], feed["up0"][0, 5:] = np.nan, np.inf
    (got,) = build(model).run(feed)
    np.testing.assert_array_equal(got[[0, 3]], feed["base"][[0, 3]])
    assert np.isfinite(got[1]).all()
    assert np.isnan(got[2]).all()


@pytest.mark.parametrize("number", [-1, 3, 2**31 - 1, -(2**31)])
def test_numbers_of_no_adapter_are_refused(number: int) -> None:
    model = model_with(16)
    with pytest.raises(RuntimeError, match="match_cast"):
        build(model).run(feed_of(model, [1, number], 2, 2))


def test_other_functions_of_the_name_are_refused() -> None:
    model = model_with(16)
    model.functions[1].node[-1].op_type = "Sub"
    with pytest.raises(ImportFailed, match="another function"):
        import_model(model, CompileRequest())


def test_stacks_that_do_not_fit_are_refused() -> None:
    model = model_with(16)
    (starts,) = (one for one in model.graph.node[1].attribute if one.name == "starts")
    starts.ints[0] = 1
    with pytest.raises(ImportFailed, match="do not fit"):
        import_model(model, CompileRequest())
