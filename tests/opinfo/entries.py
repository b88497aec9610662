"""The entries: torch's own samples of its operators, each as a function of tensors."""

import importlib.util
import itertools
import sys
import types
import unittest
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

DTYPES = ("float32", "int64")
SAMPLES = 2
_RANDOM = (
    *("bernoulli", "cauchy", "exponential", "geometric", "log_normal", "multinomial", "normal"),
    *("rand_like", "randint", "randint_like", "randn", "randn_like", "uniform"),
    *("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"),
    *("pca_lowrank", "svd_lowrank", "nn.functional.rrelu"),
    *("nn.functional.fractional_max_pool2d", "nn.functional.fractional_max_pool3d"),
)
"""Entries of random or undefined numbers; those with `dropout` in their names are left out too."""
_LINEAR_ALGEBRA = (
    *("cholesky", "cholesky_inverse", "cholesky_solve", "geqrf", "lu", "lu_solve", "lu_unpack"),
    *("lobpcg", "matrix_exp", "ormqr", "pinverse", "qr", "svd", "triangular_solve"),
    *("logdet", "tensorinv", "tensorsolve"),
)
_COMPLEX = ("complex", "cfloat", "cdouble", "chalf", "polar", "view_as_complex", "view_as_real")


@dataclass(frozen=True)
class Sample:
    """A call: tensors, and the function of them that holds the call's other arguments. arguments:
    positional and named ones with an index for each tensor, for `tests.opinfo.forms`.
    """

    function: Callable[..., Any]
    tensors: tuple[torch.Tensor, ...]
    arguments: tuple[Any, Any]


@dataclass(frozen=True)
class Position:
    """Stands for a tensor among a call's arguments."""

    index: int


@dataclass(frozen=True)
class Entry:
    """An operator in one of its variants, at one dtype."""

    name: str
    dtype: str

    def __str__(self) -> str:
        return f"{self.name}:{self.dtype}"


@cache
def _operators() -> dict[str, Any]:
    if importlib.util.find_spec("expecttest") is None:
        # torch's module of samples imports it for tests of torch's own.
        stand_in = types.ModuleType("expecttest")
        stand_in.TestCase = unittest.TestCase  # type: ignore[attr-defined]
        sys.modules.setdefault("expecttest", stand_in)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db
    return {operator.full_name: operator for operator in op_db}


def entries() -> list[Entry]:
    """All of them, by name; random, sparse, FFT, complex and linear-algebra ones are left out."""
    return [
        Entry(name, dtype)
        for name, operator in sorted(_operators().items())
        if not is_left_out(operator.name)
        for dtype in DTYPES
        if getattr(torch, dtype) in operator.dtypes
    ]


def is_left_out(name: str) -> bool:
    """True for an operator of a kind that the harness leaves out."""
    return (
        name in (*_RANDOM, *_LINEAR_ALGEBRA, *_COMPLEX)
        or any(word in name for word in ("sparse", "dropout"))
        or name.startswith(("fft.", "linalg.", "jiterator", "to_sparse"))
    )


def operator_of(entry: Entry) -> Any:
    """torch's function for the entry."""
    return _operators()[entry.name].op


def samples(entry: Entry) -> list[Sample]:
    """The first two samples that torch itself runs and that give real numbers, the same ones at
    every call.
    """
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        raw = _operators()[entry.name].sample_inputs("cpu", getattr(torch, entry.dtype))
        calls = (_sample(operator_of(entry), item) for item in raw)
        return list(itertools.islice(filter(_is_served, calls), SAMPLES))


def _sample(operator: Callable[..., Any], raw: Any) -> Sample:
    leaves, tree = torch.utils._pytree.tree_flatten((raw.input, raw.args, raw.kwargs))
    tensors = tuple(leaf.detach() for leaf in leaves if isinstance(leaf, torch.Tensor))
    numbers = itertools.count()
    marked = [
        Position(next(numbers)) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves
    ]

    def function(*values: Any) -> Any:
        filled = [values[leaf.index] if isinstance(leaf, Position) else leaf for leaf in marked]
        first, args, kwargs = torch.utils._pytree.tree_unflatten(filled, tree)
        result = operator(first, *args, **kwargs)
        # Named tuples are of classes that torch.export has no names for.
        return tuple(result) if isinstance(result, tuple) else result

    first, args, kwargs = torch.utils._pytree.tree_unflatten(marked, tree)
    return Sample(function, tensors, ((first, *args), kwargs))


def _is_served(sample: Sample) -> bool:
    """True for a call of dense real tensors that gives such tensors, and the same ones twice."""
    if not all(map(_is_dense, sample.tensors)):
        return False
    try:
        first, second = (flat(call(sample.function, sample.tensors)) for _ in range(2))
    except Exception:
        return False
    return all(
        _is_dense(one) and one.shape == other.shape and torch.equal(_bits(one), _bits(other))
        for one, other in zip(first, second, strict=True)
    )


def _is_dense(tensor: torch.Tensor) -> bool:
    strided = tensor.layout is torch.strided and not tensor.is_nested and not tensor.is_quantized
    return bool(strided and not tensor.is_complex())


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor with NaN equal to itself."""
    return torch.nan_to_num(tensor.double(), 12345.0)


def call(function: Callable[..., Any], tensors: Sequence[torch.Tensor]) -> Any:
    """The function of copies of the tensors, without warnings and gradients."""
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        return function(*(tensor.clone() for tensor in tensors))


def flat(result: Any) -> list[torch.Tensor]:
    """The tensors and numbers of a result, None left out."""
    leaves = torch.utils._pytree.tree_leaves(result)
    return [_as_tensor(leaf) for leaf in leaves if leaf is not None]


def _as_tensor(leaf: Any) -> torch.Tensor:
    """A tensor, or a number as one: floats of Python have 64 bits."""
    return torch.as_tensor(leaf, dtype=torch.float64 if isinstance(leaf, float) else None)


def symbolic_axes(sample: Sample) -> tuple[list[set[int]], tuple[torch.Tensor, ...]] | None:
    """The first axes that the call takes at another extent, for each tensor, and the tensors one
    shorter there; None where there are none.

    Axes at one position with one extent vary together first, then an axis alone.
    """
    for axes in _candidates(sample.tensors):
        shorter = tuple(
            _shorten(tensor, mine) for tensor, mine in zip(sample.tensors, axes, strict=True)
        )
        try:
            call(sample.function, shorter)
        except Exception:
            continue
        return axes, shorter
    return None


def _candidates(tensors: Sequence[torch.Tensor]) -> Iterator[list[set[int]]]:
    for index, tensor in enumerate(tensors):
        for axis, extent in enumerate(tensor.shape):
            if extent < 3:
                continue
            yield [
                {axis} if other.dim() > axis and other.shape[axis] == extent else set()
                for other in tensors
            ]
            yield [{axis} if other == index else set() for other in range(len(tensors))]


def _shorten(tensor: torch.Tensor, axes: set[int]) -> torch.Tensor:
    for axis in axes:
        tensor = tensor.narrow(axis, 0, tensor.shape[axis] - 1)
    return tensor.clone()
