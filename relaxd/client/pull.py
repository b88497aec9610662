"""Pulls artifacts from an OCI registry into a folder, which is whole and verified, or absent."""

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import httpx

from relaxd.client.errors import PullError
from relaxd.client.folder import replacing
from relaxd.client.transport import ATTEMPTS, FIRST_PAUSE, Transport
from relaxd.contract.bundle import profile
from relaxd.contract.bundle.manifest import FILENAME
from relaxd.contract.bundle.profile import Profile
from relaxd.contract.canonical import digest_of, is_digest
from relaxd.contract.documents import file_name, mapping, read_json
from relaxd.errors import BundleError, suggest
from relaxd.provenance.envelope import ARTIFACT, MAX_ENVELOPE, signers
from relaxd.provenance.envelope import FILENAME as PROVENANCE
from relaxd.provenance.envelope import MEDIA_TYPE as DSSE
from relaxd.provenance.errors import TrustError

MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
INDEX_TYPE = "application/vnd.oci.image.index.v1+json"
TARGET = "org.relaxd.target"
MAX_REFERRERS = 64
"""How many signed statements of one bundle are fetched."""
MAX_PAGES = 16
"""Of a registry's list of referrers."""

Report = Callable[[int, int], None]


@dataclass(frozen=True)
class Layer:
    """One file of the bundle; `path` is relative and stays inside the bundle's folder."""

    path: PurePosixPath
    digest: str
    size: int

    @classmethod
    def of(cls, document: dict[str, Any]) -> "Layer":
        """From a manifest's descriptor; raises PullError for one that is malformed or leads out of
        the folder.
        """
        match document:
            case {
                "digest": str(digest),
                "size": int(size),
                "annotations": {"org.opencontainers.image.title": str(title)},
            }:
                if is_digest(digest) and size >= 0 and _is_safe(title):
                    return cls(PurePosixPath(title), digest, size)
        raise PullError(
            "the artifact is not a bundle: a layer has no valid file name: "
            f"{document.get('annotations') or document.get('digest')}"
        )


@dataclass(frozen=True)
class Artifact:
    """A manifest or an index, and its digest."""

    digest: str
    document: dict[str, Any]


def pull(
    transport: Transport,
    name: str,
    version: str,
    directory: Path,
    *,
    target: str | None = None,
    report: Report | None = None,
) -> Path:
    """Fetch an artifact into `directory`, which must be absent, empty or an older bundle; returns
    it.

    The bundle's signed provenance, if the registry has any, lies beside its files.
    `target` picks one of an index; `report` gets the bytes received and the bytes in all. Raises
    PullError, ServerError, ServerUnreachable.
    """
    return pull_artifact(transport, name, find(transport, name, version, target), directory, report)


def pull_artifact(
    transport: Transport,
    name: str,
    artifact: Artifact,
    directory: Path,
    report: Report | None = None,
) -> Path:
    """Do what `pull` does, with a manifest that was fetched before."""
    layers = _layers(artifact.document)
    total, done = sum(layer.size for layer in layers), 0
    tell = report or (lambda received, total: None)
    with replacing(directory) as fresh:
        for layer in layers:
            _fetch(
                transport,
                name,
                layer,
                fresh / layer.path,
                lambda received, before=done: tell(before + received, total),  # type: ignore[misc]
            )
            done += layer.size
            tell(done, total)
        if any(layer.path.as_posix() == FILENAME for layer in layers):
            lines = envelopes(transport, name, artifact.digest)
            if lines:
                (fresh / PROVENANCE).write_bytes(b"".join(line + b"\n" for line in lines))
            _write_profiles(transport, name, artifact.digest, fresh)
    return directory


def _is_safe(title: str) -> bool:
    try:
        return bool(file_name(title)) and bool(title.encode())
    except (BundleError, UnicodeEncodeError):
        return False


def _layers(manifest: dict[str, Any]) -> list[Layer]:
    listed = manifest.get("layers", [])
    if not isinstance(listed, list) or not all(isinstance(entry, dict) for entry in listed):
        raise PullError("the artifact is not a bundle: its layers must be a list of descriptors")
    layers = [Layer.of(document) for document in listed]
    paths = {layer.path for layer in layers}
    if (
        not layers
        or len(paths) < len(layers)
        or any(parent in paths for path in paths for parent in path.parents)
    ):
        raise PullError(
            "the artifact is not a bundle: it has no files, or two of them have the same path"
        )
    return layers


