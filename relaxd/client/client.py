"""The client's front: submit, inspect, find and pull."""

import json
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from relaxd.client.administration import Administration
from relaxd.client.best import choose
from relaxd.client.errors import PullError
from relaxd.client.job import JobHandle
from relaxd.client.operators import Operators, read_operators
from relaxd.client.pull import (
    MANIFEST_TYPE,
    Report,
    content_of,
    document_of,
    find,
    pull,
    pull_artifact,
    targets_of,
)
from relaxd.client.reference import BUNDLES, ArtifactReference, JobReference, ModelReference, parse
from relaxd.client.registry import Registry
from relaxd.client.transport import LARGEST_MODEL, Transport
from relaxd.client.upload import MODELS, Model, Samples, name_of, upload_model, upload_samples
from relaxd.contract.bundle.manifest import FILENAME
from relaxd.contract.bundle.report import Report as BuildReport
from relaxd.contract.canonical import digest_of, is_digest
from relaxd.contract.options import CompileOptions
from relaxd.contract.request import CompileRequest, Scalar
from relaxd.contract.urgency import Deadline, Urgency
from relaxd.provenance.checking import check_folder
from relaxd.provenance.freshness import Policy

DEFAULT_URL = "http://127.0.0.1:8484"
SERVER, TOKEN = "RELAXD_SERVER", "RELAXD_TOKEN"
"""The variables of a process's environment that name its service and token."""


