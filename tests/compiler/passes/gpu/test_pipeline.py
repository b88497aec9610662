"""The whole pipeline for every target with a GPU, on a small model."""

import numpy as np
import pytest
import tvm
from tvm import relax

from compiler import targets
from compiler.bundle import weights
from compiler.codegen.cubin import cuda_source
from compiler.codegen.generate import device_code, generate
from compiler.errors import ToolchainMissing
from compiler.ir import import_model
from compiler.passes import manager
from compiler.toolchain.cuda import architecture_of, find_compiler
from relaxd.contract.request import CompileRequest
from tests.compiler.ir.onnx.operators.test_loops import collecting
from tests.compiler.passes.gpu.programs import feed_forward
from tests.compiler.passes.gpu.serial import OnProcessor

DEVICES = [entry.name for entry in targets.registry() if entry.device and entry.name != "rocm"]


def lower(name, graph):
    target = targets.resolve(name)
    kernels = manager.to_kernels(graph, target, {})
    return manager.to_machine(weights.separate(kernels).module, target, {})


@pytest.mark.parametrize(
    "name", [name for name in DEVICES if name != "webgpu" and not name.startswith("cuda")]
)
def test_kernels_are_bound_and_code_is_made_of_them(name):
    graph, _ = feed_forward()
    target = targets.resolve(name)
    executable = generate(lower(name, graph), target)
    (host,) = executable.mod.imports
    (device,) = host.imports
    assert device.kind == target.kind


@pytest.mark.parametrize("name", ["cuda-sm80", "webgpu"])
def test_schedules_compute_what_the_graph_does(name):
    graph, expected = feed_forward()
    run = OnProcessor(manager.to_kernels(graph, targets.resolve(name), {}))
    for batch, seq in ((1, 1), (1, 7), (3, 16)):
        x = np.random.default_rng(seq).standard_normal((batch, seq, 16)).astype("float32")
        np.testing.assert_allclose(run(x)[0], expected(x), rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(find_compiler() is None, reason="no CUDA compiler is installed")
@pytest.mark.parametrize("name", [name for name in DEVICES if name.startswith("cuda")])
def test_cuda_targets_get_machine_code_for_their_architecture(name, tmp_path):
    graph, _ = feed_forward()
    target = targets.resolve(name)
    executable = generate(lower(name, graph), target)
    source = cuda_source(executable)
    assert source
    pack = device_code(executable, target)
    pack(executable.mod, False, "", str(tmp_path))
    content = (tmp_path / "imports.bin").read_bytes()
    assert architecture_of(content[content.index(b"\x7fELF") :]) == target.device.sm
    assert source.encode() not in content


def test_memory_is_planned_from_the_bounds_of_the_dims():
    graph, _ = feed_forward()
    sizes = []

    def visit(node):
        if (
            isinstance(node, tvm.ir.Call)
            and getattr(node.op, "name", "") == "relax.vm.alloc_storage"
        ):
            sizes.append(node.args[0])

    relax.analysis.post_order_visit(lower("opencl", graph)["main"], visit)
    assert sizes
    planned = [size for size in sizes if isinstance(size, relax.ShapeExpr)]
    assert (
        max(int(size.values[0]) for size in planned if isinstance(size.values[0], tvm.tirx.IntImm))
        >= 4 * 16 * 24 * 4
    )


def test_fixed_dims_become_a_cuda_graph():
    x = relax.Var("x", relax.TensorType((2, 16), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(relax.op.matmul(x, relax.const(np.ones((16, 16), "float32"))))
            z = builder.emit(relax.op.nn.softmax(y))
            result = builder.emit_output(
                relax.op.matmul(z, relax.const(np.ones((16, 16), "float32")))
            )
        builder.emit_func_output(result)
    assert "cuda_graph" in lower("cuda-sm80", builder.get()).script()


def test_symbolic_dims_become_none():
    assert "cuda_graph.run_or_capture" not in lower("cuda-sm80", feed_forward()[0]).script()


def test_a_lacking_toolkit_is_refused_with_what_to_do():
    target = targets.resolve("rocm")
    if not target.device.lacking:
        pytest.skip("ROCm is installed")
    with pytest.raises(ToolchainMissing, match="ROCm"):
        manager.to_kernels(feed_forward()[0], target, {})


@pytest.mark.parametrize("name", ["cuda-sm80", "webgpu"])
def test_a_loop_that_run_time_ends_stacks_its_items(name):
    imported = import_model(collecting(), CompileRequest.of(dims={"n": (1, 64)}))
    run = OnProcessor(manager.to_kernels(imported.module, targets.resolve(name), {}))
    x = np.array([1, -2, 3], np.float32)
    for count in (1, 8, 300):
        y, ys = run(np.asarray(count), x)
        wanted = x * (2 - 0.5 ** np.arange(1, count + 1, dtype="float32")[:, None])
        np.testing.assert_allclose(ys, wanted, rtol=1e-5)
        np.testing.assert_array_equal(y, ys[-1])
