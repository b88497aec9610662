"""Attention over in-place KV caches that are stored in fewer bits, at the geometries of other
processors, beside ONNX Runtime over rows that are quantized the same: each at two of them, and at
all four by `make geometry`.
"""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from tvm import relax, te, tirx

import relaxd
from compiler.build import build
from compiler.codegen.generate import generate
from compiler.isolation.messages import CompileJob
from compiler.passes.cpu.shared.float16 import convert_float16
from compiler.passes.manager import lower
from compiler.quantize.onnx.kv_cache import quantize_kv_caches
from compiler.targets.vector_unit import VectorUnit
from compiler.verify.run.native import run_step
from relaxd.contract.options import CacheForm
from relaxd.contract.request import CompileRequest
from relaxd.loader import byte_rows
from tests.compiler.ir.onnx.operators.test_quantized import one_node
from tests.compiler.ir.onnx.running import Arrays, model_of, normal, session_of
from tests.support.geometries import GEOMETRIES, NATIVE, builds_for, geometry

pytestmark = pytest.mark.slow

GROUPS, LONGEST = 2, 600
DIMS = {"n": (1, 3), "s": (1, 64), "p": (0, LONGEST)}
TOTALS = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 127, 255, 256, 257, 509, LONGEST)
"""Around the keys of a vector, of a block and of a part, primes, and the most."""
FEW = ((300, 8), (257, 9), (300, 17))
MANY = ((64, 64), (290, 33), (563, 50), (600, 41))
"""Keys and new tokens, of which few and many have loops of their own."""


def fill(heads: int, size: int, **attributes: Any) -> onnx.ModelProto:
    """Attention alone, each entry of whose caches is filled to a length of its own."""
    inputs = {
        "q": f"float32[n,s,{heads * size}]",
        **dict.fromkeys("kv", f"float32[n,s,{GROUPS * size}]"),
        **dict.fromkeys(("pk", "pv"), f"float32[n,{GROUPS},p,{size}]"),
        "l": "int32[n]",
        "t": "int32[]",
    }
    own = {"num_heads": heads, "kv_num_heads": GROUPS, **attributes}
    outputs = ["y", "key", "value"]
    return one_node("GroupQueryAttention", inputs, {}, "q k v pk pv l t", outputs=outputs, **own)


def feed(model: onnx.ModelProto, lengths: list[int], rows: int) -> Arrays:
    """New tokens for caches that end at these lengths with them."""
    widths = {x.name: x.type.tensor_type.shape.dim[-1].dim_value for x in model.graph.input[:5]}
    n, room = len(lengths), max(lengths) - rows
    arrays = {name: normal(n, rows, widths[name], seed=seed) for seed, name in enumerate("qkv")}
    for name in ("pk", "pv"):
        arrays[name] = normal(n, GROUPS, room, widths[name], seed=len(arrays))
    last, total = np.array(lengths, np.int32) - 1, np.asarray(max(lengths), np.int32)
    return {**arrays, "l": last, "t": total}


FORMS: dict[str, tuple[int, int, dict[str, Any]]] = {
    "three heads a group": (6, 64, {}),
    "a window, parts of vectors": (4, 24, {"local_window_size": 70}),
    "one head a group": (2, 16, {"softcap": 2.0}),
}
PAIRS = [(form, name) for form in FORMS for name in (*GEOMETRIES, NATIVE)]
SAMPLE = [
    (form, name) for number, form in enumerate(FORMS) for name in list(GEOMETRIES)[number % 2 :: 2]
]


@pytest.mark.parametrize("stored", [CacheForm.FLOAT16, CacheForm.BFLOAT16, CacheForm.INT8])
@pytest.mark.parametrize(
    ("form", "name"), PAIRS if os.environ.get("RELAXD_GEOMETRIES") == "all" else SAMPLE
)
def test_outputs_and_rows_are_onnxruntimes(
    form: str, name: str, stored: CacheForm, tmp_path: Path
) -> None:
    heads, size, attributes = FORMS[form]
    model = fill(heads, size, **attributes)
    library = relaxd.load(_built(model, name, stored, tmp_path))
    assert library.manifest.state is not None
    assert library.manifest.state.stored is stored
    kernels = {kernel.name for kernel in library.manifest.inputs if kernel.dtype == stored}
    assert kernels == {"pk", "pv"}
    session = session_of(quantize_kv_caches(model, ("key", "value"), {}, stored))
    feeds = [feed(model, [total], 1) for total in TOTALS]
    feeds += [feed(model, [total], rows) for total, rows in (*FEW, *MANY)]
    feeds += [feed(model, lengths, 1) for lengths in ([600, 3, 256], [1, 257], [129, 512, 31])]
    feeds += [feed(model, [rows] * 3, rows) for rows in (5, 40)]
    for inputs in feeds:
        got = run_step(library, inputs)
        y, key, value = session.run(None, inputs)
        np.testing.assert_allclose(got["y"], y, rtol=1e-4, atol=2e-5)
        for entry, last in enumerate(inputs["l"]):
            for ours, theirs in ((got["key"], key), (got["value"], value)):
                np.testing.assert_array_equal(
                    ours[entry, :, : last + 1], theirs[entry, :, : last + 1]
                )


