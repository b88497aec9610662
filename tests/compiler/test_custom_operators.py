"""Nodes that C code of the user's computes, for every kind of target, and what is refused."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

import relaxd
from compiler import compile_model
from compiler.errors import CompileError
from compiler.ir.files.model_file import refuse_code
from compiler.isolation.level import Level
from relaxd.client.operators import read_operators
from relaxd.contract.request import CompileRequest
from relaxd.errors import DeclarationError, RelaxdError

HEADER = '<ir_version: 9, opset_import: ["": 18, "com.example": 1]>'
ROWS: dict[str, Any] = {
    "name": "com.example::Rows",
    "function": "rows",
    "inputs": ["x=float32[n,k]", "pick=int64[m]"],
    "outputs": ["y=float32[m,k]", "total=float32[m]", "big=bool[m]"],
    "attributes": ["offset=int", "scale=float"],
    "source": """#include <math.h>

static float scaled(float x, double scale) { return roundf((float)scale * x * 64.0f) / 64.0f; }

int rows(const float *x, const int64_t *pick, float *y, float *total, uint8_t *big, int64_t n,
         int64_t k, int64_t m, int64_t offset, double scale) {
    for (int64_t i = 0; i < m; i++) {
        int64_t row = pick[i] + offset;
        if (row < 0 || row >= n) return 7;
        total[i] = 0;
        for (int64_t j = 0; j < k; j++) total[i] += y[i * k + j] = scaled(x[row * k + j], scale);
        big[i] = total[i] > 0;
    }
    return 0;
}
""",
    "definition": """<domain: "com.example", opset_import: ["": 18]>
