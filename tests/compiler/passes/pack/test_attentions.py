"""Attentions whose operands are rounded to bfloat16, beside ONNX Runtime that rounds alike."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from onnx import helper, numpy_helper

from compiler import compile_model, targets
from compiler.codegen.generate import generate
from compiler.ir import import_model
from compiler.passes.manager import to_kernels, to_machine, to_quantization
from compiler.passes.pack.round_operands import RoundOperands
from compiler.passes.pack.tied import calls_of
from compiler.quantize.module_plan import pass_of
from compiler.quantize.onnx.matmuls import cast_operands
from compiler.quantize.plan import plan_graph
from relaxd.contract.narrow import QuantizedLayers
from relaxd.contract.options import CompileOptions, Precision, PrecisionOver
from relaxd.contract.request import CompileRequest
from relaxd.loader.bundles.bundle import read_manifest
from tests.compiler.building import report
from tests.compiler.conftest import assembly
from tests.compiler.ir.onnx.running import model_of, normal, session_of
from tests.compiler.passes.pack.test_pairs import ARM, MACHINES, PAIRED, X86, compile_bfloat16
from tests.compiler.passes.split_heads import split_heads

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif("avx512_bf16" not in PAIRED.isa, reason="no instruction for pairs"),
]


def attention(
    heads: int,
    depth: int,
    width: int,
    scale: float,
    keys: str = "n",
    safe: bool = False,
    rows: str = "1",
) -> onnx.ModelProto:
    """Heads split from one axis, a scale of the queries, an added mask, heads joined again; safe:
    with zeros in place of weights that are NaN; rows: of the mask.
    """
    nodes, constants = split_heads(heads, depth, width)
    constants |= {"scale": np.float32(scale), "zero": np.float32(0)}
    nodes += [
        helper.make_node("Mul", ["q2", "scale"], ["q3"]),
        helper.make_node("MatMul", ["q3", "k2"], ["s"], name="scores"),
        helper.make_node("Add", ["s", "mask"], ["m"]),
        helper.make_node("Softmax", ["m"], ["p"], axis=-1),
        helper.make_node("IsNaN", ["p"], ["nan"]),
        helper.make_node("Where", ["nan", "zero", "p"], ["w"]),
        helper.make_node("MatMul", ["w" if safe else "p", "v2"], ["o"], name="values"),
        helper.make_node("Transpose", ["o"], ["t"], perm=[0, 2, 1, 3]),
        helper.make_node("Reshape", ["t", "joined"], ["y"]),
    ]
    inputs = {
        "q": f"float32[b,n,{heads * depth}]",
        "k": f"float32[b,{keys},{heads * depth}]",
        "v": f"float32[b,{keys},{heads * width}]",
        "mask": f"float32[b,1,{rows},{keys}]",
    }
    return model_of(nodes, inputs, constants, outputs=["y"])


def mask_by_choice(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with a mask of booleans, which choose between a score and a number."""
    nodes = model.graph.node
    (index,) = (i for i, node in enumerate(nodes) if node.op_type == "Add")
    nodes[index].CopyFrom(helper.make_node("Where", ["mask", "s", "least"], ["m"]))
    model.graph.initializer.append(numpy_helper.from_array(np.float32(-3.4e38), "least"))
    (mask,) = (entry for entry in model.graph.input if entry.name == "mask")
    mask.type.tensor_type.elem_type = onnx.TensorProto.BOOL
    return model


def feed_of(
    heads: int, depth: int, width: int, batch: int, queries: int, keys: int
) -> dict[str, Any]:
    draw = np.random.default_rng(keys)
    mask = np.where(draw.random((batch, 1, 1, keys)) < 0.2, -3.4e38, 0).astype("float32")
    mask[..., 0] = 0
    return {
        "q": normal(batch, queries, heads * depth, seed=1),
        "k": normal(batch, keys, heads * depth, seed=2),
        "v": normal(batch, keys, heads * width, seed=3),
        "mask": mask,
    }


SIZES = (
    (1, 1), (2, 2), (1, 3), (1, 6), (3, 7), (1, 15), (1, 16), (1, 17), (2, 31), (1, 32), (1, 33),
    (1, 131), (1, 257),
)  # fmt: skip
"""(batch, queries and keys), around the kernel's rows, panels and tasks."""


