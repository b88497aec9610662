"""Checks that a bundle is the one that a trusted key signed, to the last file."""

import hashlib
from collections.abc import Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from relaxd.contract.bundle import profile
from relaxd.provenance.envelope import FILENAME, MAX_ENVELOPE, open_envelope, signers
from relaxd.provenance.errors import TrustError
from relaxd.provenance.freshness import NewestRelease, Policy, check_newest
from relaxd.provenance.keys import PublicKey, read_public_keys
from relaxd.provenance.statement import Subjects, subjects_of

_UNSIGNED = "pull it again from a service that signs (RELAXD_SIGNING_KEY), with its provenance"


def check_folder(folder: Path, trust: Policy, manifest: str | None = None) -> dict[str, Any]:
    """The signed statement about an unpacked bundle; `manifest` is the digest of its OCI manifest
    where that is known.

    Every file must be signed and every signed file must be there; where the newest release of a
    name is trusted, the bundle must be of that. Raises TrustError, KeyInvalid, TrustUnavailable.
    """
    if not isinstance(trust, NewestRelease):
        return _check_files(folder, read_public_keys(trust), manifest)
    keys = read_public_keys(trust.keys)
    newest = trust.find(keys)
    statement = _check_files(folder, keys, manifest)
    check_newest(newest, subjects_of(statement).manifest)
    return statement


def _check_files(
    folder: Path, keys: Mapping[str, PublicKey], manifest: str | None
) -> dict[str, Any]:
    if not folder.is_dir():
        raise TrustError(
            f"{folder} is not a folder; a tar carries no signature",
            part="envelope",
            hint=_UNSIGNED,
        )
    refusal: TrustError | None = None
    for statement in _statements(_lines(folder / FILENAME), keys):
        try:
            _compare(subjects_of(statement), folder, manifest)
        except TrustError as error:
            refusal = refusal or error
        else:
            return statement
    assert refusal is not None
    raise refusal


def _lines(path: Path) -> list[bytes]:
    if not path.is_file():
        raise TrustError(
            f"the bundle is not signed: it has no {FILENAME}", part="envelope", hint=_UNSIGNED
        )
    if path.stat().st_size > MAX_ENVELOPE:
        raise TrustError(f"{FILENAME} has more than {MAX_ENVELOPE} bytes", part="envelope")
    lines = path.read_bytes().split(b"\n")
    if lines.pop() or not lines:
        raise TrustError(f"{FILENAME} does not end with a whole line", part="envelope")
    return lines


def _statements(lines: list[bytes], keys: Mapping[str, PublicKey]) -> list[dict[str, Any]]:
    """The statements of trusted keys; other keys may have signed further ones, and someone else may
    have put the name of a trusted key to one.
    """
    statements: list[dict[str, Any]] = []
    refusals: list[TrustError] = []
    for line in lines:
        signers(line)
        try:
            statements.append(open_envelope(line, keys))
        except TrustError as error:
            refusals.append(error)
    if not statements:
        raise refusals[0]
    return statements


def _compare(subjects: Subjects, folder: Path, manifest: str | None) -> None:
    if manifest is not None and subjects.manifest != manifest:
        raise TrustError(
            f"the statement is about the bundle {subjects.manifest}, not {manifest}", part="bundle"
        )
    there = {
        path.relative_to(folder).as_posix(): path
        for path in folder.rglob("*")
        if path.is_symlink() or not path.is_dir()
    }
    del there[FILENAME]
    for name, path in sorted(there.items()):
        if name not in subjects.files and fnmatch(name, profile.FILES) and _is_plain(path):
            continue  # what others measured is no part of the bundle, and nothing runs by it
        if name not in subjects.files:
            raise TrustError(f"{name} is not signed", part=name, hint="remove the file")
        if not _is_plain(path):
            raise TrustError(f"{name} is not a plain file", part=name)
    for name, digest in subjects.files.items():
        if name not in there:
            raise TrustError(f"{name} is signed but missing", part=name)
        with there[name].open("rb") as file:
            if f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}" != digest:
                raise TrustError(f"{name} is not the file that was signed", part=name)


def _is_plain(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()
