"""Errors that only the API meets, beside those of any HTTP server."""

from relaxd.http.errors import ApiError
from service.identity import Principal, Scope


class MalformedForm(ApiError):
    """The body is not a well-formed multipart form."""

    code = "http.malformed_form"


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
