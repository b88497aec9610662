import gc
import hashlib
import json
import threading
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import relaxd
from relaxd.errors import BundleError, ExecutionError, InputError


def align(shape: tuple[int, ...], dtype: str = "float32", offset: int = 0) -> np.ndarray:
    """An array of ones whose address is `offset` bytes past a multiple of 64."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.zeros(size + 128, "uint8")
    start = -raw.ctypes.data % 64 + offset
    array = raw[start : start + size].view(dtype).reshape(shape)
    array[...] = 1
    return array


@pytest.fixture(scope="module")
def dims(bundles):
    return relaxd.load(bundles / "dims")


@pytest.fixture(scope="module")
def ownership(bundles):
    return relaxd.load(bundles / "ownership")


@pytest.fixture(scope="module")
def vector(bundles):
    return relaxd.load(bundles / "vector")


def expect(x, wide, scale):
    return (x + wide[:, ::2]) * scale


@pytest.mark.parametrize(("n", "m"), [(1, 2), (3, 10), (8, 64)])
def test_any_shape_in_range(dims, n, m):
    random = np.random.default_rng(0)
    inputs = {
        "x": random.random((n, m), "float32"),
        "wide": random.random((n, 2 * m), "float32"),
        "scale": np.float32(3),
    }
    outputs = dims.run(inputs)
    assert list(outputs) == ["y"]
    np.testing.assert_array_equal(outputs["y"], expect(**inputs))
    np.testing.assert_array_equal(dims(**inputs)["y"], outputs["y"])


def test_what_a_model_says_of_itself(dims):
    assert [str(spec) for spec in dims.inputs] == [
        "x=float32[n,m]",
        "wide=float32[n,2 * m]",
        "scale=float32[]",
    ]
    assert [spec.name for spec in dims.outputs] == ["y"]
    assert [(dim.name, dim.describe()) for dim in dims.dims] == [
        ("n", "1 to 8"),
        ("m", "2 to 64, a multiple of 2"),
    ]
    assert dims.manifest.name == "dims"
    assert "x=float32[n,m]" in repr(dims)


def test_a_wrong_input_never_reaches_the_library(dims):
    with pytest.raises(InputError, match=r"axis 0 \(n\) has size 9; n must be 1 to 8"):
        dims.run(
            {
                "x": np.ones((9, 2), "float32"),
                "wide": np.ones((9, 4), "float32"),
                "scale": np.float32(1),
            }
        )


@pytest.mark.parametrize("offset", [0, 4, 16, 32])
def test_any_alignment(vector, offset):
    """The kernel moves aligned vectors: without a copy, offsets 4 and 16 are a
    segmentation fault.
    """
    x = align((16, 64), offset=offset)
    assert x.ctypes.data % 64 == offset
    np.testing.assert_array_equal(
        vector.run({"x": x, "work": np.array(2)})["y"], np.full((16, 64), 4096 * 2.5, "float32")
    )


@pytest.mark.parametrize(
    "layout",
    [
        lambda x: np.asfortranarray(x),
        lambda x: np.repeat(x, 2, axis=1)[:, ::2],
        lambda x: np.flip(np.flip(x, 0).copy(), 0),
        lambda x: x.astype(">f4"),
        lambda x: np.asfortranarray(x).astype(">f4"),
        lambda x: np.frombuffer(x.tobytes(), "float32").reshape(x.shape),
        lambda x: (
            np.lib.stride_tricks.as_strided(
                align((x.size + 1,), offset=4)[:-1], x.shape, (x.shape[1] * 4, 4)
            )
            * 0
            + x
        ),
        lambda x: np.concatenate([x, x])[: len(x)],
        lambda x: x.view(np.matrix),
    ],
)
@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
def test_any_layout_and_byte_order(dims, layout):
    x = np.random.default_rng(1).random((4, 6), "float32")
    wide = np.ones((4, 12), "float32")
    np.testing.assert_array_equal(dims(x=layout(x), wide=wide, scale=np.float32(1))["y"], x + 1)


def test_broadcast_and_read_only_inputs(dims):
    x = np.broadcast_to(np.float32(2), (4, 6))
    assert not x.flags.writeable
    frozen = align((4, 12))
    frozen.flags.writeable = False
    np.testing.assert_array_equal(
        dims(x=x, wide=frozen, scale=np.float32(1))["y"], np.full((4, 6), 3, "float32")
    )


def test_a_row_of_odd_strides(dims):
    """numpy calls it contiguous whatever the stride of an axis of size 1."""
    x = align((4, 2))[::4]
    assert x.flags.c_contiguous
    assert dims(x=x, wide=np.ones((1, 4), "float32"), scale=np.float32(1))["y"].tolist() == [[2, 2]]


def test_empty_arrays(ownership):
    outputs = ownership(x=np.zeros((0, 4), "float32"))
    assert [array.shape for array in outputs.values()] == [(0, 4), (0, 4), (0, 4), (0,), (0,), (4,)]


def test_every_dtype(bundles):
    model = relaxd.load(bundles / "dtypes")
    values = np.array([0, 1, 3])
    dtypes = {
        spec.name: ml_dtypes.bfloat16 if spec.dtype == "bfloat16" else np.dtype(spec.dtype)
        for spec in model.inputs
    }
    for layout in (lambda a: a, lambda a: np.repeat(a, 2)[::2], lambda a: a[:0], lambda a: a[1:]):
        inputs = {name: layout(values.astype(dtype)) for name, dtype in dtypes.items()}
        outputs = model.run(inputs)
        for name, array in inputs.items():
            twin = outputs[name.replace("x_", "y_")]
            assert twin.dtype == array.dtype
            assert twin.tolist() == (~array if array.dtype == bool else array + array).tolist()


def test_a_bfloat16_input_is_told_by_its_name(bundles):
    model = relaxd.load(bundles / "dtypes")
    inputs = {
        spec.name: np.zeros(1, "uint16" if spec.dtype == "bfloat16" else spec.dtype)
        for spec in model.inputs
    }
    with pytest.raises(InputError, match="'x_bfloat16' must be bfloat16, got uint16"):
        model.run(inputs)


def test_outputs_share_memory_with_nothing(ownership):
    """The library returns one tensor twice, its input, views of both, and one of its constants."""
    x = align((2, 4))
    outputs = ownership(x=x)
    arrays = [x, *outputs.values()]
    for i, one in enumerate(arrays):
        for other in arrays[:i]:
            assert not np.shares_memory(one, other)
    wanted = {name: array.copy() for name, array in outputs.items()}
    for array in outputs.values():
        array[...] = -1
    for name, array in ownership(x=x).items():
        np.testing.assert_array_equal(array, wanted[name])
    assert x.tolist() == [[1] * 4] * 2


def test_a_constant_that_is_the_only_output(bundles):
    model = relaxd.load(bundles / "constant")
    for _ in range(2):
        array = model(x=np.zeros(1, "float32"))["y"]
        assert array.tolist() == [0, 1, 2, 3]
        array[...] = 9


def test_outputs_outlive_later_calls_and_the_model(bundles):
    model = relaxd.load(bundles / "ownership")
    retained = [model(x=np.full((n, 4), n, "float32")) for n in range(1, 40)]
    for n in range(1, 40):
        model(x=np.full((n, 4), -1, "float32"))
    del model
    gc.collect()
    for n, outputs in enumerate(retained, 1):
        np.testing.assert_array_equal(
            outputs["o0"], np.arange(4, dtype="float32") + np.full((n, 4), n, "float32")
        )
        np.testing.assert_array_equal(outputs["o2"], np.full((n, 4), n, "float32"))


def test_fresh_outputs_are_not_copied(dims):
    """A fresh result's memory belongs to the runtime's tensor, not to numpy."""
    y = dims(x=np.ones((1, 2), "float32"), wide=np.ones((1, 4), "float32"), scale=np.float32(1))[
        "y"
    ]
    assert not y.flags.owndata
    assert y.flags.writeable
    assert y.ctypes.data % 64 == 0


@pytest.mark.parametrize("threads", [1, 2])
def test_calls_from_many_threads(bundles, threads):
    model = relaxd.load(bundles / "vector", threads=threads)
    wrong = []

    def work(value: int) -> None:
        x = np.full((4 + value, 64), value, "float32")
        for _ in range(10):
            y = model(x=x, work=np.array(1))["y"]
            if y.shape != x.shape or (y != value * 4096 * 1.5).any():
                wrong.append(value)

    workers = [threading.Thread(target=work, args=(value,)) for value in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert wrong == []


def test_several_bundles_and_the_same_one_twice(bundles, dims):
    inputs = {
        "x": np.ones((1, 2), "float32"),
        "wide": np.ones((1, 4), "float32"),
        "scale": np.float32(2),
    }
    again = relaxd.load(bundles / "dims")
    other = relaxd.load(bundles / "ownership")
    assert again.run(inputs)["y"].tolist() == [[4, 4]]
    assert other(x=np.ones((1, 4), "float32"))["o0"].tolist() == [[1, 2, 3, 4]]
    del again
    gc.collect()
    assert dims.run(inputs)["y"].tolist() == [[4, 4]]


def test_a_library_that_fails_says_so(bundles, doctored):
    """A manifest that admits what the library does not: the library's own check speaks."""
    model = relaxd.load(doctored(lambda manifest: manifest["inputs"][1].update(shape=["n", "w"])))
    with pytest.raises(ExecutionError, match="dims failed") as caught:
        model(x=np.ones((1, 2), "float32"), wide=np.ones((1, 5), "float32"), scale=np.float32(1))
    assert caught.value.details["shapes"] == {"x": [1, 2], "wide": [1, 5], "scale": []}
    model(x=np.ones((1, 2), "float32"), wide=np.ones((1, 4), "float32"), scale=np.float32(1))


