import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaxd.contract.canonical import canonical_bytes
from relaxd.contract.options import CompileOptions
from relaxd.contract.request import CompileRequest
from relaxd.errors import DeclarationError

NAMES = st.text(min_size=1, max_size=8)
DIMS = st.dictionaries(
    st.sampled_from(["n", "m", "seq", "batch"]),
    st.sampled_from([4, (1, 8), "8:512%8@128", "2:", {"max": 3}]),
)
REQUESTS = st.builds(
    CompileRequest.of,
    dims=DIMS,
    inputs=st.dictionaries(NAMES, st.sampled_from(["int64[batch,seq]", "float32[]", "bool[2*n]"])),
    consts=st.dictionaries(
        NAMES,
        st.booleans()
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(),
    ),
    shapes=st.dictionaries(NAMES, st.sampled_from(["[n,4]", "n,4", ["n", 4], ["2*n"], ""])),
    samples=st.none() | st.just("sha256:" + "0" * 64),
    targets=st.lists(st.sampled_from(["native", "x86-64-v3", "aarch64"]), min_size=1, unique=True),
    options=st.sampled_from(
        [None, {"verify": False}, {"rtol": 1e-3, "seed": 7}, CompileOptions(atol=0)]
    ),
)


@given(REQUESTS)
def test_round_trips_over_the_wire(request):
    document = request.to_json()
    again = CompileRequest.from_json(json.loads(canonical_bytes(document)))
    assert again == request
    assert canonical_bytes(again.to_json()) == canonical_bytes(document)


@given(REQUESTS)
def test_order_of_declaration_is_no_part_of_a_request(request):
    document = request.to_json()
    backwards = {
        key: dict(reversed(value.items())) if isinstance(value, dict) else value
        for key, value in reversed(document.items())
    }
    assert CompileRequest.from_json(backwards) == request


def test_defaults():
    request = CompileRequest.from_json({"model": "sha256:ignored"})
    assert request == CompileRequest()
    assert request.targets == ("native",)
    assert request.to_json()["options"] == {
        "verify": True,
        "profile": True,
        "rtol": None,
        "atol": None,
        "seed": 0,
        "dump": False,
        "flavour": None,
        "state": "passed",
        "cache": "float32",
        "cache_error": None,
        "logits": "all",
        "weights": "float32",
        "weights_error": None,
        "calibration": "none",
        "precision": "float32",
        "precision_error": None,
        "precision_over": "fail",
        "lora_rank": 0,
        "lora_targets": None,
        "embed_weights": None,
    }


@pytest.mark.parametrize(
    ("document", "field"),
    [
        (None, "request"),
        ([], "request"),
        ({"surprise": 1}, "surprise"),
        ({"inputs": []}, "inputs"),
        ({"inputs": {"x": 5}}, "inputs.x"),
        ({"inputs": {"x": "float33[n]"}}, "inputs.x"),
        ({"inputs": {"x": "float32[n/2]"}}, "inputs.x"),
        ({"inputs": {"": "float32[n]"}}, "inputs"),
        ({"dims": {"n": "5:1"}}, "dims.n"),
        ({"dims": {"n": {"min": 1, "step": 2}}}, "dims.n"),
        ({"dims": "n=1"}, "dims"),
        ({"consts": {"sr": [1]}}, "consts.sr"),
        ({"consts": {"sr": float("nan")}}, "consts.sr"),
        ({"consts": {"sr": float("inf")}}, "consts.sr"),
        ({"shapes": {"boxes": 4}}, "shapes.boxes"),
        ({"shapes": {"boxes": "[n,?]"}}, "shapes.boxes"),
        ({"samples": "latest"}, "samples"),
        ({"samples": 5}, "samples"),
        ({"targets": []}, "targets"),
        ({"targets": None}, "targets"),
        ({"targets": "native"}, "targets"),
        ({"targets": ["native", "native"]}, "targets"),
        ({"targets": [""]}, "targets"),
        ({"targets": [1]}, "targets"),
        ({"options": []}, "options"),
        ({"options": {"fast": True}}, "options.fast"),
        ({"options": {"verify": 1}}, "options.verify"),
        ({"options": {"rtol": -1}}, "options.rtol"),
        ({"options": {"atol": float("inf")}}, "options.atol"),
        ({"options": {"rtol": True}}, "options.rtol"),
        ({"options": {"seed": 0.5}}, "options.seed"),
        ({"options": {"weights": "int3"}}, "options.weights"),
        ({"options": {"weights": "int4", "weights_error": -1}}, "options.weights_error"),
        ({"options": {"weights": "int4", "weights_error": "1%"}}, "options.weights_error"),
        ({"options": {"weights_error": 0.1}}, "options.weights_error"),
        (
            {"options": {"weights": "int4", "verify": False, "weights_error": 0.1}},
            "options.weights_error",
        ),
        ({"options": {"weights": "int4", "calibration": "awq"}}, "options.calibration"),
        ({"options": {"calibration": "gptq"}}, "options.calibration"),
        ({"options": {"weights": "float16", "calibration": "gptq"}}, "options.calibration"),
        ({"options": {"calibration": "smooth"}}, "options.calibration"),
        ({"options": {"calibration": "static"}}, "options.calibration"),
        (
            {"options": {"precision": "bfloat16", "calibration": "smooth"}},
            "options.calibration",
        ),
        ({"options": {"precision": "int8", "calibration": "gptq"}}, "options.calibration"),
        ({"options": {"cache": "int4", "state": "lifted"}}, "options.cache"),
        ({"options": {"cache": "float16"}}, "options.cache"),
        ({"options": {"state": "lifted", "cache_error": 0.1}}, "options.cache_error"),
        ({"options": {"precision": "float8"}}, "options.precision"),
        ({"options": {"precision": "bfloat16", "precision_error": -1}}, "options.precision_error"),
        ({"options": {"precision_error": 0.1}}, "options.precision_error"),
        (
            {"options": {"precision": "bfloat16", "verify": False, "precision_error": 0.1}},
            "options.precision_error",
        ),
        ({"options": {"precision": "int8", "precision_over": "keep"}}, "options.precision_over"),
        ({"options": {"precision_over": "keep"}}, "options.precision_over"),
        (
            {"options": {"precision_error": 0.1, "precision_over": "keep"}},
            "options.precision_error",
        ),
        (
            {
                "options": {
                    "precision": "int8",
                    "verify": False,
                    "precision_error": 0.1,
                    "precision_over": "keep",
                }
            },
            "options.precision_error",
        ),
        (
            {"options": {"precision": "int8", "precision_error": 0.1, "precision_over": "drop"}},
            "options.precision_over",
        ),
        ({"options": {"precision": "bfloat16", "weights": "int8"}}, "options.precision"),
        ({"options": {"precision": "int8", "weights": "int8"}}, "options.precision"),
    ],
)
def test_the_error_names_the_field(document, field):
    with pytest.raises(DeclarationError) as caught:
        CompileRequest.from_json(document)
    assert caught.value.field == field
    assert caught.value.details["field"] == field


def test_dim_table():
    assert CompileRequest.of(dims={"n": 4, "m": (1, 2)}).dim_table.keys() == {"m", "n"}


def test_calibration_requires_samples():
    CompileRequest().require_samples()
    request = CompileRequest.of(options={"weights": "int8", "calibration": "gptq"})
    with pytest.raises(DeclarationError, match="--samples") as caught:
        request.require_samples()
    assert caught.value.field == "samples"
    replace(request, samples="sha256:" + "0" * 64).require_samples()
