"""Encoders of text that a folder may hold, by the names of their classes in transformers: how each
kind departs from BERT.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from compiler.errors import LoadError
from compiler.ir.decoders.design import MOST_ANGLES, MOST_LAYERS
from compiler.ir.encoders.design import Activation, Design, Head, Layer, Part, Pool, Text
from compiler.ir.folder.config import Config, unsupported_error, unusable
from compiler.ir.folder.encoders import names
from compiler.ir.folder.exporting import export_hint
from compiler.ir.folder.rotations import rotation_of

_ACTIVATIONS = {
    "gelu": Activation.GELU,
    "gelu_python": Activation.GELU,
    "gelu_new": Activation.GELU_TANH,
    "gelu_fast": Activation.GELU_TANH,
    "gelu_pytorch_tanh": Activation.GELU_TANH,
    "quick_gelu": Activation.QUICK_GELU,
    "relu": Activation.RELU,
    "silu": Activation.SILU,
    "swish": Activation.SILU,
    "tanh": Activation.TANH,
}
_FULL, _SLIDING = "full_attention", "sliding_attention"
Described: TypeAlias = tuple[Text, Design]


@dataclass(frozen=True)
class Task:
    """A class of models that has this head, at these names; own: what the settings state of it."""

    head: Head
    names: Mapping[Part, str]
    own: Callable[[Config, Design, Head], Head] = lambda config, design, head: head


@dataclass(frozen=True)
class Family:
    """Encoders with these names of tensors; body: before them, in models with a head; absent: norms
    that a layer lacks.
    """

    body: str
    names: Mapping[Part, str]
    describe: Callable[[Config], Described]
    tasks: Mapping[str, Task] = field(default_factory=dict)
    absent: frozenset[tuple[Part, int]] = frozenset()


def _activation_of(config: Config, name: str, default: str = "gelu") -> Activation:
    """The activation that a setting names; raises LoadError for one that is not known."""
    value = config.get(name, default)
    if not isinstance(value, str) or value not in _ACTIVATIONS:
        raise _unsupported(config, f"encoders with the activation {str(value)[:40]!r}")
    return _ACTIVATIONS[value]


def _unsupported(config: Config, what: str) -> LoadError:
    return unsupported_error(what, export_hint(config))


def _head_size(width: int, heads: int) -> int:
    """The numbers of a head; raises LoadError where heads do not share the width evenly."""
    if width % heads:
        raise unusable(f"config.json states {heads} heads for a width of {width}")
    return width // heads


def _bert(config: Config) -> Described:
    if config.get("position_embedding_type", "absolute") != "absolute":
        raise _unsupported(config, "encoders whose position_embedding_type is not 'absolute'")
    if config.flag("is_decoder") or config.flag("add_cross_attention"):
        raise _unsupported(config, "encoders with is_decoder or add_cross_attention")
    width, heads = config.count("hidden_size"), config.count("num_attention_heads")
    longest = config.count("max_position_embeddings")
    design = Design(
        layers=(Layer(),) * config.count("num_hidden_layers", most=MOST_LAYERS),
        width=width,
        heads=heads,
        size=_head_size(width, heads),
        hidden=config.count("intermediate_size"),
        epsilon=config.number("layer_norm_eps", 1e-12),
        activation=_activation_of(config, "hidden_act"),
    )
    types = config.count("type_vocab_size", 2)
    return Text(config.count("vocab_size"), width, longest, longest, None, types), design


def _counted_from(padding: int, text: Text) -> Text:
    """Positions of tokens count on from the padding token's number."""
    if text.longest <= padding + 1:
        raise unusable("config.json states no usable max_position_embeddings")
    return replace(text, longest=text.longest - padding - 1, padding=padding)


def _roberta(config: Config) -> Described:
    text, design = _bert(config)
    padding = config.get("pad_token_id", 1)
    if type(padding) is not int or not 0 <= padding < text.vocabulary:
        raise unusable("config.json states no usable pad_token_id")
    return _counted_from(padding, text), design


def _mpnet(config: Config) -> Described:
    text, design = _bert(config)
    return replace(_counted_from(1, text), types=0), replace(design, distances=True)


def _electra(config: Config) -> Described:
    text, design = _bert(config)
    return replace(text, width=config.count("embedding_size", design.width)), design


def _distilbert(config: Config) -> Described:
    same = {
        "hidden_size": "dim",
        "num_attention_heads": "n_heads",
        "num_hidden_layers": "n_layers",
        "intermediate_size": "hidden_dim",
        "hidden_act": "activation",
    }
    settings = {**config.settings, **{name: config.get(own) for name, own in same.items()}}
    text, design = _bert(Config(settings | {"layer_norm_eps": 1e-12}))
    return replace(text, types=0), design


