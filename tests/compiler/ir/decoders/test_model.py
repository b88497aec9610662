"""Query, key and value of a decoder by one matmul, beside the same decoder by three."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
import pytest

from compiler.ir.decoders.design import Design, Layer, Named, Part, Rotation, plain_steps
from compiler.ir.decoders.model import decoder_model
from compiler.ir.decoders.quantized import Quantized
from tests.compiler.ir.onnx.running import session_of

WIDTH, HEADS, GROUPS, SIZE, WORDS = 64, 4, 2, 16, 40
BLOCK = 32
DESIGN = Design(
    (Layer(Rotation("", plain_steps(1e4, SIZE))),) * 2,
    vocabulary=WORDS,
    width=WIDTH,
    heads=HEADS,
    groups=GROUPS,
    size=SIZE,
    hidden=WIDTH,
    longest=16,
    epsilon=1e-5,
)
NORMS = (Part.SEEN_NORM, Part.READ_NORM, Part.LAST_NORM)


@dataclass(frozen=True)
class RandomWeights:
    """Random blocks of 4 bits: those of `zeroed` state the zero point that the others imply; biases
    of the parts `biased`; norms of each head where `normed`.
    """

    zeroed: tuple[Part, ...] = ()
    biased: tuple[Part, ...] = ()
    normed: bool = False

    def matrix(self, part: Part, layer: int | None, rows: int, depth: int) -> Named:
        draw, blocks = self._draw(part, layer), depth // BLOCK
        numbers = draw.integers(0, 256, (rows, blocks, BLOCK // 2), np.uint8)
        scales = draw.uniform(0.01, 0.05, (rows, blocks)).astype(np.float32)
        zeros = np.full((rows, blocks), 8, np.uint8) if part in self.zeroed else None
        return Named(f"{part}{layer}", Quantized(4, (rows, depth), numbers, scales, zeros))

    def bias(self, part: Part, layer: int | None, size: int) -> Named | None:
        if part not in self.biased:
            return None
        numbers = self._draw(part, layer).standard_normal(size)
        return Named(f"{part}{layer}.bias", numbers.astype(np.float32))

    def norm(self, part: Part, layer: int | None, size: int) -> Named | None:
        wanted = part in NORMS or (self.normed and part in (Part.QUERY_NORM, Part.KEY_NORM))
        return Named(f"{part}{layer}", np.ones(size, np.float32)) if wanted else None

    def _draw(self, part: Part, layer: int | None) -> np.random.Generator:
        return np.random.default_rng([list(Part).index(part), 0 if layer is None else layer + 1])


def matmul_count(model: onnx.ModelProto) -> int:
    """Matmuls of the layers."""
    return [node.op_type for node in model.graph.node].count("MatMulNBits") - 1


def scores(model: onnx.ModelProto) -> np.ndarray:
    """The logits of a prompt and of a token behind it."""
    session: Any = session_of(model)
    caches = {
        entry.name: np.zeros((1, GROUPS, 0, SIZE), np.float32)
        for entry in session.get_inputs()
        if entry.name.startswith("past")
    }
    results = []
    for tokens, total in ([3, 9, 1, 30], 4), ([7], 5):
        mask = np.ones((1, total), np.int64)
        feed = {"input_ids": np.array([tokens]), "attention_mask": mask, **caches}
        logits, *presents = session.run(None, feed)
        results.append(logits[0])
        caches = dict(zip(caches, presents, strict=True))
    return np.concatenate(results)


@pytest.mark.parametrize("biased", [(), (Part.QUERY, Part.VALUE)])
@pytest.mark.parametrize("zeroed", [(), (Part.QUERY, Part.KEY, Part.VALUE)])
def test_one_matmul_gives_what_three_do(zeroed: tuple[Part, ...], biased: tuple[Part, ...]) -> None:
    weights = RandomWeights(zeroed, biased)
    one = decoder_model(DESIGN, weights)
    apart = decoder_model(DESIGN, replace(weights, zeroed=(Part.KEY,)))
    assert (matmul_count(one), matmul_count(apart)) == (2 * 5, 2 * 7)
    np.testing.assert_allclose(scores(one), scores(apart), rtol=1e-4, atol=1e-5)


def test_heads_that_are_normalized_apart_have_three_matmuls() -> None:
    assert matmul_count(decoder_model(DESIGN, RandomWeights(normed=True))) == 2 * 7
