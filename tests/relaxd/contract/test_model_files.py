"""The files of a model: which they are, what they are named by, and what is refused."""

import io
import tarfile
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from relaxd.contract import external_data, model_files
from relaxd.contract.canonical import digest_of
from relaxd.contract.external_data import external_locations
from relaxd.contract.model_files import (
    ExternalDataError,
    Piece,
    choose_files,
    manifest_of,
)
from relaxd.contract.model_tar import files_at
from relaxd.errors import DeclarationError
from tests.support.models.digests import digest_at
from tests.support.models.external import model_naming, outside, pack, write


def test_locations_are_found_wherever_tensors_are() -> None:
    model = model_naming("a", "b", "a")
    inner = helper.make_graph([], "inner", [], [], [outside("i", "sub/graph")])
    node = helper.make_node("If", ["c"], ["z"], then_branch=inner, value=outside("t", "attribute"))
    node.attribute.add(name="many", type=onnx.AttributeProto.TENSORS).tensors.append(
        outside("m", "list")
    )
    node.attribute.add(name="g", type=onnx.AttributeProto.GRAPHS).graphs.append(
        helper.make_graph([], "g", [], [], [outside("g", "graphs")])
    )
    model.graph.node.append(node)
    model.graph.sparse_initializer.add(
        values=outside("v", "values"), indices=outside("j", "indices")
    )
    function = model.functions.add(name="f")
    function.node.append(helper.make_node("Constant", [], ["k"], value=outside("k", "function")))
    want = ["a", "attribute", "b", "function", "graphs", "indices", "list", "sub/graph", "values"]
    data = model.SerializeToString()
    assert external_locations(data) == want
    assert external_locations(memoryview(data)) == want
    # Numbers in the model itself may keep the note of where they were.
    model.graph.initializer[1].data_location = TensorProto.DEFAULT
    assert "b" not in external_locations(model.SerializeToString())
    assert external_locations(model_naming(None).SerializeToString() + b"location") == [""]


def test_messages_have_the_fields_of_onnx() -> None:
    types = {
        "model": onnx.ModelProto,
        "graph": onnx.GraphProto,
        "function": onnx.FunctionProto,
        "node": onnx.NodeProto,
        "attribute": onnx.AttributeProto,
        "sparse": onnx.SparseTensorProto,
    }
    names = {kind: message.DESCRIPTOR.full_name for kind, message in types.items()}
    names["tensor"] = "onnx.TensorProto"
    for kind, message in types.items():
        listed = {
            field.number: field.message_type.full_name
            for field in message.DESCRIPTOR.fields
            if field.message_type is not None and field.message_type.full_name in names.values()
        }
        assert {n: names[inner] for n, inner in external_data._KINDS[kind].items()} == listed


@pytest.mark.parametrize("length", range(0, 200, 7))
def test_a_model_that_is_cut_short_has_what_is_before_the_cut(length: int) -> None:
    data = model_naming("a", "b").SerializeToString()
    assert set(external_locations(data[:length] + b"location")) <= {"a", "b", ""}


def test_fields_without_end_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(external_data, "MOST_FIELDS", 10)
    with pytest.raises(DeclarationError, match="more than 10 fields"):
        external_locations(model_naming("a", "b").SerializeToString())


def test_a_model_of_one_file_is_named_by_it(tmp_path: Path) -> None:
    data = helper.make_model(helper.make_graph([], "g", [], [])).SerializeToString()
    write(tmp_path, {"one/m.onnx": data, "one/README.md": b"", "other.bin": b"no onnx"})
    tar = pack(tmp_path / "m.tar", {"m.onnx": data})
    assert {digest_at(path) for path in (tmp_path / "one/m.onnx", tmp_path / "one", tar)} == {
        digest_of(data)
    }
    assert digest_at(tmp_path / "other.bin") == digest_of(b"no onnx")


def test_the_name_follows_from_content(tmp_path: Path) -> None:
    data = model_naming("m.onnx.data", "./deep/w.bin").SerializeToString()
    beside = {"m.onnx.data": b"1" * 24, "deep/w.bin": b"2" * 24}
    files = {"m.onnx": data, **beside}
    first = write(tmp_path / "first", {**files, "README.md": b"no part", "deep/x": b"nor this"})
    second = write(tmp_path / "second", {"renamed.onnx": data, **beside})
    paths = [
        first,
        first / "m.onnx",
        second,
        second / "renamed.onnx",
        pack(tmp_path / "1.tar", files),
        pack(tmp_path / "2.tar", dict(reversed(files.items()))),
        pack(tmp_path / "3.tar", files, "./a/b/"),
        pack(tmp_path / "4.tar", files, "n" * 150 + "/", tarfile.GNU_FORMAT),
    ]
    assert len({digest_at(path) for path in paths}) == 1
    assert list(files_at(first)) == ["deep/w.bin", "m.onnx.data", "model.onnx"]
    write(second, {"m.onnx.data": b"3" * 24})
    assert digest_at(second) != digest_at(first)


