"""A signed folder, and what is done to it."""

import base64
import hashlib
import json
import random
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from relaxd.contract.action import ActionKey
from relaxd.provenance.checking import check_folder
from relaxd.provenance.envelope import FILENAME, pre_authentication_encoding, seal
from relaxd.provenance.errors import KeyInvalid, TrustError, TrustUnavailable
from relaxd.provenance.keys import Signer, signer_of, trusted
from relaxd.provenance.statement import Subjects, provenance
from tests.signing import key_pair

Keys = Callable[[str], Path]

MANIFEST = "sha256:" + "a" * 64
FILES = {
    "manifest.json": b'{"name": "net"}\n',
    "model.so": bytes(range(256)) * 3,
    "weights.bin": b"\0" * 512,
    "deep/notice.txt": b"text",
}
KEY = ActionKey(
    {
        "model": "sha256:" + "b" * 64,
        "request": {"dims": {"n": {"min": 1, "max": 8}}, "samples": "sha256:" + "c" * 64},
        "options": {"seed": 0},
        "pipeline": "0123",
        "toolchain": {"tvm": "0.27", "llvm": "sha256=x"},
    }
)


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    return lambda name: key_pair(tmp_path / "keys" / name)


@pytest.fixture
def signer(keys: Keys) -> Signer:
    return signer_of(keys("ours") / "key.pem")


@pytest.fixture
def trust(keys: Keys) -> Path:
    return keys("ours") / "key.pub"


def statement(files: dict[str, bytes] = FILES) -> dict:
    digests = {name: f"sha256:{hashlib.sha256(data).hexdigest()}" for name, data in files.items()}
    return provenance(Subjects(MANIFEST, digests), "relaxd/bundles", "native", KEY, "urn:us")


def written(folder: Path, envelope: bytes, files: dict[str, bytes] = FILES) -> Path:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    (folder / FILENAME).write_bytes(envelope + b"\n")
    return folder


@pytest.fixture
def signed(signer: Signer, tmp_path: Path) -> Path:
    return written(tmp_path / "bundle", seal(statement(), signer))


def test_what_was_signed_is_accepted(signed: Path, trust: Path) -> None:
    found = check_folder(signed, trust, MANIFEST)
    assert found == statement()
    built = found["predicate"]["buildDefinition"]
    assert built["internalParameters"]["action_key"] == KEY.to_json()
    assert built["resolvedDependencies"][0] == {"name": "model", "digest": {"sha256": "b" * 64}}
    assert {"name": "apache-tvm", "uri": "pkg:pypi/apache-tvm@0.27"} in built[
        "resolvedDependencies"
    ]
    assert check_folder(signed, [trust.read_bytes()]) == found


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
        trusted(tmp_path / "absent.pub")
    with pytest.raises(KeyInvalid, match="private key"):
        signer_of(trust)


def test_an_installation_that_cannot_check_says_what_to_install(
    signed: Path, trust: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives", None)
    with pytest.raises(TrustUnavailable, match=r"relaxd\[trust\]"):
        check_folder(signed, trust)


def mutate(folder: Path, draw: random.Random) -> str:
    """Change something in the folder; what was done."""
    name = draw.choice([*FILES, FILENAME, FILENAME, FILENAME])
    path = folder / name
    data = bytearray(path.read_bytes())
    place = draw.randrange(len(data))
    match draw.randrange(7):
        case 0:
            data[place] ^= 1 << draw.randrange(8)
        case 1:
            del data[place : place + draw.randrange(1, 40)]
        case 2:
            data[place:place] = draw.randbytes(draw.randrange(1, 9))
        case 3:
            data += draw.choice([b" ", b"\n", b"\0", b"{}", b"{}\n"])
        case 4:
            # The same meaning to a parser that is less strict.
            text = bytes(data).replace(b'":', draw.choice([b'": ', b'" :', b'":\t']), 1)
            data = bytearray(text if text != bytes(data) else bytes(data) + b" ")
        case 5:
            path.unlink()
            return f"{name} removed"
        case 6:
            (folder / draw.choice(["libextra.so", "deep/more", ".hidden"])).write_bytes(b"x")
            return "a file added"
    path.write_bytes(data)
    return f"{name} changed at {place}"


@pytest.mark.parametrize("seed", range(100))
def test_no_mutation_of_a_signed_folder_is_accepted(signed: Path, trust: Path, seed: int) -> None:
    """A tenth of the table's thousand."""
    done = mutate(signed, random.Random(seed))
    assert part(signed, trust, MANIFEST) in (
        *FILES,
        "envelope",
        "signature",
        "libextra.so",
        "deep/more",
        ".hidden",
    ), done


def test_the_payload_cannot_be_replaced(signed: Path, trust: Path) -> None:
    envelope = json.loads((signed / FILENAME).read_bytes())
    changed = {**statement(), "subject": statement({**FILES, "model.so": b"evil"})["subject"]}
    envelope["payload"] = base64.b64encode(json.dumps(changed).encode()).decode()
    text = json.dumps(envelope, sort_keys=True, separators=(",", ":"))
    (signed / FILENAME).write_text(text + "\n")
    (signed / "model.so").write_bytes(b"evil")
    assert part(signed, trust) == "signature"
