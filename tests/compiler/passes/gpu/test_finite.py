import re

import tvm
from tvm.script import tirx as T

from compiler.passes.gpu.finite import FiniteLimits
from compiler.passes.gpu.trial import refusal
from tests.compiler.passes.gpu.programs import target_of


@T.prim_func(private=True, s_tir=True)
def before(x: T.Buffer((64,), "float32"), y: T.Buffer((64,), "float32")):
    for block in T.thread_binding(2, thread="blockIdx.x"):
        for thread in T.thread_binding(32, thread="threadIdx.x"):
            with T.sblock("y"):
                i = T.axis.spatial(64, block * 32 + thread)
                y[i] = T.max(T.float32("-inf"), T.min(x[i], T.float32("inf")))


@T.prim_func(private=True, s_tir=True)
def finite(x: T.Buffer((64,), "float32"), y: T.Buffer((64,), "float32")):
    for block in T.thread_binding(2, thread="blockIdx.x"):
        for thread in T.thread_binding(32, thread="threadIdx.x"):
            with T.sblock("y"):
                i = T.axis.spatial(64, block * 32 + thread)
                y[i] = T.max(
                    T.float32(-3.4028234663852886e38),
                    T.min(x[i], T.float32(3.4028234663852886e38)),
                )


def test_infinities_become_the_greatest_numbers():
    (after,) = FiniteLimits().apply(tvm.IRModule({"kernel": before})).functions.values()
    assert after.script() == finite.script().replace("def finite", "def main")


def test_programs_without_infinities_are_left_alone():
    (after,) = FiniteLimits().apply(tvm.IRModule({"kernel": finite})).functions.values()
    assert after.same_as(finite)


def test_wgsl_holds_no_word_for_infinity():
    target = target_of("webgpu")
    assert refusal(before, target) == "WGSL has no inff"
    (after,) = FiniteLimits().apply(tvm.IRModule({"kernel": before})).functions.values()
    assert refusal(after, target) is None
    built = tvm.tirx.build(after.with_attr("global_symbol", "kernel"), target)
    limits = re.findall(r"[\d.]+e\+38", built.imports[0].inspect_source())
    assert limits
    assert all(float(limit) <= 3.4028234663852886e38 for limit in limits)
