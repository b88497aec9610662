"""Bodies of requests as they come, within a limit."""

from collections.abc import AsyncGenerator

from starlette.requests import Request

from relaxd.http.errors import BodyTooLarge, UnsupportedMediaType

JSON_TYPE = "application/json"
_SEPARATORS = (b",", b":", b"[", b"{")


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
