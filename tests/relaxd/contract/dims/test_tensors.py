import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaxd.contract.dims.axes import Axis
from relaxd.contract.dims.tensors import DTYPES, TensorSpec, split_axes
from relaxd.errors import DeclarationError

AXES = st.sampled_from(
    ["n", "seq", "3", "0", "2*seq", "past+seq", "min(n, 4)", "max(n, max(m, 2))", "(h+1)//2"]
)
SPECS = st.builds(
    lambda name, dtype, axes: TensorSpec(name, dtype, tuple(map(Axis, axes))),
    st.text(min_size=1),
    st.sampled_from(sorted(DTYPES)),
    st.lists(AXES, max_size=5),
)


@given(SPECS)
def test_round_trips(spec):
    assert TensorSpec.from_json(spec.to_json()) == spec
    assert TensorSpec.of(spec.name, spec.text) == spec
    assert (
        TensorSpec.of(
            spec.name, f" {spec.dtype} [ {' , '.join(axis.text for axis in spec.shape)} ] "
        )
        == spec
    )


def test_the_form_of_declarations():
    spec = TensorSpec.of("ids", "int64[batch,seq]")
    assert spec == TensorSpec("ids", "int64", (Axis("batch"), Axis("seq")))
    assert str(spec) == "ids=int64[batch,seq]"
    assert TensorSpec.of("x", "float32[]").shape == ()


def test_fixed_axes_are_integers_in_json():
    assert TensorSpec.of("x", "float32[n,3,2*w,2*4]").to_json()["shape"] == ["n", 3, "2 * w", 8]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "float32",
        "float32[n",
        "float33[n]",
        "[n]",
        "float32[n,]",
        "float32[,]",
        "float32[n][m]",
        "float32[-1,3]",
        "float32[a b]",
        "float32[?]",
        "float32[n/2]",
    ],
)
def test_the_field_at_fault_is_the_input(text):
    with pytest.raises(DeclarationError) as caught:
        TensorSpec.of("x", text)
    assert caught.value.field == "inputs.x"
    assert caught.value.hint


def test_split_axes():
    assert split_axes("") == split_axes("  ") == []
    assert split_axes("n,min(a,b),max(1,min(c,d))") == ["n", "min(a,b)", "max(1,min(c,d))"]


def test_a_default_reaches_the_manifest_and_comes_back():
    spec = TensorSpec("seed", "int64", (), default=0)
    assert spec.to_json() == {"name": "seed", "dtype": "int64", "shape": [], "default": 0}
    assert TensorSpec.from_json(spec.to_json()) == spec
    assert "default" not in TensorSpec.of("x", "float32[n]").to_json()
