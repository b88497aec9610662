"""Scan as opset 8 has it: a batch axis before every state and sequence."""

import numpy as np
from onnx import TensorProto, helper

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
        sums = start[:, None] + np.cumsum(x[:, ::-1], 1)
        assert_close(
            built.run({"start": start, "x": x}), [start + x.sum(1), sums], ["last", "sums"]
        )
