"""Caches of a language model in WebAssembly, by the npm package in node, beside a library for this
machine with the same calls.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import relaxd
from compiler import compile_model
from relaxd.contract.options import CacheForm
from relaxd.errors import RelaxdError
from tests.clients.test_js import HERE, PACKAGE, run_node
from tests.support.models.decoders import FILLED_DIMS, GROWN_DIMS, SIZE, WORDS, fill, grown

pytestmark = pytest.mark.slow

CAPACITY, ENTRIES = 24, 3
FORMS: dict[str, tuple[Any, dict[str, Any], str]] = {
    "filled": (fill, FILLED_DIMS, "float32"),
    "grown": (grown, GROWN_DIMS, "float32"),
    # One layer: behind it a number in the middle of two may have been rounded either way.
    "filled, float16": (lambda: fill(1), FILLED_DIMS, "float16"),
    "grown, bfloat16": (grown, GROWN_DIMS, "bfloat16"),
    "filled, int8": (lambda: fill(1), FILLED_DIMS, "int8"),
}


ROWS = {
    None: SIZE * 4,
    CacheForm.FLOAT16: SIZE * 2,
    CacheForm.BFLOAT16: SIZE * 2,
    CacheForm.INT8: SIZE + 4,
}
"""Bytes of a row."""


@pytest.fixture(scope="module", params=FORMS)
def bundles(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders `web` and `own`."""
    model, dims, cache = FORMS[request.param]
    folder = tmp_path_factory.mktemp("state")
    options = {"state": "lifted", "cache": cache, "profile": False, "verify": False}
    for name, target in (("web", "wasm32-simd"), ("own", "native")):
        compile_model(model(), output=folder / name, target=target, dims=dims, options=options)
    return folder


def step(free: list[str], entries: int, rows: int, seed: int, **options: int) -> list[Any]:
    """A call of `step` with new tokens; positions, where the model takes them, are its part."""
    tokens = np.random.default_rng(seed).integers(0, WORDS, entries * rows).tolist()
    return ["step", {free[0]: tokens}, {"entries": entries, **options}]


def session(free: list[str]) -> list[Any]:
    """Steps of all entries and of some, one that does not fit among them, and everything that
    changes entries otherwise.
    """
    return [
        step(free, ENTRIES, 7, 0),
        step(free, ENTRIES, 1, 1),
        ["truncate", 1, 5],
        step(free, ENTRIES, 1, 2),
        step(free, 1, 4, 3, first=1),
        ["copy", 1, 2, 6],
        step(free, 1, 1, 4, first=2),
        step(free, 1, CAPACITY, 5, first=2),
        ["copy", 1, 0],
        ["truncate", 0, 20],
        ["reset"],
        step(free, 2, 17, 6),
        *(step(free, 2, 1, 7 + i) for i in range(CAPACITY - 17)),
        step(free, 2, 1, 90),
    ]


def play(folder: Path, calls: list[Any]) -> list[dict[str, Any]]:
    """Run a state of the library for this machine."""
    state = relaxd.load(folder / "own").state(entries=ENTRIES, capacity=CAPACITY)
    result: list[dict[str, Any]] = []
    for name, *arguments in calls:
        entry: dict[str, Any] = {}
        try:
            if name == "step":
                tokens, options = arguments
                ids = {key: np.array(value, np.int64) for key, value in tokens.items()}
                shaped = {key: ids[key].reshape(options["entries"], -1) for key in ids}
                logits = state.step(shaped, first=options.get("first", 0))["logits"]
                entry = {"gave": {"shape": list(logits.shape), "data": logits.ravel()}}
            else:
                getattr(state, name)(*arguments)
        except RelaxdError as error:
            entry = {"code": error.code}
        result.append({**entry, "lengths": list(state.lengths)})
    return result


def test_steps_are_those_of_a_library_for_this_machine(bundles: Path, tmp_path: Path) -> None:
    free = [spec.name for spec in relaxd.load(bundles / "own").state(entries=1).free]
    calls = session(free)
    (bundles / "web" / "calls.json").write_text(
        json.dumps({"options": {"entries": ENTRIES, "capacity": CAPACITY}, "calls": calls})
    )
    program = [str(HERE / "state.mjs"), str(PACKAGE / "src"), str(bundles / "web")]
    ran = json.loads(run_node(tmp_path, bundles / "web", *program))
    assert (ran["free"], ran["capacity"]) == (free, CAPACITY)
    state = relaxd.load(bundles / "own").manifest.state
    assert state is not None
    assert set(ran["bytesOfRows"]) == {ROWS[state.stored]}
    wanted = play(bundles, calls)
    assert any("gave" in entry for entry in wanted)
    assert any(entry.get("code") == "run.capacity" for entry in wanted)
    for result, want in zip(ran["found"], wanted, strict=True):
        assert (result.get("code"), result["lengths"]) == (want.get("code"), want["lengths"])
        if want.get("gave"):
            assert result["gave"]["shape"] == want["gave"]["shape"]
            np.testing.assert_allclose(
                result["gave"]["data"], want["gave"]["data"], rtol=1e-4, atol=1e-4
            )


@pytest.mark.parametrize("capacity", [0, 1000])
def test_a_capacity_that_the_model_does_not_have(
    bundles: Path, tmp_path: Path, capacity: int
) -> None:
    (bundles / "web" / "calls.json").write_text(
        json.dumps({"options": {"capacity": capacity}, "calls": []})
    )
    program = [str(HERE / "state.mjs"), str(PACKAGE / "src"), str(bundles / "web")]
    with pytest.raises(AssertionError, match=f"the capacity is {capacity} "):
        run_node(tmp_path, bundles / "web", *program)


def test_a_model_without_a_state_says_so(tmp_path: Path) -> None:
    model = onnx.helper.make_model(
        onnx.helper.make_graph(
            [onnx.helper.make_node("Relu", ["x"], ["y"])],
            "g",
            [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n"])],
            [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["n"])],
            [onnx.numpy_helper.from_array(np.zeros(4096, np.float32), "unread")],
        ),
        opset_imports=[onnx.helper.make_opsetid("", 17)],
        ir_version=8,
    )
    out, options = tmp_path / "out", {"profile": False, "verify": False}
    compile_model(model, output=out, target="wasm32-simd", dims={"n": (1, 4)}, options=options)
    (out / "weights.bin").touch()
    (out / "calls.json").write_text(json.dumps({"options": {}, "calls": []}))
    program = [str(HERE / "state.mjs"), str(PACKAGE / "src"), str(out)]
    with pytest.raises(AssertionError, match="compile it with the option state="):
        run_node(tmp_path, out, *program)
