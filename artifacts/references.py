"""Tags, and which manifests refer to which: the mutable names of an OCI registry."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

from artifacts.store import Records, hex_of
from relaxd.contract.canonical import is_digest


class Tags(Protocol):
    """Tags that the store has no record of."""

    def resolve(self, repository: str, tag: str) -> str | None:
        """The digest that the tag points at; None for one that is not among these."""

    def tags(self, repository: str, after: str, most: int | None) -> Iterable[str]:
        """The repository's tags that sort after that text, the first `most` of them."""


class References:
    """Tags and referrers by repository; names are the caller's to validate (OCI's grammar keeps
    them safe in paths). Those of `others` are found like the store's own, and before them.
    """

    def __init__(self, records: Records, *others: Tags) -> None:
        self._records = records
        self._others = others

    def beside(self, *others: Tags) -> "References":
        """The same records, and the tags of `others`."""
        return References(self._records, *others)

    def tag(self, repository: str, tag: str, digest: str) -> None:
        """Point the tag at a manifest, moving it if it exists; raises InvalidDigest."""
        hex_of(digest)
        self._records.set(f"{_tags(repository)}/{tag}", digest)

    def resolve(self, repository: str, tag: str) -> str | None:
        """The digest that the tag points at, or None; a record that holds none counts as absent."""
        for others in self._others:
            if digest := others.resolve(repository, tag):
                return digest
        record = self._records.get(f"{_tags(repository)}/{tag}")
        return record.value if record and is_digest(record.value) else None

    def tags(self, repository: str, after: str = "", most: int | None = None) -> list[str]:
        """The repository's tags that sort after that text, sorted, the first `most` of them."""
        later = {name for name in self._records.names(_tags(repository)) if name > after}
        for others in self._others:
            later.update(others.tags(repository, after, most))
        return sorted(later)[:most]

    def all_tags(self, below: str = "") -> Iterator[tuple[str, str]]:
        """Every repository and tag, of the repositories below a folder, or of all; reads no
        record.
        """
        for entry in self._records.walk(f"references/{below}" if below else "references"):
            repository, separator, tag = entry.name.removeprefix("references/").rpartition(
                "/_tags/"
            )
            if separator:
                yield repository, tag

    def untag(self, repository: str, tag: str, digest: str) -> bool:
        """Remove the tag if it still points at the manifest; whether it did."""
        return self._records.remove(f"{_tags(repository)}/{tag}", digest)

    def all_referrers(self, below: str = "") -> Iterator[tuple[str, str, str, float]]:
        """Every repository, subject and referrer, and when it was noted; of the repositories
        below a folder, or of all; reads no record.
        """
        for entry in self._records.walk(f"references/{below}" if below else "references"):
            name = entry.name.removeprefix("references/")
            repository, separator, rest = name.rpartition("/_referrers/")
            if separator:
                subject, _, digest = rest.partition("/")
                yield repository, f"sha256:{subject}", f"sha256:{digest}", entry.written

    def forget(self, repository: str, subject: str, digest: str) -> None:
        """Undo `refer`."""
        self._records.remove(f"{_referrers(repository, subject)}/{hex_of(digest)}", digest)

    def refer(self, repository: str, subject: str, digest: str) -> None:
        """Note that manifest `digest` names `subject` as its subject; raises InvalidDigest."""
        self._records.set(f"{_referrers(repository, subject)}/{hex_of(digest)}", digest)

    def note_descriptor(self, digest: str, descriptor: Mapping[str, Any]) -> None:
        """Keep the descriptor of a manifest that refers to another; raises InvalidDigest."""
        self._records.set(_descriptor(digest), json.dumps(descriptor, sort_keys=True))

    def descriptor(self, digest: str) -> dict[str, Any] | None:
        """The descriptor that was noted, or None; a record that holds none counts as absent."""
        record = self._records.get(_descriptor(digest))
        try:
            noted = json.loads(record.value) if record else None
        except (ValueError, RecursionError):
            return None
        return noted if isinstance(noted, dict) and noted.get("digest") == digest else None

    def forget_descriptor(self, digest: str) -> None:
        """Undo `note_descriptor`."""
        if record := self._records.get(_descriptor(digest)):
            self._records.remove(_descriptor(digest), record.value)

    def referrers(self, repository: str, subject: str) -> list[str]:
        """Digests of the manifests that name the subject, sorted; raises InvalidDigest."""
        return [f"sha256:{name}" for name in self._records.names(_referrers(repository, subject))]


# No component of a repository's name starts with an underscore, so these folders cannot meet a
# repository.
def _tags(repository: str) -> str:
    return f"references/{repository}/_tags"


def _descriptor(digest: str) -> str:
    name = hex_of(digest)
    return f"descriptors/{name[:2]}/{name}"


def _referrers(repository: str, subject: str) -> str:
    return f"references/{repository}/_referrers/{hex_of(subject)}"
