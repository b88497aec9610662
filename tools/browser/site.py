"""A site of static files under a strict Content-Security-Policy."""

import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

POLICY = (
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self'; "
    "style-src 'self'; connect-src 'self' {connect}; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
ISOLATING = {
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
}
"""Headers with which browsers let a page share memory with its workers."""
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css",
    ".js": "text/javascript",
    ".mjs": "text/javascript",
    ".json": "application/json",
    ".wasm": "application/wasm",
}


@dataclass
class Site:
    """files: by path; connect: what pages may fetch from beside the site itself; isolated: whether
    pages are cross-origin isolated; scratch: a folder that is removed with the site.
    """

    url: str
    scratch: Path
    files: dict[str, Path] = field(default_factory=dict)
    connect: str = ""
    isolated: bool = True

    def add(self, path: str, folder: Path) -> None:
        """Serve the files right in a folder below a path."""
        self.files |= {f"{path}{file.name}": file for file in folder.iterdir() if file.is_file()}


@contextmanager
def serve(files: Mapping[str, Path]) -> Iterator[Site]:
    """A site on a port of its own."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            file = site.files.get(urlsplit(self.path).path)
            content = b"" if file is None else file.read_bytes()
            self.send_response(404 if file is None else 200)
            if file is not None:
                self.send_header(
                    "Content-Type", _TYPES.get(file.suffix, "application/octet-stream")
                )
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Content-Security-Policy", POLICY.format(connect=site.connect))
            self.send_header("X-Content-Type-Options", "nosniff")
            for name, value in ISOLATING.items() if site.isolated else ():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *arguments: object) -> None:
            """Requests are not logged."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    url, scratch = f"http://127.0.0.1:{server.server_address[1]}", tempfile.TemporaryDirectory()
    site = Site(url, Path(scratch.name), dict(files))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield site
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        scratch.cleanup()
