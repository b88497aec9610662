import dataclasses
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import relaxd
from artifacts.attestations import PROVENANCE, attach
from artifacts.documents import read_document
from relaxd.errors import LoadContractError
from relaxd.loader.machine.host import this_host
from relaxd.provenance.errors import TrustError
from tests.service.live import Live, live
from tests.support.signing import key_pair


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return key_pair(tmp_path_factory.mktemp("keys") / "ours")


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory, keys: Path) -> Iterator[Live]:
    with live(tmp_path_factory.mktemp("api"), lease_s=600, signing_key=keys / "key.pem") as running:
        running.announce()
        yield running


@pytest.fixture
def build(served: Any, model: str) -> dict[str, Any]:
    """A job whose bundle is in the folder `out`."""
    ended = served("compile", model, "--dim", "n=1:8", "-o", "out", "--json")
    assert ended.code == 0, ended.err
    return dict(ended.json)


def test_a_folder_a_job_and_a_digest_are_verified(
    served: Any, build: dict[str, Any], keys: Path
) -> None:
    digest = build["builds"][0]["artifact"]["digest"]
    assert Path("out/provenance.intoto.jsonl").read_bytes().count(b"\n") == 1
    for ref in ("out", build["id"], digest, f"relaxd/bundles@{digest}"):
        ended = served("verify", ref, "--key", str(keys / "key.pub"), "--json")
        assert ended.code == 0, ended.err
        assert (ended.json["bundle"], ended.json["target"]) == (digest, "native")
        assert ended.json["action_key"] == build["builds"][0]["action_key"]


def test_errors_name_the_part(
    served: Any, build: dict[str, Any], keys: Path, tmp_path: Path
) -> None:
    theirs = key_pair(tmp_path / "theirs") / "key.pub"
    ended = served("verify", "out", "--key", str(theirs), "--json")
    assert (ended.code, ended.json["error"]["part"]) == (1, "signature")
    Path("out/model.so").write_bytes(b"other")
    ended = served("verify", "out", "--key", str(keys / "key.pub"), "--json")
    assert ended.json["error"]["part"] == "model.so"
    assert served("verify", "out").code == 2


def test_a_referrer_that_someone_attached_does_not_matter(
    served: Any, api: Live, build: dict[str, Any], keys: Path
) -> None:
    digest = build["builds"][0]["artifact"]["digest"]
    for content in (b"junk", b'{"payload":""}\n', b"[]"):
        attach(api.services.store, PROVENANCE, content, digest)
    assert served("verify", digest, "--key", str(keys / "key.pub")).code == 0


def test_a_key_that_is_not_there_is_a_mistake_of_the_caller(relaxd: Any) -> None:
    ended = relaxd("verify", "out", "--key", "none.pub", "--json")
    assert ended.code == 2
    assert ended.json["error"]["code"] == "request.invalid"
    assert "none.pub" in ended.json["error"]["message"]


def test_load_refuses_what_is_not_signed(build: dict[str, Any], keys: Path) -> None:
    trust = keys / "key.pub"
    shutil.copytree("out", "changed")
    Path("changed/numerics.json").write_text("{}")
    with pytest.raises(TrustError, match=r"numerics\.json is not the file") as refused:
        relaxd.load("changed", trust=trust)
    assert refused.value.part == "numerics.json"
    shutil.copytree("out", "unsigned")
    Path("unsigned/provenance.intoto.jsonl").unlink()
    with pytest.raises(TrustError, match="not signed"):
        relaxd.load("unsigned", trust=trust)


