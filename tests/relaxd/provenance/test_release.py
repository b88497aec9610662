"""Releases of a name: its newest bundle is accepted; older ones, lost and other logs are not."""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from relaxd import NewestRelease
from relaxd.contract.canonical import canonical_bytes
from relaxd.provenance.checking import check_folder
from relaxd.provenance.envelope import seal
from relaxd.provenance.errors import TrustError
from relaxd.provenance.keys import Signer, signer_of
from relaxd.provenance.merkle import hash_leaf, tree_head
from relaxd.provenance.release import MAX_RELEASES, Release, add_release
from relaxd.provenance.statement import Subjects, provenance
from tests.support.signing import FILES, KEY, key_pair, write

NOW = datetime.now(UTC).replace(microsecond=0)
Policy = Callable[..., NewestRelease]


@pytest.fixture
def signer(tmp_path: Path) -> Signer:
    return signer_of(key_pair(tmp_path / "ours") / "key.pem")


@pytest.fixture
def policy(tmp_path: Path) -> Policy:
    def build(**options: Any) -> NewestRelease:
        options = {"memory": tmp_path / "seen", "statement": tmp_path / "bert.release", **options}
        return NewestRelease(name="bert", keys=tmp_path / "ours/key.pub", **options)

    return build


def digest(number: int) -> str:
    return f"sha256:{number:064x}"


def bundle(folder: Path, number: int, signer: Signer) -> Path:
    """A signed bundle whose OCI manifest has the digest of that number."""
    files = {**FILES, "model.so": b"%d" % number}
    digests = {name: f"sha256:{hashlib.sha256(data).hexdigest()}" for name, data in files.items()}
    subjects = Subjects(digest(number), digests)
    return write(
        folder, seal(provenance(subjects, "bundles", "native", KEY, "urn:us"), signer), files
    )


def releases(*numbers: int, issued: datetime = NOW) -> Release:
    release = None
    for number in numbers:
        release = add_release(release, "bert", {"native": digest(number)}, issued)
    assert release is not None
    return release


def state(path: Path, release: Release, signer: Signer) -> None:
    path.write_bytes(seal(release.to_statement(), signer) + b"\n")


def refusal(folder: Path, trust: NewestRelease) -> TrustError:
    with pytest.raises(TrustError) as refused:
        check_folder(folder, trust)
    return refused.value


def test_an_older_bundle_is_refused_once_there_is_a_newer_release(
    tmp_path: Path, signer: Signer, policy: Policy
) -> None:
    old, new = (bundle(tmp_path / f"out{number}", number, signer) for number in (1, 2))
    state(tmp_path / "bert.release", releases(1), signer)
    assert check_folder(old, policy())
    state(tmp_path / "bert.release", releases(1, 2), signer)
    assert check_folder(new, policy(memory=None))
    for trust in (policy(), policy(memory=None)):
        refused = refusal(old, trust)
        assert refused.part == "release"
        assert f"{digest(1)} is no bundle of release 2 of 'bert'" in refused.message
    # What the keys alone accept, which is why there is a policy.
    assert check_folder(old, policy().keys)


def test_a_bundle_goes_back_by_another_release(
    tmp_path: Path, signer: Signer, policy: Policy
) -> None:
    old, new = (bundle(tmp_path / f"out{number}", number, signer) for number in (1, 2))
    state(tmp_path / "bert.release", releases(1, 2), signer)
    assert check_folder(new, policy())
    state(tmp_path / "bert.release", releases(1, 2, 1), signer)
    assert check_folder(old, policy())
    assert "release 3" in refusal(new, policy()).message


def test_an_old_statement_beside_its_bundle_is_refused_by_who_saw_a_newer_one(
    tmp_path: Path, signer: Signer, policy: Policy
) -> None:
    old = bundle(tmp_path / "out", 1, signer)
    state(tmp_path / "bert.release", releases(1, 2), signer)
    refusal(old, policy())  # the statement is remembered all the same
    state(tmp_path / "bert.release", releases(1), signer)
    refused = refusal(old, policy())
    assert (refused.part, "release 2 of 'bert' was seen before" in refused.message) == (
        "release",
        True,
    )
    # Nothing shows it to a machine that never saw the newer one: its page says so.
    assert check_folder(old, policy(memory=tmp_path / "another machine's"))


@pytest.mark.parametrize("forked", [(1, 3), (1, 3, 4), (2, 1), (3,)])
def test_another_log_of_the_name_is_refused(
    tmp_path: Path, signer: Signer, policy: Policy, forked: tuple[int, ...]
) -> None:
    state(tmp_path / "bert.release", releases(1, 2), signer)
    assert check_folder(bundle(tmp_path / "seen first", 2, signer), policy())
    state(tmp_path / "bert.release", releases(*forked), signer)
    newest = bundle(tmp_path / "out", forked[-1], signer)
    refused = refusal(newest, policy())
    assert refused.part == "release"
    assert ("not those that were seen" if len(forked) > 1 else "was seen before") in refused.message


