"""Tiny language models with caches, as exporters write them, and ONNX Runtime's answers."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.compiler.ir.onnx.running import model_of, session_of

WORDS, HEADS, GROUPS, SIZE, LONGEST = 64, 4, 2, 16, 64
WIDTH = HEADS * SIZE
FILLED_DIMS = {
    "batch": (1, 4),
    "seq": (1, 24),
    "past": (0, LONGEST),
    "total": (1, LONGEST),
}
CROSSED = ("crossed.key", "crossed.value")
GROWN_DIMS = {name: FILLED_DIMS[name] for name in ("batch", "seq", "past")}
Arrays = dict[str, np.ndarray]
_MICROSOFT = "com.microsoft"


def fill(layers: int = 2, longest: int = LONGEST) -> onnx.ModelProto:
    """A decoder as onnxruntime-genai's builder writes it: each entry of a batch fills the caches
    to a length of its own, which the mask states.
    """
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["h0"]),
        helper.make_node("ReduceSum", ["attention_mask", "one"], ["sums"], keepdims=0),
        helper.make_node("Sub", ["sums", "one"], ["less"]),
        helper.make_node("Cast", ["less"], ["last"], to=TensorProto.INT32),
        helper.make_node("Shape", ["attention_mask"], ["extents"]),
        helper.make_node("Gather", ["extents", "place"], ["most"], axis=0),
        helper.make_node("Cast", ["most"], ["longest"], to=TensorProto.INT32),
    ]
    for i in range(layers):
        nodes += [
            helper.make_node("MatMul", [f"h{i}", f"qkv{i}"], [f"packed{i}"]),
            helper.make_node(
                "GroupQueryAttention",
                [
                    f"packed{i}", "", "", f"past_key_values.{i}.key", f"past_key_values.{i}.value",
                    "last", "longest", "cos", "sin",
                ],
                [f"seen{i}", f"present.{i}.key", f"present.{i}.value"],
                domain=_MICROSOFT,
                num_heads=HEADS,
                kv_num_heads=GROUPS,
                do_rotary=1,
            ),
            helper.make_node("MatMul", [f"seen{i}", f"out{i}"], [f"mixed{i}"]),
            helper.make_node("Add", [f"h{i}", f"mixed{i}"], [f"h{i + 1}"]),
        ]  # fmt: skip
    nodes.append(helper.make_node("MatMul", [f"h{layers}", "head"], ["logits"]))
    inputs = {"input_ids": "int64[batch,seq]", "attention_mask": "int64[batch,total]"}
    phase = np.arange(longest)[:, None] * 0.3 ** np.arange(SIZE // 2)
    constants = {
        "one": np.array([1]),
        "place": np.array(1),
        "cos": np.cos(phase).astype(np.float32),
        "sin": np.sin(phase).astype(np.float32),
        **_weights(layers),
    }
    model = _decoder(nodes, inputs, constants, layers)
    model.opset_import.append(helper.make_opsetid(_MICROSOFT, 1))
    return model


def grown(layers: int = 1, longest: int = LONGEST) -> onnx.ModelProto:
    """A decoder that joins new rows to its caches, and sees positions by an embedding of them."""
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["words"]),
        helper.make_node("Gather", ["places", "position_ids"], ["where"]),
        helper.make_node("Add", ["words", "where"], ["h0"]),
    ]
    for i in range(layers):
        nodes.append(helper.make_node("MatMul", [f"h{i}", f"qkv{i}"], [f"packed{i}"]))
        nodes.append(
            helper.make_node("Split", [f"packed{i}", "sizes"], [f"q{i}", f"k{i}", f"v{i}"], axis=-1)
        )
        nodes.append(
            helper.make_node(
                "Attention",
                [
                    f"q{i}", f"k{i}", f"v{i}", "", f"past_key_values.{i}.key",
                    f"past_key_values.{i}.value",
                ],
                [f"seen{i}", f"present.{i}.key", f"present.{i}.value"],
                q_num_heads=HEADS,
                kv_num_heads=GROUPS,
                is_causal=1,
            )
        )  # fmt: skip
        nodes.append(helper.make_node("MatMul", [f"seen{i}", f"out{i}"], [f"mixed{i}"]))
        nodes.append(helper.make_node("Add", [f"h{i}", f"mixed{i}"], [f"h{i + 1}"]))
    nodes.append(helper.make_node("MatMul", [f"h{layers}", "head"], ["logits"]))
    inputs = {"input_ids": "int64[batch,seq]", "position_ids": "int64[batch,seq]"}
    draw = np.random.default_rng(7)
    constants = {
        "sizes": np.array([HEADS * SIZE, GROUPS * SIZE, GROUPS * SIZE]),
        "places": draw.standard_normal((longest, WIDTH)).astype(np.float32),
        **_weights(layers),
    }
    return _decoder(nodes, inputs, constants, layers, opset=23)


def add_cross_attention() -> onnx.ModelProto:
    """A decoder behind an encoder: its own caches grow, the encoder's keys and values stay, and
    come out as they went in.
    """
    stored = {name: f"kept.{name}" for name in CROSSED}
    model = grown()
    graph = model.graph
    *before, last = list(graph.node)
    del graph.node[:]
    last.input[0] = "h2"
    graph.node.extend(
        [
            *before,
            *(
                helper.make_node("Identity", [name], [retained])
                for name, retained in stored.items()
            ),
            helper.make_node("Reshape", ["h1", "heads"], ["apart"]),
            helper.make_node("Transpose", ["apart"], ["asked"], perm=[0, 2, 1, 3]),
            helper.make_node("Attention", ["asked", *stored.values()], ["heard"]),
            helper.make_node("Transpose", ["heard"], ["turned"], perm=[0, 2, 1, 3]),
            helper.make_node("Reshape", ["turned", "whole"], ["joined"]),
            helper.make_node("Add", ["h1", "joined"], ["h2"]),
            last,
        ]
    )
    shape = ["batch", GROUPS, "source", SIZE]
    for name, retained in stored.items():
        graph.input.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
        graph.output.append(helper.make_empty_tensor_value_info(retained))
    constants = {"heads": np.array([0, 0, HEADS, SIZE]), "whole": np.array([0, 0, WIDTH])}
    graph.initializer.extend(numpy_helper.from_array(a, name) for name, a in constants.items())
    return model


def merge() -> onnx.ModelProto:
    """`add_cross_attention` as what `use_cache_branch` chooses; the other branch, of a first call,
    is empty.
    """
    model = add_cross_attention()
    graph = model.graph
    names = [output.name for output in graph.output]
    then = helper.make_graph(list(graph.node), "then", [], list(graph.output))
    empty = numpy_helper.from_array(np.zeros((1, 1, 1, 1), np.float32), "nothing")
    nodes = [helper.make_node("Identity", ["nothing"], [name]) for name in names]
    other = helper.make_graph(nodes, "else", [], list(graph.output), [empty])
    del graph.node[:]
    graph.node.append(
        helper.make_node("If", ["use_cache_branch"], names, then_branch=then, else_branch=other)
    )
    graph.input.append(helper.make_tensor_value_info("use_cache_branch", TensorProto.BOOL, [1]))
    return model


def _weights(layers: int) -> Arrays:
    draw = np.random.default_rng(3)

    def matrix(*shape: int) -> np.ndarray:
        return (draw.standard_normal(shape) * 1.5 / np.sqrt(shape[0])).astype(np.float32)

    created = {"table": draw.standard_normal((WORDS, WIDTH)).astype(np.float32)}
    for i in range(layers):
        created[f"qkv{i}"] = matrix(WIDTH, (HEADS + 2 * GROUPS) * SIZE)
        created[f"out{i}"] = matrix(HEADS * SIZE, WIDTH)
    return {**created, "head": matrix(WIDTH, WORDS)}


def _decoder(
    nodes: list[onnx.NodeProto],
    inputs: Mapping[str, str],
    constants: Mapping[str, np.ndarray],
    layers: int,
    opset: int = 21,
) -> onnx.ModelProto:
    names = [f"{layer}.{part}" for layer in range(layers) for part in ("key", "value")]
    caches = {f"past_key_values.{name}": f"float32[batch,{GROUPS},past,{SIZE}]" for name in names}
    outputs = ["logits", *(f"present.{name}" for name in names)]
    model = model_of(nodes, {**inputs, **caches}, None, opset=opset, outputs=outputs)
    model.graph.initializer.extend(
        numpy_helper.from_array(array, name) for name, array in constants.items()
    )
    return model


class Original:
    """A model in ONNX Runtime, its caches passed in and out, one sequence. held: inputs of every
    step.
    """

    def __init__(
        self, model: onnx.ModelProto, stored: Mapping[str, np.ndarray] | None = None
    ) -> None:
        self._session: Any = session_of(model)
        self._held = dict(stored or {})
        self._inputs = [arguments.name for arguments in self._session.get_inputs()]
        self.caches = {
            name: np.zeros((1, GROUPS, 0, SIZE), np.float32)
            for name in self._inputs
            if name.startswith("past")
        }

    def step(self, tokens: list[int]) -> np.ndarray:
        """The logits [tokens, words] of new tokens."""
        past = next(iter(self.caches.values())).shape[2]
        total = past + len(tokens)
        feed = {
            "input_ids": np.array([tokens]),
            "attention_mask": np.ones((1, total), np.int64),
            "position_ids": np.arange(past, total)[None],
            **self.caches,
            **self._held,
        }
        names = ["logits", *(name.replace("past_key_values", "present") for name in self.caches)]
        arguments = {name: feed[name] for name in self._inputs}
        logits, *presents = self._session.run(names, arguments)
        self.caches = dict(zip(self.caches, presents, strict=True))
        return logits[0]
