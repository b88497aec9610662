"""Verdicts of the judge: what it makes of faults and of roundings, on arrays."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.verify.judge.evidence import Evidence, Finding, judge_beside
from compiler.verify.judge.tolerance import MOST, Spread, compare, tolerance_of
from relaxd.contract.bundle.numerics import AGREED, Verdict

Array = np.ndarray[Any, Any]

SHAPE = (4, 24, 40)
"""Of images: channels, rows, columns."""
_NOISES = {"rounding": 1e-6, "quantized": 3e-3, "coarse": 4e-2}
"""Deviations by which equal computations differ, of values of deviation 1: float32, int8 in one
layer, int8 in many."""


def sides(noise: float, seed: int = 0, shape: tuple[int, ...] = SHAPE) -> tuple[Array, list[Array]]:
    """The reference, and as many others as computations that round equally, the library's last."""
    random = np.random.default_rng(seed)
    exact = random.standard_normal(shape)
    others = [exact + noise * random.standard_normal(shape) for _ in range(5)]
    want, *rest = [side.astype("float32") for side in others]
    return want, rest


def judge(
    got: Array,
    want: Array,
    perturbed: list[Array],
    exact: Array | None = None,
    *,
    strict: bool = False,
) -> Finding:
    spread = Spread.of(want)
    own = tolerance_of(want.dtype.name, None, None)
    tolerance = spread.limit_to_scale(own) if want.dtype.kind == "f" else own
    evidence = Evidence(() if exact is None else (exact,), tuple(perturbed), strict=strict)
    return judge_beside(got, want, evidence, tolerance, spread)


@pytest.mark.parametrize("noise", _NOISES.values(), ids=list(_NOISES))
@pytest.mark.parametrize("seed", range(20))
def test_equal_roundings_agree(noise: float, seed: int) -> None:
    want, (*perturbed, got) = sides(noise, seed)
    finding = judge(got, want, perturbed)
    assert finding.verdict in AGREED
    assert finding.difference.problem is None
    assert finding.slack <= MOST * Spread.of(want).deviation * (1 + 1e-9)


def last_column(array: Array) -> None:
    array[..., -1] = 0


def last_of_a_tile(array: Array) -> None:
    array[..., 15::16] = array[..., 14::16]


def shift(array: Array) -> None:
    array[...] = np.roll(array, 1, axis=-1)


def shift_edge(array: Array) -> None:
    array[..., 0, :] = array[..., 1, :]


def swapped_channels(array: Array) -> None:
    array[[0, 1]] = array[[1, 0]]


def dropped_bias(array: Array) -> None:
    array[2] -= np.float32(0.5)


def stale_scale(array: Array) -> None:
    array *= np.float32(1.25)


def wrong_mask(array: Array) -> None:
    array[1, :, 20:] = 0


def constant(array: Array) -> None:
    array[...] = array.mean()


def zeros(array: Array) -> None:
    array[...] = 0


def noise_of_its_own(array: Array) -> None:
    array[...] = np.random.default_rng(1).permutation(array.reshape(-1)).reshape(array.shape)


FAULTS: list[Callable[[Array], None]] = [
    last_column,
    last_of_a_tile,
    shift,
    shift_edge,
    swapped_channels,
    dropped_bias,
    stale_scale,
    wrong_mask,
    constant,
    zeros,
    noise_of_its_own,
]


@pytest.mark.parametrize("noise", _NOISES.values(), ids=list(_NOISES))
@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_caught(fault: Callable[[Array], None], noise: float) -> None:
    """Beside float64 too, and however much equal roundings differ."""
    for seed in range(5):
        want, (*perturbed, got) = sides(noise, seed)
        exact = np.random.default_rng(seed).standard_normal(SHAPE)
        fault(got)
        for evidence in (None, exact):
            finding = judge(got, want, perturbed, evidence)
            assert finding.verdict is Verdict.FAILED
            assert finding.difference.problem


