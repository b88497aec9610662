"""A signed folder, and what is done to it."""

import base64
import copy
import json
import random
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import VerificationError
from securesystemslib.signer._key import SSlibKey

from relaxd.provenance.checking import check_folder
from relaxd.provenance.envelope import FILENAME, pre_authentication_encoding, seal
from relaxd.provenance.errors import KeyInvalid, TrustError, TrustUnavailable
from relaxd.provenance.keys import Signer, read_public_keys, signer_of
from tests.support.signing import FILES, KEY, MANIFEST, key_pair, mutate, statement, write

Keys = Callable[[str], Path]


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    return lambda name: key_pair(tmp_path / "keys" / name)


@pytest.fixture
def signer(keys: Keys) -> Signer:
    return signer_of(keys("ours") / "key.pem")


@pytest.fixture
def trust(keys: Keys) -> Path:
    return keys("ours") / "key.pub"


@pytest.fixture
def signed(signer: Signer, tmp_path: Path) -> Path:
    return write(tmp_path / "bundle", seal(statement(), signer))


def test_what_was_signed_is_accepted(signed: Path, trust: Path) -> None:
    result = check_folder(signed, trust, MANIFEST)
    assert result == statement()
    built = result["predicate"]["buildDefinition"]
    assert built["internalParameters"]["action_key"] == KEY.to_json()
    assert built["resolvedDependencies"][0] == {"name": "model", "digest": {"sha256": "b" * 64}}
    assert {"name": "apache-tvm", "uri": "pkg:pypi/apache-tvm@0.27"} in built[
        "resolvedDependencies"
    ]
    assert check_folder(signed, [trust.read_bytes()]) == result


def test_equal_builds_have_equal_envelopes(signer: Signer) -> None:
    assert seal(statement(), signer) == seal(statement(), signer)
    assert b"T" not in json.dumps(statement()["predicate"]["runDetails"]).encode()


def test_the_bytes_that_are_signed_are_those_of_the_specification() -> None:
    assert (
        pre_authentication_encoding(b"hello world", "http://example.com/HelloWorld")
        == b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    )


def part(folder: Path, trust: object, manifest: str | None = None) -> str:
    with pytest.raises(TrustError) as refused:
        check_folder(folder, trust, manifest)  # type: ignore[arg-type]
    return refused.value.part


def test_another_key_another_bundle_and_no_signature_are_refused(
    signed: Path, trust: Path, keys: Keys
) -> None:
    assert part(signed, keys("theirs") / "key.pub") == "signature"
    assert part(signed, trust, "sha256:" + "0" * 64) == "bundle"
    (signed / FILENAME).unlink()
    assert part(signed, trust) == "envelope"


def test_a_key_under_the_id_of_another_does_not_sign_for_it(
    signed: Path, trust: Path, keys: Keys
) -> None:
    ours, theirs = (signer_of(keys(name) / "key.pem") for name in ("ours", "theirs"))
    forged = seal(statement(), Signer(ours.public, theirs.sign))
    (signed / FILENAME).write_bytes(forged + b"\n")
    assert part(signed, trust) == "signature"


def test_statements_of_others_beside_ours_do_not_matter(
    signed: Path, trust: Path, keys: Keys
) -> None:
    theirs = seal(statement(), signer_of(keys("theirs") / "key.pem"))
    ours = (signed / FILENAME).read_bytes()
    (signed / FILENAME).write_bytes(theirs + b"\n" + ours)
    assert check_folder(signed, trust)
    (signed / FILENAME).write_bytes(theirs + b"\n")
    assert part(signed, trust) == "signature"


@pytest.mark.parametrize("name", [*FILES, "extra.so"])
def test_each_changed_lost_or_added_file_is_named(signed: Path, trust: Path, name: str) -> None:
    path = signed / name
    path.write_bytes(b"other")
    assert part(signed, trust) == name
    path.unlink()
    if name in FILES:
        assert part(signed, trust) == name
        path.symlink_to("/etc/hostname")
        assert part(signed, trust) == name


def test_statements_about_something_else_are_refused(
    signed: Path, signer: Signer, trust: Path
) -> None:
    for change in (
        {"predicateType": "https://example.com/other"},
        {"_type": "x"},
        {"subject": statement()["subject"][1:]},
        {"subject": statement()["subject"][:1]},
        {"subject": [*statement()["subject"], statement()["subject"][1]]},
    ):
        (signed / FILENAME).write_bytes(seal({**statement(), **change}, signer) + b"\n")
        assert part(signed, trust) == "statement"


def test_keys_that_are_none_are_refused(signed: Path, trust: Path, tmp_path: Path) -> None:
    for nothing in ([], b"", b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----"):
        with pytest.raises(KeyInvalid):
            check_folder(signed, nothing)
    with pytest.raises(KeyInvalid, match="cannot read"):
        read_public_keys(tmp_path / "absent.pub")
    with pytest.raises(KeyInvalid, match="private key"):
        signer_of(trust)


def test_an_installation_that_cannot_check_says_what_to_install(
    signed: Path, trust: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives", None)
    with pytest.raises(TrustUnavailable, match=r"relaxd-VERSION-py3-none-any.whl\[trust\]"):
        check_folder(signed, trust)


@pytest.mark.parametrize("seed", range(100))
def test_no_mutation_of_a_signed_folder_is_accepted(signed: Path, trust: Path, seed: int) -> None:
    done = mutate(signed, random.Random(seed))
    assert part(signed, trust, MANIFEST) in done.parts, done


def test_another_implementation_accepts_the_envelope_and_refuses_a_changed_one(
    signed: Path, signer: Signer, trust: Path
) -> None:
    public = load_pem_public_key(trust.read_bytes())
    key = SSlibKey.from_crypto(public, keyid=signer.public.id)
    document = json.loads((signed / FILENAME).read_bytes())
    envelope = Envelope.from_dict(copy.deepcopy(document))
    assert list(envelope.verify([key], 1)) == [signer.public.id]
    assert json.loads(envelope.payload) == statement()
    document["payload"] = base64.b64encode(b"{}").decode()
    with pytest.raises(VerificationError):
        Envelope.from_dict(document).verify([key], 1)


def test_the_payload_cannot_be_replaced(signed: Path, trust: Path) -> None:
    envelope = json.loads((signed / FILENAME).read_bytes())
    changed = {**statement(), "subject": statement({**FILES, "model.so": b"evil"})["subject"]}
    envelope["payload"] = base64.b64encode(json.dumps(changed).encode()).decode()
    text = json.dumps(envelope, sort_keys=True, separators=(",", ":"))
    (signed / FILENAME).write_text(text + "\n")
    (signed / "model.so").write_bytes(b"evil")
    assert part(signed, trust) == "signature"
