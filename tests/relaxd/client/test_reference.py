import pytest

from relaxd.client import PullError
from relaxd.client.reference import (
    REPOSITORY,
    ArtifactReference,
    JobReference,
    ModelReference,
    parse,
)

D = "sha256:" + "a" * 64


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("db742fc7ceacea96", JobReference("db742fc7ceacea96")),
        (D, ArtifactReference(None, REPOSITORY, D)),
        (f"relaxd/bundles@{D}", ArtifactReference(None, "relaxd/bundles", D)),
        (f"ghcr.io/a/b@{D}", ArtifactReference("https://ghcr.io", "a/b", D)),
        ("ghcr.io/a/b:v1", ArtifactReference("https://ghcr.io", "a/b", "v1")),
        (f"localhost:5000/a@{D}", ArtifactReference("http://localhost:5000", "a", D)),
        (f"127.0.0.1:8484/a/b@{D}", ArtifactReference("http://127.0.0.1:8484", "a/b", D)),
        (f"registry:5000/a@{D}", ArtifactReference("https://registry:5000", "a", D)),
        (f"oci://ghcr.io/a@{D}", ArtifactReference("https://ghcr.io", "a", D)),
        (f"http://10.0.0.1:80/a@{D}", ArtifactReference("http://10.0.0.1:80", "a", D)),
        ("models:latest", ArtifactReference(None, "models", "latest")),
        ("minilm@prod", ModelReference("minilm", "prod")),
        ("a.b-c@3", ModelReference("a.b-c", "3")),
    ],
)
def test_references(text: str, expected: object) -> None:
    assert parse(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a b",
        "../etc",
        "sha256:12",
        "ghcr.io/UPPER@" + D,
        f"ghcr.io/a/../b@{D}",
        "a/b",
        "job?x=1",
        f"ftp://h.x/a@{D}",
    ],
)
def test_what_is_no_reference(text: str) -> None:
    with pytest.raises(PullError, match="names no artifact"):
        parse(text)
