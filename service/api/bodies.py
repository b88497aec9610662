"""Bodies of requests as they come, within a limit."""

from collections.abc import AsyncGenerator

from starlette.requests import Request

from service.api.errors import BodyTooLarge


async def read_limited(request: Request, limit: int, variable: str) -> AsyncGenerator[bytes, None]:
    """The body as it comes; raises BodyTooLarge, before anything is read if the length is
    announced. `variable` is the setting that raises the limit.
    """
    length = request.headers.get("Content-Length", "")
    if length.isdigit() and int(length[:20]) > limit:
        raise BodyTooLarge(limit, variable)
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > limit:
            raise BodyTooLarge(limit, variable)
        yield chunk
