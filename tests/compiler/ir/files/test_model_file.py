import gzip
import hashlib
from pathlib import Path

import numpy as np
import onnx
import psutil
import pytest
from onnx import TensorProto, helper, numpy_helper

from compiler.errors import LoadError
from compiler.ir.files.model_file import LoadedModel, open_model, read_model
from compiler.ir.folder.archive import read_files
from tests.compiler.graphs import WIDTH, add_and_divide, model
from tests.support.models.external import pack, write


def save(folder: Path, data: bytes) -> Path:
    path = folder / "m.onnx"
    path.write_bytes(data)
    return path


def with_external(location: str, length: int | None = None) -> onnx.ModelProto:
    tensor = numpy_helper.from_array(np.ones((1, WIDTH), np.float32), "w")
    onnx.external_data_helper.set_external_data(tensor, location, offset=0, length=length)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    return model([helper.make_node("Add", ["x", "w"], ["y"])], initializers=[tensor])


def refusal_code(path: Path, **settings: int) -> str:
    with pytest.raises(LoadError) as caught:
        read_model(path, **settings)
    assert caught.value.failure.field == "model"
    return caught.value.code


def test_a_model_and_its_digest(tmp_path: Path) -> None:
    data = add_and_divide().SerializeToString()
    loaded = read_model(save(tmp_path, data))
    assert loaded.proto.SerializeToString() == data
    assert loaded.digest == "sha256:" + hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize(
    "data",
    [
        b"hello, this is text",
        b"PK\x03\x04" + b"\0" * 64,
        b"\0\0\0\0",
        b"{}" * 50,
        helper.make_tensor("t", 1, [1], [1.0]).SerializeToString(),
    ],
)
def test_other_files_are_not_onnx(tmp_path: Path, data: bytes) -> None:
    assert refusal_code(save(tmp_path, data)) == "load.not_onnx"


@pytest.mark.parametrize("share", [0.3, 0.6, 0.95])
def test_a_truncated_model_is_named_so(tmp_path: Path, share: float) -> None:
    data = add_and_divide(rows=64).SerializeToString()
    assert refusal_code(save(tmp_path, data[: int(len(data) * share)])) == "load.truncated"


def test_an_empty_file(tmp_path: Path) -> None:
    assert refusal_code(save(tmp_path, b"")) == "load.empty"


def test_a_missing_file_and_a_folder(tmp_path: Path) -> None:
    assert refusal_code(tmp_path / "none.onnx") == "load.unreadable"
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "x").touch()
    assert refusal_code(folder) == "load.unreadable"


def test_the_size_limit(tmp_path: Path) -> None:
    assert (
        refusal_code(save(tmp_path, add_and_divide().SerializeToString()), max_bytes=10)
        == "load.too_large"
    )


def test_a_graph_without_outputs(tmp_path: Path) -> None:
    empty = add_and_divide()
    empty.graph.ClearField("output")
    assert refusal_code(save(tmp_path, empty.SerializeToString())) == "load.no_output"


@pytest.mark.parametrize("version", [-1, 1 << 31, 1 << 62])
def test_an_opset_that_cannot_be(tmp_path: Path, version: int) -> None:
    odd = add_and_divide()
    odd.opset_import[0].version = version
    assert refusal_code(save(tmp_path, odd.SerializeToString())) == "load.opset"