@pytest.mark.parametrize(
    ("heads", "depth", "width", "scale"),
    [
        (2, 32, 32, 0.25),
        (8, 16, 64, 0.3),
        (1, 64, 40, 0.125),
        (3, 24, 8, 1.0),
        (1, 80, 128, 0.1),
        (2, 8, 24, 0.5),
        (1, 56, 16, 0.2),
    ],
)
def test_against_the_same_roundings(heads: int, depth: int, width: int, scale: float) -> None:
    model = attention(heads, depth, width, scale)
    built, quantized, tiles = compile_bfloat16(model, PAIRED, b=(1, 3), n=(1, 300))
    assert quantized.layers == ("scores", "values")
    assert any("bfloat16 dot product" in tile and "queries" in tile for tile in tiles)
    reference, plain = session_of(cast_operands(model, quantized.layers)), session_of(model)
    for batch, length in SIZES:
        feed = feed_of(heads, depth, width, batch, length, length)
        (got,), (want,), (other,) = (
            built.run(feed), reference.run(None, feed), plain.run(None, feed)
        )  # fmt: skip
        apart, from_plain = np.abs(got - want), np.abs(got - other)
        # A weight that differs in its last bit may round to the other neighbour.
        assert apart.max() <= 2e-3 * np.abs(want).max(), length
        # Among many weights few do; of powers that are 3e-6 off, twenty times as many, which is
        # more than verification allows for.
        share = {1: 0, 257: 2000}.get(length, 10)
        assert from_plain.mean() >= share * apart.mean(), length


def test_numbers_past_the_last_key_do_not_count() -> None:
    """The last pair of an odd number of keys is half empty, and what lies there may be anything."""
    model = attention(1, 16, 16, 1.0)
    built, _, _ = compile_bfloat16(model, PAIRED, b=(1, 1), n=(1, 40))
    for length in (40, 39, 5, 1):
        feed = feed_of(1, 16, 16, 1, length, length)
        if length == 40:
            feed["v"] = np.full_like(feed["v"], np.nan)
            built.run(feed)
            continue
        feed["v"][:, -1] = 1e38
        feed["mask"][..., -1] = -3.4e38 if length > 1 else 0
        (got,) = built.run(feed)
        assert np.isfinite(got).all()
        assert length == 1 or np.abs(got).max() < 10


def test_hidden_rows_and_infinite_values() -> None:
    model = attention(1, 16, 16, 1.0)
    built, quantized, _ = compile_bfloat16(model, PAIRED, b=(1, 1), n=(1, 40))
    session = session_of(cast_operands(model, quantized.layers))
    feed = feed_of(1, 16, 16, 1, 9, 9)
    feed["v"][0, 3, 2] = np.inf
    feed["v"][0, 8, 5] = -np.inf
    feed["q"][0, 4, 0] = np.nan
    feed["mask"][:] = 0
    (got,), (want,) = built.run(feed), session.run(None, feed)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    np.testing.assert_array_equal(np.isinf(got), np.isinf(want))


