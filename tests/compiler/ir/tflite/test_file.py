"""TFLite files that nobody has vouched for: damaged ones are refused, whatever is broken."""

import random
import struct
from pathlib import Path

import numpy as np
import pytest

from compiler.errors import CompileError, LoadError
from compiler.ir.files.model_file import open_model
from compiler.ir.tflite.file import File, parse_tflite
from compiler.ir.tflite.model import model_of
from compiler.ir.tflite.states import initial_contents
from tests.support.models.tflite_files import Op, T, encode
from tests.support.models.tflite_nets import image_net, memory_net

DAMAGED = 1500


def parse(data: bytes) -> File:
    return parse_tflite(memoryview(data))


def encode_sum(tensor: T, **more: object) -> bytes:
    return encode([T("x", (2, 3)), tensor], [Op("ADD", ["x", "y"], ["x"])], ["x"], ["x"])


def test_a_file_is_known_by_its_mark_whatever_it_is_called(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(image_net())
    model = open_model(path)
    assert [entry.name for entry in model.proto.graph.input] == ["image"]  # type: ignore[union-attr]


def test_every_beginning_of_a_file_is_refused_by_a_typed_error() -> None:
    data = image_net()
    for size in range(8, len(data), 7):
        with pytest.raises(CompileError):
            model_of(parse(data[:size]))


@pytest.mark.parametrize("data", [image_net(), memory_net()], ids=["images", "memory"])
def test_damaged_bytes_give_a_model_or_a_typed_error(data: bytes) -> None:
    chance, refused = random.Random(0), 0
    for _ in range(DAMAGED):
        damaged = bytearray(data)
        for _ in range(chance.choice([1, 1, 3, 20])):
            position = chance.randrange(len(damaged) - 4)
            if chance.random() < 0.5:
                damaged[position] = chance.randrange(256)
            else:
                number = chance.choice([0, 1, -1, 1 << 30, -(1 << 31), (1 << 31) - 1])
                struct.pack_into("<i", damaged, position, number)
        try:
            model_of(parse(bytes(damaged)))
        except CompileError:
            refused += 1
    assert refused > DAMAGED // 4


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (encode_sum(T("y", (2, 3), "int64", np.zeros(6), zero=1, scale=[1.0, 2.0], axis=0)), ""),
        (encode_sum(T("y", (4, 1), scale=[1.0, 2.0, 3.0])), "3 scales"),
        (encode_sum(T("y", (1, 2), scale=[float("nan")])), "no positive number"),
        (encode_sum(T("y", (1, 2), scale=1.0, zero=1 << 40)), "beyond 32 bits"),
        (encode_sum(T("y", (1 << 20, 1 << 20, 1 << 20))), "has the shape"),
        (encode_sum(T("y", (1,) * 20)), "the shape of tensor 'y'"),
    ],
)
def test_what_contradicts_itself_is_refused(data: bytes, message: str) -> None:
    if not message:
        assert parse(data).graphs[0].tensors[1].quantization is not None
        return
    with pytest.raises(LoadError, match=message):
        parse(data)


def test_a_constant_of_another_size_than_its_shape_is_refused() -> None:
    data = bytearray(encode_sum(T("y", (7, 5), data=np.arange(35))))
    shape = data.index(struct.pack("<III", 2, 7, 5))
    struct.pack_into("<I", data, shape + 4, 8)
    with pytest.raises(LoadError, match="140 bytes for float32"):
        parse(bytes(data))


def test_an_older_schema_is_refused_by_its_version() -> None:
    data = bytearray(image_net())
    root = struct.unpack_from("<I", data)[0]
    layout = root - struct.unpack_from("<i", data, root)[0]
    version = root + struct.unpack_from("<H", data, layout + 4)[0]
    struct.pack_into("<I", data, version, 2)
    with pytest.raises(LoadError, match="schema 2"):
        parse(bytes(data))


def test_operators_that_nothing_translates_are_all_named() -> None:
    operators = [
        Op("CONV_3D", ["x"], ["x"]),
        Op("ABS", ["x"], ["x"]),
        Op("TFLite_Detection_PostProcess", ["x"], ["x"]),
    ]
    data = encode([T("x", (2, 3))], operators, ["x"], ["x"])
    with pytest.raises(CompileError, match="2 nodes are not supported") as caught:
        model_of(parse(data))
    failure = caught.value.failure
    assert failure.code == "import.unsupported_op"
    names = [each["op"] for each in failure.details["unsupported"]]
    assert names == ["CONV_3D", "CUSTOM[TFLite_Detection_PostProcess]"]


def test_variables_start_as_the_initial_graph_says() -> None:
    contents = initial_contents(parse(memory_net()))
    assert {name: tensor.data.tolist() for name, tensor in contents.items()} == {
        "rows": [[[-7, -7]] * 3]
    }


def test_names_of_values_never_meet_those_of_inputs() -> None:
    tensors = [T("ABS 0:0", (2,)), T("y", (2,)), T("ABS 0:0", (2,))]
    data = encode(tensors[:2], [Op("ABS", ["ABS 0:0"], ["y"])], ["ABS 0:0"], ["y"])
    model = model_of(parse(data))
    assert [entry.name for entry in model.graph.input] == ["ABS 0:0"]
    assert model.graph.node[0].output[0] != "ABS 0:0"
