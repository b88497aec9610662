"""Merkle tree hashes of RFC 9162 (Certificate Transparency 2.0), section 2.1.1, with SHA-256."""

import hashlib
from collections.abc import Sequence


def hash_leaf(entry: bytes) -> bytes:
    """The hash of one entry of a log."""
    return hashlib.sha256(b"\0" + entry).digest()


def tree_head(leaves: Sequence[bytes]) -> bytes:
    """The hash of a log by the hashes of its entries, in their order: another for every change,
    removal, insertion and exchange.
    """
    if not leaves:
        return hashlib.sha256().digest()
    level = list(leaves)
    while len(level) > 1:
        pairs = zip(level[::2], level[1::2], strict=False)
        above = [hashlib.sha256(b"\1" + left + right).digest() for left, right in pairs]
        # Without a right neighbour a node goes up as it is: so the tree of any size splits at the
        # largest power of two below it, as the RFC has it.
        level = above + level[len(above) * 2 :]
    return level[0]
