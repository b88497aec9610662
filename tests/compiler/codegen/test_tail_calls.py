"""Functions that call themselves run as loops, in one stack frame."""

# TVM's modules are written as classes, their functions have no `self`.
# ruff: noqa: N805

from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

from compiler.codegen.tail_calls import without_tail_calls
from compiler.errors import CodegenError

MANY = 200_000


@I.ir_module
class Swapping:
    """Exchanges `a` and `b` until `i` reaches `limit`."""

    @R.function(private=True)
    def loop(
        i: R.Tensor((), "int64"),
        limit: R.Tensor((), "int64"),
        a: R.Tensor(("n",), "float32"),
        b: R.Tensor(("n",), "float32"),
    ) -> R.Tuple(R.Tensor(dtype="float32", ndim=1), R.Tensor(dtype="float32", ndim=1)):
        cls = Swapping
        more = R.less(i, limit)
        if more:
            following = R.add(i, R.const(1, "int64"))
            result = cls.loop(following, limit, b, a)
        else:
            result = (a, b)
        return result

    @R.function
    def main(
        limit: R.Tensor((), "int64"),
        a: R.Tensor(("n",), "float32"),
        b: R.Tensor(("n",), "float32"),
    ) -> R.Tuple(R.Tensor(dtype="float32", ndim=1), R.Tensor(dtype="float32", ndim=1)):
        cls = Swapping
        return cls.loop(R.const(0, "int64"), limit, a, b)


@I.ir_module
class GoingOn:
    """Adds one to what its call of itself returns."""

    @R.function
    def main(i: R.Tensor((), "int64")) -> R.Tensor((), "int64"):
        cls = GoingOn
        more = R.less(i, R.const(10, "int64"))
        if more:
            following = R.add(i, R.const(1, "int64"))
            inner = cls.main(following)
            result = R.add(inner, R.const(1, "int64"))
        else:
            result = i
        return result


def build(module: tvm.IRModule) -> relax.VMExecutable:
    return relax.build(module, "llvm")


def run(executable: relax.VMExecutable, limit: int) -> list[np.ndarray]:
    machine = relax.VirtualMachine(executable, tvm.cpu())
    arguments: list[Any] = [
        np.int64(limit),
        np.array([1, 2], np.float32),
        np.array([3, 4], np.float32),
    ]
    return [out.numpy() for out in machine["main"](*map(tvm.runtime.tensor, arguments))]


@pytest.mark.parametrize("limit", [0, 1, 2, MANY, MANY + 1])
def test_a_tail_call_is_a_loop_that_moves_its_arguments_at_once(limit: int) -> None:
    first, second = run(without_tail_calls(build(Swapping)), limit)
    one, two = ([1, 2], [3, 4]) if limit % 2 == 0 else ([3, 4], [1, 2])
    assert (first.tolist(), second.tolist()) == (one, two)


def test_an_executable_without_tail_calls_stays() -> None:
    executable = without_tail_calls(build(Swapping))
    assert without_tail_calls(executable) is executable


def test_a_function_that_goes_on_after_its_call_is_refused() -> None:
    with pytest.raises(CodegenError, match="goes on") as caught:
        without_tail_calls(build(GoingOn))
    assert caught.value.failure.code == "codegen.tail_call"