@pytest.mark.parametrize("name", ["128/16", NATIVE])
def test_rows_of_zeros_and_of_strange_numbers_are_bytes(name: str, tmp_path: Path) -> None:
    """A strange row takes the heads that read it alone."""
    model = fill(4, 24)
    library = relaxd.load(_built(model, name, CacheForm.INT8, tmp_path))
    session = session_of(quantize_kv_caches(model, ("key", "value"), {}, CacheForm.INT8))
    inputs = feed(model, [259], 3)
    inputs["k"][0, 1, :24] = 0
    inputs["k"][0, 0, 24] = np.inf
    inputs["v"][0, 2, :24] *= 1e-39
    inputs["v"][0, 2, 30] = np.nan
    inputs["pv"][0, 0, :40] *= 1e30
    got, want = run_step(library, inputs), session.run(None, inputs)
    for ours, theirs in zip((got["key"], got["value"]), want[1:], strict=True):
        np.testing.assert_array_equal(ours, theirs)
    ours, theirs = (y.reshape(3, 4, 24) for y in (got["y"][0], want[0][0]))
    np.testing.assert_allclose(ours[:, :2], theirs[:, :2], rtol=1e-4, atol=2e-5 * 1e30)
    assert np.isnan(ours[:, 2:]).all()


@pytest.mark.parametrize("name", ["128/16", "128/32", "256/16", "512/32"])
def test_a_token_has_the_same_bits_however_many_come_with_it(name: str, tmp_path: Path) -> None:
    """Rows of bytes: few queries and many have loops of their own."""
    path = _built(fill(6, 64), name, CacheForm.INT8, tmp_path)
    library = relaxd.load(path, threads=1)
    spec = {spec.name: spec for spec in library.inputs}
    assert spec["pk"].text == f"int8[n,{GROUPS},capacity,68]"
    tokens = {
        key: normal(1, 300, width, seed=5) for key, width in (("q", 384), ("k", 128), ("v", 128))
    }

    def answers(pieces: list[int], entries: int = 1, threads: int = 1) -> np.ndarray:
        state = relaxd.load(path, threads=threads).state(entries=entries, capacity=LONGEST)
        outputs, first = [], 0
        for rows in pieces:
            part = {key: array[:, first : first + rows] for key, array in tokens.items()}
            # Others hold more tokens, and other ones.
            others = {
                key: np.tile(array[:, ::-1] * 2, (entries - 1, 1, 1)) for key, array in part.items()
            }
            inputs = {key: np.concatenate([array, others[key]]) for key, array in part.items()}
            outputs.append(state.step(inputs)["y"][:1])
            first += rows
        return np.concatenate(outputs, axis=1)

    want = answers([64, 64, 64, 64, 44])
    np.testing.assert_array_equal(answers([1] * 20 + [40] * 7), want)
    np.testing.assert_array_equal(answers([33, 64, 5, 64, 64, 64, 6], entries=3, threads=2), want)


@pytest.mark.parametrize("name", ["128/16", "512/32", NATIVE])
def test_the_bytes_of_rows(name: str, tmp_path: Path) -> None:
    """To the bit, of numbers in the middle of two and of strange ones too."""
    library = relaxd.load(_built(fill(4, 24), name, CacheForm.INT8, tmp_path))
    rows = normal(9, GROUPS, 24)
    rows[0, 0] = np.arange(24) - 11.5
    rows[0, 0, 0] = 127
    rows[1, 0] = 0
    rows[2, 1] = np.linspace(-1e-36, 1e-36, 24)
    rows[3, 1] *= 1e-40
    rows[4, 0] *= 1e37
    rows[5, 1, 3], rows[6, 0, 7], rows[7, 1, 9] = np.inf, -np.inf, np.nan
    state = library.state(capacity=20)
    flat = rows.reshape(1, 9, GROUPS * 24)
    state.step({"q": normal(1, 9, 4 * 24), "k": flat, "v": flat[:, ::-1]})
    heads = rows.transpose(1, 0, 2)
    for cache, values in (("pk", heads), ("pv", heads[:, ::-1])):
        want = byte_rows.quantize_rows(values)
        ours = state.cached(cache)
        np.testing.assert_array_equal(ours[..., :24], want[..., :24])
        # The bits of a NaN are its own.
        np.testing.assert_array_equal(
            byte_rows.dequantize_rows(ours), byte_rows.dequantize_rows(want)
        )
        scales, wanted = (cached[..., 24:].copy().view(np.float32) for cached in (ours, want))
        np.testing.assert_array_equal(scales, wanted)


