"""No program of the importers reads, writes or loops where an input says, unless it is listed here
with what keeps it inside.
"""

import onnx
import pytest
from onnx import helper
from tvm import te, tirx

from compiler.ir import import_model
from relaxd.contract.request import CompileRequest
from tests.compiler.ir.addresses import addressing_parameters
from tests.fuzz.hostile.subject import Subject
from tests.fuzz.hostile.table import SUBJECTS

CHECKED = "takes Indices"
LIMITED = "positions are limited to the axis, or nothing is read outside of it"
COUNTED = "positions that the program, or one before it, counted or sorted itself"
SAFE = {
    "take": CHECKED,
    "gather_elements": CHECKED,
    "gather_nd": CHECKED,
    "scatter_elements": CHECKED,
    "scatter_rows": CHECKED,
    "scatter_nd": CHECKED,
    "index": CHECKED,
    "angles": CHECKED,
    "losses": CHECKED,
    "weights": CHECKED,
    "nbits_rows": CHECKED,
    "bytes_rows": CHECKED,
    "max_roi_pool": CHECKED,
    "reverse_sequence": "check_lengths",
    "appended": "seqlens_k is checked",
    "tensor_scatter": LIMITED,
    "roi_align": f"{CHECKED}; {LIMITED}",
    "resize": LIMITED,
    "grid_sample": LIMITED,
    "deform_conv": LIMITED,
    "rnn": f"check_lengths; {LIMITED}",
    "gru": f"check_lengths; {LIMITED}",
    "lstm": f"check_lengths; {LIMITED}",
    "trees": "the ensemble's tables are checked by import",
    "mapped": "a binary search in a table of ours",
    "suppress": COUNTED,
    "boxes": COUNTED,
    "sort": COUNTED,
    "unique": COUNTED,
    "rows_at": COUNTED,
    "choose_experts": COUNTED,
    "group_by_expert": COUNTED,
    "experts_product": COUNTED,
    "experts_sum": COUNTED,
    "experts_activation": COUNTED,
}


def addressed_programs(model: onnx.ModelProto, dims: dict[str, tuple[int, int]]) -> set[str]:
    """The names of the imported programs in which an input decides an address."""
    module = import_model(model, CompileRequest.of(dims=dims)).module
    return {
        name.name_hint.rstrip("0123456789").rstrip("_")
        for name, function in module.functions.items()
        if isinstance(function, tirx.PrimFunc) and addressing_parameters(function)
    }


@pytest.mark.long
@pytest.mark.parametrize(
    "subject", [subject for subject in SUBJECTS.values() if isinstance(subject, Subject)]
)
def test_every_address_that_an_input_decides_is_known_to_be_safe(subject: Subject) -> None:
    programs = addressed_programs(onnx.load_from_string(subject.content), subject.ranges)
    assert programs <= set(SAFE)


def test_an_address_is_followed_through_local_variables() -> None:
    data = te.placeholder([4], "float32", "data")
    index = te.placeholder([4], "int64", "index")
    direct = te.compute([4], lambda i: data(index(i)))
    assert addressing_parameters(te.create_prim_func([data, index, direct])) == {1}
    apart = te.compute([4], lambda i: data(i) + index(i).astype("float32"))
    assert addressing_parameters(te.create_prim_func([data, index, apart])) == set()


def test_a_gather_is_found() -> None:
    graph = helper.make_graph(
        [helper.make_node("Gather", ["x", "i"], ["y"])],
        "g",
        [
            helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n"]),
            helper.make_tensor_value_info("i", onnx.TensorProto.INT64, ["k"]),
        ],
        [helper.make_empty_tensor_value_info("y")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    assert addressed_programs(model, {}) == {"take"}
