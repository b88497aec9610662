"""Declarations on the command line."""

from typing import Any

import pytest

from relaxd.cli.declarations import read_request
from relaxd.contract.options import Calibration, Flavour, Precision, PrecisionOver, WeightForm
from relaxd.contract.request import CompileRequest
from relaxd.errors import DeclarationError


def test_every_kind_of_declaration() -> None:
    request = read_request(
        dims=["batch=1:8", " seq = 8:512%8@128 "],
        inputs=["ids=int64[batch,seq]"],
        consts=["sr=16000", "mode=fast", "flag=true"],
        shapes=["boxes=[n,4]"],
        options=["verify=false", "rtol=1e-3"],
        targets=["x86-64-v3"],
    )
    assert request == CompileRequest.of(
        dims={"batch": (1, 8), "seq": "8:512%8@128"},
        inputs={"ids": "int64[batch,seq]"},
        consts={"sr": 16000, "mode": "fast", "flag": True},
        shapes={"boxes": "[n,4]"},
        options={"verify": False, "rtol": 1e-3},
        targets=["x86-64-v3"],
    )


def test_the_switch_for_the_flavour_is_the_option() -> None:
    assert read_request(flavour=Flavour.VM) == read_request(options=["flavour=vm"])
    with pytest.raises(DeclarationError, match="--option flavour is given twice"):
        read_request(options=["flavour=standalone"], flavour=Flavour.VM)


def test_the_switches_for_weights_are_options() -> None:
    arguments = read_request(weights=WeightForm.INT4, weights_error=0.05)
    assert arguments == read_request(options=["weights=int4", "weights_error=0.05"])
    assert (arguments.options.weights, arguments.options.weights_error) == (WeightForm.INT4, 0.05)
    with pytest.raises(DeclarationError, match="weights_error"):
        read_request(weights_error=0.05)


def test_calibration_is_an_option() -> None:
    arguments = read_request(weights=WeightForm.INT4, options=["calibration=gptq"])
    assert arguments.options.calibration is Calibration.GPTQ


def test_the_switches_for_precision_are_options() -> None:
    arguments = read_request(precision=Precision.BFLOAT16, precision_error=0.05)
    assert arguments == read_request(options=["precision=bfloat16", "precision_error=0.05"])
    with pytest.raises(DeclarationError, match="precision_error"):
        read_request(precision_error=0.05)
    arguments = read_request(
        precision=Precision.INT8, precision_error=0.05, precision_over=PrecisionOver.KEEP
    )
    assert arguments.options.precision_over is PrecisionOver.KEEP


@pytest.mark.parametrize(
    ("arguments", "grid"),
    [
        (["auto"], "auto"),
        (["seq=16, 128,512", "batch=4"], {"batch": [4], "seq": [16, 128, 512]}),
    ],
)
def test_a_grid_is_an_option_of_the_profile(arguments: list[str], grid: object) -> None:
    wanted = CompileRequest.of(options={"seed": 7, "profile": {"grid": grid}})
    assert read_request(grid=arguments, options=["seed=7"]) == wanted
    assert read_request(grid=arguments, options=["seed=7", "profile=true"]) == wanted


def test_nothing_declared_is_the_default() -> None:
    assert read_request() == CompileRequest.of(targets=["native"])


@pytest.mark.parametrize(
    ("arguments", "field", "message"),
    [
        ({"dims": ["batch"]}, "dims", "cannot read --dim"),
        ({"dims": ["=4"]}, "dims", "cannot read --dim"),
        ({"consts": ["sr=1", "sr=2"]}, "consts.sr", "given twice"),
        ({"dims": ["batch=8:1"]}, "dims.batch", "batch"),
        ({"inputs": ["x=floatish[n]"]}, "inputs.x", "floatish"),
        ({"options": ["verify=maybe"]}, "options.verify", "true or false"),
        ({"options": ["speed=11"]}, "options.speed", "unknown option"),
        ({"grid": ["seq"]}, "grids", "cannot read --grid"),
        ({"grid": ["seq=1:8"]}, "options.profile.grid.seq", "cannot read --grid seq=1:8"),
        ({"grid": ["auto"], "options": ["profile=false"]}, "options.profile", "exclude"),
    ],
)
def test_a_mistake_names_its_field(arguments: dict[str, Any], field: str, message: str) -> None:
    with pytest.raises(DeclarationError, match=message) as caught:
        read_request(**arguments)
    assert caught.value.field == field
