"""Keys in files, and commands that sign."""

import base64
import sys
from pathlib import Path

import pytest

from relaxd.provenance.errors import KeyInvalid, SigningFailed
from relaxd.provenance.signing import signer
from tests.support.signing import key_pair


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    return key_pair(tmp_path / "keys")


COMMAND = """
import base64, sys
from cryptography.hazmat.primitives.serialization import load_pem_private_key
key = load_pem_private_key(open(sys.argv[1], "rb").read(), None)
print(base64.b64encode(key.sign(sys.stdin.buffer.read())).decode())
"""


def test_a_command_signs_for_a_key_that_stays_elsewhere(keys: Path, tmp_path: Path) -> None:
    script = tmp_path / "kms.py"
    script.write_text(COMMAND)
    public = keys / "key.pub"
    command = f"{sys.executable} {script} {keys / 'key.pem'}"
    created = signer(public, command)
    assert created is not None
    assert created.public.accepts(created.sign(b"message"), b"message")
    wrong = base64.b64encode(b"s" * 64).decode()
    for answer, why in (
        (f"echo {wrong}", "does not fit"),
        ("echo !", "returned no"),
        ("false", "1:"),
    ):
        created = signer(public, answer)
        assert created is not None
        with pytest.raises(SigningFailed, match=why):
            created.sign(b"message")


def test_a_key_that_cannot_sign_ends_the_worker_before_it_works(tmp_path: Path, keys: Path) -> None:
    for key in (tmp_path / "absent.pem", keys / "key.pub"):
        with pytest.raises(KeyInvalid):
            signer(key, None)


def test_a_command_without_its_public_key_is_refused() -> None:
    with pytest.raises(KeyInvalid, match="without its public key"):
        signer(None, "true")
    assert signer(None, None) is None