def test_external_data_is_taken_in(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(np.full((1, WIDTH), 3, np.float32).tobytes())
    loaded = read_model(save(tmp_path, with_external("w.bin").SerializeToString()))
    assert np.all(numpy_helper.to_array(loaded.proto.graph.initializer[0]) == 3)


def test_the_digest_covers_external_data(tmp_path: Path) -> None:
    path = save(tmp_path, with_external("w.bin").SerializeToString())
    digests = set()
    for value in (1, 2):
        (tmp_path / "w.bin").write_bytes(np.full((1, WIDTH), value, np.float32).tobytes())
        digests.add(read_model(path).digest)
    assert len(digests) == 2


@pytest.mark.parametrize(
    "location", ["../secret.bin", "/etc/hostname", "missing.bin", "link.bin", ""]
)
def test_external_data_stays_in_the_models_folder(tmp_path: Path, location: str) -> None:
    (tmp_path / "secret.bin").write_bytes(b"s" * 4096)
    folder = tmp_path / "upload"
    folder.mkdir()
    (folder / "link.bin").symlink_to(tmp_path / "secret.bin")
    assert (
        refusal_code(save(folder, with_external(location).SerializeToString()))
        == "load.external_data"
    )


def test_external_data_must_be_complete(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(b"\0" * 8)
    assert (
        refusal_code(save(tmp_path, with_external("w.bin", length=4 * WIDTH).SerializeToString()))
        == "load.external_data"
    )


def test_external_data_of_a_subgraph_is_confined_too(tmp_path: Path) -> None:
    inner = with_external("../secret.bin").graph.initializer[0]
    branch = helper.make_graph(
        [helper.make_node("Constant", [], ["w2"], value=inner)],
        "branch",
        [],
        [helper.make_tensor_value_info("w2", TensorProto.FLOAT, None)],
    )
    nodes = [
        helper.make_node(
            "Constant", [], ["c"], value=helper.make_tensor("c", TensorProto.BOOL, [], [True])
        ),
        helper.make_node("If", ["c"], ["w"], then_branch=branch, else_branch=branch),
        helper.make_node("Add", ["x", "w"], ["y"]),
    ]
    assert refusal_code(save(tmp_path, model(nodes).SerializeToString())) == "load.external_data"


def test_weights_that_were_not_sent_are_named(tmp_path: Path) -> None:
    path = save(tmp_path, with_external("model.onnx.data").SerializeToString())
    with pytest.raises(LoadError) as caught:
        read_model(path)
    assert caught.value.message == (
        "the weights are in 'model.onnx.data', which is not in the model's folder"
    )
    assert caught.value.code == "load.external_data"


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"offset": "64"}, "are not in a file of 32"),
        ({"offset": "16", "length": "32"}, "bytes 16 to 48 are not in a file of 32"),
        ({"offset": "-4", "length": "4"}, "are not in a file of 32"),
        ({"offset": "8", "length": "-8"}, "are not in a file of 32"),
        ({"length": str(1 << 70)}, "are not in a file of 32"),
        ({"offset": "zero"}, "invalid literal"),
        ({"offset": "9" * 5000}, "Exceeds the limit"),
        ({"offset": "4", "length": ""}, ""),
    ],
)
def test_offsets_and_lengths_stay_in_the_file(
    tmp_path: Path, entries: dict[str, str], message: str
) -> None:
    (tmp_path / "w.bin").write_bytes(b"\0" * 32)
    proto = with_external("w.bin")
    (tensor,) = proto.graph.initializer
    del tensor.external_data[:]
    for key, value in {"location": "w.bin", **entries}.items():
        tensor.external_data.add(key=key, value=value)
    path = save(tmp_path, proto.SerializeToString())
    if not message:
        assert len(read_model(path).proto.graph.initializer[0].raw_data) == 28
        return
    with pytest.raises(LoadError, match=message) as caught:
        read_model(path)
    assert (caught.value.code, caught.value.failure.node) == ("load.external_data", "w")


@pytest.mark.parametrize("sent", ["folder", "tar", "packed"])
def test_a_folder_or_a_tar_may_hold_the_model_and_its_data(tmp_path: Path, sent: str) -> None:
    files = {
        "m.onnx": with_external("deep/w.bin").SerializeToString(),
        "deep/w.bin": np.full((1, WIDTH), 3, np.float32).tobytes(),
    }
    folder, tar = write(tmp_path / "m", files), pack(tmp_path / "m.tar", files, "any/")
    packed = tmp_path / "m.tgz"
    packed.write_bytes(gzip.compress(tar.read_bytes()))
    loaded = open_model({"folder": folder, "tar": tar, "packed": packed}[sent])
    assert isinstance(loaded, LoadedModel)
    assert np.all(numpy_helper.to_array(loaded.proto.graph.initializer[0]) == 3)
    assert loaded.digest == read_model(folder / "m.onnx").digest
    assert loaded.file == (folder / "m.onnx" if sent == "folder" else None)


def test_a_link_of_a_cache_is_read_but_given_to_no_other_program(tmp_path: Path) -> None:
    data = with_external("w.bin").SerializeToString()
    write(tmp_path / "blobs", {"1": data, "2": np.ones((1, WIDTH), np.float32).tobytes()})
    folder = tmp_path / "snapshot"
    folder.mkdir()
    (folder / "m.onnx").symlink_to(tmp_path / "blobs/1")
    (folder / "w.bin").symlink_to(tmp_path / "blobs/2")
    loaded = read_model(folder / "m.onnx")
    assert np.all(numpy_helper.to_array(loaded.proto.graph.initializer[0]) == 1)
    assert loaded.file is None


def test_mapped_data_gives_its_memory_back(tmp_path: Path) -> None:
    size = 128 << 20
    with (tmp_path / "w.bin").open("wb") as file:
        file.truncate(size)
    path = save(tmp_path, with_external("w.bin").SerializeToString())
    process = psutil.Process()
    before = process.memory_info().rss
    files = read_files(path)
    assert len(files.arrays["w.bin"]) == size
    assert process.memory_info().rss - before < size // 2
