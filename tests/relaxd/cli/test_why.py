import json
from pathlib import Path
from typing import Any

from relaxd.contract.action import ActionKey


def build_bundle(served: Any, model: str, folder: str, *declared: str) -> str:
    """The digest of the action key of a build whose bundle is in the folder."""
    ended = served("compile", model, "-o", folder, "--json", *declared)
    (build,) = ended.json["builds"]
    return str(build["action_key"])


def test_the_differing_parts_are_named_with_both_values(served: Any, model: str) -> None:
    for folder, dim in (("a", "n=1:8"), ("b", "n=1:9")):
        build_bundle(served, model, folder, "--dim", dim)
    ended = served("why", "a", "b")
    assert ended.code == 0
    part, one, other = ended.out.splitlines()[1].split()
    assert (part, one, other) == ("request.dims.n.max", "8", "9")
    document = served("why", "a", "b", "--json").json
    assert document["differences"] == [{"part": "request.dims.n.max", "a": 8, "b": 9}]
    assert document["a"] != document["b"]


def test_keys_bundles_and_folders_are_the_same_thing(served: Any, model: str) -> None:
    key = build_bundle(served, model, "a", "--dim", "n=3")
    job = served("jobs", "list", "--json").json["jobs"][0]
    bundle = job["builds"][0]["artifact"]["digest"]
    for ref in (key, bundle, job["id"]):
        assert served("why", "a", ref).out.startswith("the keys are equal: sha256:")


def test_what_names_no_bundle_is_refused(served: Any) -> None:
    ended = served("why", "sha256:" + "0" * 64, "sha256:" + "1" * 64)
    assert ended.code == 2
    assert "no blob sha256:000" in ended.err


def test_parts_that_belie_their_digest_are_refused(served: Any, model: str) -> None:
    build_bundle(served, model, "a", "--dim", "n=4")
    path = Path("a/manifest.json")
    manifest = json.loads(path.read_text())
    manifest["action_key"]["parts"]["model"] = "sha256:" + "0" * 64
    path.write_text(json.dumps(manifest))
    ended = served("why", "a", "a")
    assert ended.code == 1
    assert "do not give its digest" in ended.err
    manifest["action_key"] = {**ActionKey({}).to_json(), "digest": None}
    path.write_text(json.dumps(manifest))
    assert "records no action key" in served("why", "a", "a").err
