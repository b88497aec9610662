import numpy as np
import tvm
from tvm import relax

from compiler.passes.manager import lower
from compiler.passes.memory.share_buffers import ShareBuffers
from tests.compiler.conftest import HOST, build_module


def _planned() -> tvm.IRModule:
    """Four allocations in one storage: of [n, 4] twice, of [m, 4], and of [n, 4] in int32."""
    builder = relax.BlockBuilder()
    n, m = tvm.tirx.Var("n", "int64"), tvm.tirx.Var("m", "int64")
    x, y = (
        relax.Var("x", relax.TensorType([n, 4], "float32")),
        relax.Var("y", relax.TensorType([m, 4], "float32")),
    )
    memory = relax.op.memory
    with builder.function("main", [x, y]):
        storage = builder.emit(
            memory.alloc_storage(relax.ShapeExpr([4096]), 0, "global", "float32")
        )
        tensors = [
            builder.emit(memory.alloc_tensor(storage, 0, relax.ShapeExpr([rows, 4]), dtype))
            for rows, dtype in ((n, "float32"), (n, "float32"), (m, "float32"), (n, "int32"))
        ]
        builder.emit_func_output(relax.Tuple(tensors))
    return builder.get()


def _calls(module: tvm.IRModule, name: str) -> list[relax.Call]:
    bindings = [binding for block in module["main"].body.blocks for binding in block.bindings]
    calls = [binding.value for binding in bindings if isinstance(binding.value, relax.Call)]
    return [call for call in calls if isinstance(call.op, tvm.ir.Op) and call.op.name == name]


def test_only_equal_offsets_extents_and_dtypes_become_one() -> None:
    before = _planned()
    after = ShareBuffers().apply(before)
    assert len(_calls(before, "relax.memory.alloc_tensor")) == 4
    assert len(_calls(after, "relax.memory.alloc_tensor")) == 3
    aliases = [
        binding.value
        for block in after["main"].body.blocks
        for binding in block.bindings
        if isinstance(binding.value, relax.Var)
    ]
    assert [value.same_as(aliases[0]) for value in aliases] == [True, True, False, False]


def test_layers_that_repeat_share_their_tensors_and_compute_the_same() -> None:
    weights = np.random.default_rng(0).standard_normal((8, 8)).astype("float32")

    def layers(builder: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        for _ in range(6):
            x = relax.op.nn.softmax(relax.op.matmul(x, relax.const(weights)))
        return x

    module = lower(build_module(layers, {"x": (("n", 8), "float32")}), HOST, {})
    assert str(module["main"]).count("vm.alloc_tensor") <= 4
