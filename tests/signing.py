"""Key pairs for tests, the same in every run."""

import hashlib
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
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
