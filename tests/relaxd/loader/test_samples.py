from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from relaxd.contract.bundle.state import Cache, State
from relaxd.contract.dims.dims import Dim
from relaxd.contract.dims.tensors import TensorSpec
from relaxd.contract.options import CacheForm
from relaxd.errors import DeclarationError
from relaxd.loader.byte_rows import dequantize_rows
from relaxd.loader.samples import dim_values, draw
from tests.support import declared

DIMS = (Dim("batch", 0, 8), Dim("seq", 1, 512, 8, opt=128), Dim("w", 20, None, 16))


def test_dims_default_to_the_favoured_or_the_least_value():
    assert dim_values(DIMS, {}) == {"batch": 1, "seq": 128, "w": 32}
    assert dim_values(DIMS, {"batch": 0, "seq": 8}) == {"batch": 0, "seq": 8, "w": 32}
    assert dim_values((Dim("empty", 0, 0),), {}) == {"empty": 0}


@pytest.mark.parametrize(
    ("chosen", "field"),
    [({"batch": 9}, "dims.batch"), ({"seq": 12}, "dims.seq"), ({"height": 1}, "dims.height")],
)
def test_a_value_out_of_range(chosen, field):
    with pytest.raises(DeclarationError) as caught:
        dim_values(DIMS, chosen)
    assert caught.value.field == field
    assert caught.value.hint


def test_drawn_inputs_fit_their_specs():
    specs = tuple(
        declared.spec(text)
        for text in ("a=float32[n,2*n]", "b=int64[n]", "c=bool[]", "d=bfloat16[3]", "e=uint8[100]")
    ) + tuple(declared.spec(text) for text in ("f=float8_e8m0fnu[99]", "g=int2[4]"))
    arrays = draw(specs, {"n": 5}, seed=1)
    assert {name: (str(array.dtype), array.shape) for name, array in arrays.items()} == {
        "a": ("float32", (5, 10)),
        "b": ("int64", (5,)),
        "c": ("bool", ()),
        "d": ("bfloat16", (3,)),
        "e": ("uint8", (100,)),
        "f": ("float8_e8m0fnu", (99,)),
        "g": ("int8", (4,)),
    }
    assert np.isfinite(arrays["f"].astype(np.float32)).all()
    assert arrays["d"].dtype == ml_dtypes.bfloat16
    assert set(arrays["e"].tolist()) == {0, 1}


def test_a_draw_depends_on_seed_and_name_alone():
    one, two = TensorSpec.of("one", "float32[4]"), TensorSpec.of("two", "float32[4]")
    both = draw((one, two), {}, seed=7)
    np.testing.assert_array_equal(draw((two,), {}, seed=7)["two"], both["two"])
    assert (both["one"] != both["two"]).all()
    assert (draw((one,), {}, seed=8)["one"] != both["one"]).all()


def test_caches_of_bytes_are_rows_of_floats():
    own, other = TensorSpec.of("past", "int8[1,2,p,20]"), TensorSpec.of("ids", "int8[1,2,p,20]")
    cache = Cache("past", "present")
    state = State((cache,), "p", "s", "q", False, {}, CacheForm.INT8)
    sampled = draw((own, other), {"p": 7}, 3, state)
    rows = dequantize_rows(sampled["past"])
    floats = draw((TensorSpec.of("past", "float32[1,2,p,16]"),), {"p": 7}, 3)["past"]
    np.testing.assert_allclose(rows, floats, atol=np.abs(floats).max() / 250)
    assert set(sampled["ids"].ravel()) == {0, 1}
    assert set(draw((own,), {"p": 7}, 3, replace(state, stored=None))["past"].ravel()) == {0, 1}


def test_an_axis_that_would_be_negative():
    with pytest.raises(DeclarationError, match="would have shape"):
        draw((TensorSpec.of("a", "float32[n-3]"),), {"n": 1}, seed=0)


def test_what_has_a_default_is_left_out():
    seed = TensorSpec("seed", "int64", (), default=0)
    assert list(draw((TensorSpec.of("a", "float32[2]"), seed), {}, seed=0)) == ["a"]
