"""Functions of one tensor and of two against torch: values, and the dtypes that torch
promotes to.
"""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from tests.compiler.ir.torchscript.running import check

FUNCTIONS = (
    ("exp", "log", "sqrt", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh"),
    (
        "tanh",
        "asinh",
        "atanh",
        "erf",
        "sigmoid",
        "log2",
        "log10",
        "exp2",
        "log1p",
        "expm1",
        "rsqrt",
    ),
    (
        "reciprocal",
        "neg",
        "abs",
        "square",
        "sign",
        "floor",
        "ceil",
        "trunc",
        "round",
        "frac",
        "nan_to_num",
    ),
    ("isnan", "isinf", "isfinite", "relu"),
)
ACTIVATIONS = (
    ("gelu", "silu", "relu6", "elu", "celu", "selu", "mish", "logsigmoid"),
    (
        "tanhshrink",
        "hardshrink",
        "softshrink",
        "softplus",
        "hardtanh",
        "hardsigmoid",
        "hardswish",
        "leaky_relu",
    ),
)
BINARY = ("add", "mul", "div", "maximum", "minimum", "eq", "ne", "lt", "le", "gt", "ge")
DIVISIONS = ("sub", "floor_divide", "remainder", "fmod", "pow")


def each(names: Sequence[str], module: Any) -> Callable[[torch.Tensor], Any]:
    return lambda x: tuple(getattr(module, name)(x) for name in names)


@pytest.mark.parametrize("names", FUNCTIONS, ids=lambda names: names[0])
def test_functions_of_floats(names: Sequence[str]) -> None:
    check(each(names, torch), ("float32", "n,3"))


@pytest.mark.parametrize("dtype", ["int32", "float16"])
def test_functions_of_other_dtypes(dtype: str) -> None:
    check(
        each(
            ("exp", "sigmoid", "tanh", "neg", "abs", "square", "sign", "floor", "relu", "rsqrt"),
            torch,
        ),
        (dtype, "n,3"),
    )


@pytest.mark.parametrize("names", ACTIVATIONS, ids=lambda names: names[0])
def test_activations(names: Sequence[str]) -> None:
    check(each(names, F), ("float32", "n,3"))


def test_activations_with_arguments() -> None:
    check(
        lambda x: (
            F.gelu(x, approximate="tanh"),
            F.threshold(x, 0.1, 20.0),
            F.glu(x, -1),
            F.softplus(x, beta=2, threshold=1),
            F.elu(x, 0.5),
            F.softmax(x, -1),
            F.log_softmax(x, 0),
        ),
        ("float32", "n,6"),
    )


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("float32", "float32"),
        ("float32", "int64"),
        ("int32", "int64"),
        ("uint8", "int8"),
        ("bool", "int32"),
        ("float16", "float32"),
        ("int64", "bool"),
    ],
)
def test_two_tensors(left: str, right: str) -> None:
    check(
        lambda x, y: tuple(getattr(torch, name)(x, y) for name in BINARY),
        (left, "n,3"),
        (right, "n,1"),
    )


@pytest.mark.parametrize(
    ("left", "right"),
    [("float32", "float32"), ("float32", "int64"), ("int32", "int64"), ("uint8", "int8")],
)
def test_divisions(left: str, right: str) -> None:
    def divisions(x: torch.Tensor, y: torch.Tensor) -> Any:
        divisor = torch.where(y == 0, torch.ones_like(y), y)
        return tuple(
            getattr(torch, name)(x, divisor.abs() if name == "pow" else divisor)
            for name in DIVISIONS
        )

    check(divisions, (left, "n,3"), (right, "n,1"))


@pytest.mark.parametrize("dtype", ["float32", "int32", "uint8", "bool", "float16"])
def test_numbers_promote_by_category_alone(dtype: str) -> None:
    check(
        lambda x: (
            x + 1,
            x * 2.5,
            x / 2,
            1 - x.int(),
            x > 1,
            x == 0.5,
            x.float() ** 2,
            2 ** x.float(),
            x + x.sum().long(),
        ),
        (dtype, "n,3"),
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_numbers_are_cast_between_functions(dtype: torch.dtype) -> None:
    """Functions of the narrow type, and of float32 on both sides of it."""

    def functions(x: Any) -> Any:
        low = x.neg().to(dtype)
        return (
            x.neg().to(dtype).float().neg(),
            torch.tanh(low.float()),
            (low * low + low).float(),
            torch.tanh(low).to(torch.float32),
            low.to(torch.float64),
        )

    check(functions, ("float32", "n,5"), sizes=(1, 15, 16, 17))