def document_of(transport: Transport, name: str, version: str) -> dict[str, Any]:
    """The manifest or index of that digest or tag; raises PullError for a damaged one."""
    return _get(transport, name, version).document


def _get(transport: Transport, name: str, version: str) -> Artifact:
    answer = transport.request(
        "GET",
        f"/v2/{name}/manifests/{version}",
        headers={"Accept": f"{MANIFEST_TYPE}, {INDEX_TYPE}"},
    )
    digest = digest_of(answer.content)
    if is_digest(version) and digest != version:
        raise PullError(
            f"the server's manifest does not match {version}",
            hint="the content was damaged on its way; try again",
        )
    return Artifact(digest, _document(answer.content, version))


def _document(content: bytes, version: str) -> dict[str, Any]:
    try:
        return mapping(read_json(content, "the artifact"), "the artifact")
    except BundleError as error:
        raise PullError(f"{version} is not an artifact: {error.message}") from error


def find(transport: Transport, name: str, version: str, target: str | None = None) -> Artifact:
    """The manifest of that digest or tag, for an index that of one of its targets; raises
    PullError.
    """
    artifact = _get(transport, name, version)
    if "manifests" not in artifact.document:
        return artifact
    return _get(transport, name, _choose(targets_of(artifact.document), target))


def envelopes(transport: Transport, name: str, bundle: str) -> list[bytes]:
    """The signed statements about a bundle that the registry lists as its referrers."""
    contents = _referring(transport, name, bundle, ARTIFACT, DSSE, MAX_ENVELOPE)
    return sorted(content for content in contents.values() if _is_envelope(content))


def _write_profiles(transport: Transport, name: str, bundle: str, folder: Path) -> None:
    """The newest profile under its plain name, others beside it; a file of the bundle stays."""
    profiles = _referring(
        transport, name, bundle, profile.ARTIFACT, profile.MEDIA_TYPE, profile.MAX_BYTES
    )
    read = {digest: Profile.read(content) for digest, content in profiles.items()}
    order = sorted(read, key=lambda digest: (read[digest].measured_at or "", digest), reverse=True)
    for position, digest in enumerate(order):
        short = digest.partition(":")[2][:12]
        path = folder / (f"profile-{short}.json" if position else profile.FILENAME)
        if not path.exists():
            path.write_bytes(profiles[digest])


def _referring(
    transport: Transport, name: str, bundle: str, artifact: str, media_type: str, largest: int
) -> dict[str, bytes]:
    """The documents of one type that refer to a bundle, by the digest of their artifact."""
    documents = {}
    for digest in _referrers(transport, name, bundle, artifact)[:MAX_REFERRERS]:
        match document_of(transport, name, digest).get("layers"):
            case [{"mediaType": str(kind), "digest": str(blob), "size": int(size)}] if (
                kind == media_type and is_digest(blob) and 0 < size <= largest
            ):
                where = f"/v2/{name}/blobs/{blob}"
                content = transport.request("GET", where, limit=size).content
                if digest_of(content) == blob:
                    documents[digest] = content
    return documents


def _is_envelope(content: bytes) -> bool:
    """True if the content is in the form of our envelopes, a line each; someone else may have
    attached anything.
    """
    try:
        return bool(signers(content))
    except TrustError:
        return False


