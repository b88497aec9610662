"""Libraries that need no runtime, beside ONNX Runtime: from Python and from a C program."""

import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import relaxd
from compiler import compile_model
from relaxd.errors import ExecutionError, InputError
from tests.compiler.codegen.standalone import models

ROOT = Path(__file__).parents[4]
PROGRAM = Path(__file__).with_name("program.c")
ALLOWED = re.compile(r"mem(cpy|set|move)|posix_memalign|free|__cxa_\w+|_\w*gmon\w*|_ITM_\w+")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("standalone")
    models.build_bundle(models.perceptron(), folder, "mlp", {"n": (0, 5000)})
    models.build_bundle(models.nonzero(), folder, "found", {"a": (0, 40), "b": (1, 40)})
    models.build_bundle(models.choosing(), folder, "choosing", {"n": "1:64%3"})
    models.build_bundle(models.counting(), folder, "counting", {"n": (1, 9)})
    return folder


def compare(folder: Path, name: str, feed: dict[str, np.ndarray], model=None) -> None:
    session = onnxruntime.InferenceSession(folder / f"{name}.onnx")
    names = [output.name for output in session.get_outputs()]
    got = (model or relaxd.load(folder / name)).run(feed)
    plain = {key: np.array(x, x.dtype.newbyteorder("="), order="C") for key, x in feed.items()}
    for output, want in zip(names, session.run(names, plain), strict=True):
        assert got[output].dtype == want.dtype
        np.testing.assert_allclose(got[output], want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("n", [0, 1, 2, 7, 64, 257, 5000])
def test_every_extent_of_the_range(folder, n):
    x = np.random.default_rng(n).standard_normal((n, 32)).astype("float32")
    compare(folder, "mlp", {"x": x})


def test_a_library_that_holds_its_weights(tmp_path):
    onnx.save(models.perceptron(), tmp_path / "mlp.onnx")
    options = {"flavour": "standalone", "embed_weights": True, "verify": False, "profile": False}
    manifest = compile_model(
        tmp_path / "mlp.onnx", output=tmp_path / "mlp", dims={"n": (0, 9)}, options=options
    )
    assert manifest.weights == ()
    assert not (tmp_path / "mlp" / manifest.weights_file).exists()
    x = np.random.default_rng(1).standard_normal((9, 32)).astype("float32")
    compare(tmp_path, "mlp", {"x": x})


def test_one_model_is_bound_to_other_extents_again_and_again(folder):
    model = relaxd.load(folder / "mlp")
    for n in (5, 5000, 1, 5, 0, 300):
        x = np.random.default_rng(n).standard_normal((n, 32)).astype("float32")
        compare(folder, "mlp", {"x": x}, model)


def test_both_flavours_share_out_loops_in_one_process(folder):
    """In a process of its own, which a call into the other flavour's threads would end."""
    models.build_bundle(models.perceptron(), folder, "machine", {"n": (0, 5000)}, "vm")
    script = """
import sys, numpy, relaxd
x = numpy.ones((5000, 32), "float32")
first, *others = (relaxd.load(path, threads=2).run({"x": x}) for path in sys.argv[1:])
for other in others:
    for name, output in first.items():
        numpy.testing.assert_allclose(other[name], output, rtol=1e-6)
"""
    for order in (("machine", "mlp"), ("mlp", "machine")):
        paths = [str(folder / name) for name in order]
        subprocess.run([sys.executable, "-c", script, *paths], check=True)


def test_arrays_lie_anywhere(folder):
    x = np.random.default_rng(0).standard_normal((64, 9)).astype("float32").T[2:7, 1:33]
    compare(folder, "mlp", {"x": x.astype(">f4")})
    shifted = np.zeros(9 * 32 + 1, "float32")[1:].reshape(9, 32)
    compare(folder, "mlp", {"x": shifted})


def test_a_prepared_call_reads_and_writes_the_callers_arrays(folder):
    model = relaxd.load(folder / "mlp", threads=1)
    x = np.zeros((3, 32), "float32")
    call = model.prepared({"x": x})
    first = call()["y"]
    for seed in range(3):
        x[:] = np.random.default_rng(seed).standard_normal(x.shape)
        assert call()["y"] is first
        np.testing.assert_array_equal(first, model.run({"x": x})["y"])
    with pytest.raises(TypeError):
        call()["y"] = x  # type: ignore[index]


def test_a_prepared_call_has_a_context_of_its_own(folder):
    model = relaxd.load(folder / "mlp", threads=1)
    rng = np.random.default_rng(5)
    feeds = [{"x": rng.standard_normal((n, 32)).astype("float32")} for n in (1, 70, 1)]
    calls = [model.prepared(feed) for feed in feeds]
    wanted = [model.run(feed)["y"] for feed in feeds]
    for call, want in zip(calls, wanted, strict=True):
        np.testing.assert_array_equal(call()["y"], want)
    for call, want in zip(reversed(calls), reversed(wanted), strict=True):
        np.testing.assert_array_equal(call()["y"], want)


def test_what_cannot_be_prepared_is_run_as_ever(folder):
    x = np.random.default_rng(6).integers(-1, 2, (3, 5)).astype("float32")
    model_of_found = relaxd.load(folder / "found", threads=1)
    call = model_of_found.prepared({"x": x})
    x *= 2
    np.testing.assert_array_equal(call()["y"], model_of_found.run({"x": x})["y"])
    swapped = np.ones((2, 32), ">f4")
    model = relaxd.load(folder / "mlp", threads=1)
    call = model.prepared({"x": swapped})
    swapped *= 3
    np.testing.assert_array_equal(call()["y"], model.run({"x": swapped})["y"])
    with pytest.raises(InputError):
        model.prepared({"x": np.zeros((2, 31), "float32")})


def test_a_prepared_call_is_for_one_thread_at_a_time(folder):
    call = relaxd.load(folder / "mlp", threads=1).prepared({"x": np.ones((5000, 32), "float32")})
    refused, done = [], []

    def again():
        for _ in range(50):
            try:
                done.append(call()["y"][0, 0])
            except ExecutionError as error:
                refused.append(str(error))

    threads = [threading.Thread(target=again) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(done)) == 1
    assert len(done) + len(refused) == 200
    assert all("under way in another thread" in why for why in refused)


@pytest.mark.parametrize("shape", [(0, 1), (1, 1), (3, 5), (40, 37)])
def test_extents_that_only_a_run_knows(folder, shape):
    x = np.random.default_rng(1).integers(-1, 2, shape).astype("float32")
    compare(folder, "found", {"x": x})
    compare(folder, "found", {"x": x * 0})


@pytest.mark.parametrize("sign", [-1, 1])
def test_branches(folder, sign):
    x = np.abs(np.random.default_rng(2).standard_normal((6, 4))).astype("float32")
    compare(folder, "choosing", {"x": sign * x})


@pytest.mark.parametrize("trips", [0, 1, 2, 300])
def test_loops_whose_state_grows(folder, trips):
    x = np.random.default_rng(3).standard_normal((2, 4)).astype("float32")
    compare(folder, "counting", {"x": x, "trips": np.array(trips, np.int64)})


def test_a_dim_out_of_range_is_named(folder):
    with pytest.raises(InputError, match="n must be 1 to 64, a multiple of 3"):
        relaxd.load(folder / "choosing").run({"x": np.zeros((4, 4), "float32")})


def test_the_manifest_says_how_to_call_it(folder):
    manifest = relaxd.load(folder / "mlp").manifest
    assert (manifest.flavour, manifest.entry, manifest.load.runtime) == (
        "standalone",
        "relaxd_mlp",
        {},
    )


@pytest.mark.parametrize("name", ["mlp", "found", "choosing", "counting"])
def test_nothing_of_tvm_is_left(folder, name):
    library = folder / name / "model.so"
    assert not re.search(rb"tvm|TVM", library.read_bytes())
    listed = subprocess.run(
        ["nm", "-D", "--undefined-only", library], capture_output=True, text=True, check=True
    )
    symbols = {re.split(r"[\s@]+", line.strip())[1] for line in listed.stdout.splitlines()}
    assert {name for name in symbols if not ALLOWED.fullmatch(name)} == set()


def test_numpy_alone_runs_it(folder):
    code = (
        "import sys\n"
        "for name in ('tvm', 'tvm_ffi', 'torch', 'onnx', 'httpx'): sys.modules[name] = None\n"
        "import numpy as np, relaxd\n"
        "y = relaxd.load(sys.argv[1]).run({'x': np.ones((3, 32), 'float32')})['y']\n"
        "print(y.shape)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, folder / "mlp"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert (done.stdout, done.stderr) == ("(3, 7)\n", "")


def test_threads_share_a_large_matmul_out(folder):
    x = np.random.default_rng(4).standard_normal((5000, 32)).astype("float32")
    one = relaxd.load(folder / "mlp", threads=1).run({"x": x})["y"]
    two = relaxd.load(folder / "mlp", threads=2).run({"x": x})["y"]
    np.testing.assert_array_equal(one, two)


def test_one_thread_opens_no_library_of_threads(folder):
    """A model that was loaded with one thread computes with two later on."""
    code = """
import sys, numpy as np, relaxd
from relaxd.loader.engines import standalone
one = relaxd.load(sys.argv[1], threads=1)
x = np.ones((5000, 32), np.float32)
first, opened = one.run({"x": x})["y"], len(standalone._OPENED)
two = one.session(threads=2)
assert (two.run({"x": x})["y"] == first).all()
print(opened, len(standalone._OPENED), two.threads)
"""
    command = [sys.executable, "-c", code, folder / "mlp"]
    assert subprocess.check_output(command, text=True).split() == ["1", "2", "2"]


def test_a_c_program_runs_two_models(folder):
    libraries = ["mlp/model.so", "counting/model.so"]
    flags = [
        "-std=c11",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-fno-sanitize=undefined",
        "-I.",
        "-Wl,-rpath,.",
    ]
    command = [sys.executable, "-m", "ziglang", "cc", *flags, "-o", "program", str(PROGRAM)]
    for number, library in enumerate(libraries):
        copy = folder / f"libm{number}.so"
        copy.write_bytes((folder / library).read_bytes())
        command.append(f"./{copy.name}")
    subprocess.run(command, cwd=folder, check=True)
    done = subprocess.run([folder / "program"], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, (done.returncode, done.stdout, done.stderr)
    assert done.stdout.splitlines() == [
        "4 a thread failed",
        "-1 n = 5001, it must be 0 to 5000",
        "5 bind and arena come before run",
        "counting x float32 4 1 n 1 9",
        "5 only a run knows the extents of output y: give NULL for it",
        "7",
    ]


def test_dims_are_bound_in_the_order_of_their_names(tmp_path):
    names = [f"d{i}" for i in range(12)]
    model = models._model(
        [models._node("Concat", names, ["y"], axis=0)],
        [models._value(name, models.FLOAT, [f"{name}_"]) for name in names],
        [models._value("y", models.FLOAT, ["n"])],
    )
    models.build_bundle(model, tmp_path, "many", {})
    feed = {name: np.full(3 + i, i, "float32") for i, name in enumerate(names)}
    compare(tmp_path, "many", feed)


def test_an_axis_of_a_dim_that_a_later_input_has(tmp_path):
    """A decoder's mask comes before its caches."""
    names = ("tokens", "mask", "cache")
    model = models._model(
        [
            models._node("Concat", ["cache", "tokens"], ["rows"], axis=0),
            models._node("Add", ["mask", "rows"], ["y"]),
        ],
        [models._value(name, models.FLOAT, [name]) for name in names],
        [models._value("y", models.FLOAT, ["mask"])],
    )
    onnx.save(model, tmp_path / "late.onnx")
    axes = ("seq", "past+seq", "past")
    compile_model(
        tmp_path / "late.onnx",
        output=tmp_path / "late",
        dims={"past": (1, 9), "seq": (1, 9)},
        inputs={name: f"float32[{axis}]" for name, axis in zip(names, axes, strict=True)},
        options={"flavour": "standalone", "profile": False},
    )
    random = np.random.default_rng(0)
    for past, seq in ((1, 1), (5, 7), (9, 9)):
        sizes = (seq, past + seq, past)
        feed = {
            name: random.standard_normal(size).astype("float32")
            for name, size in zip(names, sizes, strict=True)
        }
        compare(tmp_path, "late", feed)


def test_a_check_of_the_model_says_what_differs(tmp_path):
    model = models._model(
        [models._node("Reshape", ["x", "shape"], ["r"]), models._node("Add", ["r", "z"], ["y"])],
        [
            models._value("x", models.FLOAT, ["n"]),
            models._value("shape", models.INT64, [1]),
            models._value("z", models.FLOAT, ["n"]),
        ],
        [models._value("y", models.FLOAT, ["n"])],
    )
    folder = models.build_bundle(model, tmp_path, "reshaping", {"n": (2, 9)})
    loaded = relaxd.load(folder)
    x = np.ones(4, "float32")
    np.testing.assert_array_equal(loaded(x=x, z=x, shape=np.array([4]))["y"], x + x)
    with pytest.raises(ExecutionError, match="in this call n = 4"):
        loaded(x=x, z=x, shape=np.array([3]))


SMALL = {
    "bfloat16": onnx.TensorProto.BFLOAT16,
    "float8_e4m3fn": onnx.TensorProto.FLOAT8E4M3FN,
}


@pytest.fixture(scope="module")
def small_types(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """y = x of two types that numpy lacks."""
    model = models._model(
        [models._node("Identity", [f"x_{name}"], [f"y_{name}"]) for name in SMALL],
        [models._value(f"x_{name}", form, ["n"]) for name, form in SMALL.items()],
        [models._value(f"y_{name}", form, ["n"]) for name, form in SMALL.items()],
    )
    return models.build_bundle(model, tmp_path_factory.mktemp("narrow"), "narrow", {"n": (0, 9)})


TORCH = """
import json, sys
import numpy as np
import relaxd
from relaxd.errors import InputError
model = relaxd.load(sys.argv[1], threads=1)
import torch

half, byte = (torch.arange(15).to(getattr(torch, name)) for name in ("bfloat16", "float8_e4m3fn"))
def feed(half, byte):
    return {"x_bfloat16": half, "x_float8_e4m3fn": byte}
def plain(outputs):
    return [outputs[name].astype("float32").tolist() for name in ("y_bfloat16", "y_float8_e4m3fn")]
def refusal(inputs):
    try:
        model.run(inputs)
    except InputError as error:
        return str(error)
"""


def with_torch(code: str, bundle: Path) -> list:
    """The output of the code in a process where torch is imported after the model is loaded."""
    command = [sys.executable, "-c", TORCH + code, str(bundle)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_tensors_of_torch_which_numpy_cannot_see(small_types):
    code = """
call = model.prepared(feed(half[:3], byte[1:4]))
before = plain(call())
half[:3] = 7
after = plain(call())
kept = model.bind_inputs({"x_bfloat16": half[3:6]})({"x_float8_e4m3fn": byte[:3]})
empty = plain(model.run(feed(half[:0], byte[:0])))
print(json.dumps([before, after, plain(kept), empty, refusal(feed(half[::2][:3], byte[:3])),
                  refusal(feed(byte[:3], byte[:3]))]))
"""
    before, after, stayed, empty, strided, wrong = with_torch(code, small_types)
    assert before == [[0, 1, 2], [1, 2, 3]]
    assert after == [[7, 7, 7], [1, 2, 3]], "the call reads the tensor where it lies"
    assert stayed == [[3, 4, 5], [0, 1, 2]]
    assert empty == [[], []]
    assert "make it contiguous" in strided
    assert "'x_bfloat16' must be bfloat16, got float8_e4m3fn" in wrong


def test_such_tensors_take_a_package(small_types):
    code = """
sys.modules["tvm_ffi"] = None
print(json.dumps([refusal(feed(half[:3], byte[:3]))]))
"""
    (refused,) = with_torch(code, small_types)
    assert "numpy cannot see a Tensor of this type (pip install apache-tvm-ffi" in refused
