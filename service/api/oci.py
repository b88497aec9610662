"""The registry: OCI distribution API under /v2/ over the artifact store, and artifacts by digest.

Content is shared by all repositories of a tenant, which are namespaces for tags and referrers only.
Nothing is deleted over HTTP.
"""

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from service.api import artifacts as described
from service.api import oci_manifests, oci_uploads
from service.api.oci_content import blob_response
from service.api.oci_errors import RegistryRoute
from service.api.oci_names import Repository, StoreOf
from service.api.oci_sessions import Sessions


def router(store_of: StoreOf, sessions: Sessions, redirect_from: int | None = None) -> APIRouter:
    """Every endpoint over the store as whoever asks sees it; `sessions` keeps uploads under way,
    `redirect_from` as for `blob_response`.
    """
    routes = APIRouter()
    routes.include_router(described.router(store_of))
    routes.include_router(_blobs(store_of, redirect_from))
    routes.include_router(oci_uploads.router(store_of, sessions))
    routes.include_router(oci_manifests.router(store_of))
    return routes


def _blobs(store_of: StoreOf, redirect_from: int | None) -> APIRouter:
    routes = APIRouter(route_class=RegistryRoute, include_in_schema=False)

    @routes.api_route("/v2/", methods=["GET", "HEAD"])
    @routes.api_route("/v2", methods=["GET", "HEAD"])
    async def version() -> Response:
        return JSONResponse({}, headers={"Docker-Distribution-API-Version": "registry/2.0"})

    @routes.api_route("/v2/{name:path}/blobs/{digest}", methods=["GET", "HEAD"])
    def pull(name: Repository, digest: str, request: Request) -> Response:
        return blob_response(request, store_of(request).blobs, digest, redirect_from)

    return routes
