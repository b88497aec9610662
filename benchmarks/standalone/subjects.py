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

from tests.compiler.codegen.standalone.models import perceptron
from tests.support.models import known as real

Feed = dict[str, NDArray[Any]]
Dims = Mapping[str, int]

NATIVE, WEB, WEB_THREADS = "native", "wasm32-simd", "wasm32-threads"


@dataclass(frozen=True)
class Subject:
    """A model: its key in `tests.support.models.known`, None for the small perceptron, and where it
    is run; web: the same in WebAssembly.
    """

    name: str
    key: str | None
    shapes: tuple[Dims, ...]
    web: tuple[Dims, ...]

    @cached_property
    def dims(self) -> dict[str, str]:
        """The dims as a request declares them."""
        return dict(real.MODELS[self.key].dims) if self.key else {"n": "1:64"}

    def file(self, work: Path) -> Path:
        """The ONNX file."""
        if self.key is not None:
            return real.path_of(self.key)
        path = work / f"{self.name}.onnx"
        if not path.exists():
            onnx.save(perceptron(), path)
        return path

    def feed(self, dims: Dims) -> Feed:
        """Inputs at the dims."""
        if self.key == "ppocr_det":
            return {"x": _page(dims["n"], dims["h"], dims["w"])}
        if self.key is not None:
            return real.feed_of(self.key, dims)
        shape = (dims["n"], 32)
        return {"x": np.random.default_rng(0).standard_normal(shape).astype(np.float32)}

    def select_inputs(self, feed: Feed) -> Feed:
        """The part of the feed that a library takes: what a request fixed is in its code."""
        fixed = real.MODELS[self.key].consts if self.key else {}
        return {name: array for name, array in feed.items() if name not in fixed}

    def build(self, work: Path, target: str, flavour: str) -> Path:
        """A bundle, compiled at the first call."""
        from compiler import compile_model

        bundle = work / f"{self.name}-{target}-{flavour}"
        if not bundle.exists():
            model = real.MODELS.get(self.key or "")
            compile_model(
                self.file(work),
                output=bundle,
                target=target,
                dims=self.dims,
                inputs=dict(model.inputs) if model else None,
                consts=dict(model.consts) if model else None,
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


def label(subject: Subject, dims: Dims) -> str:
    """The model and the extents that it is run at."""
    return f"{subject.name} {'x'.join(map(str, dims.values()))}"
