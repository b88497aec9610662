"""Batches whose rows repeat, of which the reference computes each once."""

from pathlib import Path

import numpy as np
import onnx
import pytest

from compiler.verify import report as verify
from compiler.verify import sides
from compiler.verify.inputs.inputs import Signature, prepare
from compiler.verify.inputs.points import Point
from compiler.verify.inputs.repeated import Repeat, find_batch, repeat_at
from relaxd.contract.dims.dims import Dim
from relaxd.contract.dims.tensors import TensorSpec
from relaxd.contract.options import CompileOptions
from relaxd.loader.bundles.bundle import read_manifest
from tests.compiler.building import build, report

DIMS = {"batch": (1, 100)}


def parse(body: str, outputs: str = "float[batch,4] y") -> onnx.ModelProto:
    return onnx.parser.parse_model(
        f'<ir_version: 9, opset_import: ["": 18]> g (float[batch,4] x) => ({outputs}) {{ {body} }}'
    )


def test_rows_repeat_and_are_extended_again() -> None:
    repeat = Repeat(5, 32, ("x",))
    x, scale = np.random.default_rng(0).random((32, 3)), np.ones(32)
    filled = repeat.fill({"x": x, "scale": scale})
    assert len(np.unique(filled["x"], axis=0)) == 5
    short = repeat.shorten(filled)
    assert (short["x"].shape, short["scale"].shape) == ((5, 3), (32,))
    assert np.array_equal(repeat.extend({"y": 2 * short["x"]})["y"], 2 * filled["x"])
    assert repeat.extend({"y": np.ones((4, 3))})["y"].shape == (4, 3)


def specs(*texts: str) -> list[TensorSpec]:
    return [TensorSpec.of(*text.split("=")) for text in texts]


@pytest.mark.parametrize(
    ("inputs", "outputs", "expected"),
    [
        (["x=float32[n,4]"], ["y=float32[n]"], "n"),
        (["x=float32[n,4]", "w=float32[k]"], ["y=float32[n,k]"], "n"),
        (["x=float32[n,n]"], ["y=float32[n]"], None),
        (["x=float32[4,n]"], ["y=float32[n]"], None),
        (["x=float32[n,4]"], ["y=float32[n]", "mean=float32[4]"], None),
        (["x=float32[2*n]"], ["y=float32[n]"], None),
        (["x=float32[4]"], ["y=float32[n]"], None),
    ],
)
def test_a_batch_is_the_first_axis_of_all_that_have_it(
    inputs: list[str], outputs: list[str], expected: str | None
) -> None:
    dims = [Dim("k", 1, 9), Dim("n", 1, 99)]
    batch = find_batch(specs(*inputs), specs(*outputs), dims)
    assert (batch.name if batch else None) == expected


def test_rows_repeat_in_large_batches_by_a_number_that_the_dim_admits() -> None:
    inputs = specs("x=float32[n,4]")
    for size, multiple, rows in ((15, 1, None), (16, 1, 5), (63, 7, 7), (64, 8, None)):
        batch = Dim("n", multiple, 98, multiple)
        repeat = repeat_at(Point("p", {"n": size}), inputs, batch)
        assert (repeat and repeat.distinct) == rows


def distinct_rows(output: Path) -> dict[int, int | None]:
    """By the batch of each point."""
    points = report(output, "numerics.json")["points"]
    return {point["dims"]["batch"]: point.get("distinct_rows") for point in points}


@pytest.mark.slow
def test_points_of_large_batches_say_how_many_rows_the_reference_computed(tmp_path: Path) -> None:
    build(tmp_path / "out", parse("y = Softmax<axis = -1>(x)"), dims=DIMS)
    rows_at = distinct_rows(tmp_path / "out")
    assert rows_at[100] == 5
    assert all(rows == (5 if batch >= 16 else None) for batch, rows in rows_at.items())


@pytest.mark.slow
def test_rows_that_depend_on_each_other_are_all_asked_for(tmp_path: Path) -> None:
    build(tmp_path / "out", parse("y = Softmax<axis = 0>(x)"), dims=DIMS)
    assert set(distinct_rows(tmp_path / "out").values()) == {None}


@pytest.mark.slow
@pytest.mark.parametrize("row", [3, 41, 99])
def test_one_wrong_row_of_many_is_seen(tmp_path: Path, row: int) -> None:
    """The library's model adds 1 to a row; the one beside it does not."""
    wrong = parse(
        f"""zero = Constant<value_int = 0>() one = Constant<value_int = 1>()
        wrong = Constant<value_int = {row}>() last = Constant<value_ints = [1]>()
        first = Constant<value_ints = [0]>() shape = Shape(x) size = Gather(shape, zero)
        rows = Range(zero, size, one) is_wrong = Equal(rows, wrong)
        added = Cast<to = 1>(is_wrong) column = Unsqueeze(added, last) y = Add(x, column)"""
    )
    bundle, folder = tmp_path / "out", tmp_path / "inputs"
    build(bundle, wrong, dims=DIMS, options={"verify": False, "profile": False})
    onnx.save(parse("y = Identity(x)"), tmp_path / "right.onnx")
    folder.mkdir()
    manifest = read_manifest(bundle)
    signature = Signature(manifest.inputs, manifest.outputs, manifest.dims, {})
    trials = prepare(signature, None, 0, folder, 1 << 20)
    beside = sides.Reference(tmp_path / "right.onnx", {})
    with pytest.raises(verify.Mismatch):
        verify.verify(bundle, beside, signature, trials, CompileOptions(), folder, sides.Budget())
