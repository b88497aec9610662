"""Rows of more than 1,024 elements, or of unknown length, in the generic family: a row is summed
as it is made, and lies in the result if that allows it.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tvm import relax

from tests.compiler.conftest import HOST, Compiled, build_module
from tests.compiler.passes import references
from tests.support.geometries import GEOMETRIES, NATIVE, geometry

op = relax.op

CLASSES = 18710
LENGTHS = (1025, 1087, 1088, 2049)
UNKNOWN = (1, 3, 15, 16, 17, 63, 64, 65, 131, 1031, CLASSES)


def _softmax(_: Any, x: Any) -> Any:
    return op.nn.softmax(x)


def _scaled(_: Any, x: Any) -> Any:
    """A softmax whose last stage reads the input too."""
    return op.multiply(op.nn.softmax(x), op.tanh(x))


def _halved(_: Any, x: Any) -> Any:
    """A softmax whose result has another type than its powers."""
    return op.astype(op.nn.softmax(x), "float16")


def _logarithm(_: Any, x: Any) -> Any:
    return op.nn.log_softmax(x)


def _backwards(_: Any, x: Any) -> Any:
    return op.flip(op.nn.softmax(x), 1)


GRAPHS: dict[str, tuple[Callable[..., Any], Callable[..., np.ndarray]]] = {
    "softmax": (_softmax, references.softmax),
    "scaled": (_scaled, lambda x: references.softmax(x) * np.tanh(x)),
    "halved": (_halved, references.softmax),
    "logarithm": (_logarithm, lambda x: np.log(references.softmax(x))),
    "backwards": (_backwards, lambda x: references.softmax(x)[:, ::-1]),
}


def _compiled(graph: Callable[..., Any], length: int | str, unit: str = NATIVE) -> Compiled:
    return Compiled(build_module(graph, {"x": (("n", length), "float32")}), geometry(unit))


def _check(model: Compiled, lengths: tuple[int, ...], draw: np.random.Generator) -> None:
    """The values of numpy, the same bits for a row alone, and entries of minus infinity."""
    for length in lengths:
        rows = draw.standard_normal((5, length)).astype("float32") * 4
        rows[1, : length // 2] = -np.inf
        rows[3] = -np.inf
        got, chosen_rows = model(rows), [0, 1, 2, 4]
        want = references.softmax(rows[chosen_rows].astype("float64"))
        np.testing.assert_allclose(got[chosen_rows], want, rtol=5e-5, atol=1e-30)
        assert np.isnan(got[3]).all()
        for row in range(5):
            np.testing.assert_array_equal(model(rows[row : row + 1])[0], got[row])


@pytest.mark.parametrize("unit", [*GEOMETRIES, NATIVE])
def test_rows_of_known_length(unit: str, draw: np.random.Generator) -> None:
    for length in (*LENGTHS, CLASSES):
        _check(_compiled(_softmax, length, unit), (length,), draw)


@pytest.mark.parametrize("unit", [*GEOMETRIES, NATIVE])
def test_rows_of_unknown_length(unit: str, draw: np.random.Generator) -> None:
    _check(_compiled(_softmax, "m", unit), UNKNOWN, draw)


def test_many_rows_on_all_threads(draw: np.random.Generator) -> None:
    model = _compiled(_softmax, CLASSES)
    rows = draw.standard_normal((37, CLASSES)).astype("float32")
    batch = model(rows)
    for row in (0, 1, 18, 36):
        np.testing.assert_array_equal(model(rows[row : row + 1])[0], batch[row])


@pytest.mark.parametrize("length", [1087, "m"])
@pytest.mark.parametrize("name", GRAPHS)
def test_what_stands_around_a_softmax(
    name: str, length: int | str, draw: np.random.Generator
) -> None:
    graph, reference = GRAPHS[name]
    model = _compiled(graph, length)
    rows = draw.standard_normal((3, 1087)).astype("float32")
    rtol = 1e-3 if name == "halved" else 1e-5
    np.testing.assert_allclose(model(rows), reference(rows.astype("float64")), rtol, 2e-7)


@pytest.mark.parametrize("length", [CLASSES, "m"])
@pytest.mark.parametrize(
    ("name", "is_kept"), [("softmax", True), ("scaled", True), ("halved", False)]
)
def test_powers_lie_in_the_result_if_they_can(
    name: str, is_kept: bool, length: int | str, assembly_for: Callable[..., str]
) -> None:
    code = assembly_for(GRAPHS[name][0], {"x": (("n", length), "float32")}, HOST)
    pools = [line for line in code.splitlines() if "AllocWorkspace@" in line]
    assert bool(pools) != is_kept
