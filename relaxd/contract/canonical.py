"""Canonical JSON bytes and their sha256 digests, from which identities are made."""

import hashlib
import json
import re
from typing import Any

DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def canonical_bytes(document: Any) -> bytes:
    """UTF-8 JSON with sorted keys and no spaces; `document` holds JSON types only (no NaN)."""
    return json.dumps(
        document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    ).encode("utf-8", "surrogatepass")


def digest_of(data: bytes) -> str:
    """`sha256:<64 hex>` of the bytes, in the form OCI uses."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


def is_digest(text: str) -> bool:
    """True if `text` is a well-formed sha256 digest."""
    return DIGEST.fullmatch(text) is not None
