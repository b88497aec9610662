"""Launches of kernels on grids, as C, and what their shaders need."""

import re

import pytest
import tvm
from tvm import te

from compiler import targets
from compiler.codegen.webgpu.launches import launchers
from compiler.codegen.webgpu.shaders import Shader, split
from compiler.passes.gpu.fallback import bind_one_thread
from compiler.passes.gpu.schedule import ScheduleOnGrid
from compiler.passes.tvm_fixes.skip_empty_grids import SkipEmptyGrids
from tests.compiler.passes.gpu.programs import matmul, target_of

WEBGPU = targets.resolve("webgpu")


def launch(func):
    scheduled = SkipEmptyGrids().apply(
        ScheduleOnGrid(target_of("webgpu")).apply(tvm.IRModule({"kernel": func}))
    )
    parts = split(scheduled, WEBGPU)
    return parts, launchers("m", parts.hosts, list(parts.shaders))["kernel"]


def test_a_matmul_is_one_launch_over_its_extents():
    parts, launcher = launch(matmul())
    (shader,) = parts.shaders.values()
    assert shader.code.startswith("@group(0)")
    assert shader.buffers == 3
    assert shader.size[0] * shader.size[1] * shader.size[2] <= 256
    assert f"fn {shader.name}(" in shader.code
    shared = re.findall(r"var<workgroup> \w+ : array<f32, (\d+)>;", shader.code)
    assert shader.shared == 4 * sum(map(int, shared)) > 0
    # Loops stay loops, and what indices share is computed once.
    assert len(shader.code) < 5000
    assert "for (var" in shader.code
    assert "let cse" in shader.code or "let v_" in shader.code
    assert launcher.text.count("rd_launch_grid(0, given,") == 1
    assert launcher.params == (None, None, None)
    assert len(launcher.dims) == shader.numbers


def test_what_programs_keep_between_shaders_is_a_parameter():
    n = te.var("n", "int64")
    x = te.placeholder((n,), name="x")
    half = te.compute((n,), lambda i: x[i] / 2, name="half")
    y = te.compute((n,), lambda i: half[n - 1 - i], name="y")
    func = bind_one_thread(te.create_prim_func([x, y]))
    parts = split(tvm.IRModule({"kernel": func}), WEBGPU)
    launcher = launchers("m", parts.hosts, list(parts.shaders))["kernel"]
    assert len(parts.shaders) > 1
    assert len(launcher.workspaces) == 1
    assert "void *w0" in launcher.text
    assert "RD_NUMBER(w0)" in launcher.text


def test_a_shader_says_what_an_adapter_has_to_grant():
    code = """
@group(0) @binding(0) var<storage, read> a_ptr : array<f32>;
@group(0) @binding(1) var<storage, read_write> b_ptr : array<f32>;
struct PODArgs {
  n: i32,
  packGridDimX: u32
}
var<workgroup> s : array<f32, 64>;
var<workgroup> v : array<vec4<f32>, 16>;
@compute @workgroup_size(8, 4, 2)
"""
    assert Shader.of("k", code) == Shader("k", code, (8, 4, 2), 64 * 4 + 16 * 16, 2, 1)


def test_a_text_of_another_form_is_an_error():
    with pytest.raises(AssertionError, match="another way"):
        Shader.of("k", "fn k() {}")


def test_a_cast_to_bfloat16_and_back_rounds():
    x = te.placeholder((te.var("n", "int64"),), name="x")
    y = te.compute(x.shape, lambda i: x[i].astype("bfloat16").astype("float32"), name="y")
    parts, _ = launch(te.create_prim_func([x, y], "int64"))
    (shader,) = parts.shaders.values()
    assert "let bits : u32 = bitcast<u32>(" in shader.code
    assert f"& {0xFFFF0000}u" in shader.code
