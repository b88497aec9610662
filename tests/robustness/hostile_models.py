"""ONNX files that nobody means well: mutated, truncated, nested, oversized, and with data files
elsewhere.
"""

import itertools
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import onnx
from onnx import TensorProto, helper

from tests.e2e.graphs import dense
from tests.support.models.small import convolutions, decoder, mask, perceptron

FLOAT = TensorProto.FLOAT
ODD_NUMBERS = (-1, 0, 1, 2**31, 2**40, 2**62, 2**63 - 1, -(2**63))
ODD_TEXTS = ("", "x", "\0", "../../etc/passwd", "%s%n", "é" * 1000, "a" * 1_000_000, "?", "0")
DEEP = (10, 60, 200, 1500)


def hostile(draw: random.Random, count: int) -> Iterator[tuple[str, bytes]]:
    """So many files, with the kind of each."""
    sound = [
        dense(),
        *(make().SerializeToString() for make in (perceptron, mask, convolutions, decoder)),
    ]
    kinds: tuple[Callable[[random.Random, bytes], bytes], ...] = (
        *(flip_bit, cut, splice, repeat),
        *([rewritten] * 4),
        *(nest, oversized_model),
    )
    for _ in range(count):
        kind = draw.choice(kinds)
        yield kind.__name__, kind(draw, draw.choice(sound))


def flip_bit(draw: random.Random, data: bytes) -> bytes:
    """Up to 16 bytes are others."""
    changed = bytearray(data)
    for _ in range(draw.randint(1, 16)):
        changed[draw.randrange(len(changed))] = draw.randrange(256)
    return bytes(changed)


def cut(draw: random.Random, data: bytes) -> bytes:
    """The end is missing, or a part of the middle."""
    start = draw.randrange(len(data))
    return data[:start] + data[start + draw.choice([1, 50, len(data)]) :]


def splice(draw: random.Random, data: bytes) -> bytes:
    """Bytes of chance are inserted."""
    position = draw.randrange(len(data))
    return data[:position] + draw.randbytes(draw.randint(1, 200)) + data[position:]


def repeat(draw: random.Random, data: bytes) -> bytes:
    """A stretch occurs again and again; protobuf merges fields that do."""
    start = draw.randrange(len(data))
    piece = data[start : start + draw.randint(1, 2000)]
    return data[:start] + piece * draw.randint(2, 100) + data[start:]


def rewritten(draw: random.Random, data: bytes) -> bytes:
    """A well-formed file, of which up to four fields are odd."""
    model = onnx.load_from_string(data)
    for _ in range(draw.randint(1, 4)):
        draw.choice(REWRITES)(draw, model)
    return bytes(model.SerializeToString())


def _node(draw: random.Random, model: onnx.ModelProto) -> onnx.NodeProto:
    return draw.choice(model.graph.node)


def _rewire(draw: random.Random, model: onnx.ModelProto) -> None:
    names = [name for node in model.graph.node for name in (*node.input, *node.output)]
    node = _node(draw, model)
    position = draw.randrange(len(node.input))
    node.input[position] = draw.choice([*names, "", "nowhere"])


def _rename(draw: random.Random, model: onnx.ModelProto) -> None:
    node = _node(draw, model)
    node.output[0] = draw.choice([*ODD_TEXTS, node.input[0]])


def _retype(draw: random.Random, model: onnx.ModelProto) -> None:
    value = draw.choice([*model.graph.input, *model.graph.output])
    value.type.tensor_type.elem_type = draw.choice([0, 1, 7, 8, 9, 14, 23, 99])


def _resize(draw: random.Random, model: onnx.ModelProto) -> None:
    shape = draw.choice([*model.graph.input, *model.graph.output]).type.tensor_type.shape
    for dim in shape.dim:
        if draw.random() < 0.5:
            dim.dim_value = draw.choice(ODD_NUMBERS)
        elif draw.random() < 0.5:
            dim.dim_param = draw.choice(ODD_TEXTS)


def _reweigh(draw: random.Random, model: onnx.ModelProto) -> None:
    if model.graph.initializer:
        tensor = draw.choice(model.graph.initializer)
        del tensor.dims[:]
        tensor.dims.extend(draw.choices(ODD_NUMBERS, k=draw.randint(0, 5)))


def _reattribute(draw: random.Random, model: onnx.ModelProto) -> None:
    node = _node(draw, model)
    names = [attribute.name for attribute in node.attribute]
    name = draw.choice([*names, "axis", "axes", "perm", "to", "value", "pads", "kernel_shape"])
    retained = [attribute for attribute in node.attribute if attribute.name != name]
    value = draw.choice([draw.choice(ODD_NUMBERS), list(ODD_NUMBERS), "text", 0.5, float("nan")])
    del node.attribute[:]
    node.attribute.extend([*retained, helper.make_attribute(name, value)])


def _reoperate(draw: random.Random, model: onnx.ModelProto) -> None:
    names = sorted({schema.name for schema in onnx.defs.get_all_schemas()})
    _node(draw, model).op_type = draw.choice([*names, *ODD_TEXTS[:6]])


