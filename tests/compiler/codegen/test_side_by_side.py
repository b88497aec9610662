import os

import numpy as np
import pytest
from tvm import relax

from compiler.codegen.generate import generate
from compiler.passes.manager import lower
from tests.compiler.conftest import HOST, Compiled, build_module
from tests.support.rounding import UNIT, assert_within, error_of_matmul

INPUTS = {"x": (("n", 33), "float32"), "w": ((33, 17), "float32")}


def chain(builder, x, w):
    """Two kernels and more: a product, and a softmax of it."""
    matmul = builder.emit(relax.op.matmul(x, w))
    return builder.emit(relax.op.nn.softmax(matmul))


def code() -> list[str]:
    """The assembly of each program."""
    executable = generate(lower(build_module(chain, INPUTS), HOST, {}), HOST)
    return [module.inspect_source("asm") for module in executable.mod.imports]


def test_code_does_not_depend_on_the_number_of_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = code()
    assert len(expected) > 1
    for processors in (1, 7):
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid, many=processors: range(many))
        assert code() == expected


def test_programs_find_each_other(draw: np.random.Generator) -> None:
    x, w = (draw.standard_normal(shape).astype("float32") for shape in ((5, 33), (33, 17)))
    powers = np.exp(x.astype("float64") @ w)
    expected = powers / powers.sum(-1, keepdims=True)
    # An error of an exponent is a relative error of its power, and of the sum of all.
    allowed = expected * (2 * error_of_matmul(x, w).max(-1, keepdims=True) + 64 * UNIT)
    assert_within(Compiled(build_module(chain, INPUTS))(x, w), expected, allowed)
