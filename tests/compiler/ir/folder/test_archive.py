"""Files of folders and tars: the same whichever way they come, and what is refused."""

import gzip
import io
import os
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compiler.errors import LoadError
from compiler.ir.folder import archive
from compiler.ir.folder.archive import is_folder, read_files
from relaxd.contract import model_tar

FILES = {
    "config.json": b"{}",
    "model.safetensors": bytes(range(256)) * 9,
    "tokenizer.json": b"",
    "README.md": b"not of the model",
}


def folder(path: Path, files: dict[str, bytes] = FILES) -> Path:
    path.mkdir()
    for name, data in files.items():
        (path / name).write_bytes(data)
    return path


def member(name: str, data: bytes = b"", **fields: Any) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for field, value in fields.items():
        setattr(info, field, value)
    return info, data


def tar(
    path: Path, *members: tuple[tarfile.TarInfo, bytes], form: int = tarfile.PAX_FORMAT
) -> Path:
    with tarfile.open(path, "w", format=form) as archive:
        for info, data in members:
            archive.addfile(info, io.BytesIO(data))
    return path


def members(prefix: str = "", files: dict[str, bytes] = FILES) -> list[Any]:
    return [member(prefix + name, data) for name, data in files.items()]


def content(path: Path) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in read_files(path).arrays.items()}


def test_order_times_owners_and_packing_change_nothing(tmp_path: Path) -> None:
    plain = folder(tmp_path / "plain")
    os.utime(plain / "config.json", (1, 1))
    want = read_files(plain)
    assert content(plain) == {name: FILES[name] for name in FILES if name != "README.md"}
    late = [member(n, d, mtime=99, uid=7, uname="x", mode=0o600) for n, d in FILES.items()]
    deep = [
        member("./a", type=tarfile.DIRTYPE),
        *members("./a/"),
        member("./a/b/config.json", b"1"),
    ]
    long = "n" * 150 + "/"
    tars = [
        tar(tmp_path / "1.tar", *members()),
        tar(tmp_path / "2.tar", *late[::-1], form=tarfile.USTAR_FORMAT),
        tar(tmp_path / "3.tar", *deep, form=tarfile.GNU_FORMAT),
        tar(tmp_path / "4.tar", *members(long)),
        tar(tmp_path / "5.tar", *members(long), form=tarfile.GNU_FORMAT),
    ]
    packed = tmp_path / "6.tar.gz"
    packed.write_bytes(gzip.compress(tars[0].read_bytes()))
    for path in (*tars, packed):
        assert is_folder(path)
        assert read_files(path).digest == want.digest, path.name
        assert content(path) == content(plain), path.name


def test_the_digest_is_of_the_files(tmp_path: Path) -> None:
    seen = {read_files(folder(tmp_path / "0")).digest}
    for i, change in enumerate(
        [{"config.json": b"{ }"}, {"tokenizer.json": b"{}"}, {"generation_config.json": b""}]
    ):
        seen.add(read_files(folder(tmp_path / f"changed{i}", FILES | change)).digest)
    assert len(seen) == 4
    same = folder(tmp_path / "same", FILES | {"README.md": b"other"})
    assert read_files(same).digest in seen


def index(data: bytes) -> Any:
    return member("model.safetensors.index.json", data)


