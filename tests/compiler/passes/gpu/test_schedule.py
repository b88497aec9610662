import pytest
import tvm
from tvm.script import tirx as T

from compiler.errors import PassError
from compiler.passes.gpu.bound import is_bound
from compiler.passes.gpu.schedule import RULE, ScheduleOnGrid, dlight_rules
from tests.compiler.passes.gpu.programs import CUDA, product, target_of, twice


@T.prim_func(private=True, s_tir=True)
def doubles(x: T.Buffer((64,), "float64"), y: T.Buffer((64,), "float64")):
    for i in range(T.int64(64)):
        with T.sblock("y"):
            at = T.axis.spatial(T.int64(64), i)
            y[at] = x[at] + T.float64(1)


def scheduled(func, target):
    (kernel,) = ScheduleOnGrid(target)(tvm.IRModule({"kernel": func})).functions.values()
    return kernel


@pytest.mark.parametrize("name", ["cuda-sm80", "opencl", "metal", "webgpu"])
def test_a_product_gets_the_rule_for_products(name):
    kernel = scheduled(product(), target_of(name))
    assert kernel.attrs[RULE] == "Matmul"
    assert is_bound(kernel)


def test_a_rule_whose_kernel_no_code_can_be_made_of_gives_way(monkeypatch):
    monkeypatch.setattr("compiler.passes.gpu.schedule.refusal", lambda func, target: None if func.attrs[RULE_SEEN] else "no")
    monkeypatch.setattr("compiler.passes.gpu.schedule.bind_nests", lambda func, threads: func.with_attr(RULE_SEEN, True))
    monkeypatch.setattr("compiler.passes.gpu.schedule.dlight_rules", lambda target: dlight_rules(target)[-1:])
    assert scheduled(twice().with_attr(RULE_SEEN, False), CUDA).attrs[RULE] == "Nests"


RULE_SEEN = "seen"


def test_a_kernel_that_the_device_cannot_have_is_named():
    with pytest.raises(PassError, match="the kernel kernel on webgpu") as caught:
        scheduled(doubles, target_of("webgpu"))
    assert caught.value.code == "pass.unschedulable"
    assert caught.value.failure.details["kernel"] == "kernel"
    assert caught.value.failure.details["refused"]


def test_metal_is_spared_the_rule_that_crashes():
    rule, believed = dlight_rules(target_of("metal"))[0]
    assert type(rule).__name__ == "Matmul"
    assert believed.kind.name != "metal"
