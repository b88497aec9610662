"""The models whose libraries are judged: small ones made here, and real ones of packages."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from benchmarks.cpu.models import CASES as BENCHMARK_CASES
from benchmarks.judge.language_models import LANGUAGE_MODELS
from benchmarks.judge.subject import Subject
from tests.support.models.known import MODELS
from tests.torchscript_zoo.models import MODELS as SCRIPTS
from tests.torchscript_zoo.models import ZooModel
from tests.zoo.case import Case
from tests.zoo.cases import CASES as ZOO_CASES

_HEADER = '<ir_version: 9, opset_import: ["": 17]>'
_CONVOLUTIONS = """(float[n,3,h,w] x) => (float[n,10] y, float[n,24,p,q] features) {
    a = Conv<pads = [1, 1, 1, 1], kernel_shape = [3, 3]>(x, w0, b0)
    r = Relu(a)
    features = Conv<pads = [1, 1, 1, 1], kernel_shape = [3, 3]>(r, w1, b1)
    s = Sigmoid(features)
    m = GlobalAveragePool(s)
    f = Flatten(m)
    y = Gemm(f, w2, b2)
}"""
_ENCODER = """(float[n,s,32] x, bool[n,s] mask) => (float[n,s,32] y) {
    q = MatMul(x, wq)
    k = MatMul(x, wk)
    v = MatMul(x, wv)
    t = Transpose<perm = [0, 2, 1]>(k)
    scores = MatMul(q, t)
    scaled = Mul(scores, factor)
    one = Constant<value = int64[1] {1}>()
    wide = Unsqueeze(mask, one)
    masked = Where(wide, scaled, low)
    p = Softmax<axis = -1>(masked)
    o = MatMul(p, v)
    h = Add(o, x)
    l = LayerNormalization<axis = -1>(h, gain, bias)
    u = MatMul(l, wu)
    a = Relu(u)
    d = MatMul(a, wd)
    y = Add(d, l)
}"""
_QUANTIZED = """(float[n,64] x) => (float[n,20] y) {
    xq, xs, xz = DynamicQuantizeLinear(x)
    a = MatMulInteger(xq, w0, xz)
    af = Cast<to = 1>(a)
    as = Mul(af, xs)
    al = Mul(as, s0)
    ab = Add(al, b0)
    r = Tanh(ab)
    rq, rs, rz = DynamicQuantizeLinear(r)
    b = MatMulInteger(rq, w1, rz)
    bf = Cast<to = 1>(b)
    bs = Mul(bf, rs)
    bl = Mul(bs, s1)
    y = Add(bl, b1)
}"""


def _with_constants(text: str, constants: Mapping[str, tuple[int, ...] | float]) -> onnx.ModelProto:
    """The model with random constants of those shapes, 8-bit ones where a name is multiplied as
    integers.
    """
    model = onnx.parser.parse_model(f"{_HEADER} g {text}")
    random = np.random.default_rng(0)
    integers = {node.input[1] for node in model.graph.node if node.op_type == "MatMulInteger"}
    for name, shape in constants.items():
        if isinstance(shape, float):
            array = np.array(shape, np.float32)
        elif name in integers:
            array = random.integers(-127, 128, shape).astype(np.int8)
        else:
            fan = int(np.prod(shape[1:])) if len(shape) == 4 else shape[0]
            array = (random.standard_normal(shape) / np.sqrt(max(fan, 1))).astype("float32")
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    return model


def _convolutions() -> onnx.ModelProto:
    shapes = {
        "w0": (16, 3, 3, 3),
        "b0": (16,),
        "w1": (24, 16, 3, 3),
        "b1": (24,),
        "w2": (24, 10),
        "b2": (10,),
    }
    return _with_constants(_CONVOLUTIONS, shapes)


def _encoder() -> onnx.ModelProto:
    square = dict.fromkeys(("wq", "wk", "wv"), (32, 32))
    others = {"wu": (32, 64), "wd": (64, 32), "gain": (32,), "bias": (32,)}
    return _with_constants(_ENCODER, {**square, **others, "factor": 32**-0.5, "low": -1e9})


def _quantized() -> onnx.ModelProto:
    shapes = {"w0": (64, 96), "b0": (96,), "w1": (96, 20), "b1": (20,)}
    return _with_constants(_QUANTIZED, {**shapes, "s0": 0.002, "s1": 0.002})


def _written(make: Callable[[], onnx.ModelProto], folder: Path) -> Path:
    path = folder / "model.onnx"
    onnx.save(make(), path)
    return path


def _scripted(program: str, folder: Path) -> Path:
    """A program of the TorchScript zoo, saved by a process that may import torch."""
    path = folder / "model.pt"
    command = [sys.executable, "-m", "tests.torchscript_zoo.programs", "save", program, str(path)]
    subprocess.run(command, check=True, cwd=Path(__file__).parents[2])
    return path


def _real(name: str) -> Subject:
    model = MODELS[name]
    return Subject(lambda folder: model.source(), model.dims, model.inputs, model.consts)


def _case(case: Case) -> Subject:
    """A case of the zoo, verified as by default."""
    options = {key: value for key, value in case.options.items() if key not in ("verify",)}
    declared = (case.dims, case.inputs, case.consts, case.shapes)
    return Subject(lambda folder: case.export(), *declared, options)


def _script(model: ZooModel) -> Subject:
    file = partial(_scripted, model.program)
    return Subject(file, model.dims, model.inputs, model.consts)


QUICK = {
    "convolutions": Subject(
        partial(_written, _convolutions), {"n": "1:4", "h": "8:40", "w": "8:40"}
    ),
    "encoder": Subject(partial(_written, _encoder), {"n": "1:4", "s": "1:64"}),
    "quantized": Subject(partial(_written, _quantized), {"n": "1:64"}),
}
REAL = {name: _real(name) for name in MODELS}
ZOO = {key: _case(case) for key, case in ZOO_CASES.items() if case.installed and key not in REAL}
TORCHSCRIPT = {f"torchscript-{name}": _script(model) for name, model in SCRIPTS.items()}
BENCHMARKS = {key: _case(case) for key, case in BENCHMARK_CASES.items() if case.installed}
SUBJECTS = {**QUICK, **REAL, **ZOO, **TORCHSCRIPT, **LANGUAGE_MODELS, **BENCHMARKS}
"""By name."""
FAULTED = (
    *("silero_vad", "magika", "quantized", "squeezebert-torchscript", "mpnet-torchscript"),
    *("vivit-torchscript", "vit_interpolated-torchscript", "message_passing-torchscript"),
    *("dinov2-torchscript", "llama-torchscript", "phi-torchscript", "gemma-torchscript"),
    *("silero_vad_16k_op15", "convnext-dynamo", "xlnet-torchscript", "gpt2_past-torchscript"),
    *("llama_past-dynamo", "bart-torchscript", "wav2vec2-dynamo", "swin-torchscript"),
    *("whisper_encoder-torchscript", "levit-torchscript", "silero_vad_op18_ifless"),
    *("deberta-torchscript", "bert-dynamo", "mamba_associative-torchscript", "resnet50-dynamo"),
    *("ppocr_cls", "ppocr_rec", "minilm"),
)
"""The models into which faults are planted, those that build fastest first."""