@pytest.mark.parametrize(("heads", "depth", "width"), [(2, 32, 32), (3, 24, 8), (1, 64, 40)])
def test_weights_that_are_nan_become_zeros(heads: int, depth: int, width: int) -> None:
    model = attention(heads, depth, width, 0.3, safe=True)
    built, quantized, tiles = compile_bfloat16(model, PAIRED, b=(1, 3), n=(1, 300))
    assert quantized.layers == ("scores", "values")
    assert any("bfloat16 dot product" in tile and "queries" in tile for tile in tiles)
    session = session_of(cast_operands(model, quantized.layers))
    for batch, length in SIZES:
        feed = feed_of(heads, depth, width, batch, length, length)
        feed["q"][0, length // 2, 1] = np.nan
        (got,), (want,) = built.run(feed), session.run(None, feed)
        assert np.abs(got - want).max() <= 2e-3 * np.abs(want).max(), length
        assert not got[0, length // 2, :width].any()
        for hidden in (-np.inf, np.inf, np.nan):
            strange = {**feed, "mask": np.full_like(feed["mask"], hidden)}
            assert not built.run(strange)[0].any()
            strange["v"] = feed["v"].copy()
            strange["v"][:, -1, 3] = np.nan
            (got,), (want,) = built.run(strange), session.run(None, strange)
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("kind", ["finite", "infinite", "booleans"])
def test_masks_of_rows(kind: str) -> None:
    """Each query has a mask of its own: its own columns up to itself, and some that see nothing."""
    model = attention(2, 32, 32, 0.3, rows="n")
    built, quantized, _ = compile_bfloat16(
        mask_by_choice(model) if kind == "booleans" else model, PAIRED, b=(1, 3), n=(1, 300)
    )
    assert quantized.layers == ("scores", "values")
    session = session_of(cast_operands(model, quantized.layers))
    for batch, length in SIZES:
        feed = feed_of(2, 32, 32, batch, length, length)
        seen = np.tril(np.ones((batch, 1, length, length), bool))
        # All scores of this row become the same number, or NaN.
        seen[-1, 0, length // 2] = False
        feed["mask"] = seen
        if kind != "booleans":
            hidden = np.float32(-3.4e38 if kind == "finite" else -np.inf)
            feed["mask"] = np.where(seen, np.float32(0), hidden)
        (got,), (want,) = built.run(feed), session.run(None, feed)
        apart, most = np.abs(got - want), np.nanmax(np.abs(want), initial=0)
        assert np.nanmax(apart, initial=0) <= 2e-3 * most, length
        np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
        assert np.isnan(got).any() == (kind == "infinite")


def test_attentions_that_stay() -> None:
    def reasons(model: onnx.ModelProto, target: Any = PAIRED, **dims: Any) -> set[str]:
        _, quantized, _ = compile_bfloat16(model, target, b=(1, 2), **dims)
        assert not quantized.layers
        return set(quantized.kept.values())

    (why,) = reasons(attention(2, 32, 32, 1.0, keys="k"), n=(1, 9), k=(1, 99))
    assert "one query" in why
    (why,) = reasons(attention(2, 12, 32, 1.0), n=(1, 9))
    assert "other sizes" in why
    (why,) = reasons(attention(2, 32, 32, 1.0), MACHINES["plain host"](), n=(1, 9))
    assert "no fast instruction" in why
    unnamed = attention(2, 32, 32, 1.0)
    next(node for node in unnamed.graph.node if node.name == "values").name = "scores"
    (why,) = reasons(unnamed, n=(1, 9))
    assert "another operator" in why


def test_queries_that_are_known_to_be_many() -> None:
    model = attention(2, 32, 32, 0.5, keys="k")
    built, quantized, _ = compile_bfloat16(model, PAIRED, b=(1, 1), n=5, k=(1, 70))
    assert quantized.layers == ("scores", "values")
    session = session_of(cast_operands(model, quantized.layers))
    for keys in (1, 2, 64, 65):
        feed = feed_of(2, 32, 32, 1, 5, keys)
        (got,), (want,) = built.run(feed), session.run(None, feed)
        assert np.abs(got - want).max() <= 2e-3 * np.abs(want).max()


def test_the_instructions_of_arm() -> None:
    target = targets.resolve(json.dumps({**ARM, "mattr": ["+neon", "+bf16"]}))
    options = CompileOptions(precision=Precision.BFLOAT16).to_json()
    request = CompileRequest.of(dims={"b": (1, 2), "n": (1, 40)}, options=options)
    model = attention(2, 24, 40, 0.5)
    imported = import_model(model, request)
    quantization = pass_of(plan_graph(model, request), request, imported, target)
    kernels = to_kernels(imported.module, target, imported.ranges, (), quantization)
    text = assembly(generate(to_machine(kernels, target, imported.ranges), target))
    assert "bfdot" in text
    assert "bfcvtn" in text


def test_both_matmuls_of_an_attention_stay_if_one_is_to() -> None:
    target, model = PAIRED, attention(2, 32, 32, 0.5)
    options = CompileOptions(precision=Precision.BFLOAT16).to_json()
    request = CompileRequest.of(dims={"b": (1, 2), "n": (1, 40)}, options=options)
    imported = import_model(model, request)
    quantization = pass_of(plan_graph(model, request), request, imported, target)
    assert isinstance(quantization, RoundOperands)
    module = to_quantization(imported.module, target, imported.ranges, quantization)
    sites = quantization.find(module)
    assert sites.units == (("scores", "values"),)
    assert len(bfloats_of(quantization.apply(module))) > 0
    retained = dict.fromkeys(("scores", "values"), "it is told to")
    plain = replace(quantization, retained=retained)
    assert plain.describe(sites) == QuantizedLayers(Precision.BFLOAT16, (), retained)
    assert not bfloats_of(plain.apply(module))


def bfloats_of(module: tvm.IRModule) -> list[Any]:
    """The calls whose result is bfloat16."""
    return [call for call in calls_of(module) if str(getattr(call.ty, "dtype", "")) == "bfloat16"]


def test_attentions_beside_integers(tmp_path: Path) -> None:
    """The other matmuls of the model multiply int8; not where layers are chosen by their error."""
    model = attention(2, 16, 16, 0.25)
    model.graph.node.insert(
        0, helper.make_node("MatMul", ["x", "projection"], ["q"], name="projection")
    )
    weight = numpy_helper.from_array(normal(24, 32, seed=4) / 5, "projection")
    model.graph.initializer.append(weight)
    model.graph.input[0].CopyFrom(
        helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["b", "n", 24])
    )
    options = CompileOptions(profile=False, precision=Precision.INT8)
    arguments: dict[str, Any] = {"dims": {"b": (1, 3), "n": (1, 70)}}
    target = json.dumps({**X86, "mattr": ["+avx512bf16"]})
    manifest = compile_model(
        model, output=tmp_path / "out", target=target, options=options, **arguments
    )
    assert manifest.narrow == QuantizedLayers(
        Precision.INT8, ("projection",), {}, bfloat16=("scores", "values")
    )
    assert read_manifest(tmp_path / "out").narrow == manifest.narrow
    numerics = report(tmp_path / "out", "numerics.json")
    assert numerics["verdict"] == "passed"
    assert numerics["precision"]["error"] == pytest.approx(
        numerics["precision"]["expected"], rel=0.02
    )
    mask_by_choice = replace(options, precision_error=0.5, precision_over=PrecisionOver.KEEP)
    manifest = compile_model(model, output=tmp_path / "chosen", options=mask_by_choice, **arguments)
    assert manifest.narrow is not None
    assert (manifest.narrow.layers, manifest.narrow.bfloat16) == (("projection",), ())
    assert set(manifest.narrow.kept) == {"scores", "values"}