def _referrers(transport: Transport, name: str, bundle: str, artifact: str) -> list[str]:
    """Digests of the artifacts of one type, by the registry's list or, where it keeps none, by
    the tag that OCI has for this.
    """
    answer = transport.request(
        "GET",
        f"/v2/{name}/referrers/{bundle}",
        params={"artifactType": artifact},
        accept=frozenset({400, 404, 405}),
    )
    if not answer.is_success:
        tag = bundle.replace(":", "-")
        answer = transport.request(
            "GET",
            f"/v2/{name}/manifests/{tag}",
            headers={"Accept": INDEX_TYPE},
            accept=frozenset({400, 404}),
        )
    if not answer.is_success:
        return []
    digests: list[str] = []
    for _ in range(MAX_PAGES):
        listed = _document(answer.content, f"the list of referrers of {bundle}").get("manifests")
        for entry in listed if isinstance(listed, list) else ():
            match entry:
                case {"digest": str(digest), "artifactType": str(kind)} if kind == artifact:
                    digests.append(digest)
        following = answer.links.get("next", {}).get("url")
        if following is None or len(digests) >= MAX_REFERRERS:
            break
        answer = transport.request("GET", following)
    return digests


def targets_of(document: dict[str, Any]) -> dict[str, str]:
    """Digests of an index's bundles by target; of a single bundle, none."""
    targets = {}
    listed = document.get("manifests", [])
    for entry in listed if isinstance(listed, list) else [None]:
        match entry:
            case {"digest": str(digest), **rest} if is_digest(digest):
                notes = rest.get("annotations")
                targets[str(notes.get(TARGET) if isinstance(notes, dict) else None)] = digest
            case _:
                raise PullError("the index lists something that is not a manifest")
    return targets


def content_of(transport: Transport, name: str, manifest: dict[str, Any], filename: str) -> bytes:
    """A small file of a bundle, checked against its digest; raises PullError."""
    for layer in _layers(manifest):
        if layer.path.as_posix() == filename:
            where = f"/v2/{name}/blobs/{layer.digest}"
            content = transport.request("GET", where, limit=layer.size).content
            if digest_of(content) != layer.digest:
                raise PullError(
                    f"{filename}: the content does not match {layer.digest}", hint="try again"
                )
            return content
    raise PullError(f"the artifact is not a bundle: it has no {filename}")


def _choose(targets: dict[str, str], target: str | None) -> str:
    if target is None and len(targets) == 1:
        return next(iter(targets.values()))
    if target is None or target not in targets:
        known = ", ".join(sorted(targets))
        why = (
            f"the artifact has no target {target!r}"
            if target
            else "the artifact has several targets"
        )
        raise PullError(why, hint=suggest(target or "", targets, f"name one: {known}"))
    return targets[target]


def _fetch(
    transport: Transport, name: str, layer: Layer, path: Path, report: Callable[[int], None]
) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    download = _Download(transport, f"/v2/{name}/blobs/{layer.digest}", layer, path)
    for attempt in range(ATTEMPTS):
        try:
            return download.go_on(report)
        except httpx.RequestError as error:
            if attempt == ATTEMPTS - 1:
                raise transport.translate(error) from error
            time.sleep(FIRST_PAUSE * 2**attempt)
    return None


class _Download:
    """One layer on its way into a file; goes on where it broke off, if the server knows ranges."""

    def __init__(self, transport: Transport, url: str, layer: Layer, path: Path) -> None:
        self._transport, self._url, self._layer, self._path = transport, url, layer, path
        self._hasher, self._size = hashlib.sha256(), 0

    def go_on(self, report: Callable[[int], None]) -> None:
        """Receive what is missing; raises PullError for content that belies its digest."""
        if self._size < self._layer.size or not self._layer.size:
            self._receive(report)
        if (
            self._size != self._layer.size
            or f"sha256:{self._hasher.hexdigest()}" != self._layer.digest
        ):
            raise PullError(
                f"{self._layer.path}: the content does not match {self._layer.digest}",
                hint="the content was damaged on its way; try again",
            )

    def _receive(self, report: Callable[[int], None]) -> None:
        headers = {"Accept-Encoding": "identity"}
        if self._size:
            headers["Range"] = f"bytes={self._size}-"
        with self._transport.stream("GET", self._url, headers=headers) as answer:
            if self._size and answer.status_code != httpx.codes.PARTIAL_CONTENT:
                self._hasher, self._size = hashlib.sha256(), 0
            with self._path.open("r+b") as file:
                file.seek(self._size)
                file.truncate()
                for chunk in answer.iter_bytes():
                    self._size += len(chunk)
                    if self._size > self._layer.size:
                        break
                    self._hasher.update(chunk)
                    file.write(chunk)
                    report(self._size)