def _reversion(draw: random.Random, model: onnx.ModelProto) -> None:
    if draw.random() < 0.5:
        model.ir_version = draw.choice(ODD_NUMBERS)
    else:
        model.opset_import[0].version = draw.choice(ODD_NUMBERS)


REWRITES = (
    *(_rewire, _rename, _retype, _resize, _reweigh),
    *(_reattribute, _reoperate, _reversion),
)


def nest(draw: random.Random, data: bytes) -> bytes:
    """Branches in branches, deeper than protobuf's own library writes them."""
    created = helper.make_tensor_value_info("y", FLOAT, None).SerializeToString()
    inner = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "inner", [], [])
    graph = inner.SerializeToString() + _field(12, created)
    for _ in range(draw.choice(DEEP)):
        branch = _field(1, b"then_branch") + _field(6, graph) + b"\xa0\x01\x05"
        node = _field(1, b"c") + _field(2, b"y") + _field(4, b"If") + _field(5, branch)
        graph = _field(1, node) + _field(2, b"level") + _field(12, created)
    condition = helper.make_tensor_value_info("c", TensorProto.BOOL, [])
    inputs = (condition, helper.make_tensor_value_info("x", FLOAT, ["n"]))
    graph += b"".join(_field(11, value.SerializeToString()) for value in inputs)
    return b"\x08\x09" + _field(7, graph) + _field(8, b"\x10\x11")


def _field(number: int, data: bytes) -> bytes:
    """A length-delimited field of protobuf."""
    size, left = b"", len(data)
    while left > 127:
        size, left = size + bytes([left & 127 | 128]), left >> 7
    return bytes([number << 3 | 2]) + size + bytes([left]) + data


def oversized_model(draw: random.Random, data: bytes) -> bytes:
    """Much of one thing: nodes, inputs of a node, dims, initializers without data."""
    x, y = (helper.make_tensor_value_info(name, FLOAT, ["n"]) for name in "xy")
    nodes = [helper.make_node("Identity", ["x"], ["y"])]
    weights: list[TensorProto] = []
    match draw.randrange(4):
        case 0:
            count = draw.choice([500, 2000])
            names = ["x", *(f"v{number}" for number in range(count)), "y"]
            pairs = itertools.pairwise(names)
            nodes = [helper.make_node("Relu", [one], [other]) for one, other in pairs]
        case 1:
            nodes = [helper.make_node("Sum", ["x"] * 5000, ["y"])]
        case 2:
            shape = [draw.choice(["n", 1, 2**20]) for _ in range(draw.choice([9, 300]))]
            x = helper.make_tensor_value_info("x", FLOAT, shape)
        case 3:
            weights = [TensorProto(name=f"w{n}", data_type=1, dims=[2**31, 2**20]) for n in (1, 2)]
            nodes = [helper.make_node("Sum", ["x", "w1", "w2"], ["y"])]
    return bytes(
        helper.make_model(helper.make_graph(nodes, "g", [x], [y], weights)).SerializeToString()
    )


def locations(target: Path) -> list[str]:
    """Sixty ways to name a file that is not beside the model; those that exist are `target`'s."""
    plain, relative = str(target), str(target).lstrip("/")
    climbs = ["../" * levels + relative for levels in range(1, 16)]
    return [
        *(
            plain,
            "/" + plain,
            "." + plain,
            f"file://{plain}",
            f"file:{plain}",
            f"//localhost{plain}",
        ),
        *climbs,
        *("./" + climb for climb in climbs[3:9]),
        *("weights/../" + climb for climb in climbs[3:9]),
        *(climbs[11].replace("../", "..//"), climbs[11].replace("../", ".././")),
        *(climbs[11].replace("/", "\\"), climbs[11].replace("../", "%2e%2e/")),
        *(f"{plain}\0", f"{plain}\0.bin", f"{plain}/", f"{plain}/.", f" {plain}", f"{plain} "),
        *(f"/proc/self/root{plain}", f"/proc/self/cwd/{climbs[11]}", f"/proc/1/root{plain}"),
        *("/proc/self/environ", "/proc/self/mem", "/proc/self/fd/0", "/dev/stdin", "/dev/zero"),
        *("", ".", "..", "~", "~root/.bashrc", "$HOME", f"$(cat {plain})", f"|cat {plain}"),
        *("model.onnx", "a" * 5000),
    ][:60]


def with_data_at(location: str, size: int) -> bytes:
    """A model whose weights, of so many bytes, lie there."""
    tensor = TensorProto(name="w", data_type=TensorProto.UINT8, dims=[size])
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", "0"), ("length", str(size))):
        tensor.external_data.add(key=key, value=value)
    y = helper.make_tensor_value_info("y", TensorProto.UINT8, [size])
    nodes = [helper.make_node("Identity", ["w"], ["y"])]
    model = helper.make_model(helper.make_graph(nodes, "g", [], [y], [tensor]))
    return bytes(model.SerializeToString())
