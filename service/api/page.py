"""The web page and the reference of the API: files of the package, served without signing in."""

import gzip
import hashlib
import mimetypes
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

FOLDER = Path(__file__).parent / "assets"
PREFIX = "/assets/"
INDEX = "index.html"
PAGES = frozenset({"/", "/docs"})
TYPES = {".js": "text/javascript", ".woff2": "font/woff2", ".svg": "image/svg+xml"}
HEADERS = {
    "Content-Security-Policy": "; ".join(
        (
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self'",
            "font-src 'self'",
            "img-src 'self'",
            "connect-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
        )
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # Every answer is asked for again by its ETag, so that an upgrade shows at once.
    "Cache-Control": "no-cache",
    "Vary": "Accept-Encoding",
}


@dataclass(frozen=True)
class Asset:
    """One file: its bytes, those that are sent to whoever takes gzip, and its identity."""

    kind: str
    plain: bytes
    packed: bytes | None
    etag: str


def serves(path: str) -> bool:
    """True if the path is one of the page's, and so answered without signing in."""
    return path in PAGES or path.startswith(PREFIX)


def routes(folder: Path = FOLDER) -> list[Route]:
    """The routes of the page, whose files are read now and kept."""
    assets = {
        str(path.relative_to(folder)): asset(path) for path in folder.rglob("*") if path.is_file()
    }
    return [
        *(Route(path, partial(_page, assets[INDEX])) for path in sorted(PAGES)),
        Route(PREFIX + "{name:path}", partial(_named, assets)),
    ]


def asset(path: Path) -> Asset:
    """The file as it is sent."""
    plain = path.read_bytes()
    kind = TYPES.get(path.suffix) or mimetypes.guess_type(path.name)[0] or "text/plain"
    packed = gzip.compress(plain, mtime=0)
    smaller = len(packed) < len(plain) * 0.9
    etag = f'"{hashlib.sha256(plain).hexdigest()[:32]}"'
    if kind.startswith("text/"):
        kind += "; charset=utf-8"
    return Asset(kind, plain, packed if smaller else None, etag)


async def _page(asset: Asset, request: Request) -> Response:
    return _answer(asset, request)


async def _named(assets: dict[str, Asset], request: Request) -> Response:
    asset = assets.get(request.path_params["name"])
    if asset is None:
        raise HTTPException(404)
    return _answer(asset, request)


def _answer(asset: Asset, request: Request) -> Response:
    headers = {**HEADERS, "ETag": asset.etag}
    if request.headers.get("If-None-Match") == asset.etag:
        return Response(status_code=304, headers=headers)
    body = asset.plain
    if asset.packed is not None and "gzip" in request.headers.get("Accept-Encoding", ""):
        body, headers["Content-Encoding"] = asset.packed, "gzip"
    return Response(body, headers=headers, media_type=asset.kind)
