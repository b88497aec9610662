"""Scan as opset 8 has it, a batch axis before every state and sequence, and what follows a Scan."""

import numpy as np
from onnx import TensorProto, helper

from compiler import targets
from compiler.ir import import_model
from compiler.passes.manager import lower
from relaxd.contract.request import CompileRequest
from tests.compiler.ir.onnx.running import assert_close, build, model_of, normal

NODE = helper.make_node


def test_a_batch_of_any_size() -> None:
    """Running sums of sequences read backward."""
    info = helper.make_tensor_value_info
    row = [info(name, TensorProto.FLOAT, [2]) for name in ("state", "item", "next", "out")]
    body = helper.make_graph(
        [NODE("Add", ["state", "item"], ["next"]), NODE("Identity", ["next"], ["out"])],
        "body",
        row[:2],
        row[2:],
    )
    node = NODE(
        "Scan", ["", "start", "x"], ["last", "sums"], body=body, num_scan_inputs=1, directions=[1]
    )
    built = build(model_of([node], {"start": "float32[n,2]", "x": "float32[n,t,2]"}, opset=8))
    for n, t in ((1, 1), (3, 5), (0, 2), (2, 0)):
        start, x = normal(n, 2), normal(n, t, 2)
        running = start[:, None] + np.cumsum(x[:, ::-1], 1)
        assert_close(
            built.run({"start": start, "x": x}), [start + x.sum(1), running], ["last", "sums"]
        )


def test_what_follows_is_written_in_dims_that_are_defined() -> None:
    """The number of iterations is restated as the dim that it is; TVM then wrote the dim elsewhere
    as the loop's own, which nothing defined any more.
    """
    info = helper.make_tensor_value_info
    row = [info(name, TensorProto.FLOAT, []) for name in ("state", "item", "next", "out")]
    body = helper.make_graph(
        [NODE("Add", ["state", "item"], ["next"]), NODE("Identity", ["next"], ["out"])],
        "body",
        row[:2],
        row[2:],
    )
    nodes = [
        NODE("Scan", ["start", "x"], ["last", "sums"], body=body, num_scan_inputs=1),
        NODE("Flatten", ["y"], ["flat"], axis=0),
        NODE("Relu", ["flat"], ["z"]),
    ]
    inputs = {"start": "float32[]", "x": "float32[n]", "y": "float32[n,4]"}
    model = model_of(nodes, inputs, outputs=["sums", "z"])
    imported = import_model(model, CompileRequest.of(dims={"n": "1:8"}))
    lower(imported.module, targets.resolve("x86-64-v3"), imported.ranges)
