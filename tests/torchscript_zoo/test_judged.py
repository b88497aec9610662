import numpy as np

from tests.torchscript_zoo.__main__ import table
from tests.torchscript_zoo.measure import judge_run


def outputs(scale=1.0, off=0.0):
    """Two outputs at the five sizes of `vit`."""
    rows = [np.random.default_rng(seed).standard_normal((2, 3)) for seed in range(5)]
    return [[row * scale + off, row.astype("float32")] for row in rows]


def test_a_model_holds_where_every_output_agrees():
    good = judge_run("vit", 1.0, outputs(), outputs())
    assert (good.is_close, good.unproven) == (True, [])
    off = judge_run("vit", 1.0, outputs(off=0.01), outputs())
    assert not off.is_close
    assert "**wrong**" in list(table([off]))[-1]


def test_an_output_that_vanishes_proves_nothing():
    part = judge_run("vit", 1.0, outputs(1e-9), outputs(2e-9))
    assert (part.is_close, part.unproven, part.proves_nothing) == (True, ["0"], False)
    assert list(table([part]))[-1].endswith("; nothing is proven of outputs 0 |")
    first = [[pair[0]] for pair in outputs(1e-9)]
    none = judge_run("vit", 1.0, first, first)
    assert (none.is_close, none.proves_nothing) == (False, True)
    assert "**proves nothing**" in list(table([none]))[-1]
    assert none.to_json()["held"] is False
