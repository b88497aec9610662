"""Errors about a request as such."""

from relaxd.errors import RelaxdError

MEDIA_TYPE = "application/problem+json"
TYPE_PREFIX = "urn:relaxd:problem:"


class ApiError(RelaxdError):
    """Base of the errors about a request as such."""

    code = "http.bad_request"


class BodyTooLarge(ApiError):
    """The body is larger than the server takes."""

    code = "http.body_too_large"

    def __init__(self, limit: int, hint: str) -> None:
        super().__init__(f"the body is larger than {limit} bytes", hint=hint, limit=limit)


class UnsupportedMediaType(ApiError):
    """The body has a Content-Type that the endpoint does not read."""

    code = "http.unsupported_media_type"


class ForeignOrigin(ApiError):
    """A page of another origin made a browser send the request."""

    code = "http.foreign_origin"

    def __init__(self, origin: str, hint: str) -> None:
        super().__init__(
            f"the request comes from a page of {origin[:200]}, which is not this service",
            hint=hint,
        )


class UnknownHost(ApiError):
    """The server asks for no key, and was called by a name that it does not know as its own."""

    code = "http.unknown_host"

    def __init__(self, host: str, hint: str) -> None:
        super().__init__(
            f"the server does not know the host name {host[:200]!r} as its own", hint=hint
        )


class AmbiguousLength(ApiError):
    """The request says in two ways where its body ends."""

    code = "http.ambiguous_length"

    def __init__(self) -> None:
        super().__init__(
            "the request has a Content-Length and a Transfer-Encoding", hint="send one of them"
        )


class HeaderTooLarge(ApiError):
    """The request's header is larger than the server takes."""

    code = "http.header_too_large"

    def __init__(self, limit: int) -> None:
        super().__init__(f"the request's header has more than {limit} bytes", limit=limit)


class Unauthorized(ApiError):
    """The request carries no token, or a wrong one."""

    code = "http.unauthorized"
