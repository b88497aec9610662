"""The real models that tests and the demo compile: where each file comes from and what must be
declared about it.
"""

import fcntl
import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Shapes = tuple[Mapping[str, int], ...]
Feed = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class RealModel:
    """One model.

    source: finds or makes the file.
    dims, inputs, consts: what a compile request declares.
    shapes: dim values to run at.
    draw: for inputs that index something, the exclusive upper bound of the integers drawn.
    """

    source: Callable[[], Path]
    dims: Mapping[str, str]
    inputs: Mapping[str, str] = field(default_factory=dict)
    consts: Mapping[str, int] = field(default_factory=dict)
    shapes: Shapes = ()
    draw: Mapping[str, int] = field(default_factory=dict)

    def request(self, **others: Any) -> dict[str, Any]:
        """The request document of `POST /v1/compile`."""
        return {
            "dims": dict(self.dims),
            "inputs": dict(self.inputs),
            "consts": dict(self.consts),
            **others,
        }


def cache() -> Path:
    """The folder of exported models: RELAXD_MODELS, else `.models` of the checkout."""
    return Path(os.environ.get("RELAXD_MODELS") or Path(__file__).parents[3] / ".models")


def package_model(package: str, file: str) -> Path:
    """A file of an installed package, found without importing it."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError(f"the package {package} is not installed: run `make env`")
    return Path(spec.submodule_search_locations[0]) / file


def _exported(name: str) -> Path:
    """A model exported once by `tests/support/exports.py`, in a process of its own so that torch
    stays out of this one.
    """
    path = cache() / f"{name}.onnx"
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with (path.parent / f".{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            partial_path = path.with_suffix(f".{os.getpid()}.partial")
            subprocess.run(
                [sys.executable, Path(__file__).parents[1] / "exports.py", name, partial_path],
                check=True,
            )
            partial_path.replace(path)
    return path


_ppocr = partial(package_model, "rapidocr_onnxruntime")
_silero = partial(package_model, "silero_vad")

MODELS: dict[str, RealModel] = {
    "minilm": RealModel(
        partial(_exported, "minilm"),
        dims={"batch": "1:64", "seq": "1:512"},
        shapes=(
            {"batch": 1, "seq": 7},
            {"batch": 1, "seq": 128},
            {"batch": 8, "seq": 64},
            {"batch": 3, "seq": 500},
        ),
        draw={"input_ids": 30522, "token_type_ids": 2, "attention_mask": 2},
    ),
    "resnet50": RealModel(
        partial(_exported, "resnet50"),
        dims={"batch": "1:16"},
        shapes=({"batch": 1}, {"batch": 3}),
    ),
    "vit_s": RealModel(
        partial(_exported, "vit_s"),
        dims={"batch": "1:16"},
        shapes=({"batch": 1}, {"batch": 3}),
    ),
    "gpt2": RealModel(
        partial(_exported, "gpt2"),
        dims={"batch": "1:8", "seq": "1:1024", "past": "0:1023"},
        shapes=({"batch": 1, "seq": 128, "past": 0}, {"batch": 2, "seq": 1, "past": 130}),
        draw={"input_ids": 50257},
    ),
    "llama": RealModel(
        partial(_exported, "llama"),
        dims={"batch": "1:16", "seq": "1:512"},
        shapes=({"batch": 1, "seq": 7}, {"batch": 3, "seq": 40}),
        draw={"input_ids": 1024, "attention_mask": 2},
    ),
    "ppocr_det": RealModel(
        partial(_ppocr, "models/ch_PP-OCRv4_det_infer.onnx"),
        dims={"n": "1:4", "h": "32:1280%32", "w": "32:1280%32"},
        inputs={"x": "float32[n,3,h,w]"},
        shapes=({"n": 1, "h": 320, "w": 320}, {"n": 1, "h": 480, "w": 640}),
    ),
    "ppocr_rec": RealModel(
        partial(_ppocr, "models/ch_PP-OCRv4_rec_infer.onnx"),
        dims={"n": "1:8", "w": "16:1280"},
        inputs={"x": "float32[n,3,48,w]"},
        shapes=({"n": 1, "w": 100}, {"n": 1, "w": 320}, {"n": 6, "w": 320}),
    ),
    "ppocr_cls": RealModel(
        partial(_ppocr, "models/ch_ppocr_mobile_v2.0_cls_infer.onnx"),
        dims={"n": "1:8", "h": "32:96", "w": "32:384"},
        inputs={"x": "float32[n,3,h,w]"},
        shapes=({"n": 1, "h": 48, "w": 192}, {"n": 2, "h": 33, "w": 65}),
    ),
    "magika": RealModel(
        partial(package_model, "magika", "models/standard_v3_3/model.onnx"),
        dims={"batch": "1:32"},
        inputs={"bytes": "int32[batch,2048]"},
        shapes=({"batch": 1}, {"batch": 8}),
        draw={"bytes": 257},
    ),
    "silero_vad": RealModel(
        partial(_silero, "data/silero_vad.onnx"),
        dims={"batch": "1:16"},
        inputs={"input": "float32[batch,576]", "state": "float32[2,batch,128]"},
        consts={"sr": 16000},
        shapes=({"batch": 1}, {"batch": 8}),
    ),
    "silero_vad_16k_op15": RealModel(
        partial(_silero, "data/silero_vad_16k_op15.onnx"),
        dims={"batch": "1:16", "sequence": "576"},
        consts={"sr": 16000},
        shapes=({"batch": 1, "sequence": 576}, {"batch": 8, "sequence": 576}),
    ),
    "silero_vad_op18_ifless": RealModel(
        partial(_silero, "data/silero_vad_op18_ifless.onnx"),
        dims={"batch": "1:16", "sequence": "576"},
        consts={"sr": 16000},
        shapes=({"batch": 1, "sequence": 576}, {"batch": 8, "sequence": 576}),
    ),
    "silero_vad_jit": RealModel(
        partial(_silero, "data/silero_vad.jit"),
        dims={"batch": "1:16"},
        inputs={"x": "float32[batch,512]"},
        consts={"sr": 16000},
        shapes=({"batch": 1}, {"batch": 8}),
    ),
}


def path_of(name: str) -> Path:
    """The file of the model `name`, made on first use; safe when several processes ask at once."""
    return MODELS[name].source()


def feed_of(name: str, dims: Mapping[str, int], seed: int = 0) -> Feed:
    """Seeded random inputs of an ONNX model at `dims`: integers within what they index, floats
    standard normal, constants as declared.
    """
    import onnx

    model = MODELS[name]
    graph = onnx.load(path_of(name), load_external_data=False).graph
    stored = {tensor.name for tensor in graph.initializer}
    generator = np.random.default_rng(seed)
    feed: Feed = {}
    for value in graph.input:
        if value.name in stored:
            continue
        dtype = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        if value.name in model.consts:
            feed[value.name] = np.asarray(model.consts[value.name], dtype)
            continue
        shape = [dims.get(axis, axis) for axis in _axes(model, value)]
        if value.name in model.draw:
            feed[value.name] = generator.integers(
                0, model.draw[value.name], [int(n) for n in shape]
            ).astype(dtype)
        else:
            feed[value.name] = generator.standard_normal([int(n) for n in shape]).astype(dtype)
    if "attention_mask" in feed:
        feed["attention_mask"][:, 0] = 1
    return feed


def _axes(model: RealModel, value: Any) -> list[str]:
    if value.name in model.inputs:
        return model.inputs[value.name].partition("[")[2].rstrip("]").split(",")
    return [axis.dim_param or str(axis.dim_value) for axis in value.type.tensor_type.shape.dim]


def reference(name: str, feed: Feed) -> Feed:
    """ONNX Runtime's outputs by name."""
    import onnxruntime

    onnxruntime.disable_telemetry_events()
    session = onnxruntime.InferenceSession(str(path_of(name)), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, feed), strict=True))


if __name__ == "__main__":
    for wanted in sys.argv[1:] or MODELS:
        print(wanted, path_of(wanted))