def _modernbert(config: Config) -> Described:
    width, heads = config.count("hidden_size"), config.count("num_attention_heads")
    size, longest = _head_size(width, heads), config.count("max_position_embeddings")
    if size % 2 or longest * size > MOST_ANGLES:
        raise _unsupported(config, f"{longest} rotated positions of {size} numbers")
    if config.get("rope_scaling") is not None:
        raise _unsupported(config, "encoders with rope_scaling")
    count = config.count("num_hidden_layers", most=MOST_LAYERS)
    every = config.count("global_attn_every_n_layers", 3)
    kinds = config.each("layer_types", count) or [
        _SLIDING if i % every else _FULL for i in range(count)
    ]
    window = config.count("local_attention", 128) // 2
    layers = {
        _FULL: Layer(
            rotation_of(config, size, config.number("global_rope_theta", 160_000.0), _FULL)
        ),
        _SLIDING: Layer(
            rotation_of(config, size, config.number("local_rope_theta", 10_000.0), _SLIDING),
            window,
        ),
    }
    for kind in kinds:
        if not isinstance(kind, str) or kind not in layers:
            raise _unsupported(config, f"layers of the type {str(kind)[:40]!r}")
    design = Design(
        layers=tuple(layers[kind] for kind in kinds),
        width=width,
        heads=heads,
        size=size,
        hidden=config.count("intermediate_size"),
        epsilon=config.number("norm_eps", 1e-5),
        activation=_activation_of(config, "hidden_activation"),
        norm_first=True,
        gated=True,
    )
    return Text(config.count("vocab_size"), width, longest, None, None, 0), design


def _by_hidden_act(config: Config, design: Design, head: Head) -> Head:
    return replace(head, hidden=design.activation)


def _modern_head(config: Config, design: Design, head: Head) -> Head:
    return replace(head, hidden=_activation_of(config, "classifier_activation"))


def _modern_classes(config: Config, design: Design, head: Head) -> Head:
    pools = {"cls": Pool.FIRST, "mean": Pool.MEAN}
    pool = config.get("classifier_pooling", "cls")
    if not isinstance(pool, str) or pool not in pools:
        raise _unsupported(config, f"classifiers that pool by {str(pool)[:40]!r}")
    return replace(_modern_head(config, design, head), pool=pools[pool])


_TOKENS = Task(Head(), names.CLASSIFIER)
_SPANS = Head(("start_logits", "end_logits"))
_TANH, _RELU, _GELU = (
    Head(pool=Pool.FIRST, hidden=hidden)
    for hidden in (Activation.TANH, Activation.RELU, Activation.GELU)
)
_WORDS = Head(hidden=Activation.GELU, tied=True)
_ROBERTA_TASKS = {
    "SequenceClassification": Task(_TANH, names.ROBERTA_CLASSES),
    "TokenClassification": _TOKENS,
    "QuestionAnswering": Task(_SPANS, names.ANSWERS),
    "MaskedLM": Task(_WORDS, names.ROBERTA_WORDS),
}
_ROBERTA = Family(
    "roberta.",
    {part: name for part, name in names.BERT.items() if part is not Part.EMBEDDING_MATRIX},
    _roberta,
    _ROBERTA_TASKS,
)
FAMILIES = {
    "Bert": Family(
        "bert.",
        names.BERT,
        _bert,
        {
            "SequenceClassification": Task(_TANH, names.BERT_PAIR),
            "TokenClassification": _TOKENS,
            "QuestionAnswering": Task(_SPANS, names.ANSWERS),
            "MaskedLM": Task(_WORDS, names.BERT_WORDS, _by_hidden_act),
        },
    ),
    "Roberta": _ROBERTA,
    "XLMRoberta": _ROBERTA,
    "Camembert": _ROBERTA,
    "MPNet": Family("mpnet.", names.MPNET, _mpnet, _ROBERTA_TASKS),
    "Electra": Family(
        "electra.",
        names.BERT,
        _electra,
        {
            "SequenceClassification": Task(_GELU, names.ROBERTA_CLASSES),
            "TokenClassification": _TOKENS,
            "QuestionAnswering": Task(_SPANS, names.ANSWERS),
        },
    ),
    "DistilBert": Family(
        "distilbert.",
        names.DISTILBERT,
        _distilbert,
        {
            "SequenceClassification": Task(_RELU, names.DISTILBERT_CLASSES),
            "TokenClassification": _TOKENS,
            "QuestionAnswering": Task(_SPANS, names.ANSWERS),
            "MaskedLM": Task(_WORDS, names.DISTILBERT_WORDS, _by_hidden_act),
        },
    ),
    "ModernBert": Family(
        "model.",
        names.MODERNBERT,
        _modernbert,
        {
            "SequenceClassification": Task(Head(), names.MODERNBERT_CLASSES, _modern_classes),
            "TokenClassification": Task(Head(), names.MODERNBERT_CLASSES, _modern_head),
            "QuestionAnswering": Task(_SPANS, names.MODERNBERT_CLASSES, _modern_head),
            "MaskedLM": Task(Head(tied=True), names.MODERNBERT_WORDS, _modern_head),
        },
        frozenset({(Part.MIX_NORM, 0)}),
    ),
}
MODEL, FOR = "Model", "For"
ARCHITECTURES = {
    f"{name}{suffix}": (family, task)
    for name, family in FAMILIES.items()
    for suffix, task in [
        (MODEL, None),
        *((f"{FOR}{kind}", task) for kind, task in family.tasks.items()),
    ]
}
"""The family of each class, and its task, None for the encoder alone."""