Rows <scale, offset: int = 1>(x, pick) => (y, total, big) {
    by = Constant<value_float: float = @scale>()
    steps = Constant<value_float: float = 64.0>()
    first = Constant<value_int: int = @offset>()
    row = Add(pick, first)
    taken = Gather<axis = 0>(x, row)
    wide = Mul(taken, by)
    stepped = Mul(wide, steps)
    whole = Round(stepped)
    y = Div(whole, steps)
    one = Constant<value = int64[1] {1}>()
    total = ReduceSum<keepdims = 0>(y, one)
    zero = Constant<value_float: float = 0.0>()
    big = Greater(total, zero)
}""",
}
"""Takes rows, some of which are not there."""
DIMS = {"n": "3:40", "k": "1:9", "q": "0:7"}


def model() -> onnx.ModelProto:
    """The operator on inputs, on constants, and in a branch."""
    graph = parser.parse_model(
        HEADER
        + """g (float[n,k] x, int64[q] p, bool c) =>
            (float[u,w] y, float[u] t, bool[u] b, float[v,z] f, float[r,s] e) {
        y, t, b = com.example.Rows<scale = 0.5>(x, p)
        f, ft, fb = com.example.Rows<offset = 0, scale = 2.0>(table, picked)
        e = If(c) <
            then_branch = a () => (float[g,h] ty) {
                ty, tt, tb = com.example.Rows<scale = -1.5>(x, p)
            },
            else_branch = o () => (float[i,j] n) { n = Neg(x) }
        >
    }"""
    )
    table = {"table": np.arange(12, dtype="f4").reshape(3, 4), "picked": np.array([2, 0])}
    graph.graph.initializer.extend(numpy_helper.from_array(v, n) for n, v in table.items())
    return graph


def compile_rows(output: Path, target: str = "native", **options: Any) -> dict[str, Any]:
    """The report of a build that is verified, as by default."""
    compile_model(
        model(),
        output=output,
        target=target,
        dims=DIMS,
        operators=[ROWS],
        options={"profile": False, **options},
    )
    return dict(json.loads((output / "numerics.json").read_text()))


@pytest.mark.parametrize("flavour", ["vm", "standalone"])
def test_a_library_calls_the_code(flavour: str, tmp_path: Path) -> None:
    report = compile_rows(tmp_path / "out", flavour=flavour)
    assert (report["status"], report["verdict"]) == ("executed", "passed")
    loaded = relaxd.load(tmp_path / "out")
    x = np.random.default_rng(0).standard_normal((5, 3), np.float32)
    for p in (np.array([0, 3, -1]), np.zeros(0, np.int64)):
        got = loaded.run({"x": x, "p": p, "c": np.array(True)})
        half = np.round(x[p + 1] * 32) / 64
        np.testing.assert_array_equal(got["y"], half)
        np.testing.assert_allclose(got["t"], half.sum(1), rtol=1e-6, atol=1e-6)
        np.testing.assert_array_equal(got["b"], got["t"] > 0)
        np.testing.assert_array_equal(got["f"], [[16, 18, 20, 22], [0, 2, 4, 6]])
        np.testing.assert_allclose(got["e"], np.round(x[p + 1] * -96) / 64)
    with pytest.raises(RelaxdError, match=r"code of com\.example::Rows could not compute"):
        loaded.run({"x": x, "p": np.array([4]), "c": np.array(False)})


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("aarch64", "emulated"),
        ("wasm32", "executed"),
        ("wasm32-threads", "executed"),
        *(
            pytest.param(target, "emulated", marks=pytest.mark.long)
            for target in ("android-arm64", "ios-arm64", "macos-arm64", "armv7", "riscv64")
        ),
    ],
)
def test_every_kind_of_target(target: str, status: str, tmp_path: Path) -> None:
    report = compile_rows(tmp_path / "out", target)
    assert report["status"] in (status, "compiled_only")
    assert report["verdict"] == ("passed" if report["status"] == status else report["verdict"])


def test_a_grid_of_threads_computes_the_definition(tmp_path: Path) -> None:
    small = parser.parse_model(
        HEADER
        + """g (float[n,k] x, int64[q] p) => (float[u,w] y, float[u] t) {
        y, t, b = com.example.Rows<scale = 0.5>(x, p)
    }"""
    )
    compile_model(
        small,
        output=tmp_path / "out",
        target="webgpu",
        dims=DIMS,
        operators=[ROWS],
        options={"profile": False},
    )
    assert json.loads((tmp_path / "out" / "numerics.json").read_text())["verdict"] != "failed"


def test_a_fixed_shape_keeps_64_bit_arguments(tmp_path: Path) -> None:
    compile_model(
        model(),
        output=tmp_path / "out",
        dims={"n": 3, "k": 4, "q": 2},
        operators=[ROWS],
        options={"profile": False},
    )
    x = np.arange(12, dtype="f4").reshape(3, 4)
    got = relaxd.load(tmp_path / "out").run({"x": x, "p": np.array([1, 0]), "c": np.array(False)})
    np.testing.assert_array_equal(got["y"], x[[2, 1]] / 2)


def test_wrong_code_is_found(tmp_path: Path) -> None:
    wrong = {**ROWS, "source": ROWS["source"].replace("> 0;", ">= 1000;")}
    with pytest.raises(CompileError) as caught:
        compile_model(model(), output=tmp_path / "out", dims=DIMS, operators=[wrong])
    assert caught.value.code == "verify.mismatch"
    command = json.loads((tmp_path / "out.reproducer" / "reproducer.json").read_text())["command"]
    assert "--operators operators.toml" in command
    (declared,) = read_operators(tmp_path / "out.reproducer" / "operators.toml")
    assert declared.source == wrong["source"]


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        ({"source": "int rows(void) { return 0; }"}, "link.custom_operator", "conflicting types"),
        ({"source": "#error no"}, "link.custom_operator", "no"),
        ({"function": "columns"}, "link.failed", "columns|relaxd_operator"),
        ({"definition": ""}, "import.custom_operator", "nothing says what"),
        ({"definition": "Rows (x) =>"}, "import.custom_operator", "cannot be read"),
        (
            {"definition": ROWS["definition"].replace("Rows", "Other")},
            "import.custom_operator",
            "defines com.example::Other",
        ),
        ({"inputs": ["x=float32[n,k]"], "outputs": ["y=float32[n,k]"]}, "import", "has 2 inputs"),
        ({"inputs": ["x=float64[n,k]", "pick=int64[m]"]}, "import", "its code takes float64"),
        ({"attributes": ["offset=int", "other=float"]}, "import", "attribute other is None"),
        ({"name": "com.example::Columns"}, "import.custom_operator", "no node of the model"),
        ({"name": "ai.onnx::Neg"}, "import.custom_operator", "computes ai.onnx::Neg itself"),
    ],
)
def test_what_is_refused(change: dict[str, Any], code: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(CompileError, match=words) as caught:
        compile_model(model(), output=tmp_path / "out", dims=DIMS, operators=[{**ROWS, **change}])
    assert caught.value.code.startswith(code)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"name": "Rows"}, "domain and the operator"),
        ({"function": "rows(int)"}, "no name of a C function"),
        ({"inputs": ["x"]}, "cannot read 'x'"),
        ({"inputs": ["x=float32[2*n,k]", "pick=int64[m]"]}, "is no dim"),
        ({"outputs": ["y=float32[z]"]}, "has z"),
        ({"outputs": []}, "one output"),
        ({"inputs": ["x=int4[n,k]"]}, "has no type in C"),
        ({"attributes": ["offset=tensor"]}, "cannot read"),
        ({"source": ""}, "source is empty"),
        ({"source": "\ud800"}, "must be a text"),
        ({"shape": "rows"}, "unknown key 'shape'"),
    ],
)
def test_declarations_that_are_wrong(change: dict[str, Any], words: str) -> None:
    with pytest.raises(DeclarationError, match=words) as caught:
        CompileRequest.of(operators=[{**ROWS, **change}])
    assert caught.value.field.startswith("operators")


def test_code_of_a_request_needs_a_sandbox(tmp_path: Path) -> None:
    file = tmp_path / "model.onnx"
    onnx.save(model(), file)
    refuse_code(file, False, Level.NONE, unlimited=True)
    with pytest.raises(CompileError, match="custom operators run code of their own") as caught:
        refuse_code(file, True, Level.LIMITS, unlimited=False)
    assert (caught.value.code, caught.value.failure.field) == (
        "load.sandbox_too_weak",
        "operators",
    )


def test_a_request_survives_its_wire_form() -> None:
    request = CompileRequest.of(operators=[ROWS])
    assert CompileRequest.from_json(request.to_json()) == request
    assert "operators" not in CompileRequest.of().to_json()


def write(folder: Path, texts: Iterable[tuple[str, str]]) -> Path:
    for name, text in texts:
        (folder / name).write_text(text)
    return folder / "operators.toml"


def test_files_that_declare_operators(tmp_path: Path) -> None:
    table = "\n".join(
        f"{key} = {json.dumps('rows.c' if key == 'source' else value)}"
        for key, value in ROWS.items()
    )
    path = write(
        tmp_path, [("operators.toml", f"[[operator]]\n{table}"), ("rows.c", ROWS["source"])]
    )
    assert read_operators(path) == CompileRequest.of(operators=[ROWS]).operators
    for text, words in (
        ("[[operator]]\nname = 1", "source None"),
        ("a = 1", r"list of \[\[operator\]\]"),
        ("]", "not valid TOML"),
        ('[[operator]]\nsource = "none.c"', "cannot read"),
    ):
        with pytest.raises(DeclarationError, match=words):
            read_operators(write(tmp_path, [("operators.toml", text)]))
