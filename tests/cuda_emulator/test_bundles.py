"""Bundles for CUDA built and run by `relaxd.load` on the emulator."""

import numpy as np
import onnx
import pytest

from tests.cuda_emulator import machine
from tests.cuda_emulator.machine import FALLING, RISING
from tests.support.models import small

pytestmark = pytest.mark.slow

TARGET = "cuda-sm90"
UNVERIFIED = {"target": TARGET, "options": {"verify": False, "profile": False}}


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype("float32")


def check(model, feeds, folder, dims, order=RISING) -> machine.Outcome:
    """Run the model on each feed, compare all outputs with ONNX Runtime's."""
    onnx.save(model, folder / "model.onnx")
    outcome = machine.run(folder / "model.onnx", feeds, folder, {**UNVERIFIED, "dims": dims}, order)
    assert (outcome.error, outcome.complaints) == ("", "")
    for feed, outputs in zip(feeds, outcome.outputs, strict=True):
        for got, want in zip(outputs.values(), small.reference(model, feed), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4)
    return outcome


def test_matmuls_at_every_size_in_every_order_of_threads(tmp_path):
    model, dims = small.perceptron(), {"batch": "1:4", "seq": "1:64"}
    shapes = ((1, 1), (1, 2), (1, 7), (3, 13), (4, 64), (1, 1))
    feeds = [{"x": normal(batch, seq, small.WIDTH)} for batch, seq in shapes]
    for order in (RISING, FALLING, 5):
        outcome = check(model, feeds, tmp_path, dims, order)
        assert outcome.launches == 3 * len(feeds)


@pytest.mark.long
def test_convolutions_at_every_size(tmp_path):
    dims = {"n": "1:4", "h": "8:64", "w": "8:64"}
    shapes = ((1, 8, 8), (2, 33, 17), (1, 9, 31), (1, 8, 8))
    feeds = [{"x": normal(n, 3, h, w)} for n, h, w in shapes]
    for order in (RISING, FALLING):
        check(small.convolutions(), feeds, tmp_path, dims, order)


@pytest.mark.long
def test_dims_of_no_extent_launch_nothing_that_touches_memory(tmp_path):
    dims = {"batch": "0:4", "seq": "0:16", "past": "0:16"}
    shapes = ((2, 3, 5), (2, 3, 0), (0, 3, 5), (2, 0, 5), (2, 0, 0), (1, 16, 16))
    feeds = [
        {
            "q": normal(batch, seq, small.WIDTH),
            "past": normal(batch, past, small.WIDTH),
        }
        for batch, seq, past in shapes
    ]
    check(small.decoder(), feeds, tmp_path, dims)


def test_fixed_dims_replay_a_captured_graph(tmp_path):
    dims = {"n": "1", "h": "32", "w": "32"}
    feeds = [{"x": normal(1, 3, 32, 32) * scale} for scale in (1, 2, -1)]
    outcome = check(small.convolutions(), feeds, tmp_path, dims)
    # The first call captures, and ran the kernels itself.
    assert outcome.replays == len(feeds) - 1


def test_a_build_on_such_a_machine_is_verified_there(tmp_path):
    model, dims = small.perceptron(), {"batch": "1:4", "seq": "1:64"}
    onnx.save(model, tmp_path / "model.onnx")
    request = {"target": TARGET, "dims": dims, "options": {"profile": False}}
    outcome = machine.run(tmp_path / "model.onnx", [], tmp_path, request)
    assert outcome.error == ""
    numerics = (tmp_path / "bundle" / "numerics.json").read_text()
    assert '"verdict": "passed"' in numerics
    # A build takes the emulator for a GPU.
    assert '"status": "executed"' in numerics


def test_code_for_another_architecture_is_refused_before_it_is_loaded(tmp_path):
    model = small.perceptron()
    onnx.save(model, tmp_path / "model.onnx")
    dims = {"batch": "1:4", "seq": "1:64"}
    request = {**UNVERIFIED, "target": "cuda-sm80", "dims": dims}
    outcome = machine.run(
        tmp_path / "model.onnx", [{"x": normal(1, 1, small.WIDTH)}], tmp_path, request
    )
    assert "needs compute capability 8.0, this machine has 9.0" in outcome.error
    assert outcome.complaints == ""
