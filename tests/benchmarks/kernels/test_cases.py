"""The cases: every family has some, each is taken by its own family, and counts are those of small
shapes by hand.
"""

from typing import Any

import pytest
import tvm
import tvm_ffi
from tvm import tirx

from benchmarks.kernels import images, matmuls, rows
from benchmarks.kernels.case import RECURRENT, WEIGHT_BYTES, Arithmetic, copies_for
from benchmarks.kernels.cases import cases
from benchmarks.kernels.timing import families_of, kernels_of
from compiler.passes.cpu.families.table import FAMILIES
from compiler.tir.polynomials import ZERO, Polynomial
from compiler.tir.work import work_of
from tests.compiler.conftest import HOST
from tests.support.geometries import has_int8

pytestmark = pytest.mark.slow

ALL = list(cases())


def test_every_family_has_a_case_and_every_case_a_name_of_its_own():
    assert {case.family for case in ALL} == {family.name for family in FAMILIES} | {RECURRENT}
    names = [(case.group, case.shape) for case in ALL]
    assert len(set(names)) == len(names)
    assert {case.group for case in ALL if case.arithmetic is not Arithmetic.FLOAT32} == {
        "matmul, bfloat16", "int8", "nbits, int8",
    }  # fmt: skip


def test_weights_are_of_layers_that_a_cache_does_not_keep():
    assert [copies_for(size) for size in (1, 4 << 20, 1 << 30)] == [8, 4, 1]
    streamed = [case for case in ALL if "streamed" in case.shape]
    assert [case.copies for case in streamed] == [10, 10]
    assert all(case.touched > 5 * WEIGHT_BYTES for case in streamed)


SMALL = [
    matmuls.matmul(2, 32, 48),
    matmuls.matmul_bfloat16(2, 32, 48),
    matmuls.matmul_dynamic(2, 3, 4, 5),
    matmuls.int8_matmul(2, 64, 48),
    matmuls.block_matmul(16, 64, 48),
    matmuls.block_matmul(16, 64, 48, quantized_rows=True),
    matmuls.attention(32, 2, 1, 4, 6),
    matmuls.recurrence("GRU", 32, 2, 3),
    images.convolution("winograd", 32, 32, 3, 8),
    images.convolution("matmul", 64, 64, 1, 8),
    images.convolution("grouped_conv", 32, 32, 3, 8, groups=2),
    images.convolution("single_conv", 32, 1, 3, 8),
    images.convolution("pooling", 32, 32, 3, 8, groups=32),
    images.int8_convolution(16, 16, 3, 8),
    images.volumes(16, 2, 6),
    images.max_pool(32, 8),
    rows.softmax(3, 64),
    rows.residual(1, 16, 4),
    rows.mean(1, 4, 64),
    rows.transpose(1, 64, 16),
    rows.copy(2, 3, 64),
]


@pytest.mark.parametrize("case", SMALL, ids=lambda case: f"{case.group} {case.shape}")
def test_a_case_is_taken_by_its_family(case):
    if case.taken_by == "int8" and not has_int8():
        pytest.skip("no instruction for matmuls of int8")
    families = families_of(kernels_of(case, HOST))
    # Padding and the widening of bytes are kernels of the generic family.
    assert families - {case.taken_by} <= {"generic"}
    assert case.taken_by in families


def test_counts_of_a_matmul():
    case = matmuls.matmul(2, 32, 48)
    assert (case.operations, case.executed, case.copies) == (2 * 2 * 32 * 48,) * 2 + (8,)
    assert case.bytes == 4 * (2 * 32 + 32 * 48 + 2 * 48)
    assert case.touched == 4 * (2 * 32 + 8 * (32 * 48 + 2 * 48))
    assert matmuls.matmul_bfloat16(2, 32, 48).bytes == case.bytes - 2 * 32 * 48


def test_winograd_takes_a_quarter_of_the_multiplications_where_tiles_cover_the_image():
    case = images.convolution("winograd", 32, 16, 3, 8)
    assert case.operations == 2 * 8 * 8 * 32 * 16 * 9
    assert case.executed == case.operations / 4
    assert case.bytes == 4 * (8 * 8 * 32 + 8 * 8 * 16 + 36 * 32 * 16)
    beyond = images.convolution("winograd", 32, 16, 3, 6)
    assert beyond.executed == case.executed


def test_a_recurrence_reads_its_weights_at_every_step_and_holds_them_once():
    case = matmuls.recurrence("LSTM", 16, 2, 5)
    weights, rows_of_a_step = 4 * 16 * 4 * 16, 4 * 2 * (4 * 16 + 16)
    assert case.bytes == 5 * (weights + rows_of_a_step)
    assert case.touched == weights + 5 * rows_of_a_step


def test_numbers_of_four_bits_take_five_bits_with_their_scales():
    case = matmuls.block_matmul(1, 64, 48)
    assert case.bytes == 64 * 48 * 5 // 8 + 4 * (64 + 48)


def test_operations_of_an_element_are_those_of_the_written_loops():
    counted = ((rows.softmax(4, 128), rows.SOFTMAX), (rows.layer_norm(4, 768), rows.LAYER_NORM))
    for case, count in counted:
        module = kernels_of(case, HOST)
        [func] = (one for one in module.functions.values() if isinstance(one, tirx.PrimFunc))
        assert work_of(func, _four_rows(func)).flops.value == pytest.approx(
            count * 4 * int(func.params[0].ty.shape[1]), rel=0.05
        )


def _four_rows(func: tirx.PrimFunc) -> dict[Any, Polynomial]:
    """Extents where four rows are computed, which are one task, the first."""
    shape = func.params[0].ty.shape
    dims = {extent: Polynomial.constant(4) for extent in shape if isinstance(extent, tvm.ir.Var)}
    loops = list[Any]()
    tvm_ffi.structural_walk(func.body, (tirx.For, loops.append), order="pre")
    return dims | {loop.loop_var: ZERO for loop in loops}


def test_inputs_are_of_the_cases_types():
    [array] = matmuls.int8_matmul(2, 64, 48).arrays()
    assert (array.dtype, array.shape) == ("uint8", (2, 64))
    assert array.max() > 127