def _reported(doctored, report) -> Path:
    """The bundle `dims`, whose n is 1:8 and whose m is 2:64%2, with a report of its numerics."""
    data = (report if isinstance(report, str) else json.dumps(report)).encode()
    entry = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
    bundle = doctored(lambda manifest: manifest["files"].update({"numerics.json": entry}))
    (bundle / "numerics.json").write_bytes(data)
    return bundle


def _run(model, n, m):
    x, wide = np.ones((n, m), "float32"), np.ones((n, 2 * m), "float32")
    return model.run({"x": x, "wide": wide, "scale": np.float32(1)})


def test_runs_beyond_what_was_verified_are_counted(doctored):
    model = relaxd.load(_reported(doctored, {"verified_up_to": {"n": 8, "m": 32}}))
    assert dict(model.verified_up_to) == {"n": 8, "m": 32}
    assert model.unverified_runs == 0
    for m in (2, 32, 34, 64, 34, 32):
        assert _run(model, 8, m)["y"].shape == (8, m)
    assert model.unverified_runs == 3
    with pytest.raises(TypeError):
        model.verified_up_to["m"] = 64  # type: ignore[index]


@pytest.mark.parametrize("report", [None, {"verdict": "not_run", "status": "unverified"}])
def test_where_nothing_is_known_nothing_is_counted(bundles, doctored, report):
    model = relaxd.load(bundles / "dims" if report is None else _reported(doctored, report))
    _run(model, 8, 64)
    assert (dict(model.verified_up_to), model.unverified_runs) == ({}, 0)


@pytest.mark.parametrize(
    ("report", "says"), [("{", "numerics.json is not JSON"), ("[]", "numerics.json is malformed")]
)
def test_a_report_that_cannot_be_read_is_an_error(doctored, report, says):
    with pytest.raises(BundleError, match=says):
        relaxd.load(_reported(doctored, report))
