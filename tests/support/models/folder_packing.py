"""Folders of packed weights: numbers put into int32 one by one, as GPTQ and AWQ define it."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

Array = np.ndarray[Any, Any]
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)


@dataclass(frozen=True)
class Form:
    """method: gptq, gptq_v2 or awq; group: -1 for the whole depth; middle: zeros are half of the
    range.
    """

    method: str
    bits: int
    group: int
    middle: bool = False

    @property
    def config(self) -> dict[str, Any]:
        """The entry of config.json about it."""
        declared = {"quant_method": "awq", "bits": self.bits, "group_size": self.group}
        if self.method == "awq":
            return {**declared, "zero_point": True, "version": "gemm"}
        own = {"quant_method": "gptq", "desc_act": False, "sym": self.middle}
        return {**declared, **own, "checkpoint_format": self.method}


def pack(source: Path, folder: Path, form: Form) -> tuple[Path, Path]:
    """Two folders of the model in `source`: one with packed matrices of its layers, and one with
    the floats that they mean.
    """
    draw = np.random.default_rng(5)
    weights = load_file(source / "model.safetensors")
    few: dict[str, Array] = {}
    for name, weight in list(weights.items()):
        if "proj" not in name:
            few[name] = weight
            continue
        result = _quantised(weight.T, form, draw)
        module = name.removesuffix(".weight")
        few |= {f"{module}.{key}": stored for key, stored in _packed(*result, form).items()}
        weights[name] = _meant(*result).T
    results = []
    for kind, stored in (("packed", few), ("meant", weights)):
        created = folder / kind
        shutil.copytree(source, created)
        save_file(
            {key: np.ascontiguousarray(a) for key, a in stored.items()},
            created / "model.safetensors",
        )
        results.append(created)
    config = json.loads((source / "config.json").read_text())
    declared = config | {"quantization_config": form.config}
    (results[0] / "config.json").write_text(json.dumps(declared))
    return results[0], results[1]


def _quantised(weight: Array, form: Form, draw: np.random.Generator) -> tuple[Array, Array, Array]:
    """Numbers [depth, rows], zeros and scales [groups, rows], of any rounding."""
    depth, rows = weight.shape
    group, most = depth if form.group == -1 else form.group, (1 << form.bits) - 1
    zeros = draw.integers(1, most, (depth // group, rows), endpoint=True)
    if form.middle:
        zeros[:] = 1 << (form.bits - 1)
    spread = np.abs(weight.reshape(depth // group, group, rows)).max(1) * 2 / most
    scales = spread.astype(np.float16)
    near = np.rint(weight / np.repeat(scales, group, 0) + np.repeat(zeros, group, 0))
    return np.clip(near, 0, most).astype(np.int64), zeros, scales


def _meant(numbers: Array, zeros: Array, scales: Array) -> Array:
    group = len(numbers) // len(zeros)
    apart = numbers - np.repeat(zeros, group, 0)
    return (apart * np.repeat(scales.astype(np.float64), group, 0)).astype(np.float32)


def _packed(numbers: Array, zeros: Array, scales: Array, form: Form) -> dict[str, Array]:
    each = 32 // form.bits
    if form.method == "awq":
        order = AWQ_ORDER
        content = {"qweight": _rows(numbers, order, 4), "qzeros": _rows(zeros, order, 4)}
        return {**content, "scales": scales}
    stored = zeros if form.method == "gptq_v2" else zeros - 1
    group = len(numbers) // len(zeros)
    return {
        "qweight": _rows(numbers.T, range(each), form.bits).T,
        "qzeros": _rows(stored, range(each), form.bits),
        "scales": scales,
        "g_idx": np.array([i // group for i in range(len(numbers))], np.int32),
        "bias": np.zeros(numbers.shape[1], np.float16),
    }


def _rows(numbers: Array, order: Any, bits: int) -> Array:
    """int32 of the numbers of each row."""
    each = 32 // bits
    words = np.zeros((len(numbers), numbers.shape[1] // each), np.uint32)
    for i in range(words.shape[0]):
        for j in range(words.shape[1]):
            for position, column in enumerate(order):
                words[i, j] |= np.uint32(int(numbers[i, j * each + column]) << (bits * position))
    return words.view(np.int32)
