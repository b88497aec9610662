"""Cost models of points whose coefficients are known."""

from collections.abc import Callable

import numpy as np
import pytest

from compiler.profile.cost import fit
from relaxd.contract.bundle.profile import Profile

BATCHES, SEQS = (1, 2, 4, 8, 16), (1, 8, 32, 96, 256, 512)


def points(cost: Callable[[int, int], float]) -> list[tuple[dict[str, int], float]]:
    return [({"batch": b, "seq": s}, cost(b, s)) for b in BATCHES for s in SEQS]


def terms(model: dict[str, object]) -> dict[tuple[tuple[str, int], ...], float]:
    return {tuple(term["dims"].items()): term["ms"] for term in model["terms"]}  # type: ignore


def test_known_coefficients_are_found() -> None:
    model = fit(points(lambda b, s: 0.25 + 0.03 * b * s + 2e-5 * b * s * s))
    assert model is not None
    coefficients = terms(model)
    assert coefficients.pop(()) == pytest.approx(0.25, rel=1e-6)
    assert coefficients.pop((("batch", 1), ("seq", 1))) == pytest.approx(0.03, rel=1e-6)
    assert coefficients.pop((("batch", 1), ("seq", 2))) == pytest.approx(2e-5, rel=1e-6)
    assert coefficients == {}
    assert (model["points"], model["error_max"]) == (30, 0.0)
    assert (model["low"], model["high"]) == ({"batch": 1, "seq": 1}, {"batch": 16, "seq": 512})


def test_noise_adds_no_terms_and_shows_in_the_error() -> None:
    draw = np.random.default_rng(3)
    model = fit(points(lambda b, s: (0.2 + 0.01 * b * s) * (1 + 0.03 * draw.normal())))
    assert model is not None
    assert set(terms(model)) == {(), (("batch", 1), ("seq", 1))}
    assert 0.01 < model["error_median"] < 0.06
    assert model["error_median"] < model["error_max"] < 0.25


def test_no_coefficient_is_negative() -> None:
    """Calls that get faster with the dim have no sum of such terms: the error says so."""
    model = fit([({"n": n}, 10.0 / n) for n in (1, 2, 4, 8, 16, 32)])
    assert model is not None
    assert all(ms > 0 for ms in terms(model).values())
    assert model["error_max"] > 0.5


def test_a_dim_that_did_not_vary_is_no_term() -> None:
    model = fit([({"batch": 4, "seq": s}, 1.0 + 0.5 * s) for s in SEQS])
    assert model is not None
    assert set(terms(model)) == {(), (("seq", 1),)}
    point = {"label": "grid-6", "dims": {"batch": 4, "seq": 512}, "median_ms": 257.0}
    profile = Profile.from_json({"measured": True, "points": [point], "cost": model})
    assert profile.estimate({"seq": 100}).ms == pytest.approx(51.0)


def test_too_few_points_have_no_model() -> None:
    assert fit([({"n": n}, 1.0 * n) for n in (1, 2, 3)]) is None
