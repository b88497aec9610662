"""Promotion of dtypes is torch's own, for every pair."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from compiler.errors import ImportFailed
from compiler.ir.aten.dtypes import CODES, NUMBERS, dtype_of, promote, result_type
from tests.compiler.ir.torchscript.running import trace

DTYPES = sorted(CODES.values())
COMMON = [name for name in DTYPES if name not in ("uint16", "uint32", "uint64")]
NUMBER = {"bool": True, "int64": 3, "float64": 0.5}


def torch_of(name: str) -> torch.dtype:
    dtype = getattr(torch, name)
    assert isinstance(dtype, torch.dtype)
    return dtype


def name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def promote_by_torch(left: str, right: str) -> str | None:
    """torch.promote_types, None for a pair that torch itself does not promote."""
    try:
        return name_of(torch.promote_types(torch_of(left), torch_of(right)))
    except RuntimeError:
        return None


PAIRS = [pair for pair in itertools.product(DTYPES, DTYPES) if promote_by_torch(*pair)]


@pytest.mark.parametrize(("left", "right"), PAIRS)
def test_any_two_dtypes(left: str, right: str) -> None:
    assert promote(left, right) == promote_by_torch(left, right)


@given(
    operands=st.lists(
        st.one_of(
            st.tuples(st.sampled_from(COMMON), st.integers(0, 2)), st.sampled_from(sorted(NUMBER))
        ),
        min_size=2,
        max_size=2,
    ).filter(lambda scalars: any(isinstance(item, tuple) for item in scalars))
)
def test_tensors_of_any_rank_and_numbers(operands: list[tuple[str, int] | str]) -> None:
    tensors = [item for item in operands if isinstance(item, tuple)]
    numbers = [item for item in operands if isinstance(item, str)]
    values = [
        NUMBER[item]
        if isinstance(item, str)
        else torch.zeros([2] * item[1], dtype=torch_of(item[0]))
        for item in operands
    ]
    wanted = name_of(torch.result_type(*values))
    assert result_type(tensors, numbers) == wanted


@pytest.mark.parametrize(("name", "code"), sorted(NUMBERS.items()))
def test_codes_are_those_of_graphs(name: str, code: int) -> None:
    assert dtype_of(code) == name
    graph = trace(lambda x: torch.zeros([7], dtype=torch_of(name)), torch.ones(1)).inlined_graph
    constants = [node.output().toIValue() for node in graph.findAllNodes("prim::Constant")]
    assert code in [value for value in constants if isinstance(value, int) and value is not False]


@pytest.mark.parametrize("code", [9, 12, 99, None])
def test_a_dtype_that_no_tensor_of_ours_has(code: int | None) -> None:
    with pytest.raises(ImportFailed) as caught:
        dtype_of(code)
    assert caught.value.code == "import.unsupported_dtype"
