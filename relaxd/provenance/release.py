"""Releases: statements of which bundles are the newest of a name, after which older ones."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Self

from relaxd.contract.canonical import canonical_bytes, is_digest
from relaxd.provenance.errors import TrustError
from relaxd.provenance.merkle import hash_leaf, tree_head
from relaxd.provenance.statement import OCI_MANIFEST, STATEMENT_TYPE

RELEASE_TYPE = "urn:relaxd:release:v1"
MAX_RELEASES = 10_000
"""Of one name: a statement holds the hash of each, and stays below a megabyte."""
_HASH = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Release:
    """The newest bundles of a name: digests of OCI manifests by target.

    `log` has the leaf hash of each release of the name, in their order, this one last; `issued` is
    when the statement was signed.
    """

    name: str
    bundles: Mapping[str, str]
    log: tuple[bytes, ...]
    issued: datetime

    @property
    def number(self) -> int:
        """How many releases the name has had, this one included."""
        return len(self.log)

    def head(self, size: int) -> str:
        """The tree hash of the first `size` releases, in hex."""
        return tree_head(self.log[:size]).hex()

    def to_statement(self) -> dict[str, Any]:
        """The in-toto statement of it."""
        return {
            "_type": STATEMENT_TYPE,
            "subject": [
                {
                    "name": target,
                    "digest": {"sha256": digest.removeprefix("sha256:")},
                    "mediaType": OCI_MANIFEST,
                }
                for target, digest in sorted(self.bundles.items())
            ],
            "predicateType": RELEASE_TYPE,
            "predicate": {
                "name": self.name,
                "issued": self.issued.strftime("%Y-%m-%dT%H:%M:%SZ"),
                "log": [leaf.hex() for leaf in self.log],
            },
        }

    @classmethod
    def from_statement(cls, statement: Mapping[str, Any]) -> Self:
        """Read a statement; raises TrustError for any other, and for one whose log does not end
        with its bundles.
        """
        match statement:
            case {
                "_type": kind,
                "predicateType": predicate,
                "subject": list(subjects),
                "predicate": {"name": str(name), "issued": str(issued), "log": list(log)},
            } if (kind, predicate) == (STATEMENT_TYPE, RELEASE_TYPE):
                bundles = dict(map(_bundle, subjects))
                read = cls(name, bundles, tuple(map(_leaf, log)), _time(issued))
                if len(bundles) == len(subjects) and read.log[-1:] == (_hash_bundles(bundles),):
                    return read
        raise _malformed()


def add_release(
    newest: Release | None, name: str, bundles: Mapping[str, str], now: datetime
) -> Release:
    """The release of these bundles after `newest`; of no bundles, or of those of `newest`, that one
    issued anew.

    Raises TrustError for a release of another name, for none where there are no bundles, and beyond
    MAX_RELEASES.
    """
    if newest is not None and newest.name != name:
        raise TrustError(
            f"the statement is about releases of {newest.name!r}, not of {name!r}",
            part="release",
            hint="give each name a statement of its own",
        )
    if newest is not None and (not bundles or bundles == newest.bundles):
        return replace(newest, issued=now)
    log = newest.log if newest else ()
    if not bundles:
        raise TrustError(
            f"{name!r} has no release to issue anew",
            part="release",
            hint="give the folders of its first bundles",
        )
    if len(log) == MAX_RELEASES:
        raise TrustError(
            f"{name!r} has {MAX_RELEASES} releases, as many as a statement holds",
            part="release",
            hint="go on under a new name",
        )
    return Release(name, bundles, (*log, _hash_bundles(bundles)), now)


def _hash_bundles(bundles: Mapping[str, str]) -> bytes:
    return hash_leaf(canonical_bytes({"bundles": dict(bundles)}))


def _bundle(subject: Any) -> tuple[str, str]:
    match subject:
        case {"name": str(target), "digest": {"sha256": str(digest)}, "mediaType": str(kind)} if (
            kind == OCI_MANIFEST and is_digest(f"sha256:{digest}")
        ):
            return target, f"sha256:{digest}"
    raise _malformed()


def _leaf(text: Any) -> bytes:
    if not isinstance(text, str) or not _HASH.fullmatch(text):
        raise _malformed()
    return bytes.fromhex(text)


def _time(text: str) -> datetime:
    try:
        return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    except ValueError as error:
        raise _malformed() from error


def _malformed() -> TrustError:
    return TrustError(
        "the signed statement is about no release",
        part="statement",
        hint="`relaxd release` writes it",
    )
