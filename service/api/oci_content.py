"""Content by digest over HTTP: strong ETags, conditional requests, ranges."""

import itertools
import re
from collections.abc import Iterator
from http import HTTPStatus

from fastapi import Request, Response
from fastapi.responses import StreamingResponse

from artifacts.store import BlobStore

RANGE = re.compile(r"bytes=(?:(\d{1,18})-(\d{0,18})|-(\d{1,18}))")
REDIRECT_S = 60.0
"""How long the URL of a redirect is good: a download that has begun by then goes on. It is below
the shortest grace of collections.
"""
IMMUTABLE = "private, max-age=31536000, immutable"


def identity_headers(digest: str) -> dict[str, str]:
    """Headers that name the content and let it be kept."""
    return {"ETag": f'"{digest}"', "Docker-Content-Digest": digest, "Cache-Control": IMMUTABLE}


def is_known(request: Request, digest: str) -> bool:
    """True if the client has the content already, by its If-None-Match."""
    listed = [
        tag.strip().removeprefix("W/")
        for tag in request.headers.get("If-None-Match", "").split(",")
    ]
    return "*" in listed or f'"{digest}"' in listed


def not_modified(digest: str) -> Response:
    """The answer when `is_known`."""
    return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=identity_headers(digest))


def blob_response(
    request: Request, blobs: BlobStore, digest: str, redirect_from: int | None = None
) -> Response:
    """Answer GET or HEAD for a blob; call off the event loop. Raises as BlobStore.open.

    redirect_from: the size in bytes from which a blob is downloaded from the object store itself,
    where that has URLs for it; the client has to check the digest then.

    The first chunk is read before the answer begins, so that a blob of one chunk is known to be
    sound by then; in a larger one a flaw breaks the connection before its last chunk.
    """
    size = blobs.size(digest)
    if is_known(request, digest):
        return not_modified(digest)
    headers = identity_headers(digest) | {
        "Accept-Ranges": "bytes",
        "Content-Type": "application/octet-stream",
    }
    if request.method == "HEAD":
        blobs.touch(digest)  # whoever asks may leave an upload out
        return Response(headers=headers | {"Content-Length": str(size)})
    is_direct = redirect_from is not None and size >= redirect_from
    # No object store knows If-Range.
    if is_direct and "If-Range" not in request.headers and (target := _sign(blobs, digest)):
        return Response(status_code=HTTPStatus.TEMPORARY_REDIRECT, headers=target)
    span = requested_span(request, digest, size)
    if span is None:
        return _stream(blobs.open(digest), HTTPStatus.OK, headers | {"Content-Length": str(size)})
    start, end = span
    if start >= end:
        return Response(
            status_code=HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE,
            headers={"Content-Range": f"bytes */{size}"},
        )
    headers |= {
        "Content-Length": str(end - start),
        "Content-Range": f"bytes {start}-{end - 1}/{size}",
    }
    return _stream(blobs.open(digest, start, end), HTTPStatus.PARTIAL_CONTENT, headers)


def _sign(blobs: BlobStore, digest: str) -> dict[str, str] | None:
    """Headers of a redirect to the object store; None for one without URLs."""
    url = blobs.presign(digest, REDIRECT_S)
    named = {"Docker-Content-Digest": digest, "Cache-Control": "no-store"}
    return {"Location": url, **named} if url else None


def requested_span(request: Request, digest: str, size: int) -> tuple[int, int] | None:
    """Bytes asked for, end exclusive, empty when there are none such; None for the whole.

    A Range with several parts, or malformed, or under an If-Range that does not hold, is ignored,
    as RFC 9110 allows.
    """
    match = RANGE.fullmatch(request.headers.get("Range", "").replace(" ", ""))
    if not match or request.headers.get("If-Range", f'"{digest}"') != f'"{digest}"':
        return None
    first, last, suffix = match.groups()
    if suffix is not None:
        return max(size - int(suffix), 0), size
    if last and int(last) < int(first):
        return None
    return int(first), min(int(last) + 1, size) if last else size


def _stream(chunks: Iterator[bytes], status: HTTPStatus, headers: dict[str, str]) -> Response:
    first = next(chunks, b"")
    return StreamingResponse(itertools.chain([first], chunks), status_code=status, headers=headers)
