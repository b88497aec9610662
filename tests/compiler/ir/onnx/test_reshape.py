"""Reshape to what remains of an input whose other extents are worked out."""

import numpy as np
from onnx import helper

from tests.compiler.ir.onnx.running import assert_close, build, model_of, normal

NODE = helper.make_node


def test_what_remains_beside_a_sum_of_dims() -> None:
    """Attention splits its heads after a past so: [batch, past + seq, 8] to [-1, past + seq, 4]."""
    nodes = [
        NODE("Concat", ["past", "new"], ["all"], axis=1),
        NODE("Shape", ["all"], ["length"], start=1, end=2),
        NODE("Concat", ["rest", "length", "width"], ["shape"], axis=0),
        NODE("Reshape", ["all", "shape"], ["split"]),
        NODE("Transpose", ["split"], ["y"], perm=[0, 2, 1]),
    ]
    constants = {"rest": np.array([-1]), "width": np.array([4])}
    built = build(
        model_of(
            nodes,
            {"past": "float32[batch,past,8]", "new": "float32[batch,seq,8]"},
            constants,
            outputs=["y"],
        )
    )
    assert [axis.text for axis in built.imported.outputs[0].shape][:2] == ["batch * 2", "4"]
    for batch, past_rows, seq in ((1, 0, 1), (2, 3, 1), (3, 5, 7)):
        past, new = normal(batch, past_rows, 8), normal(batch, seq, 8, seed=1)
        want = np.concatenate([past, new], 1).reshape(-1, past_rows + seq, 4).transpose(0, 2, 1)
        assert_close(built.run({"past": past, "new": new}), [want], ["y"], 0)
