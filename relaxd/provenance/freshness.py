"""The policy by which an older bundle in a newer one's place is refused, though it is signed."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from os import PathLike
from pathlib import Path

from relaxd.contract.canonical import canonical_bytes
from relaxd.provenance.envelope import MAX_ENVELOPE, open_envelope
from relaxd.provenance.errors import TrustError
from relaxd.provenance.keys import PublicKey, Trust
from relaxd.provenance.release import Release


@dataclass(frozen=True, kw_only=True)
class NewestRelease:
    """Trusts the newest release of a name alone.

    keys: whose signatures count, on bundles and on the statement of releases.
    statement: the file that `relaxd release` writes.
    memory: a file with the largest log that was seen, made when it is absent; against it, a
    statement of fewer releases or of other ones is refused.
    max_age: beyond, a statement has to be issued anew.
    """

    name: str
    keys: Trust
    statement: str | PathLike[str]
    memory: str | PathLike[str] | None = None
    max_age: timedelta | None = None

    def find(self, keys: Mapping[str, PublicKey]) -> Release:
        """The newest release, by a statement that one of `keys` signed; raises TrustError.

        A statement that holds is remembered, whatever becomes of the bundle.
        """
        release = read_release(Path(self.statement), keys)
        if release.name != self.name:
            raise _refused(
                f"the statement is about releases of {release.name!r}, not {self.name!r}"
            )
        age = datetime.now(UTC) - release.issued
        if self.max_age is not None and age > self.max_age:
            raise _refused(
                f"the statement about releases of {self.name!r} is {age.total_seconds():.0f} s old",
                hint=f"issue it anew, `relaxd release {self.name}`, and copy it here",
            )
        if self.memory is not None:
            _remember(release, Path(self.memory))
        return release


Policy = Trust | NewestRelease
"""What is trusted: public keys, for whatever they signed, or the newest release of a name."""


def read_release(path: Path, keys: Mapping[str, PublicKey]) -> Release:
    """The release that a file states; raises TrustError."""
    try:
        with path.open("rb") as file:
            envelope = file.read(MAX_ENVELOPE + 2)
    except OSError as error:
        raise _refused(
            f"cannot read {path}: {error.strerror}", "`relaxd release` writes it"
        ) from error
    return Release.from_statement(open_envelope(envelope.removesuffix(b"\n"), keys))


def check_newest(release: Release, bundle: str) -> None:
    """Raises TrustError for the digest of a bundle that is none of the release's."""
    if bundle not in release.bundles.values():
        raise _refused(
            f"{bundle} is no bundle of release {release.number} of {release.name!r}, the newest",
            hint="it is older, or was never released: pull "
            + " or ".join(sorted(release.bundles.values())),
        )


def _remember(release: Release, path: Path) -> None:
    """Compares with the largest log that was seen of the name, and appends a larger one.

    Each log is a line, so that processes which start together do not undo each other's.
    """
    largest, heads = _largest(path, release.name)
    if release.number < largest:
        raise _refused(
            f"release {largest} of {release.name!r} was seen before, and the statement ends with "
            f"{release.number}",
            hint=f"it is an old statement, or its log lost releases; {path} remembers",
        )
    if heads - {release.head(largest)}:
        raise _refused(
            f"the first {largest} releases of {release.name!r} are not those that were seen before",
            hint=f"somebody who has the key keeps two logs of the name; {path} remembers one",
        )
    if release.number > largest:
        seen = {"head": release.head(release.number), "name": release.name, "size": release.number}
        _append(path, canonical_bytes(seen) + b"\n")


def _largest(path: Path, name: str) -> tuple[int, set[str]]:
    """The size of the largest log of a name that a file remembers, and its tree hashes."""
    seen: dict[int, set[str]] = {}
    try:
        for line in path.read_bytes().splitlines() if path.exists() else ():
            match json.loads(line):
                case {"head": str(head), "name": str(other), "size": int(size)}:
                    if other == name:
                        seen.setdefault(size, set()).add(head)
                case _:
                    raise ValueError("a line is none of ours")
    except (OSError, ValueError) as error:
        raise TrustError(
            f"cannot read what was seen before from {path}: {error}",
            part="memory",
            hint="restore the file; removed, it remembers nothing",
        ) from error
    largest = max(seen, default=0)
    return largest, seen.get(largest, set())


def _append(path: Path, line: bytes) -> None:
    try:
        with path.open("ab", buffering=0) as file:
            file.write(line)
            os.fsync(file.fileno())
    except OSError as error:
        raise TrustError(
            f"cannot remember a release in {path}: {error.strerror}",
            part="memory",
            hint="give a file that this process may write, on a disk that stays",
        ) from error


def _refused(message: str, hint: str | None = None) -> TrustError:
    return TrustError(message, part="release", hint=hint)
