"""DSSE envelopes (secure-systems-lab/dsse, version 1.0): a statement with its signatures."""

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any

from relaxd.contract.canonical import canonical_bytes
from relaxd.provenance.errors import TrustError
from relaxd.provenance.keys import PublicKey, Signer

PAYLOAD_TYPE = "application/vnd.in-toto+json"
MEDIA_TYPE = "application/vnd.dsse.envelope.v1+json"
ARTIFACT = "application/vnd.relaxd.provenance.v1+json"
"""The type of the OCI artifact that holds an envelope; its subject is the bundle."""
FILENAME = "provenance.intoto.jsonl"
"""The file beside a pulled bundle: one envelope a line."""
MAX_ENVELOPE = 4 << 20


def pre_authentication_encoding(payload: bytes, payload_type: str = PAYLOAD_TYPE) -> bytes:
    """DSSE's PAE: the bytes that are signed."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)


def seal(statement: dict[str, Any], signer: Signer) -> bytes:
    """The statement in an envelope; equal statements and keys give equal bytes."""
    payload = canonical_bytes(statement)
    signature = signer.sign(pre_authentication_encoding(payload))
    return canonical_bytes(
        {
            "payload": base64.b64encode(payload).decode(),
            "payloadType": PAYLOAD_TYPE,
            "signatures": [
                {"keyid": signer.public.id, "sig": base64.b64encode(signature).decode()}
            ],
        }
    )


def signers(envelope: bytes) -> list[str]:
    """Ids of the keys that an envelope claims to be signed with; raises TrustError for bytes that
    are no envelope in canonical form.
    """
    return [keyid for keyid, _ in _parts(envelope)[1]]


def open_envelope(envelope: bytes, keys: Mapping[str, PublicKey]) -> dict[str, Any]:
    """Check an envelope's signatures, and return its statement.

    Envelopes are taken in canonical bytes alone, so that none has parts that no signature covers.
    Raises TrustError.
    """
    payload, signatures = _parts(envelope)
    known = [(keys[keyid], signature) for keyid, signature in signatures if keyid in keys]
    if not known:
        raise TrustError(
            f"no trusted key signed it; it has signatures of {[keyid for keyid, _ in signatures]}",
            part="signature",
            hint="trust the key of the service that built it",
        )
    message = pre_authentication_encoding(payload)
    for key, signature in known:
        if not key.accepts(signature, message):
            raise TrustError(f"the signature of key {key.id} does not fit", part="signature")
    try:
        statement = json.loads(payload)
    except ValueError as error:
        raise TrustError(f"the signed statement is not JSON: {error}", part="statement") from error
    if not isinstance(statement, dict):
        raise TrustError("the signed statement must be a JSON object", part="statement")
    return statement


def _parts(envelope: bytes) -> tuple[bytes, list[tuple[str, bytes]]]:
    if len(envelope) > MAX_ENVELOPE:
        raise TrustError(f"an envelope has more than {MAX_ENVELOPE} bytes", part="envelope")
    try:
        document = json.loads(envelope)
        canonical = canonical_bytes(document) == envelope
    except (ValueError, RecursionError) as error:
        raise TrustError(f"the envelope is not JSON: {error}", part="envelope") from error
    match document:
        case {"payload": str(payload), "payloadType": str(kind), "signatures": list(listed)} if (
            canonical and len(document) == 3 and kind == PAYLOAD_TYPE
        ):
            return _decoded(payload), [_signature(signature) for signature in listed]
    raise TrustError(
        f"the envelope is not DSSE of {PAYLOAD_TYPE} in canonical JSON", part="envelope"
    )


def _signature(document: Any) -> tuple[str, bytes]:
    match document:
        case {"keyid": str(keyid), "sig": str(signature)} if len(document) == 2:
            return keyid, _decoded(signature)
    raise TrustError("the envelope has a signature without keyid and sig", part="envelope")


def _decoded(text: str) -> bytes:
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise TrustError(f"the envelope's base64 is malformed: {error}", part="envelope") from error
    # Bits after the last byte would change a text without changing what it stands for.
    if base64.b64encode(data).decode() != text:
        raise TrustError("the envelope's base64 is not canonical", part="envelope")
    return data
