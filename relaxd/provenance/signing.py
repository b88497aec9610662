"""Signers of statements: a key in a file, or a command for a key that stays elsewhere."""

import base64
import binascii
import shlex
import subprocess
from functools import partial
from pathlib import Path

from relaxd.provenance.errors import KeyInvalid, SigningFailed
from relaxd.provenance.keys import PublicKey, Signer, read_public_keys, signer_of

TIMEOUT_S = 60


def signer(key: Path | None, command: str | None) -> Signer | None:
    """The signer of a private key's file or, by a command, of a public key's; None without any.

    Raises KeyInvalid, TrustUnavailable.
    """
    if key is None:
        if command is not None:
            raise KeyInvalid(
                "a signing command is set without its public key",
                hint="set RELAXD_SIGNING_KEY to the public key's PEM file",
            )
        return None
    if command is None:
        return signer_of(key)
    keys = list(read_public_keys(key).values())
    if len(keys) != 1:
        raise KeyInvalid(
            f"{key} holds {len(keys)} public keys",
            hint="RELAXD_SIGNING_COMMAND signs for one",
        )
    return Signer(keys[0], partial(_ask, shlex.split(command), keys[0]))


def _ask(command: list[str], public: PublicKey, message: bytes) -> bytes:
    """The command's signature, which must fit the public key; raises SigningFailed."""
    try:
        done = subprocess.run(
            command, input=message, capture_output=True, timeout=TIMEOUT_S, check=True
        )
        signature = base64.b64decode(done.stdout.strip(), validate=True)
    except subprocess.CalledProcessError as error:
        why = error.stderr.decode(errors="replace")[-500:]
        raise SigningFailed(f"the signing command ended with {error.returncode}: {why}") from error
    except (OSError, subprocess.TimeoutExpired, binascii.Error, ValueError) as error:
        raise SigningFailed(
            f"the signing command returned no signature: {error}",
            hint="it reads the message on standard input and prints the signature in base64",
        ) from error
    if not public.accepts(signature, message):
        raise SigningFailed(
            f"the command's signature does not fit the public key {public.id}",
            hint="RELAXD_SIGNING_KEY must be the public half of the key that "
            "RELAXD_SIGNING_COMMAND signs with",
        )
    return signature
