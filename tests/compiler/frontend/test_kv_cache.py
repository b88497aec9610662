"""Models that cannot have in-place KV caches are refused, with what to change."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import helper

from compiler import targets
from compiler.errors import ImportFailed
from compiler.frontend.kv_cache import require_host, require_passed
from compiler.ir import import_model
from compiler.verify.inputs.inputs import Signature, prepare
from relaxd.contract.bundle.manifest import LoadContract, Manifest
from relaxd.contract.bundle.state import Part, State
from relaxd.contract.options import CacheForm
from relaxd.contract.request import CompileRequest
from tests.compiler.graphs import add_and_divide
from tests.support.models.decoders import (
    FILLED_DIMS,
    GROWN_DIMS,
    LONGEST,
    add_cross_attention,
    fill,
    grown,
    merge,
)

OWNED = {"state": "lifted"}


def refusal(model: onnx.ModelProto, dims: dict[str, Any], **request: Any) -> ImportFailed:
    with pytest.raises(ImportFailed) as caught:
        import_model(model, CompileRequest.of(dims=dims, options=OWNED, **request))
    assert caught.value.failure.hint
    return caught.value


def test_a_model_without_caches() -> None:
    error = refusal(add_and_divide(), {})
    assert "the model has no caches" in str(error)
    assert error.failure.field == "options.state"


def test_a_cache_that_something_else_reads() -> None:
    model = grown()
    model.graph.node.append(helper.make_node("Relu", ["past_key_values.0.key"], ["again"]))
    model.graph.output.append(helper.make_empty_tensor_value_info("again"))
    assert "'past_key_values.0.key' has as many rows" in str(refusal(model, GROWN_DIMS))


def test_caches_of_several_lengths() -> None:
    model = grown()
    model.graph.input[2].type.tensor_type.shape.dim[2].dim_param = "other"
    assert "the same number of rows" in str(refusal(model, {}))


def test_caches_of_a_fixed_length() -> None:
    model = grown()
    dims = {name: GROWN_DIMS[name] for name in ("batch", "seq")}
    names = ("past_key_values.0.key", "past_key_values.0.value")
    inputs = dict.fromkeys(names, "float32[batch,2,8,16]")
    assert "which is a dim" in str(refusal(model, dims, inputs=inputs))


@pytest.mark.parametrize("make", [fill, grown])
def test_dims_of_any_name(make: Callable[[], onnx.ModelProto]) -> None:
    names = {"batch": "in", "seq": "seq-len", "past": "過去", "total": "1"}
    model = make()
    for axis in (axis for item in model.graph.input for axis in item.type.tensor_type.shape.dim):
        if axis.dim_param:
            axis.dim_param = names[axis.dim_param]
    dims = GROWN_DIMS if make is grown else FILLED_DIMS
    declared = {names[name]: dim for name, dim in dims.items()}
    imported = import_model(model, CompileRequest.of(dims=declared, options=OWNED))
    assert imported.in_place is not None
    state = imported.in_place.state
    assert (state.rows, state.past, state.capacity) == ('"seq-len"', "過去", "capacity")
    assert State.from_json(state.to_json()) == state
    manifest = Manifest(
        "m", imported.inputs, imported.outputs, imported.dims, {}, LoadContract("x"), {}, {}
    )
    manifest = replace(manifest, state=state)
    assert Manifest.from_json(manifest.to_json()).state == state


@pytest.mark.parametrize("axis", ["seq", "1"])
def test_one_new_token(axis: str) -> None:
    dims = {**GROWN_DIMS, "seq": 1} if axis == "seq" else {"batch": (1, 4), "past": (0, LONGEST)}
    inputs = dict.fromkeys(("input_ids", "position_ids"), f"int64[batch,{axis}]")
    request = CompileRequest.of(dims=dims, inputs=inputs, options=OWNED)
    imported = import_model(grown(1), request)
    assert imported.in_place is not None
    assert imported.in_place.state.rows == "1"
    assert imported.in_place.state.parts == {"past.rows": Part.PAST, "position_ids": Part.POSITIONS}
    (capacity,) = [dim for dim in imported.dims if dim.name == "capacity"]
    assert capacity.max == LONGEST + 1


def test_a_fixed_number_of_new_tokens() -> None:
    model = fill(1)
    inputs = {"input_ids": "int64[batch,3]"}
    dims = {name: FILLED_DIMS[name] for name in ("batch", "past", "total")}
    assert "neither a dim of its own nor 1" in str(refusal(model, dims, inputs=inputs))


def test_a_present_that_is_more_than_the_cache() -> None:
    model = grown()
    last = model.graph.output[1]
    model.graph.node.append(helper.make_node("Relu", [last.name], ["changed"]))
    last.name = "changed"
    assert "'past_key_values.0.key' has as many rows" in str(refusal(model, GROWN_DIMS))


@pytest.mark.parametrize(
    ("model", "consts"), [(add_cross_attention, {}), (merge, {"use_cache_branch": 1})]
)
def test_keys_and_values_of_an_encoder_are_no_caches(model: Any, consts: dict[str, int]) -> None:
    dims = {**GROWN_DIMS, "source": (1, 40)}
    imported = import_model(model(), CompileRequest.of(dims=dims, options=OWNED, consts=consts))
    assert imported.in_place is not None
    caches = [cache.input for cache in imported.in_place.state.caches]
    assert caches == ["past_key_values.0.key", "past_key_values.0.value"]
    shapes = {spec.name: str(spec) for spec in imported.inputs}
    assert "source" in shapes["crossed.key"]
    assert [spec.name for spec in imported.outputs] == [
        "logits",
        "kept.crossed.key",
        "kept.crossed.value",
    ]


def test_a_branch_that_only_a_run_takes() -> None:
    dims = {**GROWN_DIMS, "source": (1, 40)}
    error = refusal(merge(), dims)
    assert "--const use_cache_branch=1" in str(error.failure.hint)
    refusal(merge(), dims, consts={"use_cache_branch": 0})


@pytest.mark.parametrize("target", ["opencl", "android-arm64", "riscv64"])
def test_targets_that_keep_no_state(target: str) -> None:
    with pytest.raises(ImportFailed, match="for this machine's processor"):
        require_host(targets.resolve(target))
    for name in ("native", "wasm32-simd", "webgpu"):
        require_host(targets.resolve(name))


@pytest.mark.parametrize("form", [CacheForm.FLOAT16, CacheForm.BFLOAT16, CacheForm.INT8])
def test_pages_keep_no_caches_in_fewer_bits(form: CacheForm) -> None:
    for name in ("native", "wasm32-simd"):
        require_host(targets.resolve(name), form)
    with pytest.raises(ImportFailed, match="webgpu stores no caches in fewer bits") as caught:
        require_host(targets.resolve("webgpu"), form)
    assert caught.value.code == "import.cache"
    assert caught.value.failure.field == "options.cache"


def test_torchscript() -> None:
    with pytest.raises(ImportFailed, match="only ONNX models"):
        require_passed(CompileRequest.of(options=OWNED))
    require_passed(CompileRequest())


@pytest.mark.parametrize(
    ("model", "dims", "most"),
    [(fill, FILLED_DIMS, LONGEST), (grown, GROWN_DIMS, LONGEST + 24), (grown, {}, None)],
)
def test_the_capacity_takes_the_greatest_past_and_step(
    model: Any, dims: dict[str, Any], most: int | None
) -> None:
    imported = import_model(model(1), CompileRequest.of(dims=dims, options=OWNED))
    (capacity,) = [dim for dim in imported.dims if dim.name == "capacity"]
    assert capacity.max == most
    assert capacity in imported.ranges.values()


def test_points_that_do_not_fit_are_left_out(tmp_path: Path) -> None:
    request = CompileRequest.of(dims={**GROWN_DIMS, "capacity": "1:70"}, options=OWNED)
    signature = Signature.of(import_model(grown(1), request)).original
    trials = prepare(signature, None, 0, tmp_path, 1 << 20)
    sizes = [trial.point.dims["past"] + trial.point.dims["seq"] for trial in trials.chosen]
    assert max(sizes) <= 70
    assert any("there is room for 70" in left.reason for left in trials.left_out)


def test_a_capacity_of_its_own(tmp_path: Path) -> None:
    request = CompileRequest.of(dims={**FILLED_DIMS, "capacity": "16:48%16"}, options=OWNED)
    imported = import_model(fill(1), request)
    (capacity,) = [dim for dim in imported.dims if dim.name == "capacity"]
    assert (capacity.min, capacity.max, capacity.multiple) == (16, 48, 16)
    assert imported.in_place is not None
    assert imported.in_place.past.max == FILLED_DIMS["past"][1]