@pytest.mark.parametrize("fault", [constant, zeros, noise_of_its_own])
def test_a_constant_never_agrees_however_uncertain_the_reference(
    fault: Callable[[Array], None],
) -> None:
    for noise in (0.1, 0.2, 0.5, 2.0):
        want, (*perturbed, got) = sides(noise)
        fault(got)
        assert judge(got, want, perturbed).verdict in (Verdict.FAILED, Verdict.INCONCLUSIVE)


def test_a_reference_that_is_ill_conditioned_shows_nothing() -> None:
    want, (*perturbed, got) = sides(2.0)
    finding = judge(got, want, perturbed)
    assert finding.verdict is Verdict.INCONCLUSIVE
    assert "as far as its spread" in finding.why


def test_the_smallest_outputs_are_judged_by_their_own_spread() -> None:
    """Values of 2e-5 after a sigmoid, whose noise is small beside how they differ."""
    want, (*perturbed, got) = sides(1e-5)
    small = [(2e-5 + 1e-6 * array).astype("float32") for array in (want, *perturbed, got)]
    want, *perturbed, got = small
    assert judge(got, want, perturbed).verdict is Verdict.PASSED
    constant(got)
    assert judge(got, want, perturbed).verdict is Verdict.FAILED


def test_offsets_do_not_hide_a_constant() -> None:
    """The range is a thousand times the spread: an absolute tolerance of the range says nothing."""
    want, (*perturbed, got) = sides(1e-5)
    want, *perturbed, got = [
        (1000 + 0.5 * array).astype("float32") for array in (want, *perturbed, got)
    ]
    assert judge(got, want, perturbed).verdict in AGREED
    constant(got)
    assert judge(got, want, perturbed).verdict is Verdict.FAILED


def test_masked_logits_are_judged_by_what_is_not_masked() -> None:
    want, (*perturbed, got) = sides(1e-6)
    for array in (want, *perturbed, got):
        array[:, ::2] = np.float32(-3.4e38)
    assert judge(got, want, perturbed).verdict is Verdict.PASSED
    got[:, 1::2] = 0
    assert judge(got, want, perturbed).verdict is Verdict.FAILED


def test_a_library_nearer_to_float64_than_the_reference_passes() -> None:
    exact = np.random.default_rng(0).standard_normal(SHAPE)
    got, want = exact.astype("float32"), (exact * 1.05).astype("float32")
    finding = judge(got, want, [want * np.float32(1 + 1e-6)], exact)
    assert finding.verdict is Verdict.REFERENCE_INEXACT
    assert finding.difference.max_abs > 0.05
    assert finding.measures["library_error"] < 1e-6 < finding.measures["reference_error"]
    reverse = judge(want, got, [got * np.float32(1 + 1e-6)], exact)
    assert (reverse.verdict, reverse.why) == (Verdict.FAILED, "float64 agrees with the reference")


def test_both_wrong_is_wrong() -> None:
    exact = np.random.default_rng(0).standard_normal(SHAPE)
    finding = judge((exact * 0.7).astype("float32"), (exact * 1.3).astype("float32"), [], exact)
    assert (finding.verdict, finding.why) == (Verdict.FAILED, "float64 deviates from both")


def test_a_few_rows_may_be_uncertain_and_the_others_may_not() -> None:
    random = np.random.default_rng(0)
    want = random.standard_normal((64, 100)).astype("float32")
    perturbed = [want.copy() for _ in range(3)]
    for array in perturbed:
        array[5] += np.float32(0.02) * random.standard_normal(100).astype("float32")
    got = want.copy()
    got[5] += np.float32(0.02) * random.standard_normal(100).astype("float32")
    assert judge(got, want, perturbed).verdict is Verdict.PASSED
    got[6, 3] += np.float32(0.02)
    assert judge(got, want, perturbed).verdict is Verdict.FAILED


