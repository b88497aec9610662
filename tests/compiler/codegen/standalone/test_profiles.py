"""Kernels that a loaded library reports while its calls are profiled, in either flavour."""

import json
import threading
from pathlib import Path

import numpy as np
import onnx
import pytest

import relaxd
from compiler import compile_model
from relaxd.loader.engines import standalone
from relaxd.loader.profiling import timed_calls
from tests.compiler.codegen.standalone import models

FLAVOURS = ("standalone", "vm")
X = np.random.default_rng(0).standard_normal((300, 32)).astype("float32")
LOOP = {"x": np.ones((3, 4), "float32"), "trips": np.array(7)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("profiles")
    for flavour in FLAVOURS:
        models.build_bundle(models.perceptron(), folder / flavour, "mlp", {"n": (0, 5000)}, flavour)
        models.build_bundle(models.counting(), folder / flavour, "counting", {"n": (1, 9)}, flavour)
    return folder


def kernels_of(bundle: Path) -> set[str]:
    listed = json.loads((bundle / "kernels.json").read_text())["kernels"]
    return {kernel["name"] for kernel in listed}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_profile_names_the_kernels_of_the_build(folder: Path, flavour: str, threads: int) -> None:
    bundle = folder / flavour / "mlp"
    profile = relaxd.load(bundle, threads=threads).profile({"x": X}, runs=3)
    assert (profile.runs, profile.threads, profile.shapes) == (3, threads, {"x": [300, 32]})
    known = [row for row in profile.kernels if row.name in kernels_of(bundle)]
    assert {row.name for row in known} == kernels_of(bundle)
    assert all(row.calls == 1 and row.ms > 0 for row in known)
    assert sum(row.share for row in profile.kernels) == pytest.approx(1)
    if flavour == "standalone":
        assert known == list(profile.kernels), "beside kernels a library calls nothing"


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_kernels_of_a_loop_count_as_often_as_it_runs(folder: Path, flavour: str) -> None:
    profile = relaxd.load(folder / flavour / "counting", threads=1).profile(LOOP, runs=2)
    assert LOOP["trips"] in [row.calls for row in profile.kernels]


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_calls_beside_a_profile_are_not_counted(folder: Path, flavour: str) -> None:
    """While a watched call waits in its first kernel, others of the same library run."""
    model, reported = relaxd.load(folder / flavour / "mlp", threads=1), list[str]()
    inside, go_on = threading.Event(), threading.Event()

    def watch(kernel: str, begins: bool) -> None:
        if begins:
            reported.append(kernel)
        inside.set()
        assert go_on.wait(60)

    watched, wanted = model.watch_kernels(watch), model.run({"x": X})["y"]
    assert watched is not None
    outputs: list[np.ndarray] = []
    caller = threading.Thread(target=lambda: outputs.append(watched.run({"x": X})["y"]))
    caller.start()
    assert inside.wait(60)
    before = list(reported)
    for _ in range(5):
        np.testing.assert_array_equal(model.run({"x": X})["y"], wanted)
    np.testing.assert_array_equal(model.prepared({"x": X})()["y"], wanted)
    assert reported == before
    go_on.set()
    caller.join()
    np.testing.assert_array_equal(outputs[0], wanted)
    calls = [name for name in reported if name in kernels_of(folder / flavour / "mlp")]
    assert len(calls) == len(set(calls)) == len(kernels_of(folder / flavour / "mlp"))


def test_two_profiles_at_once_each_hear_their_own(folder: Path) -> None:
    model = relaxd.load(folder / "standalone" / "counting", threads=1)
    kernels: dict[int, list[str]] = {1: [], 6: []}

    def work(trips: int) -> None:
        for _ in range(20):
            inputs = {**LOOP, "trips": np.array(trips)}
            (calls,) = timed_calls(model, inputs, 1)
            kernels[trips].append(" ".join(name for name, *_ in calls))

    callers = [threading.Thread(target=work, args=(trips,)) for trips in kernels]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    (short,), (long,) = set(kernels[1]), set(kernels[6])
    assert len(short.split()) < len(long.split())


def test_a_library_without_the_function_has_no_kernels(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bundles of earlier versions have none."""
    monkeypatch.setattr(standalone.Code, "watch", None)
    profile = relaxd.load(folder / "standalone" / "mlp", threads=1).profile({"x": X}, runs=2)
    assert (profile.runs, profile.kernels) == (2, ())


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_the_profile_of_a_build_lists_the_same_kernels(tmp_path: Path, flavour: str) -> None:
    onnx.save(models.perceptron(), tmp_path / "mlp.onnx")
    options = {"flavour": flavour, "verify": False}
    compile_model(
        tmp_path / "mlp.onnx", output=tmp_path / "mlp", dims={"n": (1, 64)}, options=options
    )
    rows = json.loads((tmp_path / "mlp" / "profile.json").read_text())["operators"]["rows"]
    measured = relaxd.load(tmp_path / "mlp").profile(dims={"n": 8}, runs=1)
    assert {row["name"] for row in rows} == {row.name for row in measured.kernels}
    assert kernels_of(tmp_path / "mlp") <= {row["name"] for row in rows}
