import pytest
import tvm
from tvm import te, tirx
from tvm.script import tirx as T

from compiler.errors import PassError
from compiler.passes.framework.attributes import FAMILY
from compiler.passes.gpu.bound import is_bound
from compiler.passes.gpu.schedule import ScheduleOnGrid, apply_rule, dlight_rules
from compiler.passes.gpu.trial import refusal
from tests.compiler.passes.gpu.programs import CUDA, matmul, target_of, twice


@T.prim_func(private=True, s_tir=True)
def doubles(x: T.Buffer((64,), "float64"), y: T.Buffer((64,), "float64")):
    for i in range(T.int64(64)):
        with T.sblock("y"):
            v = T.axis.spatial(T.int64(64), i)
            y[v] = x[v] + T.float64(1)


def schedule(func, target):
    (kernel,) = ScheduleOnGrid(target).apply(tvm.IRModule({"kernel": func})).functions.values()
    return kernel


@pytest.mark.parametrize("name", ["cuda-sm80", "opencl", "metal", "webgpu"])
def test_a_matmul_gets_the_rule_for_matmuls(name):
    kernel = schedule(matmul(), target_of(name))
    assert kernel.attrs[FAMILY] == "Matmul"
    assert is_bound(kernel)


def test_a_rule_whose_kernel_no_code_can_be_made_of_gives_way(monkeypatch):
    monkeypatch.setattr(
        "compiler.passes.gpu.schedule.refusal",
        lambda func, target: None if func.attrs[RULE_SEEN] else "no",
    )
    monkeypatch.setattr(
        "compiler.passes.gpu.schedule.bind_nests",
        lambda func, threads: func.with_attr(RULE_SEEN, True),
    )
    monkeypatch.setattr(
        "compiler.passes.gpu.schedule.dlight_rules", lambda target: dlight_rules(target)[-1:]
    )
    assert schedule(twice().with_attr(RULE_SEEN, False), CUDA).attrs[FAMILY] == "Nests"


RULE_SEEN = "seen"


def test_a_kernel_that_the_device_cannot_have_is_named():
    with pytest.raises(PassError, match="the kernel kernel on webgpu") as caught:
        schedule(doubles, target_of("webgpu"))
    assert caught.value.code == "pass.unschedulable"
    assert caught.value.failure.details["kernel"] == "kernel"
    assert caught.value.failure.details["refused"]


def test_metal_is_spared_the_rule_that_crashes():
    rule, believed = dlight_rules(target_of("metal"))[0]
    assert type(rule).__name__ == "Matmul"
    assert believed.kind.name != "metal"


def weigh_values() -> tirx.PrimFunc:
    """[batch, 8, seq, seq] by [batch, 8, seq, 32], as attention weighs values."""
    batch, seq = tirx.Var("batch", "int64"), tirx.Var("seq", "int64")
    heads, width = tirx.IntImm("int64", 8), tirx.IntImm("int64", 32)
    p, v = (
        te.placeholder((batch, heads, seq, seq), "float32", name="p"),
        te.placeholder((batch, heads, seq, width), "float32", name="v"),
    )
    k = te.reduce_axis((tirx.IntImm("int64", 0), seq), name="k")
    matmul = te.compute(
        (batch, heads, seq, width),
        lambda n, h, i, j: te.sum(p[n, h, i, k] * v[n, h, k, j], axis=k),
        name="y",
    )
    return te.create_prim_func([p, v, matmul])


def test_sources_that_no_driver_would_take_give_way_to_the_rule_for_a_plain_device():
    """TVM's stores of vectors on Adreno hold the declarations of the variables that their indices
    need.
    """
    target = target_of("opencl-adreno")
    (rule, adreno), (_, plain) = dlight_rules(target)[:2]
    assert "is declared inside of an expression" in refusal(
        apply_rule(rule, adreno, weigh_values()), target
    )
    assert refusal(apply_rule(rule, plain, weigh_values()), target) is None
    assert schedule(weigh_values(), target).attrs[FAMILY] == "Matmul"
