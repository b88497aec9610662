"""Folders and tars of language models: their files and their digest, and what is refused."""

import io
import os
import tarfile
from pathlib import Path

import pytest

from relaxd.contract.model_folder import model_name
from relaxd.contract.model_tar import files_at, pieces_of_tar
from relaxd.errors import DeclarationError
from tests.support.models.digests import digest_at

FILES = {
    "model.safetensors": bytes(range(251)) * 77,
    "config.json": b"{}",
    "tokenizer.json": b"",
    "chat_template.jinja": b"x" * 512,
}


def folder(path: Path) -> Path:
    path.mkdir(parents=True)
    for name, data in {**FILES, "README.md": b"no part", "pytorch_model.bin": b"nor this"}.items():
        (path / name).write_bytes(data)
    (path / "onnx").mkdir()
    return path


def test_times_and_links_change_nothing(tmp_path: Path) -> None:
    plain = folder(tmp_path / "m")
    want = digest_at(plain)
    os.utime(plain / "config.json", (1, 1))
    (plain / "config.json").chmod(0o600)
    linked = tmp_path / "linked"
    linked.mkdir()
    for path in plain.iterdir():
        (linked / path.name).symlink_to(path)
    assert {digest_at(plain), digest_at(linked)} == {want}
    (plain / "config.json").write_bytes(b"{ }")
    assert digest_at(plain) != want


def test_a_file_that_becomes_shorter_is_no_model(tmp_path: Path) -> None:
    piece = files_at(folder(tmp_path / "m"))["model.safetensors"]
    (tmp_path / "m" / "model.safetensors").write_bytes(b"1")
    with pytest.raises(OSError, match="shorter"):
        list(piece.chunks())


def test_a_tar_is_the_model_of_its_folder(tmp_path: Path) -> None:
    plain = folder(tmp_path / "m")
    other = tmp_path / "other.tar"
    with tarfile.open(other, "w") as archive:
        for path in sorted(plain.iterdir(), reverse=True):
            archive.add(path, f"./any/{path.name}")
    pieces = files_at(other)
    assert {name: b"".join(piece.chunks()) for name, piece in pieces.items()} == FILES
    assert [
        pieces["model.safetensors"].read(start, 5) for start in (7, 251 * 77 - 2, 251 * 77)
    ] == [
        bytes(range(7, 12)),
        bytes((249, 250)),
        b"",
    ]
    assert digest_at(other) == digest_at(plain)


@pytest.mark.parametrize(
    ("missing", "message"), [("config.json", "no config.json"), ("model.safetensors", "a pickle")]
)
def test_what_is_no_model_is_refused(tmp_path: Path, missing: str, message: str) -> None:
    (folder(tmp_path / "m") / missing).unlink()
    with pytest.raises(DeclarationError, match=message):
        files_at(tmp_path / "m")


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("a/Qwen2.5-0.5B.tar.gz", "Qwen2.5-0.5B"),
        ("b.TGZ", "b"),
        ("b.tar", "b"),
        ("m.onnx", "m"),
        ("m", "m"),
    ],
)
def test_names(path: str, name: str) -> None:
    assert model_name(Path(path)) == name


def test_a_folder_keeps_its_whole_name(tmp_path: Path) -> None:
    (tmp_path / "Qwen2.5").mkdir()
    assert model_name(tmp_path / "Qwen2.5") == "Qwen2.5"


def record(kind: bytes, size: int, data: bytes = b"") -> bytes:
    """A header that states a size, and what follows it."""
    member = tarfile.TarInfo("config.json")
    member.type, member.size = kind, size
    return member.tobuf(tarfile.GNU_FORMAT) + data


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (record(tarfile.XHDTYPE, 1 << 33), "8589934592 bytes"),
        (record(tarfile.XGLTYPE, 1 << 33), "8589934592 bytes"),
        (record(tarfile.GNUTYPE_LONGNAME, 1 << 33), "8589934592 bytes"),
        (record(tarfile.GNUTYPE_SPARSE, 512), "sparse"),
        (
            record(
                tarfile.XHDTYPE,
                44,
                b"22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n".ljust(512, b"\0"),
            )
            + record(tarfile.REGTYPE, 512, b"9" * 512),
            "sparse",
        ),
        (
            record(tarfile.XHDTYPE, 8, b"8 a=bcd\n".ljust(512, b"\0")) * 5000,
            "recursion",
        ),
    ],
    ids=["attributes", "attributes of all", "name", "holes", "holes in attributes", "nested"],
)
def test_records_that_would_fill_the_memory_are_refused(data: bytes, message: str) -> None:
    file = io.BytesIO(data + bytes(1024))
    with pytest.raises(DeclarationError, match=message):
        pieces_of_tar(file, file)
