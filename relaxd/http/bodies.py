"""Bodies of requests as they come, within a limit."""

from collections.abc import AsyncGenerator, AsyncIterator

from starlette.requests import Request

from relaxd.http.errors import BodyTooLarge, UnsupportedMediaType

JSON_TYPE = "application/json"
_SEPARATORS = (b",", b":", b"[", b"{")


class ReadAhead:
    """Reads the beginnings of bodies into memory before anything is begun for them: a client that
    goes away meanwhile has cost little. All that are being read take `most` bytes at a time.
    """

    def __init__(self, most: int) -> None:
        self._left = most

    async def read(self, request: Request, limit: int) -> tuple[bytes, AsyncIterator[bytes] | None]:
        """The body's beginning, and the rest, None where that is the whole: at most `limit` bytes
        and one part, fewer where others take the memory; none of a client that waits to be told to
        go on. Raises ClientDisconnect.
        """
        body, data, taken = request.stream(), bytearray(), 0
        if "Expect" in request.headers:
            return b"", body
        try:
            async for chunk in body:
                data += chunk
                self._left -= len(chunk)
                taken += len(chunk)
                if taken > limit or self._left < 0:
                    return bytes(data), body
        finally:
            self._left += taken
        return bytes(data), None


async def read_limited(request: Request, limit: int, hint: str) -> AsyncGenerator[bytes, None]:
    """The body as it comes; raises BodyTooLarge, before anything is read if the length is
    announced. `hint` says what raises the limit.
    """
    length = request.headers.get("Content-Length", "")
    if length.isdigit() and int(length[:20]) > limit:
        raise BodyTooLarge(limit, hint)
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > limit:
            raise BodyTooLarge(limit, hint)
        yield chunk


def media_type(request: Request) -> str:
    """The Content-Type without its parameters, in lower case."""
    return request.headers.get("Content-Type", "").partition(";")[0].strip().lower()


def check_json(request: Request) -> None:
    """Raise UnsupportedMediaType for a body that is not declared as JSON."""
    kind = media_type(request)
    if kind != JSON_TYPE:
        raise UnsupportedMediaType(
            f"the body is {kind or 'of no declared type'}", hint=f"send {JSON_TYPE}"
        )


def count_values(data: bytes) -> int:
    """An upper bound on the values of a JSON document: every value but the first follows a
    separator, and those inside texts count too.
    """
    return sum(map(data.count, _SEPARATORS))
