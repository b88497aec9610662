import numpy as np
import pytest

from tests.zoo.judging import judge, unproven, worst_of


@pytest.mark.parametrize(
    ("result", "wanted", "worst", "wrong"),
    [
        ([1.0, 2.0], [1.0, 2.5], 0.2, True),
        ([1.0, 2.0], [1.0, 2.001], 0.001 / 2.001, False),
        ([0.1, 0.0], [0.1, 0.01], 0.1, True),
        ([0.1, 0.0], [0.1, 0.00005], 5e-4, False),
        ([100.0], [200.0], 0.5, True),
        ([2e-11], [1e-11], 1.0, False),
        ([1e-6], [0.0], np.inf, False),
        ([1e-4], [1e-6], 99.0, True),
        ([np.nan, np.inf], [np.nan, np.inf], 0.0, False),
        ([np.nan], [1.0], np.inf, True),
        ([np.inf], [1.0], np.inf, True),
        ([1.0], [1.0, 1.0], np.inf, True),
        ([], [], 0.0, False),
    ],
)
def test_differences_are_relative_to_the_output(result, wanted, worst, wrong):
    (judged,) = judge({"y": np.asarray(result)}, {"y": np.asarray(wanted)}).values()
    assert judged.worst == pytest.approx(worst)
    assert judged.wrong is wrong


def test_another_dtype_or_another_output_differs_without_end():
    ones = np.ones(3, "float32")
    for result in ({"y": ones.astype("float64")}, {"z": ones}, {}):
        judged = judge(result, {"y": ones})
        assert (worst_of(judged), judged["y"].wrong) == (np.inf, True)


def test_a_faint_output_counts_where_it_is_wrong_or_alone():
    faint, plain = np.asarray([1e-8]), np.asarray([1.0])
    beside = judge({"a": faint * 2, "b": plain * 1.0001}, {"a": faint, "b": plain})
    assert worst_of(beside) == pytest.approx(1e-4)
    assert worst_of(judge({"a": faint * 2}, {"a": faint})) == pytest.approx(1.0)
    assert worst_of(judge({"a": faint + 1, "b": plain}, {"a": faint, "b": plain})) > 1e7


@pytest.mark.parametrize(
    ("points", "hidden"),
    [
        ([[1e-9, -0.009], [0.009]], True),
        ([[1e-9], [0.5]], False),
        ([[0.5, 0.5001], [0.4999]], True),
        ([[0.5], [0.6]], False),
        ([[], [np.nan]], True),
        ([[3], [7]], False),
    ],
)
def test_outputs_that_would_not_show_a_fault(points, hidden):
    judged = [judge({"y": np.asarray(p)}, {"y": np.asarray(p)}) for p in points]
    assert unproven(judged) == (["y"] if hidden else [])


def test_a_model_that_rounds_is_judged_by_its_steps() -> None:
    wanted = {"y": np.linspace(-1, 1, 1001, dtype="float32")}
    step = {"y": wanted["y"] + np.where(np.arange(1001) % 50 == 0, 0.1, 0).astype("f4")}
    assert judge(step, wanted)["y"].wrong
    assert not judge(step, wanted, rounds=True)["y"].wrong
    assert judge({"y": wanted["y"] + np.float32(0.1)}, wanted, rounds=True)["y"].wrong
    assert judge({"y": wanted["y"][1:]}, wanted, rounds=True)["y"].wrong
