"""Errors that only the HTTP layer meets."""

from relaxd.errors import RelaxdError
from service.identity import Principal, Scope


class ApiError(RelaxdError):
    """Base of the errors about a request as such."""

    code = "http.bad_request"


class BodyTooLarge(ApiError):
    """The body is larger than the service takes."""

    code = "http.body_too_large"

    def __init__(self, limit: int, variable: str) -> None:
        super().__init__(
            f"the body is larger than {limit} bytes",
            hint=f"raise {variable} on the server",
            limit=limit,
        )


class UnsupportedMediaType(ApiError):
    """The body has a Content-Type that the endpoint does not read."""

    code = "http.unsupported_media_type"


class MalformedForm(ApiError):
    """The body is not a well-formed multipart form."""

    code = "http.malformed_form"


class ForeignOrigin(ApiError):
    """A page of another origin made a browser send the request."""

    code = "http.foreign_origin"

    def __init__(self, origin: str) -> None:
        super().__init__(
            f"the request comes from a page of {origin[:200]}, which is not this service",
            hint="name the origin in RELAXD_ALLOWED_ORIGINS on the server if it may send requests",
        )


class Unauthorized(ApiError):
    """The request carries no token, or a wrong one."""

    code = "http.unauthorized"


class TooManyRequests(ApiError):
    """The tenant sends more requests than it may."""

    code = "tenant.rate"

    def __init__(self, rate: float, seconds: float) -> None:
        super().__init__(
            f"the tenant may send {rate:g} requests a second",
            hint="wait as long as Retry-After says, or ask an operator for more",
            limit=rate,
        )
        self.retry_after_s = seconds


class Forbidden(ApiError):
    """The principal may not do that."""

    code = "http.forbidden"

    def __init__(self, principal: Principal, scopes: frozenset[Scope], *, home: bool) -> None:
        wanted = " or ".join(sorted(scopes))
        where = " in the operator's tenant" if home else ""
        super().__init__(
            f"{principal.name} may not do that",
            hint=f"sign in with a token that has the scope {wanted}{where}",
            scopes=sorted(scopes),
        )