def chaotic(seed: int, want: Array, share: float) -> Array:
    """Rows that differ by roundings, a share of them at random much more than the others."""
    random = np.random.default_rng(seed)
    rows = np.where(random.random((len(want), 1)) < share, 0.02, 2e-4)
    return (want + rows * random.standard_normal(want.shape)).astype("float32")


@pytest.mark.parametrize("seed", range(10))
def test_where_many_rows_are_uncertain_each_may_be(seed: int) -> None:
    """Tokens of a quantized decoder: which of them round otherwise differs by the reference."""
    want = np.random.default_rng(seed).standard_normal((640, 64)).astype("float32")
    perturbed = [chaotic(10 * seed + number, want, 0.1) for number in range(3)]
    got = chaotic(10 * seed + 9, want, 0.1)
    assert judge(got, want, perturbed).verdict in AGREED
    for fault in FAULTS[:4]:
        wrong = got.copy()
        fault(wrong)
        assert judge(wrong, want, perturbed).verdict is Verdict.FAILED


def test_a_stated_tolerance_is_not_added_to() -> None:
    want, (*perturbed, got) = sides(3e-3)
    assert judge(got, want, perturbed).verdict in AGREED
    assert judge(got, want, perturbed, strict=True).verdict is Verdict.FAILED


def test_another_shape_is_wrong_whatever_the_evidence() -> None:
    want = np.zeros((0, 3), np.float32)
    finding = judge(np.zeros((0, 4), np.float32), want, [want], want.astype("f8"))
    assert (finding.verdict, finding.difference.structural) == (Verdict.FAILED, True)


@pytest.mark.parametrize(
    ("ours", "moved", "verdict"),
    [
        (3, 2, Verdict.STATISTICAL),
        (3, 0, Verdict.FAILED),
        (60, 3, Verdict.FAILED),
        (400, 400, Verdict.INCONCLUSIVE),
    ],
)
def test_indices_may_change_as_often_as_perturbed_ones(
    ours: int, moved: int, verdict: Verdict
) -> None:
    want = np.arange(1000)
    got, perturbed = want.copy(), want.copy()
    got[:ours] += 1
    perturbed[-moved or len(want) :] += 1
    assert judge(got, want, [perturbed]).verdict is verdict


def test_indices_that_float64_gives_are_right() -> None:
    want, got = np.arange(1000), np.arange(1000)
    got[3] = 7
    assert judge(got, want, [want], got).verdict is Verdict.REFERENCE_INEXACT


def test_infinities_of_float64_are_those_of_the_dtype() -> None:
    exact = np.array([1e39, 1.0, -1e39, 2.0])
    got = np.array([np.inf, 1, -np.inf, 2], np.float32)
    want = np.array([np.nan, 1, -np.inf, 2], np.float32)
    assert judge(got, want, [], exact).verdict is Verdict.REFERENCE_INEXACT
    assert judge(want, got, [], exact).verdict is Verdict.FAILED


ERRORS = st.floats(1e-7, 1e2)
SEVERITY = [*AGREED, Verdict.INCONCLUSIVE, Verdict.FAILED]


@settings(deadline=None, max_examples=60)
@given(
    noise=st.floats(1e-8, 1.0),
    error=ERRORS,
    more=st.floats(1.0, 1e3),
    share=st.floats(0.0, 1.0),
    seed=st.integers(0, 1000),
)
def test_a_greater_error_is_never_judged_better(
    noise: float, error: float, more: float, share: float, seed: int
) -> None:
    random = np.random.default_rng(seed)
    want, perturbed = sides(noise, seed, (6, 40))
    direction = random.standard_normal(want.shape) * (random.random(want.shape) < share)
    less, greater = (
        judge((want + factor * direction).astype("float32"), want, perturbed).verdict
        for factor in (error, error * more)
    )
    assert SEVERITY.index(less) <= SEVERITY.index(greater)