def test_load_goes_on_with_what_is_signed(
    build: dict[str, Any], keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stand-in's library cannot be opened, so the check that follows is made to refuse it."""
    host = dataclasses.replace(this_host(), arch="riscv64")
    monkeypatch.setattr("relaxd.loader.opening.this_host", lambda: host)
    with pytest.raises(LoadContractError, match="x86_64"):
        relaxd.load("out", trust=keys / "key.pub")


def test_the_newest_release_of_a_name_replaces_older_ones(
    served: Any, build: dict[str, Any], keys: Path, model: str
) -> None:
    newer = served("compile", model, "--dim", "n=1:16", "-o", "newer", "--json").json
    digests = [each["builds"][0]["artifact"]["digest"] for each in (build, newer)]
    named = ("net", "--key", str(keys / "key.pem"), "--statement", "net.release", "--json")
    files = ("--statement", "net.release", "--memory", "seen", "--key", str(keys / "key.pub"))
    asked = ("--release", "net", *files, "--json")
    for number, folder in enumerate(("out", "newer")):
        ended = served("release", named[0], folder, *named[1:])
        assert ended.code == 0, ended.err
        bundles = {"native": digests[number]}
        assert ended.json == {"name": "net", "number": number + 1, "bundles": bundles}
        assert served("verify", folder, *asked, "--max-age", "1").code == 0
    for ref in ("out", build["id"]):
        ended = served("verify", ref, *asked)
        assert (ended.code, ended.json["error"]["part"]) == (1, "release")
    assert served("verify", newer["id"], *asked).code == 0
    assert served("release", *named).json["number"] == 2, "it is issued anew"
    ended = served("release", named[0], "out", "out", *named[1:])
    assert (ended.code, ended.json["error"]["field"]) == (2, "folders")
    policy = relaxd.NewestRelease(
        name="net", keys=keys / "key.pub", statement="net.release", memory="seen"
    )
    with pytest.raises(TrustError, match="no bundle of release 2"):
        relaxd.load("out", trust=policy)


def test_releases_are_asked_for_by_name_and_statement(served: Any, keys: Path) -> None:
    for arguments, lacking in (
        (["--release", "net"], "statement"),
        (["--memory", "seen"], "release"),
    ):
        ended = served("verify", "out", "--key", str(keys / "key.pub"), *arguments, "--json")
        assert (ended.code, ended.json["error"]["field"]) == (2, lacking)


def skopeo(*arguments: str) -> None:
    command = ["skopeo", "--command-timeout=60s", "copy", "--preserve-digests", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stderr


def copy_bundle(source: str, destination: str, scratch: Path) -> None:
    """Copy an artifact from registry to registry, by way of a folder of its own."""
    skopeo("--src-tls-verify=false", f"docker://{source}", f"dir:{scratch}")
    skopeo("--dest-tls-verify=false", f"dir:{scratch}", f"docker://{destination}")


@pytest.mark.skipif(shutil.which("skopeo") is None, reason="skopeo is not installed")
def test_a_bundle_copied_to_another_registry_and_back_is_verified(
    served: Any, api: Live, build: dict[str, Any], keys: Path, tmp_path: Path
) -> None:
    digest = build["builds"][0]["artifact"]["digest"]
    trusted = ("--key", str(keys / "key.pub"))
    home, store = api.url.removeprefix("http://"), api.services.store
    referrers = store.references.referrers("relaxd/bundles", digest)
    signed = [
        each
        for each in referrers
        if read_document(store.blobs, each).artifact_type == PROVENANCE.artifact_type
    ]
    (tmp_path / "mirror").mkdir()
    with live(tmp_path / "mirror") as other:
        mirror = other.url.removeprefix("http://")
        for tag, each in ((f"v{number}", each) for number, each in enumerate((digest, *signed))):
            there = f"{mirror}/relaxd/net:{tag}"
            copy_bundle(f"{home}/relaxd/bundles@{each}", there, tmp_path / f"out-{tag}")
            copy_bundle(there, f"{home}/relaxd/back:{tag}", tmp_path / f"back-{tag}")
            if tag == "v0":
                ended = served("verify", there, *trusted, "--json")
                assert (ended.code, ended.json["error"]["part"]) == (1, "envelope")
        ended = served("verify", f"{mirror}/relaxd/net:v0", *trusted, "--json")
        assert ended.code == 0, ended.err
        assert ended.json["bundle"] == digest
    assert served("verify", f"{home}/relaxd/back@{digest}", *trusted).code == 0
