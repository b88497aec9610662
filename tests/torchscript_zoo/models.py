"""The zoo's models: what a compile request declares about each, the sizes it runs at, and its
inputs there.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Feed = dict[str, NDArray[Any]]
Sizes = Mapping[str, int]


@dataclass(frozen=True)
class ZooModel:
    """One model; `program` names its maker in `programs.py`.

    shapes: dim values to run at, the edges of every range among them.
    draw: the exclusive upper bound of the integers drawn for an input.
    """

    program: str
    inputs: Mapping[str, str]
    dims: Mapping[str, tuple[int, int]]
    shapes: tuple[Sizes, ...]
    consts: Mapping[str, int] = field(default_factory=dict)
    draw: Mapping[str, int] = field(default_factory=dict)


def _sizes(names: str, *rows: tuple[int, ...]) -> tuple[Sizes, ...]:
    return tuple(dict(zip(names.split(), row, strict=True)) for row in rows)


def _silero(rate: int) -> ZooModel:
    return ZooModel(
        "silero_vad",
        {"x": f"float32[batch,{rate * 512 // 16000}]"},
        {"batch": (1, 32)},
        _sizes("batch", (1,), (2,), (7,), (13,), (32,)),
        consts={"sr": rate},
    )


_TEXTS = _sizes("batch seq", (1, 1), (3, 7), (2, 128), (5, 311), (8, 512))

MODELS: dict[str, ZooModel] = {
    "minilm": ZooModel(
        "minilm",
        dict.fromkeys(("input_ids", "attention_mask", "token_type_ids"), "int64[batch,seq]"),
        {"batch": (1, 8), "seq": (1, 512)},
        _TEXTS,
        draw={"input_ids": 30522, "token_type_ids": 2},
    ),
    "resnet50": ZooModel(
        "resnet50",
        {"pixel_values": "float32[batch,3,h,w]"},
        {"batch": (1, 8), "h": (32, 320), "w": (32, 320)},
        _sizes("batch h w", (1, 32, 32), (1, 224, 224), (3, 97, 131), (2, 320, 53), (8, 320, 320)),
    ),
    "vit": ZooModel(
        "vit",
        {"pixel_values": "float32[batch,3,224,224]"},
        {"batch": (1, 8)},
        _sizes("batch", (1,), (2,), (3,), (7,), (8,)),
    ),
    "llama": ZooModel(
        "llama",
        dict.fromkeys(("input_ids", "attention_mask"), "int64[batch,seq]"),
        {"batch": (1, 8), "seq": (1, 512)},
        _TEXTS,
        draw={"input_ids": 1000},
    ),
    "scripted_lstm": ZooModel(
        "scripted_lstm",
        {"x": "float32[time,batch,8]"},
        {"time": (1, 64), "batch": (1, 16)},
        _sizes("time batch", (1, 1), (2, 16), (7, 3), (31, 11), (64, 16)),
    ),
    "silero_vad_8k": _silero(8000),
    "silero_vad_16k": _silero(16000),
}


def feed_of(model: ZooModel, sizes: Sizes) -> Feed:
    """Seeded inputs: floats standard normal, integers below what they index, masks of rows that end
    at some place.
    """
    generator = np.random.default_rng(sum(sizes.values()))
    feed: Feed = {}
    for name, declared in model.inputs.items():
        dtype, _, axes = declared.rstrip("]").partition("[")
        shape = [sizes[axis] if axis in sizes else int(axis) for axis in axes.split(",")]
        if name == "attention_mask":
            created: NDArray[Any] = np.arange(shape[1]) < generator.integers(
                1, shape[1] + 1, [shape[0], 1]
            )
        elif name in model.draw:
            created = generator.integers(0, model.draw[name], shape)
        else:
            created = generator.standard_normal(shape)
        feed[name] = created.astype(dtype)
    return feed
