import pytest

from compiler.profile.grid import grid_points
from relaxd.contract.dims.dims import Dim
from relaxd.contract.dims.grid import ProfileOptions
from relaxd.contract.dims.tensors import TensorSpec
from relaxd.errors import DeclarationError

INPUTS = (TensorSpec.of("x", "float32[batch,seq,8]"),)
DIMS = (Dim("batch", 1, 8), Dim("seq", 16, 512, 16), Dim("found", 0))


def grid(
    value: object, inputs: tuple[TensorSpec, ...] = INPUTS, *dims: Dim
) -> list[dict[str, int]]:
    options = ProfileOptions.read({"grid": value})
    assert isinstance(options, ProfileOptions)
    return [dict(point.dims) for point in grid_points(options, inputs, dims or DIMS)]


def test_auto_spans_every_range_in_steps_that_dims_admit() -> None:
    points = grid("auto")
    assert points[0] == {"batch": 1, "seq": 16}
    assert points[-1] == {"batch": 8, "seq": 512}
    assert 30 <= len(points) <= 64
    assert all(dims["seq"] % 16 == 0 for dims in points)
    assert len({tuple(dims.items()) for dims in points}) == len(points)
    sizes = sorted({dims["seq"] for dims in points})
    assert sizes[1] - sizes[0] < sizes[-1] - sizes[-2]


def test_one_dim_gets_more_values_and_an_open_range_ends() -> None:
    points = grid("auto", (TensorSpec.of("x", "float32[n]"),), Dim("n"))
    assert len(points) == 12
    assert points[-1]["n"] >= 640


def test_named_values_vary_and_other_dims_keep_their_favoured_value() -> None:
    dims = (Dim("batch", 1, 8, 1, 4), Dim("seq", 16, 512, 16))
    assert grid({"seq": [512, 32]}, INPUTS, *dims) == [
        {"batch": 4, "seq": 32},
        {"batch": 4, "seq": 512},
    ]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"rows": [1]}, "no input has such a dim"),
        ({"found": [1]}, "no input has such a dim"),
        ({"seq": [24]}, "seq=24"),
        ({"batch": [9]}, "batch=9"),
    ],
)
def test_what_the_model_does_not_admit_is_refused(value: object, message: str) -> None:
    with pytest.raises(DeclarationError, match=message) as refused:
        grid(value)
    assert refused.value.field.startswith("options.profile.grid.")
    assert refused.value.hint


def test_many_dims_are_not_varied_at_once() -> None:
    dims = tuple(Dim(f"d{index}", 1, 9) for index in range(7))
    inputs = (TensorSpec.of("x", f"float32[{','.join(dim.name for dim in dims)}]"),)
    with pytest.raises(DeclarationError, match="7 dims are too many"):
        grid("auto", inputs, *dims)
