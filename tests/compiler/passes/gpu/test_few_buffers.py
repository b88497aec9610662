"""No kernel for WebGPU binds more buffers than every adapter has, whatever a model joins."""

import json
from pathlib import Path

import onnx
import pytest
import tvm
from onnx import TensorProto, helper
from tvm import relax

from compiler import compile_model
from compiler.codegen.webgpu.section import NAME
from compiler.passes.gpu.few_buffers import MOST_BUFFERS, FewBuffers, concat_of_few
from compiler.verify.emulation import browser

COUNT = 20
op = relax.op


def fuse_sum(length: int) -> list[int]:
    """How many tensors each kernel of a sum of so many reads and writes."""
    builder = relax.BlockBuilder()
    inputs = [relax.Var(f"x{i}", relax.TensorType((4, 5), "float32")) for i in range(length)]
    with builder.function("main", inputs):
        with builder.dataflow():
            total = inputs[0]
            for one in inputs[1:]:
                total = builder.emit(op.add(total, one))
            total = builder.emit_output(total)
        builder.emit_func_output(total)
    module = relax.transform.LegalizeOps()(builder.get())
    module = FewBuffers().apply(relax.transform.AnnotateTIROpPattern()(module))
    module = relax.transform.FuseTIR()(relax.transform.FuseOps()(module))
    return [
        len(func.params)
        for func in module.functions.values()
        if isinstance(func, tvm.tirx.PrimFunc)
    ]


def test_what_fits_is_one_kernel() -> None:
    assert fuse_sum(MOST_BUFFERS - 1) == [MOST_BUFFERS]


@pytest.mark.parametrize("length", [MOST_BUFFERS, 15, 16, COUNT, 41])
def test_a_kernel_ends_where_it_would_read_too_much(length: int) -> None:
    kernels = fuse_sum(length)
    assert max(kernels) <= MOST_BUFFERS
    assert len(kernels) > 1


def wide() -> onnx.ModelProto:
    """y[n, ...]: many tensors side by side; z[n, 5]: others through a chain of sums and products,
    of which one is read again at its end.
    """
    value, node = helper.make_tensor_value_info, helper.make_node
    parts = [value(f"p{i}", TensorProto.FLOAT, ["n", 1 + i % 3]) for i in range(COUNT)]
    links = [value(f"x{i}", TensorProto.FLOAT, ["n", 5]) for i in range(COUNT)]
    nodes = [node("Concat", [part.name for part in parts], ["y"], axis=1)]
    last = "x0"
    for i in range(1, COUNT):
        nodes.append(node("Mul" if i % 2 else "Add", [last, f"x{i}"], [last := f"s{i}"]))
    nodes.append(node("Sub", [last, "s3"], ["z"]))
    outputs = [
        value("y", TensorProto.FLOAT, ["n", sum(1 + i % 3 for i in range(COUNT))]),
        value("z", TensorProto.FLOAT, ["n", 5]),
    ]
    graph = helper.make_graph(nodes, "g", [*parts, *links], outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.slow
def test_a_model_that_joins_many_tensors(tmp_path: Path) -> None:
    compile_model(
        wide(),
        output=tmp_path / "out",
        target="webgpu",
        dims={"n": "1:9"},
        options={"profile": False},
    )
    library = (tmp_path / "out" / "model.wasm").read_bytes()
    table = json.loads(library[library.rindex(NAME.encode()) + len(NAME) :])
    assert max(shader["buffers"] for shader in table["shaders"]) <= MOST_BUFFERS
    numerics = json.loads((tmp_path / "out" / "numerics.json").read_text())
    if browser.lacking() is None:
        assert (numerics["verdict"], numerics["status"]) == ("passed", "emulated")


@pytest.mark.parametrize(
    ("length", "programs"), [(MOST_BUFFERS - 1, 1), (MOST_BUFFERS, 2), (50, 9)]
)
def test_concatenations_of_many_are_joined_in_groups(length: int, programs: int) -> None:
    builder = relax.BlockBuilder()
    inputs = [relax.Var(f"x{i}", relax.TensorType((2, 3 + i), "float32")) for i in range(length)]
    with builder.function("main", inputs):
        with builder.dataflow():
            joined = builder.emit_output(op.concat(inputs, axis=1))
        builder.emit_func_output(joined)
    module = relax.transform.LegalizeOps({"relax.concat": concat_of_few})(builder.get())
    widths = [
        len(func.params)
        for func in module.functions.values()
        if isinstance(func, tvm.tirx.PrimFunc)
    ]
    assert max(widths) <= MOST_BUFFERS
    assert len(widths) == programs
