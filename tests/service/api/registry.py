"""A registry to test against: the router in an app of its own, over a store in a folder."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fastapi import FastAPI
from fastapi.testclient import TestClient
from starlette.exceptions import HTTPException

from artifacts import open_store
from artifacts.documents import BUNDLE, EMPTY, MANIFEST, TITLE
from relaxd.errors import RelaxdError
from service.api.oci import router
from service.api.oci_sessions import Bounds, Sessions
from service.api.respond import respond
from service.identity import ANYONE
from service.usecases.store.reserving import Reservation, Uploads


class Uncounted(Reservation):
    """Counts nothing, and needs no database."""

    def begin(self, size) -> None:
        pass

    def cover(self, size, *, is_all=False) -> None:
        pass

    def settle(self, size) -> None:
        pass

    def end(self) -> None:
        pass


class Unlimited(Uploads):
    """The reservations of tenants that have no limits."""

    def __init__(self) -> None:
        pass

    def reservation(self, tenant, name, size=0) -> Reservation:
        return Uncounted(None, tenant, name)


def sha256(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


class SignedIn:
    """Stands in for the middleware that finds out who asks."""

    def __init__(self, app) -> None:
        self.app = app

    async def __call__(self, scope, receive, send) -> None:
        scope.setdefault("state", {})["principal"] = ANYONE
        await self.app(scope, receive, send)


def create_app(folder: Path, max_bytes: int = 1 << 30, store: str | Path | None = None) -> FastAPI:
    app = FastAPI()
    app.state.store = open_store(store or folder / "store")
    sessions = Sessions(folder / "uploads", Bounds(max_bytes), Unlimited())
    app.include_router(router(lambda request: app.state.store, sessions))
    app.add_middleware(SignedIn)
    for kind in (RelaxdError, HTTPException):
        app.add_exception_handler(kind, respond)
    return app


@contextmanager
def serving(
    folder: Path, max_bytes: int = 1 << 30, store: str | Path | None = None
) -> Iterator[TestClient]:
    """The registry over a store at a path or URL, by default in the folder."""
    with TestClient(create_app(folder, max_bytes, store or folder / "store")) as client:
        yield client


def push_blob(client: TestClient, data: bytes, name: str = "relaxd/test") -> str:
    answer = client.post(
        f"/v2/{name}/blobs/uploads/", params={"digest": sha256(data)}, content=data
    )
    assert answer.status_code == 201, answer.text
    return sha256(data)


def manifest_of(layers: dict[str, bytes], **more) -> bytes:
    entries = [
        {
            "mediaType": "application/octet-stream",
            "digest": sha256(data),
            "size": len(data),
            "annotations": {TITLE: name},
        }
        for name, data in layers.items()
    ]
    config = {"mediaType": EMPTY, "digest": sha256(b"{}"), "size": 2}
    document = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "artifactType": BUNDLE,
        "config": config,
        "layers": entries,
    }
    return json.dumps(document | more).encode()


def push_manifest(
    client: TestClient, data: bytes, reference: str | None = None, name: str = "relaxd/test"
):
    return client.put(
        f"/v2/{name}/manifests/{reference or sha256(data)}",
        content=data,
        headers={"Content-Type": json.loads(data)["mediaType"]},
    )


def push_bundle(
    client: TestClient,
    layers: dict[str, bytes],
    reference: str | None = None,
    name: str = "relaxd/test",
    **more,
) -> str:
    for data in (b"{}", *layers.values()):
        push_blob(client, data, name)
    manifest = manifest_of(layers, **more)
    assert push_manifest(client, manifest, reference, name).status_code == 201
    return sha256(manifest)


def error_code(answer) -> str:
    (error,) = answer.json()["errors"]
    assert error["message"]
    return error["code"]
