"""Models of less than 1 MB that ask for far more memory, disk or time."""

import io
import itertools
import random
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
LARGE = 1 << 20
OPSETS = [helper.make_opsetid("", 17)]

Bomb = Callable[[random.Random], bytes]


def _model(nodes: list[Any], *weights: TensorProto, shape: tuple[Any, ...] = ("n",)) -> bytes:
    x, y = (
        helper.make_tensor_value_info(name, FLOAT, sizes)
        for name, sizes in (("x", shape), ("y", None))
    )
    graph = helper.make_graph(nodes, "g", [x], [y], list(weights))
    return bytes(helper.make_model(graph, ir_version=9, opset_imports=OPSETS).SerializeToString())


def _numbers(name: str, *values: int) -> TensorProto:
    return numpy_helper.from_array(np.array(values, np.int64), name)


def constant_of_shape(draw: random.Random) -> bytes:
    """A constant of 2^40 elements."""
    created = helper.make_node("ConstantOfShape", ["shape"], ["c"])
    shape = _numbers("shape", LARGE, draw.choice([LARGE, 1 << 16]))
    return _model([created, helper.make_node("ReduceSum", ["c"], ["y"])], shape)


def expand(draw: random.Random) -> bytes:
    """The input, 2^40 times."""
    shape = _numbers("shape", LARGE, draw.choice([LARGE, 4096]), 1)
    return _model([helper.make_node("Expand", ["x", "shape"], ["y"])], shape)


def tile(draw: random.Random) -> bytes:
    """The input, 2^36 times."""
    return _model(
        [helper.make_node("Tile", ["x", "by"], ["y"])], _numbers("by", 1 << draw.randint(30, 40))
    )


def range_of_numbers(draw: random.Random) -> bytes:
    """All numbers up to 2^40."""
    ends = [
        numpy_helper.from_array(np.int64(value), name)
        for name, value in (("from", 0), ("to", 1 << draw.randint(34, 40)), ("by", 1))
    ]
    nodes = [
        helper.make_node("Range", ["from", "to", "by"], ["r"]),
        helper.make_node("Cast", ["r"], ["y"], to=FLOAT),
    ]
    return _model(nodes, *ends)


def double(draw: random.Random) -> bytes:
    """A value that is joined to itself again and again."""
    names = ["x", *(f"v{number}" for number in range(draw.randint(30, 60)))]
    nodes = [
        helper.make_node("Concat", [one, one], [other], axis=0)
        for one, other in itertools.pairwise(names)
    ]
    return _model([*nodes, helper.make_node("Identity", [names[-1]], ["y"])])


def doubled_constant(draw: random.Random) -> bytes:
    """The same of a constant, which is folded."""
    names = [f"v{number}" for number in range(draw.randint(34, 50))]
    nodes = [
        helper.make_node("Concat", [one, one], [other], axis=0)
        for one, other in itertools.pairwise(names)
    ]
    return _model(
        [*nodes, helper.make_node("Cast", [names[-1]], ["y"], to=FLOAT)], _numbers("v0", 1, 2)
    )


def sparse(draw: random.Random) -> bytes:
    """A sparse constant of a few elements and 2^40 positions."""
    x = helper.make_tensor_value_info("x", FLOAT, ["n"])
    y = helper.make_tensor_value_info("y", FLOAT, None)
    values = helper.make_tensor("w", FLOAT, [1], [1.0])
    positions = helper.make_tensor("w_places", INT64, [1], [draw.randrange(LARGE)])
    graph = helper.make_graph([helper.make_node("Identity", ["w"], ["y"])], "g", [x], [y])
    graph.sparse_initializer.append(helper.make_sparse_tensor(values, positions, [LARGE, LARGE]))
    return bytes(helper.make_model(graph, ir_version=9, opset_imports=OPSETS).SerializeToString())


def pad_model(draw: random.Random) -> bytes:
    """The input with 2^40 zeros around it."""
    edge = 1 << draw.randint(32, 40)
    return _model([helper.make_node("Pad", ["x", "pads"], ["y"])], _numbers("pads", edge, edge))


def endless_loop(draw: random.Random) -> bytes:
    """2^62 iterations."""
    inputs = [
        helper.make_tensor_value_info(name, kind, shape)
        for name, kind, shape in (
            ("i", INT64, []),
            ("go", TensorProto.BOOL, []),
            ("v", FLOAT, ["n"]),
        )
    ]
    outputs = [
        helper.make_tensor_value_info(name, kind, shape)
        for name, kind, shape in (("on", TensorProto.BOOL, []), ("w", FLOAT, ["n"]))
    ]
    nodes = [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Sin", ["v"], ["w"])]
    body = helper.make_graph(nodes, "body", inputs, outputs)
    count = numpy_helper.from_array(np.int64(1 << draw.randint(40, 62)), "count")
    return _model([helper.make_node("Loop", ["count", "", "x"], ["y"], body=body)], count)


def wide_matmul(draw: random.Random) -> bytes:
    """An outer product of 2^20 by 2^20 and more."""
    size = 1 << draw.randint(18, 22)
    nodes = [
        helper.make_node("Reshape", ["x", "column"], ["a"]),
        helper.make_node("Reshape", ["x", "row"], ["b"]),
        helper.make_node("MatMul", ["a", "b"], ["y"]),
    ]
    return _model(nodes, _numbers("column", size, 1), _numbers("row", 1, size), shape=(size,))


def _archive(entries: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in entries.items():
            archive.writestr(name, data)
    return file.getvalue()


def inflating(draw: random.Random) -> bytes:
    """A TorchScript file whose data grow a thousandfold."""
    zeros = bytes(draw.choice([64, 256]) << 20)
    return _archive(
        {
            "m/constants.pkl": b"\x80\x02).",
            "m/code/a.py": b"",
            "m/data/0": zeros,
            "m/data.pkl": b"\x80\x02}.",
            "m/version": b"3\n",
        }
    )


def inflating_code(draw: random.Random) -> bytes:
    """A TorchScript file whose code does."""
    code = b"def f(x):\n" + b"  y = x + x\n" * (draw.choice([4, 16]) << 16)
    return _archive(
        {
            "m/constants.pkl": b"\x80\x02).",
            "m/code/a.py": code,
            "m/version": b"3\n",
            "m/data.pkl": b"\x80\x02c__torch__\nM\n)\x81.",
        }
    )


def many_entries(draw: random.Random) -> bytes:
    """A TorchScript file of thousands of empty files."""
    names = [f"m/code/{number}" for number in range(draw.choice([2000, 6000]))]
    return _archive({"m/constants.pkl": b"", **dict.fromkeys(names, b"")})


BOMBS: tuple[Bomb, ...] = (
    *(constant_of_shape, expand, tile, range_of_numbers, double, doubled_constant, sparse),
    *(pad_model, endless_loop, wide_matmul, inflating, inflating_code, many_entries),
)
