"""Endpoints by which the web page signs people in with OpenID Connect; they need no token."""

from collections.abc import Callable
from dataclasses import asdict
from typing import Annotated, TypeVar

from fastapi import APIRouter
from pydantic import BaseModel, Field

from service.api.context import UseServices
from service.api.tenant_threads import run_in_thread
from service.api.wire import Document
from service.bootstrap import Services
from service.errors import SignInRefused, UnknownIssuer
from service.usecases import auditing
from service.usecases.tenants.entering import Gate

WIDTH = 4
"""Threads for all who sign in: a slow issuer takes none of the readiness's."""

router = APIRouter(prefix="/v1/sign-in", tags=["access"])

T = TypeVar("T")
Short = Annotated[str, Field(min_length=1, max_length=2000, pattern=r"^[\x20-\x7e]+$")]


class LoginOut(BaseModel):
    """One way to sign in: `scopes` are those to ask the issuer for, `authorization_url` is its
    page; null while the issuer is away.
    """

    issuer: str
    client_id: str
    scopes: list[str]
    authorization_url: str | None


class LoginList(BaseModel):
    """Every way to sign in with OpenID Connect."""

    logins: list[LoginOut]


class CodeIn(Document):
    """The answer of the issuer's page, and the secret whose SHA-256 that was given."""

    issuer: Short
    client_id: Short
    code: Annotated[str, Field(min_length=1, max_length=8000, pattern=r"^[\x20-\x7e]+$")]
    verifier: Annotated[str, Field(pattern=r"^[A-Za-z0-9._~-]{43,128}$")]
    redirect_uri: Short


class IdTokenOut(BaseModel):
    """The issuer's ID token, which the service takes as a bearer token until it ends."""

    token: str


@router.get("", summary="Where people can sign in")
async def list_logins(services: UseServices) -> LoginList:
    """The issuers of RELAXD_OIDC_ISSUERS that have a `client_id`. Needs no token."""
    sign_in = services.sign_in
    logins = await _in_thread(sign_in.logins) if sign_in else []
    return LoginList(logins=[LoginOut(**asdict(login)) for login in logins])


@router.post("", summary="Trade a code for a token")
async def exchange(services: UseServices, body: CodeIn) -> IdTokenOut:
    """The last step of an authorization code flow with PKCE (S256), of which the caller has
    checked the state and checks the nonce. Needs no token.
    """
    return IdTokenOut(token=await _in_thread(lambda: _exchange(services, body)))


def _exchange(services: Services, body: CodeIn) -> str:
    if services.sign_in is None:
        raise UnknownIssuer(body.issuer)
    token = services.sign_in.exchange(**body.model_dump())
    principal = Gate(services.core, services.verify).enter(token)
    if principal is None:
        raise SignInRefused(
            f"{body.issuer} signed you in, but no entry of RELAXD_OIDC_ISSUERS takes your account",
            "ask the operator: an entry's claims and tenant have to fit your token, and its "
            "login_scopes bring the claims",
        )
    auditing.record(
        services.core,
        tenant=principal.tenant,
        principal=principal.name,
        action="sign-in",
        subject=body.issuer,
        outcome="done",
        detail={"method": principal.method.value},
    )
    return token


async def _in_thread(work: Callable[[], T]) -> T:
    return await run_in_thread(work, width=WIDTH)
