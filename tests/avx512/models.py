"""Real models, compiled as for any machine, whose bundles the emulated processor runs at several
shapes.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from compiler.api import compile_model
from compiler.targets import Target
from compiler.verify.emulation import tensors
from relaxd.loader.bundles.bundle import read_manifest
from tests.avx512 import programs
from tests.avx512.machine import PROCESSORS
from tests.support.models.known import MODELS, feed_of, path_of, reference

SHAPES: Mapping[str, tuple[Mapping[str, int], ...]] = {
    "minilm": tuple(
        {"batch": batch, "seq": seq} for batch, seq in ((1, 1), (1, 7), (2, 16), (3, 11), (1, 64))
    ),
    "ppocr_det": tuple(
        {"n": n, "h": h, "w": w}
        for n, h, w in ((1, 32, 32), (2, 32, 64), (1, 64, 96), (3, 96, 32), (1, 160, 96))
    ),
}
"""Sizes that an emulator reaches: it computes some 20 million products a second."""


@dataclass(frozen=True)
class Point:
    """A model at one shape: the greatest difference of any output from ONNX Runtime's, and the
    clocks that the call took.
    """

    model: str
    dims: Mapping[str, int]
    difference: float
    clocks: int


def run(name: str, target: Target, folder: Path, seconds: int) -> Iterator[Point]:
    """Compile the model for the target into the folder and call it at its shapes; raises
    AssertionError where it stops.
    """
    model = MODELS[name]
    bundle = folder / f"{name}-{target.name}"
    options = {"verify": False, "profile": False, "flavour": "vm"}
    compile_model(
        path_of(name),
        output=bundle,
        target=target.name,
        dims=model.dims,
        inputs=model.inputs,
        consts=model.consts,
        options=options,
    )
    manifest, content = read_manifest(bundle), (bundle / "weights.bin").read_bytes()
    weights = [
        tensors.from_bytes(content, weight.dtype, weight.shape, weight.offset)
        for weight in manifest.weights
    ]
    driver = folder / "driver"
    programs.build_driver(sorted(bundle.glob("libtvm_runtime*.so")), driver, target)
    feeds = [feed_of(name, dims) for dims in SHAPES[name]]
    calls = [[feed[item.name] for item in manifest.inputs] for feed in feeds]
    outcome = programs.start(
        PROCESSORS[target.name],
        driver,
        bundle / manifest.library,
        calls,
        weights=weights,
        seconds=seconds,
    )
    for dims, feed, ended, got in zip(
        SHAPES[name], feeds, outcome.ended, programs.results(outcome, folder), strict=True
    ):
        want = reference(name, feed)
        differences = [
            np.abs(array - want[item.name]).max(initial=0)
            for item, array in zip(manifest.outputs, got, strict=True)
        ]
        yield Point(name, dims, float(max(differences)), ended.clocks)
