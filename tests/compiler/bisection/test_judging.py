"""Who is wrong where a cut departs, and departures that rounding explains."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from compiler import build as builder
from compiler.bisection import judging, reproducer, task
from compiler.bisection.cuts import Cut
from compiler.bisection.search import Found
from compiler.bisection.trials import Departure, Trials
from compiler.bisection.values import Values
from compiler.ir.onnx.graph import Graph
from compiler.isolation.messages import CompileJob
from compiler.verify.report import Mismatch
from relaxd.contract.request import CompileRequest

HEADER = '<ir_version: 9, opset_import: ["": 17]>'


@pytest.mark.parametrize(
    ("got", "want", "wrong"),
    [
        (1.01, 1.0, "library"),
        (1.0, 1.01, "reference"),
        (0.99, 1.01, "both"),
        (0.9993, 1.0007, "neither"),
    ],
)
def test_the_side_that_departs_from_float64_is_wrong(
    got: float, want: float, wrong: str, tmp_path: Path
) -> None:
    """y is 1 + tanh(x), and each side is off by a factor."""
    model = onnx.parser.parse_model(
        f"{HEADER} g (float[n] x) => (float[n] y) <float[1] w = {{1}}> "
        "{ a = Tanh(x) y = Add(a, w) }"
    )
    onnx.save(model, tmp_path / reproducer.MODEL)
    graph, x = Graph(model, {}), np.linspace(0.1, 2, 9).astype("float32")
    request = CompileRequest()
    job = CompileJob("m.onnx", request.to_json(), "native", "out", "m")
    trials = Trials(job, graph, Values(graph, {"x": x}, tmp_path), {}, tmp_path)
    cut = Cut(frozenset({1}), ("y",))
    right = 1 + np.tanh(x)
    sides = ({"y": (right * factor).astype("float32")} for factor in (got, want))
    trials.departures[cut] = Departure(tmp_path, request, ("y",), *sides)
    assert judging.judged(trials, Found(1, 1, cut, "y")) == {"wrong": wrong}


TOP = """(float[n, 64, 100] x) => (float[n, 8] y)
<int64[1] last = {-1}, int64[1] k = {8}, int64[1] start = {0}, int64[1] end = {1}> {
    sum = ReduceSum<keepdims = 0>(x, last)
    values, places = TopK(sum, k)
    first = Slice(x, start, end, last)
    column = Squeeze(first, last)
    y = GatherElements<axis = 1>(column, places)
}"""


def rows(draw: np.random.Generator) -> np.ndarray[Any, Any]:
    """Sums of the same numbers in another order: equal but for rounding."""
    numbers = draw.standard_normal(100).astype("float32")
    return np.stack([[draw.permutation(numbers) for _ in range(64)] for _ in range(3)])


@pytest.mark.slow
def test_scores_that_tie_but_for_rounding_are_no_fault_of_top_k(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(f"{HEADER} g {TOP}")
    onnx.save(model, tmp_path / "model.onnx")
    np.savez(tmp_path / "samples.npz", x=rows(np.random.default_rng(0)))
    request = CompileRequest.of(dims={"n": (1, 4)}, options={"profile": False})
    job = CompileJob(
        str(tmp_path / "model.onnx"),
        request.to_json(),
        "native",
        str(tmp_path / "out"),
        "model",
        samples=str(tmp_path / "samples.npz"),
        reproducer=str(tmp_path / "reproducer"),
    )
    with pytest.raises(Mismatch) as caught:
        builder.build(job)
    records = list[dict[str, Any]]()
    spec = {"job": job.to_json(), "departing": list(caught.value.departing)}
    task.search(spec, records.append)
    assert (records[-1]["op"], records[-1]["nodes"]) == ("TopK", 2)
    assert records[-1]["rounding"] is True
    assert "rounding decides" in (tmp_path / "reproducer" / "README.md").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("largest", [0, 1])
def test_of_equal_scores_the_first_comes_first(largest: int, tmp_path: Path) -> None:
    """As ONNX wants it, so that exact ties never differ from the reference."""
    text = TOP.replace("TopK(", f"TopK<largest = {largest}>(")
    model = onnx.parser.parse_model(f"{HEADER} g {text}")
    onnx.save(model, tmp_path / "model.onnx")
    draw = np.random.default_rng(0)
    x = draw.integers(-1, 2, (3, 64, 100)).astype("float32")
    x[0] = 1
    np.savez(tmp_path / "samples.npz", x=x)
    order = np.argsort(x.sum(-1) * (-1 if largest else 1), axis=-1, kind="stable")[:, :8]
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    (theirs,) = session.run(None, {"x": x})
    np.testing.assert_array_equal(theirs, np.take_along_axis(x[..., 0], order, axis=1))
    request = CompileRequest.of(dims={"n": (1, 4)}, options={"profile": False})
    builder.build(
        CompileJob(
            str(tmp_path / "model.onnx"),
            request.to_json(),
            "native",
            str(tmp_path / "out"),
            "model",
            samples=str(tmp_path / "samples.npz"),
        ),
        drawn=False,
    )
