"""Models with strings, for tests: as skl2onnx and ONNX Runtime's extensions write them."""

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ML, MICROSOFT, EXTENSIONS = "ai.onnx.ml", "com.microsoft", "ai.onnx.contrib"
WORDS = ["the", "cat", "dog", "sat", "über", "東京"]
BERT_VOCABULARY = [
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "hello", "world", "un", "##aff", "##able"),
    *("!", "caf", "##é", "ü", "東", "[", "]", "mask", "the"),
]
STRING, FLOAT, INT64 = TensorProto.STRING, TensorProto.FLOAT, TensorProto.INT64


def node(
    op: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: object
) -> onnx.NodeProto:
    """A node; domain: an attribute among the others."""
    return helper.make_node(op, inputs, outputs, **attributes)


def model_of(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[tuple[str, int, Sequence[str | int | None]]],
    outputs: Sequence[tuple[str, int]],
    constants: dict[str, np.ndarray] | None = None,
    opset: int = 20,
    ml: int = 3,
) -> onnx.ModelProto:
    """A model with the domains that strings occur in."""
    graph = helper.make_graph(
        nodes,
        "text",
        [helper.make_tensor_value_info(name, kind, shape) for name, kind, shape in inputs],
        [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs],
        [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()],
    )
    domains = {"": opset, ML: ml, MICROSOFT: 1, EXTENSIONS: 1}
    opsets = [helper.make_opsetid(name, version) for name, version in domains.items()]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def pipeline(labels: Sequence[str] = ("no", "yes"), *, zeros: int = 1) -> onnx.ModelProto:
    """Columns of strings and of numbers to a class, as of a ColumnTransformer."""
    cities, kinds = ["Berlin", "München", "", "New York"], ["a", "b"]
    width = len(cities) + len(kinds) + 1
    weights = np.linspace(-1, 1, width * 2).astype(np.float32)
    nodes = [
        node("OneHotEncoder", ["city"], ["c"], domain=ML, cats_strings=cities, zeros=zeros),
        node("OneHotEncoder", ["kind"], ["k"], domain=ML, cats_strings=kinds, zeros=zeros),
        node("Concat", ["c", "k"], ["hot"], axis=2),
        node("Reshape", ["hot", "flat"], ["row"]),
        node("Concat", ["row", "age"], ["x"], axis=1),
        node(
            "LinearClassifier",
            ["x"],
            ["label", "raw"],
            domain=ML,
            classlabels_strings=list(labels),
            coefficients=weights.tolist(),
            intercepts=[0.1, -0.1],
            multi_class=1,
            post_transform="SOFTMAX",
        ),
        node("Identity", ["label"], ["output_label"]),
        node(
            "ZipMap", ["raw"], ["output_probability"], domain=ML, classlabels_strings=list(labels)
        ),
    ]
    model = model_of(
        nodes,
        [("city", STRING, ["n", 1]), ("kind", STRING, ["n", 1]), ("age", FLOAT, ["n", 1])],
        [("output_label", STRING)],
        {"flat": np.array([-1, width - 1], np.int64)},
    )
    maps = model.graph.output.add(name="output_probability").type.sequence_type
    kinds_of = maps.elem_type.map_type
    kinds_of.key_type = STRING
    kinds_of.value_type.tensor_type.elem_type = FLOAT
    return model


def text_classifier(tokens: str = "[a-zA-Z0-9_]+") -> onnx.ModelProto:
    """Texts to counts of words to a class, as of a TfidfVectorizer."""
    grams = [*WORDS, "the", "cat"]
    count = len(WORDS) + 1
    nodes = [
        node("Reshape", ["text", "flat"], ["one"]),
        node("StringNormalizer", ["one"], ["low"], case_change_action="LOWER"),
        node(
            "Tokenizer",
            ["low"],
            ["words"],
            domain=MICROSOFT,
            mark=0,
            mincharnum=1,
            pad_value="#",
            tokenexp=tokens,
        ),
        node(
            "TfIdfVectorizer",
            ["words"],
            ["counts"],
            mode="TF",
            min_gram_length=1,
            max_gram_length=2,
            max_skip_count=0,
            ngram_counts=[0, len(WORDS)],
            ngram_indexes=list(range(count)),
            pool_strings=grams,
        ),
        node("MatMul", ["counts", "weights"], ["scores"]),
        node("ArgMax", ["scores"], ["best"], axis=1),
        node("ArrayFeatureExtractor", ["classes", "best"], ["chosen"], domain=ML),
        node("Reshape", ["chosen", "flat"], ["label"]),
    ]
    return model_of(
        nodes,
        [("text", STRING, [None, 1])],
        [("label", STRING), ("scores", FLOAT)],
        {
            "flat": np.array([-1], np.int64),
            "weights": np.linspace(-1, 1, count * 3).reshape(count, 3).astype(np.float32),
            "classes": np.array(["animal", "città", "other"], object),
        },
    )


def bert(**attributes: object) -> onnx.ModelProto:
    """A BertTokenizer in front of an embedding and a mean."""
    nodes = [
        node(
            "BertTokenizer",
            ["text"],
            ["ids", "types", "mask"],
            domain=EXTENSIONS,
            vocab_file="\n".join(BERT_VOCABULARY),
            **attributes,
        ),
        node("Gather", ["table", "ids"], ["rows"]),
        node("Cast", ["mask"], ["weight"], to=FLOAT),
        node("Unsqueeze", ["weight", "last"], ["column"]),
        node("Mul", ["rows", "column"], ["shown"]),
        node("ReduceMean", ["shown", "first"], ["embedding"], keepdims=1),
    ]
    table = np.random.default_rng(0).standard_normal((len(BERT_VOCABULARY), 4))
    return model_of(
        nodes,
        [("text", STRING, [1])],
        [("embedding", FLOAT)],
        {
            "table": table.astype(np.float32),
            "last": np.array([-1], np.int64),
            "first": np.array([0], np.int64),
        },
    )
