import pytest
import tvm
from tvm.script import tirx as T

from compiler.errors import PassError
from compiler.passes.gpu.bound import CheckBound, is_bound
from compiler.passes.gpu.fallback import bind_nests
from tests.compiler.passes.gpu.programs import twice


def test_a_module_of_grids_passes_as_it_is():
    module = tvm.IRModule({"kernel": bind_nests(twice(), 64)})
    assert CheckBound().apply(module).same_as(module)


def test_a_loop_on_the_host_is_refused_by_name():
    module = tvm.IRModule({"bare": twice(), "kernel": bind_nests(twice(), 64)})
    with pytest.raises(PassError) as caught:
        CheckBound().apply(module)
    assert caught.value.code == "pass.unbound_kernel"
    assert caught.value.failure.details["kernels"] == ["bare"]
    assert caught.value.failure.hint


def test_functions_of_the_host_are_none_of_its_business():
    CheckBound().apply(tvm.IRModule({"shapes": twice().with_attr("tirx.is_host_func", True)}))


@T.prim_func(private=True, s_tir=True)
def half_bound(x: T.Buffer((64,), "float32"), y: T.Buffer((64,), "float32")):
    for i in T.thread_binding(64, thread="blockIdx.x"):
        y[i] = x[i]


@T.prim_func(private=True, s_tir=True)
def one_of_two(x: T.Buffer((64,), "float32"), y: T.Buffer((64,), "float32")):
    for block in T.thread_binding(2, thread="blockIdx.x"):
        for thread in T.thread_binding(32, thread="threadIdx.x"):
            y[block * 32 + thread] = x[block * 32 + thread]
    y[0] = T.float32(0)


@pytest.mark.parametrize(
    "program", [half_bound, one_of_two], ids=["no threads", "a store beside the grid"]
)
def test_every_store_needs_both_indices(program):
    assert not is_bound(program)
