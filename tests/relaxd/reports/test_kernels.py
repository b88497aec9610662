"""Rows of kernels are put together where a reader would not look at each."""

from relaxd.contract.bundle.profile import KernelTime
from relaxd.reports.kernels import rank_kernels

ROWS = [
    KernelTime("vm.builtin.a", 2, 0.3, 0.3),
    KernelTime("matmul", 1, 0.4, 0.4, family="matmul"),
    KernelTime("vm.builtin.b", 3, 0.2, 0.2),
    KernelTime("add", 1, 0.06, 0.06),
    KernelTime("exp", 1, 0.04, 0.04),
]


def test_the_virtual_machine_is_one_row_and_so_is_the_rest() -> None:
    result = rank_kernels(ROWS, 2)
    assert [row.name for row in result] == ["virtual machine", "matmul", "2 more"]
    assert [row.calls for row in result] == [5, 1, 2]
    assert [round(row.share, 6) for row in result] == [0.5, 0.4, 0.1]
    assert result[1] is ROWS[1]


def test_few_rows_are_left_as_they_are() -> None:
    assert rank_kernels(ROWS[3:], 2) == ROWS[3:]
    assert rank_kernels([], 2) == []
