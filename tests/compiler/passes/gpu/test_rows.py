import tvm
from tvm.script import ir as I
from tvm.script import relax as R

from compiler.passes.gpu.rows import FlattenRows
from tests.compiler.passes.gpu.programs import feed_forward


def calls(module):
    return [
        binding.value
        for block in module["main"].body.blocks
        for binding in block.bindings
        if isinstance(binding.value, tvm.ir.Call)
    ]


def names(module):
    return [call.op.name for call in calls(module)]


def test_the_epilogue_of_a_matmul_stays_on_its_rows():
    module, _ = feed_forward()
    after = tvm.relax.transform.DeadCodeElimination()(FlattenRows().apply(module))
    wanted = [
        "relax.call_tir",
        "relax.add",
        "relax.nn.relu",
        "relax.call_tir",
        "relax.add",
        "relax.nn.softmax",
    ]
    assert [name for name in names(after) if name != "relax.reshape"] == wanted
    assert names(after)[-2:] == ["relax.reshape", "relax.nn.softmax"]
    assert all(
        call.ty.ndim == 2
        for call in calls(after)
        if call.op.name in ("relax.call_tir", "relax.add", "relax.nn.relu")
    )


def test_a_weight_is_stored_with_its_depth_innermost():
    module, _ = feed_forward(width=16, hidden=24)
    after = FlattenRows().apply(module)
    shapes = [
        tuple(call.args[1].fields[1].value.shape)
        for call in calls(after)
        if call.op.name == "relax.call_tir"
    ]
    assert shapes == [(24, 16), (16, 24)]


@I.ir_module
class TwoInputs:
    @R.function
    def main(
        x: R.Tensor((2, 3, 4), "float32"),  # noqa: N805
        y: R.Tensor((4, 5), "float32"),
    ) -> R.Tensor((2, 3, 5), "float32"):
        with R.dataflow():
            z: R.Tensor((2, 3, 5), "float32") = R.matmul(x, y)
            R.output(z)
        return z


def test_a_matmul_of_two_inputs_is_left_alone():
    tvm.ir.assert_structural_equal(FlattenRows().apply(TwoInputs), TwoInputs)