def concat_caches(size: int) -> onnx.ModelProto:
    """Attention by single operators, whose scores are scaled by what a cache says of its rows."""
    nodes = [
        helper.make_node("Concat", ["pk", "k"], ["key"], axis=2),
        helper.make_node("Concat", ["pv", "v"], ["value"], axis=2),
        helper.make_node("Shape", ["pk"], ["extents"]),
        helper.make_node("Gather", ["extents", "last"], ["size"], axis=0),
        helper.make_node("Cast", ["size"], ["real"], to=TensorProto.FLOAT),
        helper.make_node("Sqrt", ["real"], ["root"]),
        helper.make_node("Transpose", ["key"], ["turned"], perm=[0, 1, 3, 2]),
        helper.make_node("MatMul", ["q", "turned"], ["products"]),
        helper.make_node("Div", ["products", "root"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["weights"], axis=-1),
        helper.make_node("MatMul", ["weights", "value"], ["y"]),
    ]
    inputs = dict.fromkeys("qkv", f"float32[n,{GROUPS},s,{size}]")
    inputs |= dict.fromkeys(("pk", "pv"), f"float32[n,{GROUPS},p,{size}]")
    return model_of(nodes, inputs, {"last": np.array(3)}, outputs=["y", "key", "value"])


@pytest.mark.parametrize(
    ("size", "stored"),
    [*((size, CacheForm.INT8) for size in (1, 13, 64, 300)), (13, CacheForm.FLOAT16)],
)
def test_rows_of_any_size_behind_which_new_ones_are_joined(
    size: int, stored: CacheForm, tmp_path: Path
) -> None:
    """Those of 64 numbers alone are fused."""
    model = concat_caches(size)
    library = relaxd.load(_built(model, NATIVE, stored, tmp_path))
    session = session_of(quantize_kv_caches(model, ("key", "value"), {}, stored))
    for n, rows, past in (
        (1, 1, 0),
        (2, 1, 7),
        (1, 3, 255),
        (2, 1, 256),
        (1, 40, 300),
        (2, 5, 595),
    ):
        inputs = {
            name: normal(n, GROUPS, past if "p" in name else rows, size, seed=seed)
            for seed, name in enumerate(("q", "k", "v", "pk", "pv"))
        }
        got = run_step(library, inputs)
        y, key, value = session.run(None, inputs)
        np.testing.assert_allclose(got["y"], y, rtol=1e-4, atol=2e-5)
        np.testing.assert_array_equal(got["key"], key)
        np.testing.assert_array_equal(got["value"], value)


def _built(model: onnx.ModelProto, name: str, stored: CacheForm, folder: Path) -> Path:
    options = {"state": "lifted", "cache": stored.value, "verify": False, "profile": False}
    request = CompileRequest.of(dims=DIMS, options=options)
    path, output = folder / "model.onnx", folder / "out"
    onnx.save(model, path)
    with builds_for(name):
        build(CompileJob(str(path), request.to_json(), NATIVE, str(output), "caches"))
    return output


@pytest.mark.parametrize("name", ["128/16", NATIVE])
def test_every_float16_is_widened_exactly(name: str) -> None:
    """Subnormal numbers, infinities and NaN too, in vectors."""
    target = geometry(name)
    unit = VectorUnit.of(target)
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    np.testing.assert_array_equal(_widened(every, unit, target), every.astype(np.float32))
    portable = replace(unit, converts_float16=False)
    np.testing.assert_array_equal(_widened(every, portable, target), every.astype(np.float32))


def _widened(float16: np.ndarray, unit: VectorUnit, target: Any) -> np.ndarray:
    """The numbers as float32, by a loop over vectors."""
    count = tirx.IntImm("int64", len(float16))

    def compute(data: te.Tensor) -> te.Tensor:
        return te.compute(
            [count], lambda i: convert_float16(data(i).astype("float32"), unit), name="y"
        )

    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType([count], "float16"))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit_te(compute, x))
    executable = generate(lower(builder.get(), target, {}), target)
    import tvm

    machine = relax.VirtualMachine(executable, tvm.cpu())
    return np.asarray(machine["main"](tvm.runtime.tensor(float16)).numpy())
