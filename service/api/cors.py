"""Lets web pages of named origins read bundles that they pull."""

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

READABLE = ("/v2/", "/v1/artifacts/")
SENT = ("Authorization", "If-None-Match", "If-Range", "Range")
SHOWN = (
    "Accept-Ranges",
    "Content-Range",
    "Docker-Content-Digest",
    "ETag",
    "Retry-After",
    "WWW-Authenticate",
    "X-Request-ID",
)
PREFLIGHT_S = 3600


class PullsFromPages:
    """ASGI middleware: what is under READABLE may be read by pages of `origins` (`*`: by any page).

    Only reads are allowed, and a browser sends no login along that it has stored: a page that needs
    a token sends it itself.
    """

    def __init__(self, app: ASGIApp, origins: tuple[str, ...] = ()) -> None:
        self.app = app
        self._shared = CORSMiddleware(
            app,
            allow_origins=origins,
            allow_methods=("GET", "HEAD"),
            allow_headers=SENT,
            allow_credentials=False,
            expose_headers=SHOWN,
            max_age=PREFLIGHT_S,
        )
        self._shares = bool(origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer the question that a browser asks before it."""
        readable = scope["type"] == "http" and scope["path"].startswith(READABLE)
        app = self._shared if self._shares and readable else self.app
        await app(scope, receive, send)
