"""The design of an encoder, into which every file format that describes one is read."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from compiler.ir.decoders.design import Named, Rotation


class Part(StrEnum):
    """Tensors of an encoder: of the model, or of each layer."""

    TOKENS = "tokens"
    POSITIONS = "positions"
    TYPES = "types"
    EMBEDDING_NORM = "embedding_norm"
    EMBEDDING_MATRIX = "embedding_matrix"
    DISTANCE_BIAS = "distance_bias"
    LAST_NORM = "last_norm"
    MIX_NORM = "mix_norm"
    QUERY = "query"
    KEY = "key"
    VALUE = "value"
    MIXED = "mixed"
    FEED_NORM = "feed_norm"
    UP = "up"
    GATE = "gate"
    DOWN = "down"
    POOLER = "pooler"
    HEAD = "head"
    HEAD_NORM = "head_norm"
    LOGITS = "logits"


class Activation(StrEnum):
    """Elementwise functions of encoders."""

    GELU = "gelu"
    GELU_TANH = "gelu_tanh"
    QUICK_GELU = "quick_gelu"
    RELU = "relu"
    SILU = "silu"
    TANH = "tanh"


class Pool(StrEnum):
    """The vector that stands for a sequence: that of its first token, or the mean of those that
    the mask shows.
    """

    FIRST = "first"
    MEAN = "mean"


@dataclass(frozen=True)
class Layer:
    """rotation: None where queries and keys stay as they are; window: the greatest distance at
    which a token sees another, None for any.
    """

    rotation: Rotation | None = None
    window: int | None = None


@dataclass(frozen=True)
class Design:
    """Layers of attention and a second half of two matmuls.

    size: of a head; hidden: between the two matmuls; epsilon: of all norms.
    norm_first: layers normalize what their halves read, not what they write.
    gated: another matmul's result multiplies that of the activation.
    distances: attention adds a bias for each distance of two tokens and head.
    """

    layers: tuple[Layer, ...]
    width: int
    heads: int
    size: int
    hidden: int
    epsilon: float
    activation: Activation
    norm_first: bool = False
    gated: bool = False
    distances: bool = False


@dataclass(frozen=True)
class Text:
    """The embedding of tokens.

    width: of an embedding, which a matmul brings to the encoder's width where they differ; longest:
    the greatest length of a sequence; positions: rows of the table of positions, None without one;
    padding: the token whose position is the padding row, positions of the others counting on from
    it, None where positions count from 0; types: kinds of segments.
    """

    vocabulary: int
    width: int
    longest: int
    positions: int | None
    padding: int | None
    types: int


@dataclass(frozen=True)
class Head:
    """Logits of each token, or of a pooled sequence.

    names: of the outputs, each one column of the logits where there are several; hidden: the
    activation behind a matmul that keeps the width, None without one; tied: logits are those of the
    vocabulary, by the token embedding.
    """

    names: tuple[str, ...] = ("logits",)
    pool: Pool | None = None
    hidden: Activation | None = None
    tied: bool = False


@dataclass(frozen=True)
class Linear:
    """A matrix [columns, depth], multiplied by from the right, transposed; and its bias."""

    matrix: Named
    bias: Named | None

    @property
    def columns(self) -> int:
        """The width of the result."""
        return int(self.matrix.tensor.shape[0])


@dataclass(frozen=True)
class Norm:
    """The scale and the bias of normalized numbers."""

    scale: Named
    bias: Named | None


class Weights(Protocol):
    """The tensors of an encoder, float32; layer: None of the model's. Raises LoadError for tensors
    that are missing or have other shapes.
    """

    def has(self, part: Part, layer: int | None = None) -> bool:
        """True where the encoder has the part."""

    def linear(self, part: Part, layer: int | None, columns: int | None, depth: int) -> Linear:
        """A matrix and its bias; columns: None for as many as it has."""

    def norm(self, part: Part, layer: int | None, width: int) -> Norm | None:
        """None where the encoder does not normalize there."""

    def tensor(self, part: Part, layer: int | None, shape: tuple[int, ...]) -> Named:
        """Any other tensor, of that many numbers, in that shape."""


@dataclass(frozen=True)
class Limit:
    """The greatest extent of an input's axis, in tokens that the model has positions for.

    dim: of the axis, unless the request names another.
    """

    input: str
    axis: int
    dim: str
    most: int
