"""Ed25519 keys in PEM files: what signs, and what is trusted."""

import hashlib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relaxd.errors import install_hint
from relaxd.provenance.errors import KeyInvalid, TrustUnavailable

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

Trust = str | bytes | PathLike[str] | Iterable[str | bytes | PathLike[str]]
"""Public keys: a PEM file's path or its bytes, or several of them."""

_BLOCK = re.compile(rb"-----BEGIN PUBLIC KEY-----.*?-----END PUBLIC KEY-----", re.DOTALL)


@dataclass(frozen=True)
class PublicKey:
    """A public key and its id: sha256 over the DER form of the key, in hex."""

    id: str
    key: "Ed25519PublicKey"

    @property
    def pem(self) -> str:
        """The key as `read_public_keys` reads it."""
        serialization, _ = _library()
        pem: bytes = self.key.public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        return pem.decode()

    def accepts(self, signature: bytes, message: bytes) -> bool:
        """True if the signature is this key's over the message."""
        from cryptography.exceptions import InvalidSignature

        try:
            self.key.verify(signature, message)
        except InvalidSignature:
            return False
        return True


@dataclass(frozen=True)
class Signer:
    """A public key with the way to sign for it."""

    public: PublicKey
    sign: Callable[[bytes], bytes]


def read_public_keys(keys: Trust) -> dict[str, PublicKey]:
    """Read public keys, by id; raises KeyInvalid where there are none or one is no ed25519 key,
    TrustUnavailable without the package that checks signatures.
    """
    sources = [keys] if isinstance(keys, (str, bytes, PathLike)) else list(keys)
    public = [key for source in sources for key in _public_keys(source)]
    if not public:
        raise KeyInvalid("no key is trusted", hint="give the PEM file of a public key")
    return {key.id: key for key in public}


def signer_of(path: Path) -> Signer:
    """Read the private key of a PEM file; raises KeyInvalid, TrustUnavailable."""
    serialization, ed25519 = _library()
    try:
        private = serialization.load_pem_private_key(_read(path), password=None)
    except (ValueError, TypeError) as error:
        raise KeyInvalid(
            f"{path} holds no readable private key: {error}",
            hint="openssl genpkey -algorithm ed25519 -out key.pem",
        ) from error
    if not isinstance(private, ed25519.Ed25519PrivateKey):
        raise KeyInvalid(
            f"the key of {path} is not of ed25519",
            hint="openssl genpkey -algorithm ed25519 -out key.pem",
        )
    return Signer(_public_key(private.public_key(), str(path)), private.sign)


def _public_keys(source: str | bytes | PathLike[str]) -> list[PublicKey]:
    serialization, _ = _library()
    name = "the key" if isinstance(source, bytes) else str(source)
    content = source if isinstance(source, bytes) else _read(Path(source))
    blocks = _BLOCK.findall(content)
    if not blocks:
        raise KeyInvalid(
            f"{name} holds no public key in PEM",
            hint="openssl pkey -in key.pem -pubout -out key.pub",
        )
    try:
        return [_public_key(serialization.load_pem_public_key(block), name) for block in blocks]
    except ValueError as error:
        raise KeyInvalid(f"{name} holds a public key that is malformed: {error}") from error


def _public_key(key: Any, name: str) -> PublicKey:
    serialization, ed25519 = _library()
    if not isinstance(key, ed25519.Ed25519PublicKey):
        raise KeyInvalid(f"a key of {name} is not of ed25519", hint="only ed25519 keys are trusted")
    der = key.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return PublicKey(hashlib.sha256(der).hexdigest(), key)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise KeyInvalid(
            f"cannot read the key {path}: {error.strerror}", hint="give the path of a PEM file"
        ) from error


def _library() -> tuple[Any, Any]:
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ModuleNotFoundError as error:
        raise TrustUnavailable(
            "signatures need cryptography, which is not installed",
            hint=install_hint("trust"),
        ) from error
    return serialization, ed25519