def test_the_manifest_is_one_of_oci() -> None:
    from artifacts.documents import TITLE, parse

    document = parse(manifest_of({"b": (digest_of(b"1"), 1), "a/c": (digest_of(b"22"), 2)}))
    assert document.artifact_type == "application/vnd.relaxd.model.v1"
    assert [(layer.annotations[TITLE], layer.size) for layer in document.layers] == [
        ("a/c", 2),
        ("b", 1),
    ]


@pytest.mark.parametrize(
    "location", ["../w", "/w", "a/../../w", "", ".", "a\\..\\w", "a//w", "w\0", "n" * 300]
)
def test_locations_stay_in_the_folder(tmp_path: Path, location: str) -> None:
    (tmp_path / "w").write_bytes(bytes(24))
    folder = write(
        tmp_path / "m", {"m.onnx": model_naming(location).SerializeToString(), "w": b"1"}
    )
    for path in (folder, folder / "m.onnx"):
        with pytest.raises(ExternalDataError):
            files_at(path)


def test_data_that_is_not_there_is_named(tmp_path: Path) -> None:
    folder = write(tmp_path / "m", {"m.onnx": model_naming("m.onnx.data").SerializeToString()})
    tar = pack(tmp_path / "m.tar", {"m.onnx": (folder / "m.onnx").read_bytes()})
    (folder / "m.onnx.data").mkdir()
    for path in (folder, folder / "m.onnx", tar):
        with pytest.raises(ExternalDataError, match=r"in 'm.onnx.data', which is not in") as caught:
            files_at(path)
        assert "relaxd compile" in (caught.value.hint or "")


def test_links_lead_to_the_folder_or_to_the_files_of_a_cache(tmp_path: Path) -> None:
    data = model_naming("w").SerializeToString()
    cache = write(tmp_path / "cache", {"blobs/1": data, "blobs/2": b"2" * 24})
    snapshot = tmp_path / "cache/snapshots/main"
    snapshot.mkdir(parents=True)
    (snapshot / "m.onnx").symlink_to("../../blobs/1")
    (snapshot / "w").symlink_to("../../blobs/2")
    plain = write(tmp_path / "plain", {"m.onnx": data, "w": b"2" * 24})
    assert digest_at(snapshot / "m.onnx") == digest_at(plain)
    (plain / "w").unlink()
    (plain / "w").symlink_to(cache / "blobs/2")
    with pytest.raises(ExternalDataError, match="link out of"):
        files_at(plain / "m.onnx")


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"a.onnx": b"\x08", "b.onnx": b"\x08"}, "2 ONNX models: a.onnx, b.onnx"),
        ({"README.md": b""}, "no config.json and no .onnx"),
    ],
)
def test_other_folders_are_refused(tmp_path: Path, files: dict[str, bytes], message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        files_at(write(tmp_path / "m", files))


def test_a_model_keeps_no_weights_under_its_own_name(tmp_path: Path) -> None:
    data = model_naming("model.onnx").SerializeToString()
    with pytest.raises(DeclarationError, match=r"weights in a file model.onnx"):
        files_at(write(tmp_path, {"m.onnx": data, "model.onnx": b""}) / "m.onnx")


def test_a_file_in_a_file_is_refused() -> None:
    data = model_naming("a/b", "a").SerializeToString()
    pieces = {name: Piece(io.BytesIO(data), 0, len(data)) for name in ("m.onnx", "a", "a/b")}
    with pytest.raises(DeclarationError, match="lies in a file"):
        choose_files(["m.onnx", "a"], pieces.get)


def test_the_highest_model_is_meant(tmp_path: Path) -> None:
    data = model_naming("w").SerializeToString()
    files = {"m/x/w": b"2", "m/sub/m.onnx": b"\x08", "m/m.onnx": data, "m/sub/w": b"1", "m/w": b"0"}
    write(tmp_path / "a", files)
    tar = pack(tmp_path / "a.tar", files)
    assert digest_at(tar) == digest_at(tmp_path / "a/m/m.onnx") == digest_at(tmp_path / "a/m")
    folder = {"config.json": b"{}", "model.safetensors": b"", "1_Pooling/config.json": b"{}"}
    write(tmp_path / "b", {**folder, "onnx/model.onnx": b"\x08"})
    assert digest_at(pack(tmp_path / "b.tar", folder, "b/")) == digest_at(tmp_path / "b")


def test_so_many_files_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_files, "MOST_FILES", 2)
    data = model_naming("a", "b", "c").SerializeToString()
    piece = Piece(io.BytesIO(data), 0, len(data))
    with pytest.raises(DeclarationError, match="in 3 files"):
        choose_files(["m.onnx"], lambda name: piece)
