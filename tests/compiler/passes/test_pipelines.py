"""The pipelines of every kind of target: phases in order, and each pass of ours in one form."""

from dataclasses import fields, is_dataclass

import pytest

from compiler import targets
from compiler.errors import PassError
from compiler.passes.framework.base import FromTVM, Pass, Phase
from compiler.passes.framework.checks import check_order
from compiler.passes.pack.round_operands import RoundOperands
from compiler.passes.pack.round_weights import RoundWeights
from compiler.passes.pipelines import Interface, pipeline
from compiler.targets.vector_unit import VectorUnit
from relaxd.contract.options import Flavour, WeightForm

TARGETS = ("x86-64-v3", "aarch64", "cuda-sm80", "webgpu")


def steps_of(name: str) -> tuple[Pass, ...]:
    return pipeline(targets.resolve(name), {})


@pytest.mark.parametrize("name", TARGETS)
def test_phases_run_in_order_and_none_is_left_out(name: str) -> None:
    phases = [step.phase for step in steps_of(name)]
    assert phases == sorted(phases, key=lambda phase: phase.position)
    expected = set(Phase)
    if name == "webgpu":
        # A page launches its kernels.
        expected -= {Phase.VIRTUAL_MACHINE, Phase.FUNCTIONS}
    elif name != "cuda-sm80":
        expected -= {Phase.DEVICE_FUNCTIONS}
    assert set(phases) == expected


def test_c_functions_need_no_virtual_machine() -> None:
    interface = Interface(Flavour.STANDALONE, "relaxd_m")
    steps = pipeline(targets.resolve("cortex-m4"), {}, interface=interface)
    assert Phase.VIRTUAL_MACHINE not in {step.phase for step in steps}
    names = [step.name for step in steps]
    assert {"make_c_functions", "narrow_indices", "unroll_pairs"} <= set(names)
    assert "serialize_loops" not in names


def test_an_order_without_what_a_pass_requires_is_refused() -> None:
    steps = steps_of("x86-64-v3")
    flatten = next(step for step in steps if step.name == "flatten_buffers")
    with pytest.raises(PassError, match="flatten_buffers requires no_blocks") as caught:
        check_order([step for step in steps if step.name != "s_tir.LowerOpaqueBlock"])
    assert caught.value.failure.code == "pass.order"
    check_order([flatten], flatten.requires)


@pytest.mark.parametrize("name", TARGETS)
def test_our_passes_are_frozen_dataclasses_whose_names_tell_them_apart(name: str) -> None:
    ours = [step for step in steps_of(name) if not isinstance(step, FromTVM)]
    for step in ours:
        assert is_dataclass(step)
        assert step.__dataclass_params__.frozen
        assert not {"name", "phase"} & {field.name for field in fields(step)}
    assert len({step.name for step in ours}) == len({type(step) for step in ours})


@pytest.mark.parametrize("beside", ["round_weights", "round_operands"])
def test_weights_are_flushed_behind_what_knows_them_by_their_values_alone(beside: str) -> None:
    """Casts would hide weights from the pass that flushes them."""
    target = targets.resolve("x86-64-v3")
    quantization: RoundWeights | RoundOperands = (
        RoundWeights(WeightForm.INT4, {})
        if beside == "round_weights"
        else RoundOperands(VectorUnit.of(target), {}, (), frozenset())
    )
    names = [step.name for step in pipeline(target, {}, quantization)]
    behind = names.index("flush_weights") > names.index(beside)
    assert behind == (beside == "round_weights")


def test_tvm_passes_keep_their_names() -> None:
    names = [step.name for step in steps_of("x86-64-v3")]
    assert names.index("FuseOps") < names.index("FuseTIR") < names.index("schedule_kernels")
    assert names.index("name_checks") < names.index("tirx.BindTarget")
    assert names[-1] == "lower_intrinsics"


def test_only_targets_that_need_them_get_some_passes() -> None:
    assert "RewriteCUDAGraph" in {step.name for step in steps_of("cuda-sm80")}
    assert "narrow" in {step.name for step in steps_of("webgpu")}
    plain = {step.name for step in steps_of("opencl")}
    assert not {"RewriteCUDAGraph", "narrow"} & plain
