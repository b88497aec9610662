"""The reference of caches in fewer bits: each operator that extends caches, its rows rounded before
anything reads them.
"""

from typing import Any
from unittest import mock

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from compiler.quantize.onnx import kv_cache as stored_caches
from compiler.quantize.onnx.kv_cache import quantize_kv_caches
from relaxd.contract.options import CacheForm
from relaxd.loader import byte_rows
from relaxd.loader.tensors.element_types import dtype_of
from tests.compiler.ir.onnx.operators.test_group_query import angles, feed
from tests.compiler.ir.onnx.operators.test_group_query import model_of as grouped
from tests.compiler.ir.onnx.operators.test_quantized import one_node
from tests.compiler.ir.onnx.running import model_of, normal, session_of
from tests.support.models.decoders import CROSSED, GROUPS, SIZE, merge

PRESENTS = ("key", "value")
Case = tuple[onnx.ModelProto, list[Any]]


def rotating_case(width: int = SIZE // 2, **attributes: Any) -> Case:
    """Keys of GroupQueryAttention that it turns, which several tokens and ragged entries extend."""
    form = {"do_rotary": 1, **attributes}
    model = grouped("q k v pk pv l t c z", constants=angles(width), **form)
    return model, [feed([7], 3, 4), feed([6, 4], 1, 5), feed([4, 4], 4, 0), feed([9], 1, 8)]


def packed_case() -> Case:
    """Query, keys and values in one input, of heads of which a part is turned."""
    model = one_node(
        "GroupQueryAttention",
        {
            "q": "float32[n,s,256]",
            "pk": "float32[n,2,p,32]",
            "pv": "float32[n,2,p,32]",
            "l": "int32[n]",
            "t": "int32[]",
        },
        angles(8),
        "q - - pk pv l t c z",
        outputs=["y", *PRESENTS],
        num_heads=4,
        kv_num_heads=2,
        do_rotary=1,
    )
    feeds = []
    for n, rows, room in ((1, 3, 4), (2, 1, 6)):
        lengths = feed([room + rows] * n, rows)
        past = {name: normal(n, 2, room, 32, seed=i) for i, name in enumerate(("pk", "pv"), 3)}
        feeds.append({"q": normal(n, rows, 256), **past, "l": lengths["l"], "t": lengths["t"]})
    return model, feeds


def multi_head(biased: bool) -> Case:
    """MultiHeadAttention, whose bias belongs to what it stores."""
    inputs = dict.fromkeys("qkv", "float32[n,s,32]")
    inputs |= dict.fromkeys(("pk", "pv"), "float32[n,2,p,16]")
    model = one_node(
        "MultiHeadAttention",
        inputs,
        {"b": normal(96, seed=7)} if biased else {},
        "q k v b - - pk pv" if biased else "q k v - - - pk pv",
        outputs=["y", *PRESENTS],
        num_heads=2,
    )
    new = {name: normal(2, 3, 32, seed=i) for i, name in enumerate("qkv")}
    past = {name: normal(2, 2, 5, 16, seed=i) for i, name in enumerate(("pk", "pv"), 3)}
    return model, [{**new, **past}]


def joining_case() -> Case:
    """Rows that are joined to the past, behind which an Identity stands."""
    nodes = [
        helper.make_node("Concat", ["pk", "k"], ["longer"], axis=2),
        helper.make_node("Identity", ["longer"], ["key"]),
        helper.make_node("ReduceSum", ["key"], ["y"], keepdims=0),
        helper.make_node("Concat", ["pv", "v"], ["value"], axis=2),
    ]
    shape = "float32[n,2,p,16]"
    inputs = {"pk": shape, "pv": shape, "k": "float32[n,2,s,16]", "v": "float32[n,2,s,16]"}
    model = model_of(nodes, inputs, {}, outputs=["y", *PRESENTS])
    sizes = {"pk": 4, "pv": 4, "k": 3, "v": 3}
    arrays = {name: normal(2, 2, rows, 16, seed=i) for i, (name, rows) in enumerate(sizes.items())}
    return model, [arrays]


CASES = {
    "turned": rotating_case,
    "turned in neighbours, a window": lambda: rotating_case(
        rotary_interleaved=1, local_window_size=3
    ),
    "packed": packed_case,
    "several heads": lambda: multi_head(False),
    "a bias": lambda: multi_head(True),
    "joined": joining_case,
}


@pytest.mark.parametrize("name", CASES)
def test_rows_alone_are_quantized(name: str) -> None:
    """Cast to float32 instead, the model is the same."""
    model, feeds = CASES[name]()
    same = dict.fromkeys(CacheForm, TensorProto.FLOAT)
    with mock.patch.object(stored_caches, "_ELEMENTS", same):
        plain = session_of(quantize_kv_caches(model, PRESENTS, {}, CacheForm.FLOAT16))
    original = session_of(model)
    for arrays in feeds:
        for ours, theirs in zip(plain.run(None, arrays), original.run(None, arrays), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("form", [CacheForm.FLOAT16, CacheForm.BFLOAT16])
@pytest.mark.parametrize("name", CASES)
def test_what_comes_out_is_what_16_bits_hold(name: str, form: CacheForm) -> None:
    model, feeds = CASES[name]()
    session, original = (
        session_of(proto) for proto in (quantize_kv_caches(model, PRESENTS, {}, form), model)
    )
    dtype = dtype_of(form)
    step = 2.0**-10 if form is CacheForm.FLOAT16 else 2.0**-7
    for arrays in feeds:
        results, plain = session.run(None, arrays), original.run(None, arrays)
        for ours, theirs in zip(results[1:], plain[1:], strict=True):
            np.testing.assert_array_equal(ours.astype(dtype).astype(np.float32), ours)
            np.testing.assert_allclose(ours, theirs, rtol=step, atol=1e-6)
        assert not np.array_equal(results[0], plain[0])


@pytest.mark.parametrize("name", CASES)
def test_what_comes_out_is_what_bytes_hold(name: str) -> None:
    """Each row of a head has a scale of its own, however the operator takes heads."""
    model, feeds = CASES[name]()
    session, original = (
        session_of(proto)
        for proto in (quantize_kv_caches(model, PRESENTS, {}, CacheForm.INT8), model)
    )
    for arrays in feeds:
        results, plain = session.run(None, arrays), original.run(None, arrays)
        for ours, theirs in zip(results[1:], plain[1:], strict=True):
            want = byte_rows.dequantize_rows(byte_rows.quantize_rows(theirs))
            # A sum in another order may fall on the other side of the middle.
            apart, step = np.abs(ours - want), np.abs(theirs).max(-1, keepdims=True) / 126
            assert (apart <= step).all()
            assert (apart > 1e-5).mean() < 1e-3
        assert not np.array_equal(results[0], plain[0])


def test_rows_of_zeros_and_of_strange_numbers() -> None:
    model, (arrays,) = joining_case()
    arrays["pk"][0, 0, 0] = 0
    arrays["k"][1, 1, 0, 3] = np.inf
    arrays["v"][0, 1, 1, 2] = np.nan
    arrays["v"][0, 1, 2] *= 1e-38
    results = session_of(quantize_kv_caches(model, PRESENTS, {}, CacheForm.INT8)).run(
        PRESENTS, arrays
    )
    for ours, (past, new) in zip(results, (("pk", "k"), ("pv", "v")), strict=True):
        rows = np.concatenate([arrays[past], arrays[new]], axis=2)
        np.testing.assert_array_equal(
            ours, byte_rows.dequantize_rows(byte_rows.quantize_rows(rows))
        )


def test_a_perturbation_of_bytes_moves_numbers_beside_their_greatest() -> None:
    model, (arrays,) = joining_case()
    plain, perturbed = (
        session_of(quantize_kv_caches(model, PRESENTS, {}, CacheForm.INT8, perturbation)).run(
            PRESENTS, arrays
        )
        for perturbation in (0.0, 2.0**-9)
    )
    np.testing.assert_array_equal(plain[0][:, :, :4], perturbed[0][:, :, :4])
    steps = (perturbed[0] - plain[0])[:, :, 4:] / np.abs(plain[0]).max(-1, keepdims=True)[:, :, 4:]
    assert set(np.rint(steps * 127).ravel()) == {0, 1}


def test_a_perturbation_moves_new_rows_alone() -> None:
    model, (arrays,) = joining_case()
    plain, perturbed = (
        session_of(quantize_kv_caches(model, PRESENTS, {}, CacheForm.FLOAT16, perturbation)).run(
            None, arrays
        )
        for perturbation in (0.0, 2.0**-9)
    )
    np.testing.assert_array_equal(plain[1][:, :, :4], perturbed[1][:, :, :4])
    assert not np.array_equal(plain[1][:, :, 4:], perturbed[1][:, :, 4:])


def test_the_branch_of_a_merged_export_that_is_taken() -> None:
    model = merge()
    presents = ("present.0.key", "present.0.value")
    quantized = quantize_kv_caches(model, presents, {"use_cache_branch": True}, CacheForm.FLOAT16)
    then, other = (
        next(a.g for a in quantized.graph.node[0].attribute if a.name == name)
        for name in ("then_branch", "else_branch")
    )
    assert sum(node.op_type == "Cast" for node in then.node) == 8
    assert not any(node.op_type == "Cast" for node in other.node)
    past = {f"past_key_values.0.{part}": normal(1, GROUPS, 4, SIZE) for part in ("key", "value")}
    crossed = {name: normal(1, GROUPS, 3, SIZE) for name in CROSSED}
    tokens = {"input_ids": np.array([[3, 4]]), "position_ids": np.array([[4, 5]])}
    _, key, *_ = session_of(quantized).run(
        ["logits", "present.0.key"],
        {**tokens, **past, **crossed, "use_cache_branch": np.array([True])},
    )
    np.testing.assert_array_equal(key.astype(np.float16).astype(np.float32), key)
