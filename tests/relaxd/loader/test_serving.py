"""Requirements of servers on a loaded model: calls at once, outputs in place, DLPack, profiles,
counts.
"""

import json
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from prometheus_client import CollectorRegistry

import relaxd
from relaxd.errors import InputError
from relaxd.loader.engines.engine import VirtualMachine
from relaxd.loader.metrics import CallMetrics


@pytest.fixture(scope="module")
def vector(bundles):
    return relaxd.load(bundles / "vector", threads=1)


@pytest.fixture(scope="module")
def dims(bundles):
    return relaxd.load(bundles / "dims", threads=1)


def inputs_of(n, m):
    random = np.random.default_rng(n)
    x, wide = random.random((n, m), "float32"), random.random((n, 2 * m), "float32")
    return {"x": x, "wide": wide, "scale": np.float32(3)}


def expect(x, wide, scale):
    return (x + wide[:, ::2]) * scale


def test_as_many_calls_run_at_once_as_threads_call(bundles):
    """Each call waits within its virtual machine until all of them are in theirs."""
    model = relaxd.load(bundles / "vector", threads=1)
    assert isinstance(model._engine, VirtualMachine)
    machines, combined = model._engine.machines, threading.Barrier(4)
    make = machines._make

    def meeting():
        machine, function = make()
        return machine, lambda *tensors: (combined.wait(60), function(*tensors))[1]

    machines._idle.clear()
    machines._make, wrong = meeting, []

    def work(value):
        for _ in range(5):
            y = model(x=np.full((4 + value, 64), value, "float32"), work=np.array(1))["y"]
            if y.shape != (4 + value, 64) or (y != value * 4096 * 1.5).any():
                wrong.append(value)

    callers = [threading.Thread(target=work, args=(value,)) for value in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert (wrong, machines.idle) == ([], 4)


def test_machines_share_the_weights(bundles):
    model = relaxd.load(bundles / "weighty", threads=1)
    x = np.ones((3, 512), "float32")
    first = model(x=x)
    second = model.watch_kernels(lambda kernel, begins: None)
    assert second is not None
    again = second(x=x)
    np.testing.assert_array_equal(first["sum"], again["sum"])
    np.testing.assert_array_equal(again["sum"], x + 2 * np.arange(512, dtype="float32") + 1)
    maps = Path("/proc/self/maps").read_text().splitlines()
    mapped = [line for line in maps if line.endswith("weighty/weights.bin")]
    assert len({line.split()[-1] for line in mapped}) == 1
    assert len(mapped) <= 2, "a second machine maps no second copy"


def test_a_session_has_threads_of_its_own(bundles):
    model = relaxd.load(bundles / "vector", threads=1)
    session = model.session(threads=2)
    assert (model.threads, session.threads) == (1, 2)
    x = np.full((8, 64), 2, "float32")
    for each in (model, session):
        assert (each(x=x, work=np.array(1))["y"] == 2 * 4096 * 1.5).all()


def test_a_list_in_the_order_of_the_inputs(dims):
    inputs = inputs_of(3, 4)
    y = dims.run(list(inputs.values()))["y"]
    np.testing.assert_array_equal(y, expect(**inputs))
    with pytest.raises(InputError, match="missing input 'scale'"):
        dims.run([inputs["x"], inputs["wide"]])
    with pytest.raises(InputError, match="has 3 inputs, got 4") as caught:
        dims.run([*inputs.values(), 1])
    assert "in this order: x, wide, scale" in caught.value.hint
    with pytest.raises(InputError, match="got ndarray"):
        dims.run(inputs["x"])


def test_outputs_go_where_the_caller_wants_them(dims):
    inputs, position = inputs_of(5, 6), np.zeros((5, 6), "float32")
    outputs = dims.run(inputs, out={"y": position})
    assert outputs["y"] is position
    np.testing.assert_array_equal(position, expect(**inputs))


def test_an_array_that_does_not_fit_is_refused(dims):
    inputs, frozen = inputs_of(5, 6), np.zeros((5, 6), "float32")
    frozen.flags.writeable = False
    for out in (np.zeros((5, 5), "float32"), np.zeros((5, 6)), frozen):
        with pytest.raises(InputError, match=r"output 'y' is float32\[5, 6\], the given array is"):
            dims.run(inputs, out={"y": out})
    with pytest.raises(InputError, match="no output 'z'"):
        dims.run(inputs, out={"z": frozen})


TORCH = """
import json, sys
import numpy as np
import relaxd
from relaxd.errors import InputError
model = relaxd.load(sys.argv[1], threads=1)
imported = "torch" in sys.modules
import torch

def refusal(inputs):
    try:
        model.run(inputs)
    except InputError as error:
        return str(error)

"""


def with_torch(code, bundle):
    """Run the code, and return its output, in a process where torch is imported after the model is
    loaded.
    """
    command = [sys.executable, "-c", TORCH + code, bundle]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_tensors_of_torch_which_is_not_imported_for_them(bundles):
    code = """
x, wide = torch.ones(3, 4, requires_grad=True), torch.ones(8, 3).t()
inputs = [x, wide, torch.tensor(2.0)]
place = torch.zeros(3, 4)
same = model.run(inputs, out={"y": place})["y"] is place
lent = torch.from_dlpack(model.run(inputs)["y"])
refused = refusal([x.double(), *inputs[1:]])
print(json.dumps([imported, same, place.tolist(), lent.tolist(), refused]))
"""
    imported, same, position, lent, refusal = with_torch(code, bundles / "dims")
    assert (imported, same) == (False, True)
    assert position == lent == [[4] * 4] * 3
    assert "'x' must be float32, got float64" in refusal


def test_bfloat16_of_torch_which_numpy_cannot_see(bundles):
    code = """
names = {spec.name: spec.dtype for spec in model.inputs}
inputs = {name: np.ones(7, "float32" if dtype == "bfloat16" else dtype)
          for name, dtype in names.items()}
def run(tensor):
    return model.run({**inputs, "x_bfloat16": tensor})["y_bfloat16"].astype("float32").tolist()
half = torch.arange(15, dtype=torch.bfloat16)
print(json.dumps([run(half[:7]), run(half[1:8]), refusal({**inputs, "x_bfloat16": half[::2][:7]}),
                  refusal({**inputs, "x_bfloat16": half[:7], "x_float32": half[:7]})]))
"""
    first, unaligned, strided, wrong = with_torch(code, bundles / "dtypes")
    assert first == [2 * value for value in range(7)]
    assert unaligned == [2 * value for value in range(1, 8)]
    assert "make it contiguous" in strided
    assert "'x_float32' must be float32, got bfloat16" in wrong


def test_a_profile_names_the_kernels(vector):
    profile = vector.profile({"x": np.ones((32, 64), "float32"), "work": np.array(1)}, runs=3)
    assert (profile.model, profile.runs, profile.threads) == ("vector", 3, 1)
    assert profile.shapes == {"x": [32, 64], "work": []}
    assert 0 < profile.min_ms <= profile.median_ms <= profile.max_ms
    (kernel,) = [row for row in profile.kernels if row.name == "kernel"]
    assert kernel.calls == 1
    assert sum(row.share for row in profile.kernels) == pytest.approx(1)
    sampled = vector.profile(dims={"n": 5}, runs=1)
    assert sampled.shapes["x"] == [5, 64]


def test_calls_are_counted_for_prometheus(bundles):
    registry = CollectorRegistry()
    model = relaxd.load(bundles / "dims", threads=1, metrics=CallMetrics(registry))
    for _ in range(3):
        model.run(inputs_of(2, 4))
    with pytest.raises(InputError):
        model.run(inputs_of(2, 3))

    def value(name, **labels):
        return registry.get_sample_value(name, {"model": "dims", **labels})

    assert value("relaxd_model_call_seconds_count") == 3
    assert value("relaxd_model_calls_running") == 0
    assert value("relaxd_model_failures_total", code="run.input") == 1
    assert value("relaxd_model_unverified_calls_total") == 0
