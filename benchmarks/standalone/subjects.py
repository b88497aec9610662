"""The models that are compared, their bundles, and inputs for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from benchmarks.cpu import subjects as wide
from tests.compiler.codegen.standalone.models import perceptron
from tests.support.models import known

Feed = dict[str, NDArray[Any]]
Dims = Mapping[str, int]

NATIVE, WEB, WEB_THREADS = "native", "wasm32-simd", "wasm32-threads"
GPU = "webgpu"
WEB_TARGETS = (WEB, "wasm32-relaxed-simd", GPU)


@dataclass(frozen=True)
class Subject:
    """A model: its key in `benchmarks.cpu.rows`, None for the small perceptron, and the dims that
    it is called with; web: the same in WebAssembly.
    """

    name: str
    key: str | None
    shapes: tuple[Dims, ...]
    web: tuple[Dims, ...]

    @property
    def lacking(self) -> str:
        """The package without which there is no such model; empty where it is installed."""
        return wide.missing_package(self.key) if self.key else ""

    @cached_property
    def model(self) -> wide.Model | None:
        """The model of the wide table, made at first use; None for the perceptron."""
        return wide.find(self.key) if self.key else None

    @property
    def consts(self) -> Mapping[str, Any]:
        """The inputs that a request fixes."""
        real = known.MODELS.get(self.key or "")
        return real.consts if real else {}

    def file(self, work: Path) -> Path:
        """The ONNX file."""
        if self.model is not None:
            return self.model.path
        path = work / f"{self.name}.onnx"
        if not path.exists():
            onnx.save(perceptron(), path)
        return path

    def feed(self, dims: Dims) -> Feed:
        """Inputs at the dims."""
        if self.key == "ppocr_det":
            return {"x": _page(dims["n"], dims["h"], dims["w"])}
        if self.model is not None:
            return dict(self.model.feed(dims, 0))
        shape = (dims["n"], 32)
        return {"x": np.random.default_rng(0).standard_normal(shape).astype(np.float32)}

    def select_inputs(self, feed: Feed) -> Feed:
        """The part of the feed that a library takes: what a request fixed is in its code."""
        return {name: array for name, array in feed.items() if name not in self.consts}

    def build(self, work: Path, target: str, flavour: str) -> Path:
        """A bundle, compiled at the first call."""
        from compiler import compile_model

        bundle = work / f"{self.name}-{target}-{flavour}"
        if not bundle.exists():
            compile_model(
                self.file(work),
                output=bundle,
                target=target,
                dims=dict(self.model.dims) if self.model else {"n": "1:64"},
                inputs=dict(self.model.inputs) if self.model else None,
                consts=dict(self.consts),
                options={"verify": False, "profile": False, "flavour": flavour},
            )
        return bundle


def _page(count: int, height: int, width: int) -> NDArray[np.float32]:
    """Dark strokes on bright pages: on noise a detector of text says nearly 0 everywhere."""
    page = np.full((count, 3, height, width), 2, np.float32)
    for top in range(6, height - 10, 20):
        page[:, :, top : top + 10, 4:-4:3] = -2
    return page


SUBJECTS = (
    Subject("mlp", None, ({"n": 1}, {"n": 64}), ({"n": 1},)),
    Subject(
        "silero",
        "silero_vad_16k_op15",
        ({"batch": 1, "sequence": 576}, {"batch": 8, "sequence": 576}),
        ({"batch": 1, "sequence": 576},),
    ),
    Subject(
        "det",
        "ppocr_det",
        ({"n": 1, "h": 320, "w": 320},),
        ({"n": 1, "h": 320, "w": 320},),
    ),
    Subject(
        "rec",
        "ppocr_rec",
        ({"n": 1, "w": 320},),
        ({"n": 1, "w": 320},),
    ),
    Subject(
        "minilm",
        "minilm",
        ({"batch": 1, "seq": 7}, {"batch": 1, "seq": 128}),
        ({"batch": 1, "seq": 7}, {"batch": 1, "seq": 128}),
    ),
)
_PAGES = {
    "ppocr_cls": {"n": 1, "h": 48, "w": 192},
    "magika": {"batch": 1},
    "mobilenet_v3_large": {"batch": 1, "height": 224, "width": 224},
    "efficientnet_b0": {"batch": 1, "height": 224, "width": 224},
    "resnet50": {"batch": 1},
    "vit_s": {"batch": 1},
    "distilbert": {"batch": 1, "seq": 64},
    "t5_small_encoder": {"batch": 1, "seq": 48},
    "whisper_tiny_encoder": {"batch": 1},
    "message_passing_128": {"nodes": 200, "edges": 997},
    "graph_attention_128": {"nodes": 200, "edges": 997},
}
WEB_SUBJECTS = (*SUBJECTS, *(Subject(key, key, (), (dims,)) for key, dims in _PAGES.items()))
"""Fifteen models of the wide table and the perceptron, which are compared in WebAssembly."""


def label(subject: Subject, dims: Dims) -> str:
    """The model and the extents that it is run at."""
    return f"{subject.name} {'x'.join(map(str, dims.values()))}"