class Client(Administration, Registry):
    """A relaxd service at `url`; `token` is its bearer token; `timeout` is in seconds, for one
    answer.

    url: by default RELAXD_SERVER, else this machine's. token: by default RELAXD_TOKEN, which is
    sent to no other server than that of RELAXD_SERVER or the default.

    Every method raises ServerError for a problem that the service reports and ServerUnreachable
    when nothing answers.
    """

    def __init__(
        self, url: str | None = None, token: str | None = None, timeout: float = 30.0
    ) -> None:
        usual = os.environ.get(SERVER) or DEFAULT_URL
        if token is None and url in (None, usual):
            token = os.environ.get(TOKEN)
        self._transport = Transport(usual if url is None else url, token=token, timeout=timeout)

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Drop the connections."""
        self._transport.close()

    def compile(
        self,
        model: Model,
        *,
        dims: Mapping[str, Any] | None = None,
        targets: Iterable[str] = ("native",),
        inputs: Mapping[str, str] | None = None,
        consts: Mapping[str, Scalar] | None = None,
        shapes: Mapping[str, Any] | None = None,
        samples: Samples | None = None,
        options: CompileOptions | Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
        wait_for_worker: bool = True,
        project: str = "",
        priority: int = 0,
        deadline: Deadline | None = None,
        on_upload: Report | None = None,
        operators: Operators = (),
    ) -> JobHandle:
        """Upload the model if the service does not have it and submit a job.

        `model` is a path, beside which an ONNX model has its data, a folder, the paths of a model
        and its data, bytes, an onnx.ModelProto or the digest of an uploaded model; the rest as in
        `compiler.compile_model`. Raises DeclarationError before anything is sent if a
        declaration is malformed; without `wait_for_worker`, ServerError where no running worker
        compiles for a target. project: whom usage is counted for. priority: -10 to 10, the
        tenant's highest go first. deadline: when builds may begin at the latest, `"30m"`, seconds
        from the submission, or a time. on_upload: gets the bytes sent and the bytes in all.
        operators: a file of custom operators, or what it declares.
        """
        urgency = Urgency.of(priority, deadline)
        request = CompileRequest.of(
            dims=dims,
            inputs=inputs,
            consts=consts,
            shapes=shapes,
            targets=targets,
            options=options,
            operators=read_operators(operators),
        )
        return self.submit(
            model,
            request,
            samples=samples,
            idempotency_key=idempotency_key,
            wait_for_worker=wait_for_worker,
            project=project,
            urgency=urgency,
            on_upload=on_upload,
        )

    def submit(
        self,
        model: Model,
        request: CompileRequest,
        *,
        samples: Samples | None = None,
        idempotency_key: str | None = None,
        wait_for_worker: bool = True,
        project: str = "",
        urgency: Urgency = Urgency(),
        on_upload: Report | None = None,
    ) -> JobHandle:
        """Do what `compile` does, with declarations that were read before."""
        document = self._document(model, request, samples, on_upload)
        headers = {"Idempotency-Key": idempotency_key or uuid.uuid4().hex}
        name = name_of(model)
        params = urgency.parameters | ({"name": name} if name else {})
        if project:
            params["project"] = project
        if not wait_for_worker:
            params["wait_for_worker"] = "false"
        return JobHandle(
            self._transport,
            self._transport.json("POST", "/v1/jobs", json=document, headers=headers, params=params),
        )

    def inspect(
        self,
        model: Model,
        *,
        dims: Mapping[str, Any] | None = None,
        inputs: Mapping[str, str] | None = None,
        consts: Mapping[str, Scalar] | None = None,
        shapes: Mapping[str, Any] | None = None,
        timeout: float = 120.0,
    ) -> dict[str, Any]:
        """The report on a model: inputs, outputs, dims and every operator, supported or not and
        why; at most `timeout` seconds.
        """
        request = CompileRequest.of(dims=dims, inputs=inputs, consts=consts, shapes=shapes)
        return self.examine(model, request, timeout=timeout)

    def examine(
        self, model: Model, request: CompileRequest, *, timeout: float = 120.0
    ) -> dict[str, Any]:
        """Do what `inspect` does, with declarations that were read before."""
        document = self._document(model, request, None)
        wait = {"wait": f"{timeout:g}"}
        return dict(
            self._transport.json(
                "POST",
                "/v1/inspect",
                json=document,
                params=wait,
                timeout=timeout + self._transport.timeout,
            )
        )

    def job(self, job_id: str) -> JobHandle:
        """An earlier job."""
        return JobHandle(
            self._transport, self._transport.json("GET", f"/v1/jobs/{quote(job_id, safe='')}")
        )

    def jobs(self, limit: int = 50, state: str | None = None) -> list[JobHandle]:
        """The latest jobs first, of one state or of all."""
        params = {"limit": str(limit)} | ({"state": state} if state else {})
        return [
            JobHandle(self._transport, document)
            for document in self._transport.json("GET", "/v1/jobs", params=params)["jobs"]
        ]

    def report_failed_gates(
        self, job_id: str, target: str, failed: Mapping[str, str], baseline: str | None = None
    ) -> None:
        """Have the service tell webhooks that a build failed gates: what was measured, by gate."""
        gates = [{"gate": _line(gate), "result": _line(text)} for gate, text in failed.items()]
        body = {"target": target, "failed": gates, "baseline": baseline}
        self._transport.request("POST", f"/v1/jobs/{quote(job_id, safe='')}/gates", json=body)

    def targets(self) -> list[dict[str, Any]]:
        """The targets that the service compiles for."""
        return list(self._transport.json("GET", "/v1/targets")["targets"])

    def collect(self, *, dry_run: bool = False) -> dict[str, Any]:
        """Have the service collect garbage; what it found and removed, or would remove."""
        params = {"dry_run": str(dry_run).lower()}
        return dict(self._transport.json("POST", "/v1/gc", params=params, timeout=None))

    def pin(
        self, digest: str, *, who: str = "", why: str = "", days: float | None = None
    ) -> dict[str, Any]:
        """Keep a blob, and all that it refers to, for so many days or without end; the pin."""
        body = {"who": who, "why": why, "days": days}
        path = f"/v1/pins/{quote(digest, safe=':')}"
        return dict(self._transport.json("PUT", path, json=body))

    def unpin(self, digest: str) -> None:
        """Remove a pin."""
        self._transport.request("DELETE", f"/v1/pins/{quote(digest, safe=':')}")

    def pins(self) -> list[dict[str, Any]]:
        """The pins that hold now."""
        return list(self._transport.json("GET", "/v1/pins")["pins"])

    def action_key(self, ref: str, target: str | None = None) -> dict[str, Any]:
        """The action key of a bundle, `digest` and `parts`, by the digest of the key or by what
        `pull` takes.
        """
        if is_digest(ref):
            known = self._transport.request("GET", f"/v1/actions/{ref}", accept=frozenset({404}))
            if known.is_success:
                return dict(known.json())
        with self._located(ref, target) as (source, name, version):
            bundle = find(source, name, version, target).document
            return dict(json.loads(content_of(source, name, bundle, FILENAME))["action_key"])

    def verify(
        self, ref: str, trust: Policy, directory: str | Path, target: str | None = None
    ) -> dict[str, Any]:
        """The signed statement about a bundle, by what `pull` takes; the bundle is pulled into
        `directory`.

        Raises TrustError, which names the part that is wrong, and as `pull`.
        """
        with self._located(ref, target) as (source, name, version):
            artifact = find(source, name, version, target)
            folder = pull_artifact(source, name, artifact, Path(directory))
        return check_folder(folder, trust, artifact.digest)

    def report(self, ref: str, target: str | None = None) -> BuildReport:
        """The service's report on a bundle; ref: as `pull` takes it. Raises PullError for one of
        another registry.
        """
        with self._located(ref, target) as (source, name, version):
            if source is not self._transport:
                raise PullError(
                    f"{source.url} gives no reports", hint="pull the bundle, and show the folder"
                )
            artifact = find(source, name, version, target)
        return BuildReport.from_json(
            self._transport.json("GET", f"/v1/artifacts/{artifact.digest}/report")
        )

    def model(self, digest: str) -> bytes:
        """The bytes of an uploaded model or of its samples; raises PullError for damaged ones."""
        content = self._transport.request(
            "GET",
            f"/v2/{self._transport.repository(MODELS)}/blobs/{digest}",
            limit=LARGEST_MODEL,
        ).content
        if digest_of(content) != digest:
            raise PullError(f"the content does not match {digest}", hint="try again")
        return content

    def pull_model(self, digest: str, path: Path) -> None:
        """Write an uploaded model into a new file, or its files into a new folder; raises
        PullError.
        """
        name = self._transport.repository(MODELS)
        known = self._transport.request(
            "GET",
            f"/v2/{name}/manifests/{digest}",
            headers={"Accept": MANIFEST_TYPE},
            accept=frozenset({404}),
        )
        if known.is_success:
            pull_artifact(self._transport, name, find(self._transport, name, digest), path)
        else:
            path.write_bytes(self.model(digest))

    def pull(
        self,
        ref: str,
        directory: str | Path,
        target: str | None = None,
        *,
        best: bool = False,
        report: Report | None = None,
    ) -> Path:
        """Fetch a bundle by job id, digest, name and alias (`minilm@prod`) or OCI reference into
        `directory`; returns the folder.

        target: which of several; best: of several, the best that this machine can run. A reference
        with a host is fetched from that registry, without this client's token unless the host is
        its own.
        """
        with self._located(ref, target, best=best) as (source, name, version):
            return pull(
                source,
                name,
                version,
                Path(directory),
                target=None if best else target,
                report=report or (lambda done, total: None),
            )

    def repository(self, name: str) -> str:
        """The repository of that name in the namespace of one's tenant."""
        return self._transport.repository(name)

    def tag(self, digest: str, tag: str) -> None:
        """Give a bundle of the service a tag, or move the tag to it; takes the scope `push`."""
        path = f"/v2/{self._transport.repository(BUNDLES)}/manifests"
        manifest = self._transport.request(
            "GET", f"{path}/{digest}", headers={"Accept": MANIFEST_TYPE}
        )
        headers = {"Content-Type": MANIFEST_TYPE}
        self._transport.request("PUT", f"{path}/{tag}", content=manifest.content, headers=headers)

    def resolve(self, ref: str, target: str | None = None) -> str:
        """The digest of the bundle that a reference names, of several that of `target` or the best
        that this machine can run; raises as `pull`.
        """
        with self._located(ref, target, best=target is None) as (source, name, version):
            return find(source, name, version, target).digest

    def pull_digest(self, ref: str, digest: str, directory: str | Path) -> Path:
        """Fetch the bundle of that digest from where the reference leads; raises as `pull`."""
        with self._located(ref, None) as (source, name, _):
            return pull(source, name, digest, Path(directory))

    @contextmanager
    def _located(
        self, ref: str, target: str | None, *, best: bool = False
    ) -> Iterator[tuple[Transport, str, str]]:
        """The registry of an artifact, its repository, and its digest or tag there."""
        reference = parse(ref)
        if isinstance(reference, JobReference):
            digest = self.job(reference.job_id).bundle(target, best=best)
            yield self._transport, self._transport.repository(BUNDLES), digest
            return
        if isinstance(reference, ModelReference):
            digest = self.version(reference.name, reference.version)["digest"]
            reference = ArtifactReference(None, self._transport.repository(BUNDLES), digest)
        own = reference.url in (None, self._transport.url)
        source = (
            self._transport
            if own
            else Transport.of_registry(str(reference.url), self._transport.timeout)
        )
        version = reference.version
        name = self._transport.repository(BUNDLES) if is_digest(ref) else reference.name
        try:
            if best and (digests := targets_of(document_of(source, name, version))):
                version = choose(source, name, digests)
            yield source, name, version
        finally:
            if not own:
                source.close()

    def _document(
        self,
        model: Model,
        request: CompileRequest,
        samples: Samples | None,
        on_upload: Report | None = None,
    ) -> dict[str, Any]:
        document: dict[str, Any] = {
            **request.to_json(),
            "model": upload_model(self._transport, model, on_upload),
        }
        if samples is not None:
            document["samples"] = upload_samples(self._transport, samples)
        return document


def _line(text: str) -> str:
    """The text as a line that the service takes."""
    return " ".join(text.split())[:500] or "?"