def test_names_do_not_stand_for_each_other(tmp_path: Path, signer: Signer, policy: Policy) -> None:
    folder = bundle(tmp_path / "out", 1, signer)
    state(tmp_path / "bert.release", replace(releases(1), name="gpt"), signer)
    assert "about releases of 'gpt', not 'bert'" in refusal(folder, policy()).message
    with pytest.raises(TrustError, match="about releases of 'bert', not of 'gpt'"):
        add_release(releases(1), "gpt", {"native": digest(2)}, NOW)
    state(tmp_path / "bert.release", releases(1), signer)
    other = canonical_bytes({"head": "0" * 64, "name": "gpt", "size": 9}) + b"\n"
    (tmp_path / "seen").write_bytes(other)
    assert check_folder(folder, policy())
    assert (tmp_path / "seen").read_bytes().startswith(other)


def test_a_statement_that_is_too_old_is_refused_until_it_is_issued_anew(
    tmp_path: Path, signer: Signer, policy: Policy
) -> None:
    folder = bundle(tmp_path / "out", 1, signer)
    stale = releases(1, issued=NOW - timedelta(days=8))
    state(tmp_path / "bert.release", stale, signer)
    assert check_folder(folder, policy(max_age=timedelta(days=9)))
    assert "s old" in refusal(folder, policy(max_age=timedelta(days=7))).message
    renewed = add_release(stale, "bert", {}, NOW)
    assert renewed.log == stale.log
    state(tmp_path / "bert.release", renewed, signer)
    assert check_folder(folder, policy(max_age=timedelta(days=7)))
    assert len((tmp_path / "seen").read_bytes().splitlines()) == 1


def test_statements_of_other_keys_and_kinds_are_refused(
    tmp_path: Path, signer: Signer, policy: Policy
) -> None:
    folder = bundle(tmp_path / "out", 1, signer)
    assert refusal(folder, policy()).part == "release"  # there is none
    theirs = signer_of(key_pair(tmp_path / "theirs") / "key.pem")
    state(tmp_path / "bert.release", releases(1), theirs)
    assert refusal(folder, policy()).part == "signature"
    complete = releases(1, 2).to_statement()
    predicate = complete["predicate"]
    for change in (
        {"predicateType": "https://slsa.dev/provenance/v1"},
        {"subject": []},
        {"subject": complete["subject"] * 2},
        {"subject": releases(1).to_statement()["subject"]},
        {"predicate": {**predicate, "log": predicate["log"][:1]}},
        {"predicate": {**predicate, "log": []}},
        {"predicate": {**predicate, "log": [*predicate["log"][:1], "x"]}},
        {"predicate": {**predicate, "issued": "yesterday"}},
        {"predicate": {**predicate, "name": 1}},
    ):
        sealed = seal({**complete, **change}, signer)
        (tmp_path / "bert.release").write_bytes(sealed)
        assert refusal(folder, policy()).part == "statement", change
    # A statement about a release is none about a bundle's files.
    write(folder, seal(releases(1).to_statement(), signer))
    state(tmp_path / "bert.release", releases(1), signer)
    assert refusal(folder, policy()).part == "statement"


@pytest.mark.parametrize("content", [b"{}\n", b"{", b"[1]\n", b'{"head":1,"name":"bert","size":2}'])
def test_a_memory_that_cannot_be_read_is_refused(
    tmp_path: Path, signer: Signer, policy: Policy, content: bytes
) -> None:
    state(tmp_path / "bert.release", releases(1), signer)
    (tmp_path / "seen").write_bytes(content)
    folder = bundle(tmp_path / "out", 1, signer)
    assert refusal(folder, policy()).part == "memory"
    assert refusal(folder, policy(memory=tmp_path / "absent/seen")).part == "memory"


def test_a_name_has_a_limit_of_releases_and_none_without_bundles() -> None:
    full = replace(releases(1), log=releases(1).log * MAX_RELEASES)
    with pytest.raises(TrustError, match=f"has {MAX_RELEASES} releases"):
        add_release(full, "bert", {"native": digest(2)}, NOW)
    with pytest.raises(TrustError, match="has no release to issue anew"):
        add_release(None, "bert", {}, NOW)
    assert len(canonical_bytes(full.to_statement())) < 1_000_000


def _recursive_head(entries: list[bytes]) -> bytes:
    """MTH as RFC 9162 defines it, section 2.1.1."""
    if len(entries) == 1:
        return hashlib.sha256(b"\0" + entries[0]).digest()
    split = 1 << (len(entries) - 1).bit_length() - 1
    left, right = _recursive_head(entries[:split]), _recursive_head(entries[split:])
    return hashlib.sha256(b"\1" + left + right).digest()


def test_tree_heads_are_those_of_the_specification() -> None:
    # Of the empty log, and of one empty entry: test vectors of Certificate Transparency.
    assert tree_head([]).hex().startswith("e3b0c44298fc1c14")
    assert hash_leaf(b"").hex().startswith("6e340b9cffb37a98")
    for size in range(1, 70):
        entries = [b"%d" % number for number in range(size)]
        assert tree_head([hash_leaf(entry) for entry in entries]) == _recursive_head(entries)
