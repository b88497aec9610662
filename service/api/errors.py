"""Errors that only the API meets, beside those of any HTTP server."""

from relaxd.http.errors import ApiError
from service.identity import DEFAULT, Principal, Scope


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
    """The principal lacks the scope that a request takes, or is of another tenant than the
    operator's; `action`: what the request does, an infinitive.
    """

    code = "http.forbidden"

    def __init__(
        self, principal: Principal, action: str, scopes: frozenset[Scope], *, home: bool
    ) -> None:
        wanted = f"the scope {' or '.join(sorted(scopes))}" + (
            f" in the operator's tenant, {DEFAULT!r}" if home else ""
        )
        super().__init__(
            f"{principal.name} may not {action}: that takes {wanted}",
            hint="sign in with a token that has it; an admin makes one with `relaxd token create`",
            scopes=sorted(scopes),
        )