CONFIG = member("config.json", b"{}")
WEIGHTS = member("model.safetensors", b"1")


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([member("/config.json", b"{}"), WEIGHTS], "leads out"),
        ([member("../config.json", b"{}"), WEIGHTS], "leads out"),
        ([member("a/../../config.json", b"{}"), WEIGHTS], "leads out"),
        ([CONFIG, WEIGHTS, member("x", type=tarfile.SYMTYPE, linkname="/etc/passwd")], "regular"),
        ([CONFIG, WEIGHTS, member("x", type=tarfile.LNKTYPE, linkname="config.json")], "regular"),
        ([CONFIG, WEIGHTS, member("x", type=tarfile.FIFOTYPE)], "regular"),
        ([CONFIG, WEIGHTS, member("x", type=tarfile.CHRTYPE)], "regular"),
        ([CONFIG, CONFIG, WEIGHTS], "twice"),
        ([CONFIG], "no model.safetensors"),
        ([WEIGHTS], "no config.json"),
        ([CONFIG, member("pytorch_model.bin", b"1")], "'pytorch_model.bin' is a pickle"),
        ([CONFIG, member("a.safetensors"), member("b.safetensors")], "2 files"),
        ([CONFIG, WEIGHTS, index(b"{}")], "no weight_map"),
        ([CONFIG, index(b'{"weight_map": {"a": "1.safetensors"}}')], "'1.safetensors', which the"),
        ([CONFIG, index(b'{"weight_map": {"a": "../b.safetensors"}}')], "index.json names"),
        ([CONFIG, index(b'{"weight_map": {"a": "b.bin"}}')], "index.json names"),
    ],
)  # fmt: skip
def test_other_tars_are_refused(tmp_path: Path, entries: list[Any], message: str) -> None:
    with pytest.raises(LoadError, match=message) as caught:
        read_files(tar(tmp_path / "m.tar", *entries))
    assert caught.value.code == "load.folder"


@pytest.mark.parametrize("start", [b"\x28\xb5\x2f\xfd", b"BZh9", b"\xfd7zXZ\x00"])
def test_other_packings_are_refused(tmp_path: Path, start: bytes) -> None:
    path = tmp_path / "m"
    path.write_bytes(start + bytes(600))
    assert is_folder(path)
    with pytest.raises(LoadError, match="gzip"):
        read_files(path)


def test_too_many_members_and_bytes_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tar(tmp_path / "m.tar", *members())
    monkeypatch.setattr(model_tar, "MOST_MEMBERS", 3)
    with pytest.raises(LoadError, match="more than 3 members"):
        read_files(path)
    monkeypatch.setattr(archive, "MOST_BYTES", 1000)
    path.write_bytes(gzip.compress(path.read_bytes()))
    with pytest.raises(LoadError, match="more than 1000 bytes"):
        read_files(path)


def test_a_member_of_negative_size_ends(tmp_path: Path) -> None:
    path = tar(tmp_path / "m.tar", *members())
    data = bytearray(path.read_bytes())
    data[124:136] = b"\xff" * 10 + (-1024 & 0xFFFF).to_bytes(2, "big")
    data[148:156] = b"%06o\0 " % (sum(data[:148]) + 8 * 32 + sum(data[156:512]))
    path.write_bytes(data)
    with pytest.raises(LoadError):
        read_files(path)


def test_what_is_cut_short_is_refused(tmp_path: Path) -> None:
    path = tar(tmp_path / "m.tar", *members())
    data, packed = path.read_bytes(), gzip.compress(path.read_bytes())
    complete = content(path)
    for length in (*range(512, len(data.rstrip(b"\0")), 97), *range(512, 4 * 512 + 1, 512)):
        _refuses(tmp_path / "cut", data[:length])
    for length in range(2, len(packed), 3):
        _refuses(tmp_path / "cut", packed[:length])
    # What follows the first of the last two empty blocks is padding.
    path.write_bytes(data[: -8 * 512])
    assert content(path) == complete


def _refuses(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    with pytest.raises(LoadError) as caught:
        read_files(path)
    assert caught.value.code == "load.folder"


def test_the_first_bytes_of_other_models_are_no_tar(tmp_path: Path) -> None:
    (tmp_path / "m").write_bytes(b"\x08\x0a" + bytes(500))
    assert not is_folder(tmp_path / "m")
    assert not is_folder(tmp_path / "missing")
    assert np.array_equal(read_files(folder(tmp_path / "f")).arrays["tokenizer.json"], [])