@settings(deadline=None, max_examples=60)
@given(scale=st.floats(1e-6, 1e6), offset=st.floats(-100, 100), seed=st.integers(0, 99))
def test_no_tolerance_is_more_than_a_tenth_of_the_spread(
    scale: float, offset: float, seed: int
) -> None:
    """So that no constant passes, whatever its value, the range and the offset."""
    values = np.random.default_rng(seed).standard_normal(256)
    want = (scale * (values + offset)).astype("float32")
    spread = Spread.of(want)
    tolerance = spread.limit_to_scale(tolerance_of("float32", None, None))
    for value in (want.mean(), np.median(want), 0, want[0]):
        assert compare(np.full_like(want, value), want, tolerance).problem


@pytest.mark.parametrize("dtype", ["int4", "uint4", "uint8"])
def test_steps_of_small_integers_are_bound_in_the_mean(dtype: str) -> None:
    """A few elements may be a step off, all of them may not, whatever the dtype can hold."""
    random = np.random.default_rng(0)
    want = random.integers(1, 5, (64, 64)).astype(dtype)

    def moved(seed: int, share: float) -> Array:
        steps = np.random.default_rng(seed).random(want.shape) < share
        return (want.astype("f4") + steps).astype(dtype)

    own = tolerance_of(dtype, None, None, quantized=True)
    spread = Spread.of(want)
    evidence = Evidence(perturbed=tuple(moved(seed, 0.06) for seed in range(3)))

    def verdict(got: Array) -> Verdict:
        return judge_beside(got, want, evidence, spread.limit_to_scale(own), spread).verdict

    assert verdict(moved(7, 0.01)) in AGREED
    assert verdict(moved(7, 0.06)) in AGREED
    assert verdict(moved(7, 1.0)) is Verdict.FAILED
    assert verdict(np.full_like(want, 2)) is Verdict.FAILED


def test_a_reference_that_is_inexact_at_other_points_may_be_at_this_one() -> None:
    """A fast sigmoid is, by 2^-24, of outputs that are hardly greater."""
    want, (*perturbed, got) = sides(1e-6)
    got = got + np.float32(0.01) * np.random.default_rng(7).standard_normal(SHAPE).astype("f4")
    spread = Spread.of(want)
    tolerance = spread.limit_to_scale(tolerance_of("float32", None, None))

    def verdict(array: Array, inexactness: tuple[float, float]) -> Verdict:
        evidence = Evidence((), tuple(perturbed), inexactness)
        return judge_beside(array, want, evidence, tolerance, spread).verdict

    assert verdict(got, (0.0, 0.0)) is Verdict.FAILED
    assert verdict(got, (0.03, 0.01)) in AGREED
    for fault in FAULTS:
        wrong = got.copy()
        fault(wrong)
        assert verdict(wrong, (0.03, 0.01)) is Verdict.FAILED


def test_of_rows_it_is_told_how_often_the_greatest_element_is_the_same() -> None:
    want, (*perturbed, got) = sides(_NOISES["coarse"], shape=(200, 64))
    finding = judge(got, want, perturbed)
    assert finding.verdict is Verdict.STATISTICAL
    assert 0.8 < finding.measures["argmax"] <= 1
    assert 0.8 < finding.measures["perturbed_argmax"] <= 1
    assert "argmax" not in judge(want + np.float32(1), want, perturbed).measures


@given(st.integers(0, 10_000), st.floats(0.3, 5.0), st.integers(1, 6))
@settings(max_examples=60, deadline=None)
def test_more_perturbed_references_never_settle_what_is_inconclusive(
    seed: int, noise: float, more: int
) -> None:
    """Verification stops asking for them."""
    random = np.random.default_rng(seed)
    want = random.standard_normal((8, 64)).astype("float32")
    rows = np.where(random.random((8, 1)) < random.uniform(0.05, 1), noise, noise / 50)
    got, *others = (
        (want + rows * random.standard_normal(want.shape)).astype("float32")
        for _ in range(3 + more)
    )
    if judge(got, want, others[:2]).verdict is Verdict.INCONCLUSIVE:
        assert judge(got, want, others).verdict is Verdict.INCONCLUSIVE
