"""Checks of caches that a run writes."""

import pytest

from compiler.ir import import_model
from relaxd.contract.dims.dims import Dim
from relaxd.contract.options import CompileOptions, StateForm
from relaxd.contract.request import CompileRequest
from tests.support.models.decoders import FILLED_DIMS, fill


@pytest.mark.parametrize("layers", [1, 3])
def test_the_room_of_all_caches_is_checked_once(layers: int) -> None:
    dims = tuple(Dim(name, min=low, max=high) for name, (low, high) in FILLED_DIMS.items())
    request = CompileRequest(dims=dims, options=CompileOptions(state=StateForm.LIFTED))
    main = import_model(fill(layers), request).module["main"]
    text = main.script()
    assert text.count("call_tir_inplace") == 2 * layers
    (number,) = (key for key, why in main.attrs["checks"].items() if "have no room" in why)
    assert text.count(f", R.Shape([{number}]))") == 1
