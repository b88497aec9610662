"""The design of a decoder, into which every file format that describes one is read."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import numpy as np

from compiler.ir.decoders.quantized import Array, Quantized

MOST_ANGLES = 1 << 26
"""Of a table of rotations."""

MOST_LAYERS = 1000
"""What a file of settings may state: each costs memory before the first tensor is read."""


class Part(StrEnum):
    """Tensors of a decoder: of the whole, or of each layer."""

    TABLE = "table"
    HEAD = "head"
    LAST_NORM = "last_norm"
    SEEN_NORM = "seen_norm"
    QUERY = "query"
    KEY = "key"
    VALUE = "value"
    QUERY_NORM = "query_norm"
    KEY_NORM = "key_norm"
    MIXED = "mixed"
    MIXED_NORM = "mixed_norm"
    READ_NORM = "read_norm"
    GATE = "gate"
    UP = "up"
    DOWN = "down"
    DOWN_NORM = "down_norm"


class Activation(StrEnum):
    """The function of the gate in a layer's feed-forward half."""

    SILU = "silu"
    GELU_TANH = "gelu_tanh"


@dataclass(frozen=True)
class Rotation:
    """Turns pairs of numbers of a head by the token's position times a step.

    name: of its tables; steps: float64 [pairs], angle by position; factor: of sine and cosine.
    """

    name: str
    steps: Array
    factor: float = 1.0

    def tables(self, positions: int) -> tuple[Array, Array]:
        """Cosines and sines, float32 [positions, pairs]."""
        angles = np.arange(positions)[:, None] * self.steps
        return tuple((turn(angles) * self.factor).astype(np.float32) for turn in (np.cos, np.sin))  # type: ignore[return-value]


@dataclass(frozen=True)
class Layer:
    """rotation: None where queries and keys stay as they are; window: how many tokens up to its own
    one sees, None for all.
    """

    rotation: Rotation | None
    window: int | None = None


@dataclass(frozen=True)
class Design:
    """A decoder of layers of attention over groups of heads, and a gated second half.

    vocabulary: tokens of the table; longest: context; size: of a head; neighbours: pairs that
    rotate are neighbours, not halves of a head apart.
    score_scale: of queries times keys, None for one over the root of a head's size.
    score_cap, logit_cap: c where scores of attention, or logits, become c * tanh(score / c).
    table_scale, residual_scale, logit_scale: of the rows of the table, of what each half of a layer
    adds, and of logits; None for 1.
    joint_norms: queries and keys are normalized over all heads together, not over each.
    """

    layers: tuple[Layer, ...]
    vocabulary: int
    width: int
    heads: int
    groups: int
    size: int
    hidden: int
    longest: int
    epsilon: float
    neighbours: bool = False
    activation: Activation = Activation.SILU
    score_scale: float | None = None
    score_cap: float | None = None
    logit_cap: float | None = None
    table_scale: float | None = None
    residual_scale: float | None = None
    logit_scale: float | None = None
    joint_norms: bool = False


@dataclass(frozen=True)
class Named:
    """A tensor with the name that its file gives it."""

    name: str
    tensor: Array | Quantized


class Weights(Protocol):
    """The tensors of a decoder; layer: None of the whole's."""

    def matrix(self, part: Part, layer: int | None, rows: int, depth: int) -> Named:
        """Multiplied by from the right, transposed; raises LoadError where there is none."""

    def bias(self, part: Part, layer: int | None, size: int) -> Named | None:
        """Added to what a matrix gives, float32; raises LoadError for another size."""

    def norm(self, part: Part, layer: int | None, size: int) -> Named | None:
        """Multiplied by normalized numbers, float32; None where they are not normalized; raises
        LoadError for another size.
        """


def plain_steps(base: float, size: int) -> Array:
    """The steps of a head whose pairs turn at rates from 1 down to one over the base."""
    return np.asarray(base ** (-np.arange(0, size, 2, dtype=np.float64) / size))
