"""Dims that are called what no identifier is, from the model's file to a call that fails."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

import relaxd
from compiler import compile_model
from compiler.errors import ImportFailed
from compiler.ir import import_model
from compiler.ir.graph.signature import ANONYMOUS
from relaxd.contract.bundle.manifest import LoadContract, Manifest
from relaxd.contract.dims import names
from relaxd.contract.dims.dims import Dim
from relaxd.contract.dims.names import quote_name
from relaxd.contract.options import Flavour
from relaxd.contract.request import CompileRequest
from relaxd.errors import InputError
from relaxd.loader.tensors.binding import Binding
from tests.compiler.ir.onnx.running import session_of

PAIRS = {
    "hyphens": ("batch-size", "seq-len"),
    "letters": ("批次", "長さ"),
    "keywords": ("in", "class"),
    "numbers": ("1", "2"),
    "points": ("a.b", "a_b"),
    "quotes": ('a"b', "a\\b"),
}


def concat_each(*pairs: tuple[str, str]) -> onnx.ModelProto:
    """For each pair of names, x[one, other] beside itself along the second axis."""
    nodes, inputs, outputs = [], [], []
    for i, pair in enumerate(pairs):
        nodes.append(helper.make_node("Concat", [f"x{i}", f"x{i}"], [f"y{i}"], axis=1))
        inputs.append(helper.make_tensor_value_info(f"x{i}", TensorProto.FLOAT, pair))
        outputs.append(helper.make_empty_tensor_value_info(f"y{i}"))
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def add(names_of_a: list[str], names_of_b: list[str]) -> onnx.ModelProto:
    """a + b, whose axes have these names."""
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, axes)
        for name, axes in (("a", names_of_a), ("b", names_of_b))
    ]
    graph = helper.make_graph(
        [helper.make_node("Add", ["a", "b"], ["y"])],
        "g",
        inputs,
        [helper.make_empty_tensor_value_info("y")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.fixture(scope="module", params=list(Flavour))
def bundle(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("named") / "bundle"
    dims = {"seq-len": "1:64", "長さ": (1, 8), 'a"b': "1:9%3"}
    options = {"flavour": request.param, "profile": False}
    compile_model(concat_each(*PAIRS.values()), output=folder, dims=dims, options=options)
    return folder


@pytest.mark.slow
def test_a_library_keeps_every_name(bundle: Path) -> None:
    model, session = relaxd.load(bundle), session_of(concat_each(*PAIRS.values()))
    assert {dim.name for dim in model.dims} == {name for pair in PAIRS.values() for name in pair}
    shown = [(spec.shape[0].symbol, spec.shape[1].symbol) for spec in model.inputs]
    assert shown == list(PAIRS.values())
    assert model.outputs[0].text == 'float32["batch-size","seq-len" * 2]'
    draw = np.random.default_rng(0)
    for sizes in ((3, 1), (3, 2), (6, 7)):
        feed = {spec.name: draw.normal(size=sizes).astype("f4") for spec in model.inputs}
        for got, want in zip(model.run(feed).values(), session.run(None, feed), strict=True):
            np.testing.assert_array_equal(got, want)


@pytest.mark.slow
def test_a_call_that_fails_names_the_dim(bundle: Path) -> None:
    model = relaxd.load(bundle)
    feed = {spec.name: np.ones((3, 2), "f4") for spec in model.inputs}
    with pytest.raises(
        InputError, match=r'axis 1 \("seq-len"\) has size 65; "seq-len" must be 1 to 64'
    ):
        model.run({**feed, "x0": np.ones((3, 65), "f4")})
    with pytest.raises(InputError, match='"長さ" must be 1 to 8'):
        model.run({**feed, "x1": np.ones((3, 9), "f4")})


@pytest.mark.slow
def test_the_header_has_the_names(bundle: Path) -> None:
    header = bundle / "model.h"
    if relaxd.load(bundle).manifest.flavour == Flavour.STANDALONE:
        assert 'x1: float32["批次","長さ"]' in header.read_text(encoding="utf-8")
    else:
        assert not header.exists()


def test_what_the_import_refuses_is_said_in_the_names_of_the_model() -> None:
    dims = {"a-b": (2, 4), "c.d": (5, 9)}
    with pytest.raises(ImportFailed) as caught:
        import_model(add(["a-b"], ["c.d"]), CompileRequest.of(dims=dims))
    assert '"a-b" against "c.d"' in caught.value.message
    assert "dim__" not in str(caught.value.failure.to_json())


usable = st.text(min_size=1, max_size=12).filter(lambda name: names.objection_to(name) is None)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(usable | st.text("a_-.d 1", min_size=1, max_size=4), min_size=2, max_size=4))
@example(["a.b", "a_b"])
@example(["1", "2"])
@example(["dim__1", "1"])
@example(["2*a", "a"])
@example(["x_0", "?"])
def test_any_names_pass_from_the_file_to_the_loader(names: list[str]) -> None:
    imported = import_model(concat_each(*pairwise(names)), CompileRequest())
    empty = Manifest(
        "m", imported.inputs, imported.outputs, imported.dims, {}, LoadContract("x"), {}, {}
    )
    manifest = Manifest.from_json(empty.to_json())
    for spec, pair in zip(manifest.inputs, pairwise(names), strict=True):
        for axis, name in zip(spec.shape, pair, strict=True):
            # An anonymous axis is called after its input, an expression has no name.
            assert axis.symbol in (name, None) or name.strip() in ANONYMOUS
    sizes = {dim.name: size for size, dim in enumerate(manifest.dims, 2)}
    shapes = tuple(tuple(axis.evaluate(sizes) for axis in spec.shape) for spec in manifest.inputs)
    assert Binding(manifest.inputs, manifest.dims).solve(shapes) == sizes
    for dim in manifest.dims:
        limited = tuple(Dim(dim.name, 1, 1) if one is dim else one for one in manifest.dims)
        with pytest.raises(InputError) as caught:
            Binding(manifest.inputs, limited).solve(shapes)
        assert f"{quote_name(dim.name)} must be 1" in str(caught.value)
