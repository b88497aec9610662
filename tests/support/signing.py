"""Key pairs and a signed folder for tests, the same in every run, and what may be done to it."""

import hashlib
import random
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from relaxd.contract.action import ActionKey
from relaxd.provenance.envelope import FILENAME
from relaxd.provenance.statement import Subjects, provenance

MANIFEST = "sha256:" + "a" * 64
FILES = {
    "manifest.json": b'{"name": "net"}\n',
    "model.so": bytes(range(256)) * 3,
    "weights.bin": b"\0" * 512,
    "deep/notice.txt": b"text",
}
KEY = ActionKey(
    {
        "model": "sha256:" + "b" * 64,
        "request": {"dims": {"n": {"min": 1, "max": 8}}, "samples": "sha256:" + "c" * 64},
        "options": {"seed": 0},
        "pipeline": "0123",
        "toolchain": {"tvm": "0.27", "llvm": "sha256=x"},
    }
)


def key_pair(folder: Path) -> Path:
    """The folder with `key.pem` and `key.pub`, made by its name."""
    if not folder.exists():
        folder.mkdir(parents=True)
        key = Ed25519PrivateKey.from_private_bytes(hashlib.sha256(folder.name.encode()).digest())
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        (folder / "key.pem").write_bytes(private)
        (folder / "key.pub").write_bytes(public)
    return folder


def statement(files: dict[str, bytes] = FILES) -> dict[str, Any]:
    digests = {name: f"sha256:{hashlib.sha256(data).hexdigest()}" for name, data in files.items()}
    return provenance(Subjects(MANIFEST, digests), "relaxd/bundles", "native", KEY, "urn:us")


def write(folder: Path, envelope: bytes, files: dict[str, bytes] = FILES) -> Path:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    (folder / FILENAME).write_bytes(envelope + b"\n")
    return folder


@dataclass(frozen=True)
class Mutation:
    """A change of a folder, and the parts of which one has to be named for it."""

    done: str
    parts: tuple[str, ...]


def mutate(folder: Path, draw: random.Random, files: Iterable[str] = FILES) -> Mutation:
    """Change, remove or add a file; `files` are those that are signed."""
    name = draw.choice([*files, FILENAME, FILENAME, FILENAME])
    parts = ("envelope", "signature") if name == FILENAME else (name,)
    path, kind = folder / name, draw.randrange(7)
    if kind == 5:
        path.unlink()
        return Mutation(f"{name} removed", parts)
    if kind == 6:
        added = draw.choice(["libextra.so", "deep/more", ".hidden"])
        (folder / added).parent.mkdir(exist_ok=True)
        (folder / added).write_bytes(b"x")
        return Mutation(f"{added} added", (added,))
    path.write_bytes(_changed(path.read_bytes(), kind, draw))
    return Mutation(f"{name} changed by {kind}", parts)


def _changed(data: bytes, kind: int, draw: random.Random) -> bytes:
    """The data with a bit flipped, less or more bytes, or in the same meaning to a parser that is
    less strict.
    """
    position = draw.randrange(len(data))
    before, after = data[:position], data[position:]
    match kind:
        case 0:
            return before + bytes([after[0] ^ (1 << draw.randrange(8))]) + after[1:]
        case 1:
            return before + after[draw.randrange(1, 40) :]
        case 2:
            return before + draw.randbytes(draw.randrange(1, 9)) + after
        case 3:
            return data + draw.choice([b" ", b"\n", b"\0", b"{}", b"{}\n"])
    text = data.replace(b'":', draw.choice([b'": ', b'" :', b'":\t']), 1)
    return text if text != data else data + b" "
