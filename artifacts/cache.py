"""The action cache: which bundle an action key produced."""

from collections.abc import Callable, Iterator

from artifacts.parallel import call_many
from artifacts.store import Records, hex_of


class ActionCache:
    """Maps an action key's digest to a bundle's manifest digest; the first writer wins.

    `usable` says whether a manifest is there with all its blobs, and keeps them from collection; an
    entry that points at one that is not counts as absent, so that a lost or quarantined blob costs
    a compile and nothing else.
    """

    def __init__(self, records: Records, usable: Callable[[str], bool]) -> None:
        self._records = records
        self._usable = usable

    def seen_by(self, usable: Callable[[str], bool]) -> "ActionCache":
        """The same records, of which another rule says what is usable."""
        return ActionCache(self._records, usable)

    def get(self, key: str) -> str | None:
        """The manifest digest for an action key's digest, or None; raises InvalidDigest."""
        record = self._records.get(_name(key))
        return record.value if record and self._usable(record.value) else None

    def names(self, key: str, manifest: str) -> bool:
        """True if the record names that manifest, usable or not; raises InvalidDigest."""
        return self.look_up(key) == manifest

    def put(self, key: str, manifest: str) -> str:
        """Record the manifest for the key; returns the digest that holds now: the first one written
        that is still usable.
        """
        hex_of(manifest)
        while True:
            record = self._records.get(_name(key))
            if record and self._usable(record.value):
                return record.value
            if self._records.swap(_name(key), manifest, record):
                return manifest

    def listing(self, shard: str = "") -> Iterator[tuple[str, float]]:
        """Digests of the action keys, or of those that begin with two hexadecimal digits, and when
        each was recorded; reads no record.
        """
        for entry in self._records.walk(f"actions/{shard}" if shard else "actions"):
            yield f"sha256:{entry.name.rpartition('/')[2]}", entry.written

    def look_up(self, key: str) -> str | None:
        """The manifest that is recorded for the key, usable or not; raises InvalidDigest."""
        record = self._records.get(_name(key))
        return record.value if record else None

    def entries(self) -> Iterator[tuple[str, str, float]]:
        """Every action key's digest, the manifest recorded for it, and when it was recorded."""
        listed = self._records.walk("actions")
        for entry, record in call_many(lambda entry: self._records.get(entry.name), listed):
            if record:
                yield f"sha256:{entry.name.rpartition('/')[2]}", record.value, entry.written

    def forget(self, key: str, manifest: str) -> bool:
        """Remove the record if it still names that manifest; whether it did."""
        return self._records.remove(_name(key), manifest)

    def drop(self, key: str) -> None:
        """Remove the record, whatever it names; raises InvalidDigest."""
        if record := self._records.get(_name(key)):
            self._records.remove(_name(key), record.value)


def _name(key: str) -> str:
    return f"actions/{hex_of(key)[:2]}/{hex_of(key)}"
